"""The arms of a sweep against live, in order, with how sure one can be. Pure.

The figures are the throughput gate's own, as it left them in the arm's result: the ratio to live of each compared
metric between two bounds (the decision rule of research/throughput.md §6 as docs/throughput-statistics.md has it:
Hodges-Lehmann shift of the logarithms of the rounds, pooled noise, spread between starts). Nothing is estimated anew.

The best of many arms looks good by chance. So here the bounds are as much wider as it takes to hold for all arms
together (Bonferroni: O. J. Dunn, Journal of the American Statistical Association 56 (1961) 52): of eight arms that do
not differ from live one is then taken for better in 2 sweeps of a hundred, and in 10 without (docs/sweeps.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

from .frozen import replace
from .night_records import Arm, Sweep
from .nights import MEASURE
from .records import TERMINAL, GateResult, Phase, Rollout, State

_Z = 1.992
"""The rule's bound for one candidate, which is asked up to three times: S. J. Pocock, Biometrika 64 (1977) 191."""


class Standing(StrEnum):
    """What came of an arm, in the order in which arms are told."""

    BETTER = "better"
    NO_BETTER = "no better"
    WORSE = "worse"
    RUNS = "runs"
    WAITS = "waits"
    NOT_COMPARED = "not compared"  # it passed, and there is nothing of live to hold it against
    FAILED = "failed"  # by a gate, or it did not come up
    NOT_TRIED = "not tried"


_RANKED = frozenset({Standing.BETTER, Standing.NO_BETTER, Standing.WORSE})
_UNTRIED = frozenset({Phase.SKIPPED, Phase.ABORTED, Phase.REFUSED, Phase.SUPERSEDED})


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric: the arm's value divided by live's, between bounds that hold for all arms of the sweep together."""

    metric: str
    name: str
    ratio: float
    low: float
    high: float
    higher_is_better: bool

    @property
    def gain(self) -> float:
        """Of the logarithm; above 0 is better, also of a time."""
        return math.log(self.ratio) * (1 if self.higher_is_better else -1)

    @property
    def reach(self) -> float:
        """From the middle to a bound, of the logarithm."""
        return math.log(self.high / self.low) / 2

    def widened(self, factor: float) -> Figure:
        """With bounds that lie that much farther away."""
        low, high = (self.ratio * (bound / self.ratio) ** factor for bound in (self.low, self.high))
        return replace(self, low=low, high=high)

    @property
    def standing(self) -> Standing:
        if self.gain - self.reach > 0:
            return Standing.BETTER
        return Standing.WORSE if self.gain + self.reach < 0 else Standing.NO_BETTER

    @property
    def words(self) -> str:
        return f"{self.name} {_percent(self.ratio)} ({_percent(self.low)} to {_percent(self.high)})"


@dataclass(frozen=True, slots=True)
class Ranked:
    """One arm. `rank` from 1; None where it has none. `why`: what there is to say besides its figures."""

    arm: str
    release: str
    rollout: str
    standing: Standing
    rank: int | None
    figures: tuple[Figure, ...]
    why: str
    tied: bool = False  # one of several that are better than live and cannot be told from the best of them
    night: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """`arms`: the best first, those without a rank last. `pick` empty: no arm is better, so far where arms are left.

    `arms_together`: for so many the bounds hold. `against`: the release that figures are ratios to.
    """

    arms: tuple[Ranked, ...]
    pick: str
    why: str
    against: str
    arms_together: int

    @property
    def left(self) -> int:
        """Arms whose turn is still to come, or that run."""
        return sum(arm.standing in {Standing.WAITS, Standing.RUNS} for arm in self.arms)


def rank(state: State, sweep: Sweep) -> Ranking:
    """By the first metric that the gate profile compares; an arm that passed is worse in no other by its margin."""
    against = sweep.against or (state.live.release if state.live else "")
    looked = [_looked_at(arm, state, against) for arm in sweep.arms]
    together = sum(bool(figures) or standing in {Standing.WAITS, Standing.RUNS} for standing, figures, _ in looked)
    wider = _wider(together)
    arms = [
        _arm(arm, state, standing, tuple(each.widened(wider) for each in figures), why)
        for arm, (standing, figures, why) in zip(sweep.arms, looked, strict=True)
    ]
    ordered = sorted(arms, key=_order)  # stable: equals stay in the order of the matrix
    tied = _tied_with_best(arms)
    ranked = [
        replace(arm, rank=position if arm.standing in _RANKED else None, tied=len(tied) > 1 and arm.arm in tied)
        for position, arm in enumerate(ordered, 1)
    ]
    pick = tied[0] if tied else ""
    return Ranking(tuple(ranked), pick, _sentence(ranked, pick, tied, together), against, together)


def _order(arm: Ranked) -> tuple[int, float]:
    if arm.standing in _RANKED:
        return 0, -arm.figures[0].gain
    return list(Standing).index(arm.standing), 0.0


def _wider(arms: int) -> float:
    """By how much the bounds of one candidate grow when they are to hold for so many."""
    return _ALONE.inv_cdf(1 - (1 - _ALONE.cdf(_Z)) / max(1, arms)) / _Z


_ALONE = NormalDist()


def _tied_with_best(arms: Sequence[Ranked]) -> list[str]:
    """Arms that are better than live and cannot be told from the best of them, in the order of the matrix.

    Two arms are told apart as two independent measurements: what they share in live's would bring them closer, so
    that this calls too many tied rather than too few.
    """
    better = [arm for arm in arms if arm.standing is Standing.BETTER]
    if not better:
        return []
    best = max(better, key=lambda arm: arm.figures[0].gain).figures[0]
    return [
        arm.arm for arm in better if best.gain - arm.figures[0].gain <= math.hypot(best.reach, arm.figures[0].reach)
    ]


# --- one arm ----------------------------------------------------------------------------------------------------------

_Looked = tuple[Standing, Sequence[Figure], str]


def _looked_at(arm: Arm, state: State, against: str) -> _Looked:
    """What came of it, its figures as the gate left them where they compare, and what is to be said."""
    rollout = state.rollouts[arm.rollout]
    if rollout.phase is Phase.QUEUED:
        return Standing.WAITS, (), ""
    if rollout.phase not in TERMINAL:
        return Standing.RUNS, (), f"{rollout.id} is {rollout.phase.words}"
    if rollout.phase in _UNTRIED:
        return Standing.NOT_TRIED, (), f"{rollout.phase.words}: {rollout.why}"
    if rollout.phase is not Phase.MEASURED:
        return Standing.FAILED, (), f"{rollout.phase.words}: {rollout.why}"
    result = _measured(rollout)
    figures = _figures(result)
    if result is None or not figures:
        return Standing.NOT_COMPARED, (), "nothing of live was there to compare it with"
    other = str(_part(result, "baseline").get("release", ""))
    if other and against and other != against:
        return Standing.NOT_COMPARED, (), f"it was compared with {other}, and {against} is live now"
    return Standing.NO_BETTER, figures, _without_anchor(rollout, result, state)


def _measured(rollout: Rollout) -> GateResult | None:
    """The last run of the gate that compares."""
    return next((r for r in reversed(rollout.gates) if r.gate == MEASURE and r.measurements), None)


def _without_anchor(rollout: Rollout, result: GateResult, state: State) -> str:
    """Why what it was compared with is not live as measured in its own night; empty: it is."""
    runs = _part(result, "baseline").get("runs")
    what = "it is compared with what live showed before"
    night = state.nights.get(rollout.night)
    if rollout.night and (night is None or (night.baseline and night.baseline not in state.rollouts)):
        return f"whether it was anchored in {rollout.night} is not kept any more"
    if night is None:
        return f"not anchored: it ran outside of a window, and {what}"
    anchor = state.rollouts.get(night.baseline)
    shown = _measured(anchor) if anchor is not None else None
    if anchor is None or shown is None:
        why = f" ({anchor.why})" if anchor is not None else ""
        return f"not anchored: live was not measured in {night.id}{why}, and {what}"
    if not isinstance(runs, Sequence) or _part(shown, "ledger").get("run") not in runs:
        return f"not anchored: the figures of {anchor.id} from {night.id} were not those that it is compared with"
    return ""


def _part(result: GateResult, key: str) -> Mapping[str, Any]:
    """A mapping among its measurements: a program of a user's may leave anything there."""
    part = result.measurements.get(key)
    return part if isinstance(part, Mapping) else {}


