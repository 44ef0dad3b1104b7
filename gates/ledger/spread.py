"""Tau: the spread between starts of the same engine, from A/A restarts.

Two starts of one release differ by more than their rounds do (memory layout, clocks, kernels chosen while warming up),
and no number of rounds averages that away. The measure is the standard deviation of the ladder's mean, in logarithms:
of every start the mean over its cells of ln(median of the rounds). What the rounds' own noise adds to it is taken off
again, as in any analysis of variance between and within groups: whoever compares two runs counts that noise himself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gates.ledger.rows import Row, canonical

_Cell = tuple[str, str, int]
_Level = tuple[float, float]
"""ln(median of the rounds), and the variance that the rounds' noise gives it."""


class Tau(NamedTuple):
    """`sd`: of ln(metric), so 0.01 is one per cent. `restarts`: how many starts stand behind it; with several releases,
    each costs one for its own mean, so that five are always worth four degrees of freedom.
    """

    sd: float
    restarts: int


def spread_between_starts(rows: Iterable[Row], metric: str) -> Tau | None:
    """Rows of one release on one hardware are one group; the groups' variances are pooled. None: no group of two."""
    squares, freedom = 0.0, 0
    for group in _groups(rows, metric):
        ladders = _ladders(list(_starts(group, metric).values()))
        if len(ladders) > 1:
            between = statistics.variance(mean for mean, _ in ladders)
            squares += (between - statistics.fmean(noise for _, noise in ladders)) * (len(ladders) - 1)
            freedom += len(ladders) - 1
    return Tau(math.sqrt(max(0.0, squares) / freedom), freedom + 1) if freedom else None


def _groups(rows: Iterable[Row], metric: str) -> Iterator[list[Row]]:
    """The rows that have the metric, by release and hardware; of each only the workloads that most starts had.

    One evening with another profile must not leave the starts without a cell in common.
    """
    releases: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        value = row.figure(metric).value
        if row.counts and value is not None and value > 0:
            releases.setdefault(row.configuration.identity, {}).setdefault(row.run, []).append(row)
    for runs in releases.values():
        alike: dict[frozenset[tuple[str, str]], list[Row]] = {}
        for measured in runs.values():
            workloads = frozenset((row.cell.key.workload, canonical(row.definition)) for row in measured)
            alike.setdefault(workloads, []).extend(measured)
        yield max(alike.values(), key=lambda group: len({row.start for row in group}))


def _starts(rows: Iterable[Row], metric: str) -> dict[str, dict[_Cell, list[_Level]]]:
    """Start → cell → its levels: one for each time that it was measured in that start."""
    starts: dict[str, dict[_Cell, list[_Level]]] = {}
    for row in rows:
        cell = (row.cell.key.workload, canonical(row.definition), row.cell.key.concurrency)
        value = row.figure(metric).value
        if value is not None:
            level = (math.log(value), _noise(row.cell.rounds.get(metric, ())))
            starts.setdefault(row.start, {}).setdefault(cell, []).append(level)
    return starts


def _noise(rounds: Sequence[float]) -> float:
    """Variance of the mean of the rounds' logarithms; of their median it is larger, so never too much is taken off."""
    if len(rounds) < 2 or min(rounds) <= 0:
        return 0.0
    return statistics.variance(map(math.log, rounds)) / len(rounds)


def _ladders(starts: list[dict[_Cell, list[_Level]]]) -> list[_Level]:
    """Of each start the mean over the cells that every start has: a ladder with one rung less has another mean."""
    common = sorted(set.intersection(*(set(start) for start in starts)))
    if not common:
        return []
    return [_mean([_mean(start[cell]) for cell in common]) for start in starts]


def _mean(levels: Sequence[_Level]) -> _Level:
    return statistics.fmean(level for level, _ in levels), sum(noise for _, noise in levels) / len(levels) ** 2
