"""One metric on the whole ladder, at one look: pass, fail, or cannot say yet; see docs/throughput-statistics.md.

Per cell the Hodges-Lehmann shift of the logarithms; over the cells their mean. The noise of rounds is pooled over all
cells and sides, the spread between starts comes from outside, because no number of rounds can see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean
from typing import Final

from gates.contract import VerdictKind
from gates.throughput.decide.estimate import RoundNoise, reach, round_noise, shift
from gates.throughput.decide.margin import rounds_needed
from gates.throughput.decide.pairs import Pair, Pairing
from gates.throughput.decide.rule import LOOKS, SPOKEN, Rule
from gates.throughput.records import HIGHER_IS_BETTER, CellKey

_Z: Final = 1.992
"""Pocock's bound for three looks, one-sided 5 % together. Source: S. J. Pocock, Biometrika 64 (1977) 191."""
_START_Z: Final = 1.85
"""The luck of a start is the same at every look, so it needs little correction for looking three times. With Pocock's
bound for it too, an unchanged engine passed three metrics at once in 91 %; with this one in 94 %."""
_CELL_ALPHA: Final = 0.05
_CELL_ROUNDS: Final = 5
"""No single cell fails on fewer rounds a side: one bad round of three is a third of the evidence."""
_SUSPECT_SHARE: Final = 0.8
"""A cell that lost this share of what would fail it blocks a pass. With the full share, one cell that is 15 % slower
passed in 3 % of simulated runs; with this one in 0.5 %, for 0.1 more rounds when nothing has changed."""
_MOVE_SD: Final = 3.0
"""Further rounds will not move an estimate by more than three standard deviations of what they add."""


@dataclass(frozen=True)
class CellShift:
    """One cell: candidate against baseline as a ratio of the metric itself, between two bounds (corrected for the
    number of cells), on so many rounds. `suspect`: it may have fallen out of line; `failed`: it has.
    """

    key: CellKey
    ratio: float
    low: float
    high: float
    candidate_rounds: int
    baseline_rounds: int
    suspect: bool = False
    failed: bool = False


@dataclass(frozen=True)
class FamilyDecision:
    """One metric on the whole ladder. Ratios are of the metric itself: 0.95 is slower for a rate, faster for a time.

    `round_sd`: 0.03 is 3 %. `rounds`: the fewest that a cell of the candidate has. `next_look`: rounds a side at which
    asking again could change the verdict; None: more rounds cannot. `rounds_needed`: how many a side would let this
    shift pass; None: no number of them, or the verdict is not `inconclusive`. `short_baseline`: the baseline has
    too few rounds, and whatever the candidate shows changes nothing.
    """

    metric: str
    verdict: VerdictKind
    sentence: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    round_sd: float = math.nan
    rounds: int = 0
    cells: tuple[CellShift, ...] = ()
    rounds_needed: int | None = None
    next_look: int | None = None
    short_baseline: bool = False


def judge(metric: str, paired: Pairing, rule: Rule) -> FamilyDecision:
    """All cells of one metric at once; `paired.blocking` cells keep it from passing."""
    name = SPOKEN[metric]
    if not paired.pairs:
        why = paired.blocking or paired.notes or ("neither side has cells",)
        return FamilyDecision(metric, VerdictKind.INCONCLUSIVE, f"{name}: no cell compares ({'; '.join(why)})")
    shortest = min(paired.pairs, key=lambda pair: min(pair.counts))
    rounds = min(len(pair.candidate) for pair in paired.pairs)
    if min(shortest.counts) < LOOKS[0]:
        mine, theirs = shortest.counts
        has = f"{shortest.key} has {mine} round{'s' * (mine != 1)} against {theirs}"
        sentence = f"{name}: {has}; {LOOKS[0]} on each side are needed"
        short = any(len(pair.baseline) < LOOKS[0] for pair in paired.pairs)
        sentence += "; only a baseline of more rounds helps" if short else ""
        look = None if short else LOOKS[0]
        return FamilyDecision(
            metric, VerdictKind.INCONCLUSIVE, sentence, rounds=rounds, next_look=look, short_baseline=short
        )
    return _Look(metric, paired, rule).decision(rounds)


