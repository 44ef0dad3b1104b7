"""How much a number changed, and how sure one can be.

The estimates are those of the gate that decides (`throughput/decide/estimate.py`): the Hodges-Lehmann shift of the
logarithms of the rounds, the noise of rounds pooled over the ladder, and the spread between starts of the engine, which
no number of rounds averages away. Bounds are two-sided, 95 %, for one cell looked at alone.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gates.ledger.curves import one_run
from gates.ledger.rows import TTFT_COLD, TTFT_WARM, Row
from gates.ledger.table import workload_key
from gates.ledger.words import time_to_first_token
from gates.throughput.decide.estimate import RoundNoise, reach, round_noise, shift
from gates.throughput.decide.spread import ASSUMED, Spread, of_restarts
from gates.throughput.explain.crossover import Crossover, crossover
from gates.throughput.records import AGGREGATE, HIGHER_IS_BETTER, TTFT, CellKey, Figure

if TYPE_CHECKING:
    from gates.ledger.store import Ledger

_Z: Final = 1.959964
"""Of the two-sided 95 % bound."""


@dataclass(frozen=True)
class Bounded:
    """A relative change: 0.05 is 5 % more. `low` and `high` None: a side has no rounds, nobody can say how sure."""

    share: float
    low: float | None
    high: float | None

    def says(self, metric: str) -> str:
        """`better`, `worse`, or that nobody can tell."""
        if self.low is None or self.high is None:
            return "no rounds: cannot tell how sure"
        if self.low <= 0 <= self.high:
            return "cannot tell them apart"
        return "better" if (self.share > 0) == HIGHER_IS_BETTER[metric] else "worse"


@dataclass(frozen=True)
class Change:
    """One metric of one cell, from a to b. The figures are medians; `n` counts rounds, or what a reference says."""

    key: CellKey
    definition: Mapping[str, Any]
    """All that a side says of the workload: one name may be several."""
    metric: str
    a: Figure
    b: Figure
    change: Bounded


@dataclass(frozen=True)
class Ladder:
    """One metric over all cells: the mean of their changes."""

    metric: str
    cells: int
    change: Bounded


@dataclass(frozen=True)
class Changes:
    """`spread`: what was taken for the spread between starts, in words; empty where nothing has rounds."""

    changes: tuple[Change, ...]
    ladders: tuple[Ladder, ...]
    spread: str
    crossings: tuple[Crossover, ...] = ()
    """Of the curves of all streams together, for every workload that has at least two rungs on both sides."""


@dataclass(frozen=True)
class _Measured:
    """Two sides of a cell: the logarithms of their rounds, and by how much the shift varies for the rounds alone."""

    key: CellKey
    a: Row
    b: Row
    a_logs: tuple[float, ...]
    b_logs: tuple[float, ...]
    rounds: bool


def changes(ledger: Ledger, pairs: Sequence[tuple[Row, Row]], names: Mapping[str, str]) -> Changes:
    """Every metric that both rows of a pair have. `pairs`: rows of a and of b, of like cells; `names`: what a workload
    is called, by `workload_key`.
    """
    found: list[Change] = []
    ladders: list[Ladder] = []
    spreads: dict[str, list[str]] = {}
    for metric in HIGHER_IS_BETTER:
        cells = [cell for a, b in pairs if (cell := _measured(a, b, metric)) is not None]
        if not cells:
            continue
        noise = round_noise([side for cell in cells if cell.rounds for side in (cell.a_logs, cell.b_logs)])
        both = [_spread(ledger, row, metric) for row in (cells[0].a, cells[0].b)]
        starts = sum(spread.sd**2 for spread in both)
        if any(cell.rounds for cell in cells):
            for spread in both:
                spreads.setdefault(spread.sentence, []).append(metric)
        found += [
            Change(
                cell.key,
                {**cell.b.definition, **cell.a.definition},
                metric,
                _figure(cell.a, metric),
                _figure(cell.b, metric),
                _bounded([cell], noise, starts),
            )
            for cell in cells
        ]
        if len(cells) > 1:
            ladders.append(Ladder(metric, len(cells), _bounded(cells, noise, starts)))
    words = [_with_metrics(sentence, metrics) for sentence, metrics in spreads.items()]
    return Changes(tuple(found), tuple(ladders), "; ".join(words), tuple(_crossings(ledger, pairs, names)))


def _crossings(ledger: Ledger, pairs: Sequence[tuple[Row, Row]], called: Mapping[str, str]) -> Iterator[Crossover]:
    measured = [(a, b) for a, b in pairs if a.cell.rounds.get(AGGREGATE) and b.cell.rounds.get(AGGREGATE)]
    if not measured:
        return
    # The wider of the two is taken for both.
    spread = max((_spread(ledger, row, AGGREGATE) for row in measured[0]), key=lambda spread: spread.sd)
    # The curves of two workloads of one name are two curves.
    words = [called[workload_key(b)] for _, b in measured]
    first, second = (one_run([pair[side] for pair in measured], words) for side in (0, 1))
    one, other = (row.configuration.name for row in measured[0])
    names = (one, other) if one != other else ("A", "B")
    for workload, count in Counter(words).items():
        if count > 1:
            yield crossover(first, second, workload, names=names, spread=spread)


def _bounded(cells: Sequence[_Measured], noise: RoundNoise, start_variance: float) -> Bounded:
    """The mean change of `cells`; their rounds are independent, the starts are the same for all."""
    mean = statistics.fmean(shift(cell.b_logs, cell.a_logs) for cell in cells)
    if not all(cell.rounds for cell in cells):
        return Bounded(math.expm1(mean), None, None)
    variance = sum(noise.variance(len(cell.b_logs), len(cell.a_logs)) for cell in cells) / len(cells) ** 2
    far = reach(_Z, variance, noise.freedom, start_variance, _Z)
    return Bounded(math.expm1(mean), math.expm1(mean - far), math.expm1(mean + far))


def _measured(a: Row, b: Row, metric: str) -> _Measured | None:
    one, other = _logs(a, metric), _logs(b, metric)
    if not one or not other:
        return None
    rounds = bool(a.cell.rounds.get(metric)) and bool(b.cell.rounds.get(metric))
    return _Measured(b.cell.key, a, b, one, other, rounds)


def _logs(row: Row, metric: str) -> tuple[float, ...]:
    single = _figure(row, metric).value
    values = row.cell.rounds.get(metric) or ([] if single is None else [single])
    return tuple(math.log(value) for value in values if value > 0)


def _figure(row: Row, metric: str) -> Figure:
    """A reference has its time to the first token under cold or warm."""
    figure = row.figure(metric)
    if metric != TTFT or figure.value is not None:
        return figure
    return time_to_first_token(row, TTFT_WARM if row.definition.get("prefix") == "warm" else TTFT_COLD)


def _spread(ledger: Ledger, row: Row, metric: str) -> Spread:
    """Measured for this engine on this hardware where enough restarts are in the ledger; else assumed, and said so."""
    configuration = row.configuration
    tau = ledger.tau(configuration.engine, hardware=configuration.box, metric=metric)
    if tau is None:
        return ASSUMED
    return of_restarts(tau.sd, tau.restarts) or replace(ASSUMED, seen=tau.restarts)


def _with_metrics(sentence: str, metrics: Sequence[str]) -> str:
    names = list(dict.fromkeys(metrics))
    return sentence if len(names) == len(HIGHER_IS_BETTER) else f"{sentence} ({', '.join(names)})"
