"""Cliffs: a rung at which the engine falls out of its own trend. No baseline is needed.

HARD: all streams together get less than they did one rung below. SOFT: a step takes much longer than the rungs below
foretell. FULL is no cliff: steps grow less than foretold and requests wait for a place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import Any, Final

from gates.throughput.decide.estimate import RoundNoise, reach, round_noise, shift
from gates.throughput.explain.causes import known_cause
from gates.throughput.explain.step_time import least_squares
from gates.throughput.records import AGGREGATE, GAP, TTFT, Cell, Run

_HARD: Final = 0.95
_HARD_Z: Final = 3.7
"""A ladder has a dozen rungs and people run many: 1 in 10,000 per rung."""
_ASSUMED_NOISE: Final = RoundNoise(0.03, 1000.0)
"""Where each rung has one round, nobody knows the noise."""
_SOFT: Final = 1.35
_FLAT: Final = 1.15
_SHORT: Final = 0.95
_GAINED: Final = 0.75
"""Steps stay flat on a good engine too, but then the total grows with the streams."""
_FULL: Final = 1.5
"""Waiting for prefill grows with the number of streams; waiting for a place grows by a whole request at once."""


class Kind(StrEnum):
    HARD = "HARD"
    SOFT = "SOFT"
    FULL = "FULL"


_UNKNOWN: Final = {
    Kind.HARD: "no cause shows in the settings; look at capture sizes and preemptions",
    Kind.SOFT: "no cause shows in the settings; look at capture sizes and kernels",
    Kind.FULL: "KV memory may be full; look at preemptions and waiting requests",
}


@dataclass(frozen=True)
class Cliff:
    """Between `below` and `above` streams of one workload. `factor`: HARD, the aggregate rate against the rung below;
    SOFT, the step time against the trend; FULL, the time to first token against the rung below. `cause`: as far as the
    engine's settings show it.
    """

    kind: Kind
    workload: str
    below: int
    above: int
    factor: float
    cause: str | None
    sentence: str


@dataclass(frozen=True)
class Ladder:
    """What was found on the rungs of one workload, `rungs` of them; `skipped`: those that are no measurement, and why.

    `cliffs` holds HARD and SOFT; `full` is where requests began to wait for a place.
    """

    workload: str
    rungs: tuple[int, ...]
    skipped: tuple[str, ...]
    cliffs: tuple[Cliff, ...]
    full: Cliff | None
    sentence: str


@dataclass(frozen=True)
class _Rung:
    concurrency: int
    step_s: float
    wait_s: float | None
    rates: tuple[float, ...]
    """Logarithms of the aggregate rate, one per round; from the step times when a rung lacks it."""


def find(run: Run, workload: str) -> Ladder:
    """The cliffs on the ladder of `workload`, from the second rung up; a ladder of fewer than two has none."""
    cells = sorted((c for c in run.cells if c.key.workload == workload), key=lambda cell: cell.key.concurrency)
    usable = [cell for cell in cells if _unusable(cell) is None]
    # Rates as measured and rates from step times are not the same thing: one kind for the whole ladder.
    measured = all(_rates(cell) for cell in usable)
    rungs = [_rung(cell, measured) for cell in usable]
    skipped = tuple(f"{cell.key} {why}" for cell in cells if (why := _unusable(cell)) is not None)
    noise = _noise(rungs)
    found: list[Cliff] = []
    full: Cliff | None = None
    start = 0
    for position in range(1, len(rungs)):
        below, above = rungs[position - 1], rungs[position]
        foretold_s = _foretold_s(rungs, start, position)
        factor = _hard(below, above, noise)
        if factor is not None:
            found.append(_cliff(Kind.HARD, workload, below, above, factor, run.engine))
            start = position
        elif full is None and (factor := _full(below, above, foretold_s, run.engine)) is not None:
            full = _cliff(Kind.FULL, workload, below, above, factor, run.engine)
        elif (factor := above.step_s / foretold_s) > _SOFT:
            found.append(_cliff(Kind.SOFT, workload, below, above, factor, run.engine))
            start = position
    sentence = _sentence(workload, rungs, found, full, skipped)
    return Ladder(workload, tuple(r.concurrency for r in rungs), skipped, tuple(found), full, sentence)


def find_all(run: Run) -> tuple[Ladder, ...]:
    """One per workload, in the order in which the cells name them."""
    return tuple(find(run, name) for name in dict.fromkeys(cell.key.workload for cell in run.cells))


def _unusable(cell: Cell) -> str | None:
    if cell.problem is not None:
        return f"is no measurement ({cell.problem})"
    steps = cell.rounds.get(GAP, ())
    return None if steps and min(steps) > 0 else "has no step time"


def _rates(cell: Cell) -> list[float]:
    return [rate for rate in cell.rounds.get(AGGREGATE, ()) if rate > 0]


def _rung(cell: Cell, measured: bool) -> _Rung:
    streams, steps, waits = cell.key.concurrency, cell.rounds[GAP], cell.rounds.get(TTFT, ())
    rates = _rates(cell) if measured else [streams / step_s for step_s in steps]
    return _Rung(streams, median(steps), median(waits) if waits else None, tuple(map(math.log, rates)))


def _noise(rungs: Sequence[_Rung]) -> RoundNoise:
    repeated = any(len(rung.rates) > 1 for rung in rungs)
    return round_noise(rung.rates for rung in rungs) if repeated else _ASSUMED_NOISE


def _hard(below: _Rung, above: _Rung, noise: RoundNoise) -> float | None:
    """The ratio of the aggregate rates when it fell, by more than 5 % and by more than rounds differ."""
    fallen = shift(above.rates, below.rates)
    width = reach(_HARD_Z, noise.variance(len(above.rates), len(below.rates)), noise.freedom, 0.0, 0.0)
    return math.exp(fallen) if fallen < math.log(_HARD) and fallen + width < 0 else None


def _full(below: _Rung, above: _Rung, foretold_s: float, engine: Mapping[str, Any]) -> float | None:
    """The ratio of the waits when steps did not grow as foretold, nor the total in step, and first tokens came late.

    Where the engine says that it has places for all of them, steps that grew hold more sequences: then whatever made
    first tokens late, a slow machine too, is no lack of places.
    """
    if below.wait_s is None or above.wait_s is None or below.wait_s <= 0:
        return None
    more = above.concurrency / below.concurrency
    gained = math.exp(shift(above.rates, below.rates))
    waited = above.wait_s / below.wait_s
    limit = engine.get("limit")
    room = isinstance(limit, int) and above.concurrency <= limit
    flat = _stayed(below, above) or (not room and above.step_s <= _SHORT * foretold_s)
    return waited if flat and gained < 1 + _GAINED * (more - 1) and waited > _FULL * more else None


def _stayed(below: _Rung, above: _Rung) -> bool:
    return above.step_s <= _FLAT * below.step_s


def _foretold_s(rungs: Sequence[_Rung], start: int, position: int) -> float:
    """The step time that the rungs since the last cliff foretell, carried on from the rung below.

    The larger of a power law and a straight line. The line matters: a step of 16 ms + 1 ms × sequences bends upwards in
    a power law until, at 64, a perfectly regular engine looks 35 % too slow.
    """
    earlier, below, above = rungs[start:position], rungs[position - 1], rungs[position]
    more = above.concurrency / below.concurrency
    if len(earlier) < 2:
        # One rung has no trend. On a line the slope in logarithms only grows, so that of the next pair is enough;
        # without a next pair at most proportional growth can be excluded.
        after = rungs[position : position + 2]
        return below.step_s * math.pow(more, _power(after) if len(after) == 2 else 1.0)
    line = least_squares([(float(rung.concurrency), rung.step_s) for rung in earlier])
    base_s, slope = max(0.0, line.intercept), max(0.0, line.slope)
    straight = (base_s + slope * above.concurrency) / (base_s + slope * below.concurrency)
    return below.step_s * max(math.pow(more, _power(earlier)), straight)


def _power(rungs: Sequence[_Rung]) -> float:
    """The slope of log step time over log concurrency, between 0 (flat) and 1 (no gain from batching)."""
    points = [(math.log(rung.concurrency), math.log(rung.step_s)) for rung in rungs]
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return min(1.0, max(0.0, slope))


def _cliff(kind: Kind, workload: str, below: _Rung, above: _Rung, factor: float, engine: Mapping[str, Any]) -> Cliff:
    low, high = below.concurrency, above.concurrency
    cause = known_cause(engine, low, high)
    # The rungs of a ladder double: what lies between two of them was not asked.
    between = f"; rungs between c{low} and c{high} would place it" if high - low > 1 else ""
    match kind:
        case Kind.HARD:
            what = f"all streams together get ×{factor:.2f} of what c{low} got"
        case Kind.SOFT:
            what = f"a step takes ×{factor:.2f} of what the rungs below foretell"
        case Kind.FULL:
            steps = "stay as long" if _stayed(below, above) else "grow less than foretold"
            what = f"no cliff: steps {steps} and first tokens wait ×{factor:.1f} as long, the places are taken"
            between = ""
    sentence = f"{kind} {workload} c{low} → c{high}: {what}; {cause or _UNKNOWN[kind]}{between}"
    return Cliff(kind, workload, low, high, factor, cause, sentence)


def _sentence(
    workload: str, rungs: Sequence[_Rung], found: Sequence[Cliff], full: Cliff | None, skipped: Sequence[str]
) -> str:
    parts = [each.sentence for each in found]
    if len(rungs) < 2:
        parts = [f"{workload}: {len(rungs)} rung{'s' * (len(rungs) != 1)} measured; a cliff needs two"]
    elif not found:
        ends = f"from c{rungs[0].concurrency} to c{rungs[-1].concurrency}"
        parts = [f"{workload}: no cliff on {len(rungs)} rungs {ends}"]
    if full is not None:
        parts.append(full.sentence)
    return "; ".join([*parts, *(f"not looked at: {each}" for each in skipped)])