class _Look:
    """The data of one look and the limits that they are held against. Logarithms; negative is slower."""

    def __init__(self, metric: str, paired: Pairing, rule: Rule) -> None:
        self.metric = metric
        self.pairs: Sequence[Pair] = paired.pairs
        self.blocking = paired.blocking
        self.margin = rule.margin_of(metric)
        self.delta, self.cell_delta = rule.delta(metric), rule.cell_delta(metric)
        self.starts = rule.start_variance(metric)
        self.noise: RoundNoise = round_noise(side for pair in self.pairs for side in (pair.candidate, pair.baseline))
        # Every cell of every family may raise a false alarm at every look.
        self.cell_z = NormalDist().inv_cdf(1 - _CELL_ALPHA / (len(LOOKS) * len(rule.metrics) * len(self.pairs)))
        self.shifts = [shift(pair.candidate, pair.baseline) for pair in self.pairs]
        self.mean = fmean(self.shifts)
        self.width = self._ladder_reach(self._variance())

    def decision(self, rounds: int) -> FamilyDecision:
        cells = [self._cell(pair, value) for pair, value in zip(self.pairs, self.shifts, strict=True)]
        verdict = self._verdict(cells)
        low, ratio, high = self._ratios(self.mean, self.width)
        decided = FamilyDecision(self.metric, verdict, "", ratio, low, high, self.noise.sd, rounds, tuple(cells))
        if verdict is VerdictKind.INCONCLUSIVE:
            unit = self.noise.variance(1, 1)
            needed = rounds_needed(self.mean, self.margin, len(cells), unit, self.starts)
            decided = replace(decided, rounds_needed=needed, next_look=self._next_look(rounds))
        return replace(decided, sentence=self._sentence(decided))

    def _verdict(self, cells: Sequence[CellShift]) -> VerdictKind:
        slower = self.mean < -self.delta and self.mean + self.width < 0
        if slower or any(cell.failed for cell in cells):
            return VerdictKind.FAIL
        if self._kept() and not self.blocking and not any(cell.suspect for cell in cells):
            return VerdictKind.PASS
        return VerdictKind.INCONCLUSIVE

    def _kept(self) -> bool:
        """Is a loss of the margin excluded on the ladder as a whole?"""
        return self.mean - self.width > -self.delta

    def _cell(self, pair: Pair, value: float) -> CellShift:
        width = self._cell_reach(self._noise_of(pair).variance(*pair.counts))
        low, ratio, high = self._ratios(value, width)
        out_of_line = value < -self.cell_delta and value + width < 0
        failed = out_of_line and min(pair.counts) >= _CELL_ROUNDS
        suspect = not failed and value < -_SUSPECT_SHARE * self.cell_delta
        return CellShift(pair.key, ratio, low, high, *pair.counts, suspect, failed)

    def _noise_of(self, pair: Pair) -> RoundNoise:
        """Of one cell: at least what is pooled, more where its own rounds scatter more.

        Cells are not equally noisy. With the pooled noise alone, three of 18 cells with 10 % instead of 2 % failed an
        unchanged engine in 14 % of simulated runs.
        """
        own = round_noise((pair.candidate, pair.baseline))
        return replace(self.noise, sd=max(self.noise.sd, own.sd))

    def _variance(self, rounds: int = 0) -> float:
        """Of the mean shift, as far as rounds make it, once each side of each cell has `rounds` or more."""
        counts = [(max(mine, rounds), max(theirs, rounds)) for mine, theirs in (pair.counts for pair in self.pairs)]
        return sum(self.noise.variance(*each) for each in counts) / len(counts) ** 2

    def _ladder_reach(self, round_variance: float) -> float:
        return reach(_Z, round_variance, self.noise.freedom, self.starts, _START_Z)

    def _cell_reach(self, round_variance: float) -> float:
        return reach(self.cell_z, round_variance, self.noise.freedom, self.starts, self.cell_z)

    def _next_look(self, rounds: int) -> int | None:
        """The next look, unless nothing that the remaining rounds can plausibly bring would change the verdict."""
        later = next((look for look in LOOKS if look > rounds), None)
        now, at_end = self._variance(), self._variance(LOOKS[-1])
        move, width = _MOVE_SD * math.sqrt(max(0.0, now - at_end)), self._ladder_reach(at_end)
        can_pass = not self.blocking and self.mean + move - width > -self.delta
        can_fail = self.mean - move < -self.delta and self.mean - move + width < 0
        undecided = can_pass or can_fail or any(map(self._can_fail, self.pairs, self.shifts))
        return later if undecided else None

    def _can_fail(self, pair: Pair, value: float) -> bool:
        mine, theirs = pair.counts
        noise = self._noise_of(pair)
        now, at_end = noise.variance(mine, theirs), noise.variance(max(mine, LOOKS[-1]), max(theirs, LOOKS[-1]))
        lowest = value - _MOVE_SD * math.sqrt(max(0.0, now - at_end))
        return lowest < -self.cell_delta and lowest + self._cell_reach(at_end) < 0

    def _ratios(self, middle: float, width: float) -> tuple[float, float, float]:
        """Low, middle and high in the metric's own terms: a time that grew is above 1."""
        sign = 1 if HIGHER_IS_BETTER[self.metric] else -1
        low, ratio, high = sorted(math.exp(sign * each) for each in (middle - width, middle, middle + width))
        return low, ratio, high

    def _sentence(self, decided: FamilyDecision) -> str:
        cells = f"{len(decided.cells)} cell{'s' * (len(decided.cells) != 1)}"
        seen = (
            f"{SPOKEN[self.metric]} {_percent(decided.ratio)} on {cells} of {decided.rounds} rounds "
            f"(between {_percent(decided.low)} and {_percent(decided.high)})"
        )
        allowed = _percent(self._ratios(-self.delta, 0)[1])
        match decided.verdict:
            case VerdictKind.PASS:
                return f"{seen}: a loss beyond the allowed {allowed} is excluded"
            case VerdictKind.FAIL:
                return f"{seen}: {self._failed(decided, allowed)}"
        return f"{seen}: {self._undecided(decided, allowed)}"

    def _failed(self, decided: FamilyDecision, allowed: str) -> str:
        failed = [cell for cell in decided.cells if cell.failed]
        if not failed:
            return f"slower, and by more than the allowed {allowed}"
        single = _percent(self._ratios(-self.cell_delta, 0)[1])
        return f"{_listed(failed)}, where a single cell may lose {single}"

    def _undecided(self, decided: FamilyDecision, allowed: str) -> str:
        reasons = []
        if not self._kept():
            reasons.append(f"the allowed {allowed} lies within the uncertainty")
        suspect = [cell for cell in decided.cells if cell.suspect]
        if suspect:
            reasons.append(f"{_listed(suspect)} may have fallen out of line")
        if self.blocking:
            reasons.append("; ".join(self.blocking))
        return f"{'; '.join(reasons)}; {self._outlook(decided)}"

    def _outlook(self, decided: FamilyDecision) -> str:
        """What would help."""
        if decided.next_look is not None:
            return f"asked again at {decided.next_look} rounds a side"
        if self.blocking:
            return "more rounds do not help while these cells do not compare"
        short = [cell for cell in decided.cells if cell.suspect and cell.baseline_rounds < _CELL_ROUNDS]
        if short:
            return f"to say more, the baseline needs {_CELL_ROUNDS} rounds of it and has {short[0].baseline_rounds}"
        if self._kept():
            return "it is neither out of line nor in it after the last look"
        if decided.rounds_needed is None:
            return (
                "never: what is left of the margin is below 4.65 times the spread between starts, so only a larger "
                "margin or more starts of each side can tell"
            )
        return f"{decided.rounds_needed} rounds a side would be needed"


def _listed(cells: Sequence[CellShift]) -> str:
    worst = sorted(cells, key=lambda cell: abs(math.log(cell.ratio)), reverse=True)
    more = f" and {len(worst) - 3} more" if len(worst) > 3 else ""
    return ", ".join(f"{cell.key} {_percent(cell.ratio)}" for cell in worst[:3]) + more


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
