"""At how many streams do the curves of two releases cross?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gates.throughput.decide.estimate import reach, round_noise, shift
from gates.throughput.decide.margin import ONE_SIDED_95, start_variance
from gates.throughput.decide.pairs import Pair, pairing
from gates.throughput.decide.rule import SPOKEN
from gates.throughput.decide.spread import ASSUMED, Spread
from gates.throughput.records import AGGREGATE, Run

_MIN_RUNGS: Final = 2


@dataclass(frozen=True)
class Crossover:
    """`at`: the concurrency at which both are equally good, within `low` … `high` (95 % each way); all None: `sentence`
    says who is better throughout, or that nobody can say. `below` is better on the left, `above` on the right of it.
    """

    metric: str
    workload: str
    sentence: str
    at: float | None = None
    low: float | None = None
    high: float | None = None
    below: str | None = None
    above: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Point:
    """At log concurrency `x` the first is better by `shift` (logarithm), give or take `width`."""

    concurrency: int
    shift: float
    width: float

    @property
    def x(self) -> float:
        return math.log(self.concurrency)

    @property
    def sign(self) -> int:
        """1: the first is better, -1: the second, 0: within the uncertainty."""
        return (self.shift > self.width) - (self.shift < -self.width)


def crossover(
    first: Run,
    second: Run,
    workload: str,
    *,
    metric: str = AGGREGATE,
    names: tuple[str, str] = ("A", "B"),
    spread: Spread = ASSUMED,
) -> Crossover:
    """Where the better one changes on the ladder of `workload`, from the rungs that both measured.

    Only rungs at which one is better beyond the uncertainty (rounds and `spread` between starts) place the crossing;
    between two such rungs of unlike sign the difference is interpolated in the logarithm of the concurrency, and so are
    its bounds.
    """
    paired = pairing(first, second, metric)
    pairs = sorted((p for p in paired.pairs if p.key.workload == workload), key=lambda pair: pair.key.concurrency)
    mine = f"{workload} c"
    notes = tuple(note for note in (*paired.blocking, *paired.notes) if note.startswith(mine))
    points = _points(pairs, spread)
    spoken = f"{workload}, {SPOKEN[metric]}"
    if len(points) < _MIN_RUNGS:
        sentence = f"{spoken}: {len(points)} rungs compare; a crossing needs {_MIN_RUNGS}"
        return Crossover(metric, workload, sentence, notes=notes)
    clear = [point for point in points if point.sign]
    changes = [(a, b) for a, b in pairwise(clear) if a.sign != b.sign]
    if not changes:
        return Crossover(metric, workload, f"{spoken}: {_no_crossing(points, clear, names)}", notes=notes)
    left, right = changes[0]
    between = [point for point in points if left.concurrency <= point.concurrency <= right.concurrency]
    at = _zero(between, 0)
    low, high = sorted((_zero(between, -1), _zero(between, 1)))
    winners = names if left.sign > 0 else (names[1], names[0])
    sentence = (
        f"{spoken}: the curves cross near c{at:.0f} (between c{low:.0f} and c{high:.0f}); {winners[0]} is better "
        f"below, {winners[1]} above"
    )
    if len(changes) > 1:
        sentence += f"; they cross {len(changes)} times, this is the first"
    return Crossover(metric, workload, sentence, at, low, high, *winners, notes)


def _points(pairs: Sequence[Pair], spread: Spread) -> list[_Point]:
    noise = round_noise(side for pair in pairs for side in (pair.candidate, pair.baseline))
    starts = start_variance(spread)
    return [
        _Point(
            pair.key.concurrency,
            shift(pair.candidate, pair.baseline),
            reach(ONE_SIDED_95, noise.variance(*pair.counts), noise.freedom, starts, ONE_SIDED_95),
        )
        for pair in pairs
    ]


def _zero(points: Sequence[_Point], bound: int) -> float:
    """The concurrency at which shift + bound × width is 0, interpolated in log concurrency between its neighbours.

    The ends have unlike signs beyond their width, so there is such a place; of several the middle one is taken.
    """
    heights = [(point.x, point.shift + bound * point.width) for point in points]
    zeros = [
        x + (next_x - x) * height / (height - next_height)
        for (x, height), (next_x, next_height) in pairwise(heights)
        if (height > 0) != (next_height > 0)
    ]
    return math.exp(zeros[len(zeros) // 2])


def _no_crossing(points: Sequence[_Point], clear: Sequence[_Point], names: tuple[str, str]) -> str:
    reach_of = f"from c{points[0].concurrency} to c{points[-1].concurrency}"
    if not clear:
        return f"none: {names[0]} and {names[1]} do not differ beyond the uncertainty {reach_of}"
    better = names[0] if clear[0].sign > 0 else names[1]
    if len(clear) == len(points):
        return f"none: {better} is better throughout, {reach_of}"
    unclear = ", ".join(f"c{point.concurrency}" for point in points if not point.sign)
    return f"none is shown: {better} is better or equal {reach_of}; within the uncertainty at {unclear}"
