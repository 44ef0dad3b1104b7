"""Rows as the database holds them. Whatever was damaged by hand is told with the row's number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from gates.ledger.errors import LedgerError
from gates.ledger.rows import Configuration, Kind, Retraction, Row, Source, canonical
from gates.throughput.records import Cell, CellKey, Figure

COLUMNS: Final = (
    "cells.id, cells.run, source, kind, started_at, recorded_at, recorded_by, topology, release, digest, engine, "
    "engine_version, runs.body, workload, concurrency, definition, cells.body, at, who, reason"
)
TABLES: Final = "cells JOIN runs ON runs.id = cells.run LEFT JOIN retractions ON retractions.cell = cells.id"
UNNAMED: Final = "topology = '' AND release = ''"
MODEL: Final = "CASE WHEN json_valid(runs.body) THEN json_extract(runs.body, '$.configuration.model') END"
"""By which people call what has neither topology nor release; it has no column of its own."""
_IN_COLUMNS: Final = ("topology", "release", "digest", "engine", "engine_version")


def run_body(configuration: Configuration, start: str, origin: str, note: str, duration_s: float) -> str:
    """What of a run has no column of its own."""
    rest = {key: value for key, value in asdict(configuration).items() if key not in _IN_COLUMNS}
    return canonical(
        {"configuration": rest, "start": start, "origin": origin, "note": note, "duration_s": float(duration_s)}
    )


def cell_body(cell: Cell) -> str:
    return canonical(
        {
            "requests": cell.requests,
            "rounds": {metric: [float(value) for value in values] for metric, values in cell.rounds.items()},
            "figures": {name: [figure.value, figure.n] for name, figure in cell.figures.items()},
            "failures": dict(cell.failures),
            "problem": cell.problem,
        }
    )


def row_of(record: Sequence[Any]) -> Row:
    """`record` has `COLUMNS`, in their order."""
    (number, run, source, kind, started_at, recorded_at, recorded_by, topology, release, digest, engine, version,
     about_run, workload, concurrency, definition, about_cell, at, who, reason) = record  # fmt: skip
    try:
        body = json.loads(about_run)
        return Row(
            id=number,
            run=run,
            source=Source(source),
            kind=Kind(kind),
            started_at=started_at,
            recorded_at=recorded_at,
            recorded_by=recorded_by,
            configuration=_configuration(body["configuration"], topology, release, digest, engine, version),
            definition=json.loads(definition),
            cell=_cell(CellKey(workload, concurrency), json.loads(about_cell)),
            start=body["start"],
            origin=body["origin"],
            note=body["note"],
            duration_s=body["duration_s"],
            retracted=None if at is None else Retraction(reason, who, at),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"row {number} of the ledger cannot be read ({error}); the file was changed by something else: "
            "put a backup in its place"
        ) from error


def _configuration(
    rest: Mapping[str, Any], topology: str, release: str, digest: str, engine: str, version: str
) -> Configuration:
    return Configuration(
        topology=topology,
        release=release,
        digest=digest,
        engine=engine,
        engine_version=version,
        **{**rest, "flags": tuple(rest["flags"])},
    )


def _cell(key: CellKey, body: Mapping[str, Any]) -> Cell:
    return Cell(
        key=key,
        requests=body["requests"],
        rounds=body["rounds"],
        figures={name: Figure(value, n) for name, (value, n) in body["figures"].items()},
        failures=body["failures"],
        problem=body["problem"],
    )
