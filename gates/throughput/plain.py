"""A run as plain data and back, for verdicts, reports and whoever reads them without us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gates.throughput.records import Cell, CellKey, Figure, Run


def plain_run(run: Run) -> dict[str, Any]:
    """JSON-ready. Figures become `[value, n]`."""
    return {
        "started_at": run.started_at,
        "duration_s": run.duration_s,
        "model": run.model,
        "engine": dict(run.engine),
        "workloads": {name: dict(workload) for name, workload in run.workloads.items()},
        "cells": [_plain_cell(cell) for cell in run.cells],
    }


def read_run(document: Mapping[str, Any]) -> Run:
    """The run that `plain_run` wrote. Raises `ValueError`, one sentence, for anything else."""
    try:
        return Run(
            started_at=str(document["started_at"]),
            duration_s=float(document["duration_s"]),
            model=str(document["model"]),
            workloads={str(name): dict(workload) for name, workload in document["workloads"].items()},
            cells=[_read_cell(cell) for cell in document["cells"]],
            engine=dict(document.get("engine", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is no throughput run as this version writes it ({error!r})") from None


def _plain_cell(cell: Cell) -> dict[str, Any]:
    return {
        **asdict(cell.key),
        "requests": cell.requests,
        "rounds": {metric: [_short(value) for value in values] for metric, values in cell.rounds.items()},
        "figures": {name: [_short(figure.value), figure.n] for name, figure in cell.figures.items()},
        "failures": dict(cell.failures),
        "problem": cell.problem,
    }


def _read_cell(cell: Mapping[str, Any]) -> Cell:
    return Cell(
        key=CellKey(str(cell["workload"]), int(cell["concurrency"])),
        requests=int(cell["requests"]),
        rounds={str(metric): [float(value) for value in values] for metric, values in cell["rounds"].items()},
        figures={str(name): Figure(value, int(n)) for name, (value, n) in cell["figures"].items()},
        failures={str(kind): int(number) for kind, number in cell["failures"].items()},
        problem=cell["problem"],
    )


def _short(value: float | None) -> float | None:
    """Seven digits: a nanosecond of a minute, and a report that people can read."""
    return None if value is None else float(f"{value:.7g}")
