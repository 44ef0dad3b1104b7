"""What is demanded of a candidate against its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gates.throughput.decide import margin as margins_of
from gates.throughput.decide.spread import ASSUMED, Spread
from gates.throughput.records import AGGREGATE, DECODE, GAP, HIGHER_IS_BETTER, TTFT

LOOKS: Final = (3, 5, 9)
"""Rounds a side after which the question is asked."""
_CELL_MARGIN: Final = 0.10
SPOKEN: Final[Mapping[str, str]] = {
    DECODE: "decode rate per user",
    AGGREGATE: "aggregate rate",
    TTFT: "time to first token",
    GAP: "time per step",
}


@dataclass(frozen=True)
class Rule:
    """`margin`: how much slower the whole ladder may be (0.05 is 5 %); `margins`: where one metric has its own.

    `cell_margin`: how much slower any single cell may be (None: 10 %, or the margin where that is more). `metrics`:
    which families are judged; time per step is not among them by default, because with speculation the longer step may
    be the faster one.
    `spreads`: metric → spread between starts, assumed where it is missing. `…_starts`: over how many starts of the
    engine each side was measured. Raises `ValueError` for parameters that make no rule.
    """

    margin: float = 0.05
    cell_margin: float | None = None
    metrics: Sequence[str] = (DECODE, AGGREGATE, TTFT)
    margins: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    candidate_starts: int = 1
    baseline_starts: int = 1

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.metrics, *self.margins, *self.spreads) if name not in HIGHER_IS_BETTER]
        if unknown or not self.metrics:
            known = ", ".join(HIGHER_IS_BETTER)
            raise ValueError(f"a rule judges one or more of {known}; got {', '.join(unknown) or 'none'}")
        for metric in self.metrics:
            whole, single = self.delta(metric), self.cell_delta(metric)
            if single < whole:
                raise ValueError(
                    f"cell_margin {self.cell_margin} is less than the {self.margin_of(metric)} that the whole ladder "
                    f"may lose in {metric}; make it as large or larger"
                )
            self.start_variance(metric)

    def margin_of(self, metric: str) -> float:
        return self.margins.get(metric, self.margin)

    def delta(self, metric: str) -> float:
        """How far the mean logarithm may fall."""
        return margins_of.log_margin(self.margin_of(metric))

    def cell_delta(self, metric: str) -> float:
        """How far the logarithm of one cell may fall."""
        single = self.cell_margin if self.cell_margin is not None else max(_CELL_MARGIN, self.margin_of(metric))
        return margins_of.log_margin(single)

    def spread(self, metric: str) -> Spread:
        return self.spreads.get(metric, ASSUMED)

    def start_variance(self, metric: str) -> float:
        """Of the difference of logarithms that two starts make."""
        return margins_of.start_variance(self.spread(metric), self.candidate_starts, self.baseline_starts)

    def refusal(self) -> str | None:
        """Why no measurement could satisfy this rule, or None. To be asked before anything is measured."""
        starts = self.candidate_starts, self.baseline_starts
        for metric in self.metrics:
            refused = margins_of.refusal(self.margin_of(metric), self.spread(metric), *starts)
            if refused is not None:
                return f"{SPOKEN[metric]}: {refused}"
        return None
