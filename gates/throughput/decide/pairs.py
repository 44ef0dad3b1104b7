"""Which cells of two runs compare, and what is to be said about those that do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gates.throughput.records import HIGHER_IS_BETTER, Cell, CellKey, Run


@dataclass(frozen=True)
class Pair:
    """One cell on both sides: logarithms of its rounds, turned so that higher is better."""

    key: CellKey
    candidate: tuple[float, ...]
    baseline: tuple[float, ...]

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Rounds of the candidate and of the baseline."""
        return len(self.candidate), len(self.baseline)


@dataclass(frozen=True)
class Pairing:
    """What compares for one metric. `blocking`: cells that should and do not, one sentence each: without them nobody
    can say pass. `notes`: cells that nothing was expected of, said all the same.
    """

    pairs: tuple[Pair, ...]
    blocking: tuple[str, ...]
    notes: tuple[str, ...]


def failures(run: Run) -> list[str]:
    """Every cell of `run` with failed requests, one sentence each."""
    return [f"{cell.key}: {_failed(cell)}" for cell in run.cells if any(cell.failures.values())]


def pairing(candidate: Run, baseline: Run, metric: str) -> Pairing:
    """Every cell of either run ends in `pairs`, in `blocking` or in `notes`."""
    mine, theirs = _by_key(candidate), _by_key(baseline)
    unlike = {name: _unlike(candidate, baseline, name) for name in {*candidate.workloads, *baseline.workloads}}
    pairs, blocking, notes = [], [], []
    for key, cell in mine.items():
        other = theirs.get(key)
        if other is None:
            notes.append(f"{key} was not measured on the baseline, so it is compared with nothing")
        elif (difference := unlike.get(key.workload)) is not None:
            blocking.append(f"{key} does not compare: {difference}")
        elif _neither(cell, other, metric):
            notes.append(f"{key} has no {metric} on either side")
        elif wrong := [*_wrong(cell, "candidate", metric), *_wrong(other, "baseline", metric)]:
            blocking.extend(f"{key} {each}" for each in wrong)
        else:
            pairs.append(Pair(key, _logs(cell, metric), _logs(other, metric)))
    missing = (key for key in theirs if key not in mine)
    blocking.extend(f"{key} was measured on the baseline but not on the candidate" for key in missing)
    return Pairing(tuple(pairs), tuple(blocking), tuple(notes))


def _by_key(run: Run) -> dict[CellKey, Cell]:
    cells: dict[CellKey, Cell] = {}
    for cell in run.cells:
        if cell.key in cells:
            raise ValueError(f"the run of {run.started_at} holds {cell.key} twice; a run has each cell once")
        cells[cell.key] = cell
    return cells


def _neither(cell: Cell, other: Cell, metric: str) -> bool:
    """Are both sound measurements that just do not carry this metric?"""
    return not (cell.rounds.get(metric) or other.rounds.get(metric) or cell.problem or other.problem)


def _wrong(cell: Cell, side: str, metric: str) -> list[str]:
    values = cell.rounds.get(metric, ())
    if cell.problem is not None:
        return [f"is no measurement on the {side}: {cell.problem}"]
    if not values:
        return [f"has no {metric} on the {side}"]
    if not (math.isfinite(sum(values)) and min(values) > 0):
        return [f"has a round of {min(values):g} {metric} on the {side}; only numbers above zero compare"]
    return []


def _logs(cell: Cell, metric: str) -> tuple[float, ...]:
    logs = map(math.log, cell.rounds[metric])
    return tuple(logs) if HIGHER_IS_BETTER[metric] else tuple(-log for log in logs)


def _unlike(candidate: Run, baseline: Run, workload: str) -> str | None:
    mine, theirs = candidate.workloads.get(workload, {}), baseline.workloads.get(workload, {})
    different = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if not different:
        return None
    listed = ", ".join(f"{name} {_shown(mine, name)} against {_shown(theirs, name)}" for name in different[:3])
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return f"workload {workload} is not the same on both sides ({listed}{more})"


def _shown(workload: Mapping[str, Any], name: str) -> str:
    return repr(workload[name]) if name in workload else "nothing"


def _failed(cell: Cell) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(cell.failures.items()) if count)
    return f"{sum(cell.failures.values())} of {cell.requests} requests failed ({kinds})"