def _figures(result: GateResult | None) -> tuple[Figure, ...]:
    """As the gate left them; none where one of them is no ratio between two bounds."""
    left = result.measurements.get("compared") if result is not None else None
    try:
        figures = tuple(_figure(each) for each in left or ())
    except (KeyError, TypeError, ValueError):
        return ()
    return figures if all(map(_is_sound, figures)) else ()


def _is_sound(figure: Figure) -> bool:
    """A ratio between two bounds, and no more than numbers can carry apart."""
    return 0 < figure.low <= figure.ratio <= figure.high and figure.high / figure.low < _APART


_APART = 1e40


def _figure(each: Mapping[str, Any]) -> Figure:
    ratio, low, high = (float(each[key]) for key in ("ratio", "low", "high"))
    return Figure(str(each["metric"]), str(each["name"]), ratio, low, high, bool(each["higher_is_better"]))


def _arm(arm: Arm, state: State, standing: Standing, figures: tuple[Figure, ...], why: str) -> Ranked:
    known = figures[0].standing if figures else standing
    night = state.rollouts[arm.rollout].night
    return Ranked(arm.name, arm.release, arm.rollout, known, None, figures, why, night=night)


# --- the sentence -----------------------------------------------------------------------------------------------------


def _sentence(arms: Sequence[Ranked], pick: str, tied: Sequence[str], together: int) -> str:
    best = next((arm for arm in arms if arm.rank == 1), None)
    picked = next((arm for arm in arms if arm.arm == pick), None)
    if picked is not None:
        said = f"{pick} is better than live: {picked.figures[0].words}"
        others = [name for name in tied if name != pick]
        if others:
            told = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            said += f"; it cannot be told from {told}, and comes first in the matrix"
    elif best is not None:
        said = f"no arm is better than live: the first is {best.arm}, {best.figures[0].words}"
    else:
        said = "no arm is better than live: none could be compared with it"
    return f"{said}; {_counts(arms, together)}"


def _counts(arms: Sequence[Ranked], together: int) -> str:
    found = [(sum(arm.standing is kind for arm in arms), kind) for kind in Standing if kind not in _RANKED]
    more = "".join(f", {count} {kind.value}" for count, kind in found if count)
    ranked = sum(arm.rank is not None for arm in arms)
    bounds = f" (bounds for {together} arms together)" if together > 1 else ""
    return f"{ranked} of {len(arms)} arms compared{bounds}{more}"


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
