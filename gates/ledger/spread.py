"""Tau: the spread between starts of the same engine, from A/A restarts.

Two starts of one release differ by more than their rounds do (memory layout, clocks, kernels chosen while warming up),
and no number of rounds averages that away. The measure is the standard deviation of the ladder's mean, in logarithms:
of every start the mean over its cells of ln(median of the rounds).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gates.ledger.rows import Row, canonical

_Cell = tuple[str, str, int]


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
        starts = _starts(group, metric)
        means = _ladder_means(list(starts.values()))
        if len(means) > 1:
            squares += statistics.variance(means) * (len(means) - 1)
            freedom += len(means) - 1
    return Tau(math.sqrt(squares / freedom), freedom + 1) if freedom else None


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


def _starts(rows: Iterable[Row], metric: str) -> dict[str, dict[_Cell, list[float]]]:
    """Start → cell → logarithms: one for each time that it was measured in that start."""
    starts: dict[str, dict[_Cell, list[float]]] = {}
    for row in rows:
        cell = (row.cell.key.workload, canonical(row.definition), row.cell.key.concurrency)
        value = row.figure(metric).value
        if value is not None:
            starts.setdefault(row.start, {}).setdefault(cell, []).append(math.log(value))
    return starts


def _ladder_means(starts: list[dict[_Cell, list[float]]]) -> list[float]:
    """Over the cells that every start has: a ladder with one rung less has another mean."""
    common = set.intersection(*(set(start) for start in starts))
    if not common:
        return []
    return [statistics.fmean(statistics.fmean(start[cell]) for cell in common) for start in starts]
