"""How much two starts of one engine differ. Rounds never average it away; restarts measure it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Final

from gates.throughput.records import DECODE, CellKey, Run

MIN_RESTARTS: Final = 5
_MIN_SD: Final = 0.005
"""Five starts that agree by chance do not make the sixth one agree."""
_MAX_SD: Final = 0.99
"""No margin can carry that; more says nothing more."""


@dataclass(frozen=True)
class Spread:
    """Between starts of the same engine: `sd` of the logarithm (0.01 is 1 %), from so many `restarts`; 0: assumed."""

    sd: float
    restarts: int = 0
    seen: int = 0
    """Of an assumed one: so many restarts are there, too few to measure it."""
    least: bool = False
    """The restarts lay closer together than is ever taken."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sd) and 0 <= self.sd < 1):
            raise ValueError(f"a spread between starts is a share from 0 to below 1 (0.01 is 1 %); got {self.sd}")
        if 0 < self.restarts < MIN_RESTARTS:
            raise ValueError(f"{self.restarts} restarts do not measure a spread; {MIN_RESTARTS} do, or assume one")

    @property
    def sentence(self) -> str:
        if not self.restarts:
            so_far = f", {self.seen} so far" if self.seen else ""
            return (
                f"spread between starts assumed {self.sd:.1%} (until {MIN_RESTARTS} restarts have measured it{so_far})"
            )
        if self.least:
            return (
                f"spread between starts {self.sd:.1%}, the least that is ever taken: "
                f"{self.restarts} restarts lay closer together"
            )
        # Relative standard error of a standard deviation: 1 / sqrt(2 (n - 1)).
        doubt = 1 / math.sqrt(2 * (self.restarts - 1))
        return f"spread between starts {self.sd:.1%}, measured over {self.restarts} restarts (itself ±{doubt:.0%})"


ASSUMED: Final = Spread(0.01)
"""What is taken until it was measured."""


def of_restarts(sd: float, restarts: int) -> Spread | None:
    """What so many restarts showed, `sd` of the logarithm; None where they are too few to show anything."""
    if restarts < MIN_RESTARTS:
        return None
    return Spread(min(_MAX_SD, max(_MIN_SD, sd)), restarts, least=sd < _MIN_SD)


def measured(runs: Sequence[Run], metric: str = DECODE) -> Spread:
    """From runs of the same release, each after a restart of its own: the deviation of their ladder means.

    A ladder mean is the mean logarithm of the cells' medians, over the cells that every run measured. What rounds add
    to it stays in: it makes the spread larger, never smaller. Raises `ValueError`, one sentence, when the runs cannot
    tell: too few, of unlike workloads, or without a cell in common.
    """
    if len(runs) < MIN_RESTARTS:
        raise ValueError(f"{len(runs)} runs do not measure the spread between starts; {MIN_RESTARTS} or more do")
    levels = [_levels(run, metric) for run in runs]
    common = set(levels[0]).intersection(*levels[1:])
    if not common:
        raise ValueError(f"the {len(runs)} runs have no cell with {metric} in common, so they cannot be compared")
    for name in sorted({key.workload for key in common}):
        if any(run.workloads.get(name) != runs[0].workloads.get(name) for run in runs):
            raise ValueError(f"workload {name!r} is not the same in all {len(runs)} runs, so they cannot be compared")
    # Sorted, because the order in which a set is added up would change the last digit from one process to the next.
    cells = sorted(common, key=str)
    means = [fmean(level[key] for key in cells) for level in levels]
    return Spread(max(_MIN_SD, stdev(means)), len(runs))


def _levels(run: Run, metric: str) -> dict[CellKey, float]:
    levels = {}
    for cell in run.cells:
        values = cell.rounds.get(metric, ())
        if cell.problem is None and values and min(values) > 0:
            levels[cell.key] = math.log(median(values))
    return levels
