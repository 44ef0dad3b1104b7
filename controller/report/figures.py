"""What a throughput gate measured, from the journal's own copy: it is there when the evidence is gone. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gates.throughput.decide.rule import SPOKEN
from gates.throughput.records import AGGREGATE, DECODE, HIGHER_IS_BETTER, TTFT

from ..core.records import GateResult
from .records import Figure, Ratio

_Key = tuple[str, int]
_COMPARED: Final = ("ratio", "low", "high", "margin")


def ratios(results: Sequence[GateResult]) -> tuple[Ratio, ...]:
    """Candidate against live by the newest measurement that was compared at all; what is no number is left out."""
    listed = next((found for r in reversed(results) if (found := _listed(r.measurements.get("compared")))), [])
    return tuple(ratio for one in listed if (ratio := _ratio(one)) is not None)


def compared_with(results: Sequence[GateResult]) -> str:
    """Whose figures `ratios` are shares of."""
    newest = next((r for r in reversed(results) if _listed(r.measurements.get("compared"))), None)
    baseline = newest.measurements.get("baseline") if newest is not None else None
    return str(baseline.get("release", "")) if isinstance(baseline, Mapping) else ""


def figures(results: Sequence[GateResult], live: Sequence[GateResult] = ()) -> tuple[Figure, ...]:
    """Of every workload the lowest rung, and the one that yields most; beside it what `live` showed there."""
    mine, theirs = _cells(results), _cells(live)
    return tuple(_figure(key, mine[key], theirs.get(key, {})) for key in _shown(mine))


def _shown(cells: Mapping[_Key, Mapping[str, float]]) -> list[_Key]:
    found: list[_Key] = []
    for workload in dict.fromkeys(name for name, _ in cells):
        keys = sorted(key for key in cells if key[0] == workload)
        most = max(keys, key=lambda key: cells[key].get(AGGREGATE, 0.0))
        found += dict.fromkeys((keys[0], most))
    return found


def _cells(results: Sequence[GateResult]) -> dict[_Key, dict[str, float]]:
    """Medians of the rounds by cell, of the newest run; cells that are no measurement are left out."""
    cells = next((found for r in reversed(results) if (found := _cells_of(r.measurements))), [])
    return {
        (str(cell.get("workload")), int(cell.get("concurrency", 0))): {
            metric: statistics.median(values)
            for metric, values in cell.get("rounds", {}).items()
            if values and all(_is_number(value) for value in values)
        }
        for cell in cells
        if cell.get("problem") is None and cell.get("rounds")
    }


def _cells_of(measurements: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    run = measurements.get("run")
    return _listed(run.get("cells")) if isinstance(run, Mapping) else []


def _figure(key: _Key, mine: Mapping[str, float], theirs: Mapping[str, float]) -> Figure:
    workload, concurrency = key
    values = [side.get(metric) for side in (mine, theirs) for metric in (DECODE, AGGREGATE, TTFT)]
    return Figure(workload, concurrency, *values)


def _ratio(one: Mapping[str, Any]) -> Ratio | None:
    metric = str(one.get("metric", ""))
    numbers = [one.get(name) for name in _COMPARED]
    if metric not in HIGHER_IS_BETTER or not all(_is_number(number) for number in numbers):
        return None
    ratio, low, high, margin = (float(number) for number in numbers if number is not None)
    if min(ratio, low, high) <= 0:
        return None
    higher = HIGHER_IS_BETTER[metric]
    return Ratio(metric, SPOKEN[metric], higher, ratio, low, high, margin, says(low, high, higher=higher))


def says(low: float, high: float, *, higher: bool) -> str:
    """Where the bounds of a ratio lie: `better`, `worse`, `no difference`."""
    if low <= 1 <= high:
        return "no difference"
    return "better" if (low > 1) == higher else "worse"


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, Iterable) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
