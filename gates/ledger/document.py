"""The ledger as data for programs: schema 1, described in docs/ledger.md; keys are only ever added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gates.ledger.rows import Row, Source

SCHEMA: Final = 1


def row_document(row: Row) -> dict[str, Any]:
    """Everything that is kept of one row."""
    c, cell = row.configuration, row.cell
    return {
        "id": row.id,
        "run": row.run,
        "source": str(row.source),
        "kind": str(row.kind),
        "start": row.start,
        "started_at": row.started_at,
        "duration_s": row.duration_s,
        "recorded_at": row.recorded_at,
        "recorded_by": row.recorded_by,
        "retracted": asdict(row.retracted) if row.retracted else None,
        "origin": row.origin,
        "note": row.note,
        "topology": c.topology,
        "release": c.release,
        "digest": c.digest,
        "engine": c.engine,
        "engine_version": c.engine_version,
        "model": c.model,
        "kv_format": c.kv_format,
        "flags": list(c.flags),
        "hardware": dict(c.hardware),
        "facts": dict(c.facts),
        "workload": cell.key.workload,
        "definition": dict(row.definition),
        "concurrency": cell.key.concurrency,
        "requests": cell.requests,
        "rounds": {metric: list(values) for metric, values in cell.rounds.items()},
        "figures": {name: asdict(figure) for name, figure in cell.figures.items()},
        "failures": dict(cell.failures),
        "problem": cell.problem,
    }


def ledger_document(path: Path, rows: Iterable[Row]) -> dict[str, Any]:
    """*ours* and *reference* are two lists, so that nobody reads the one as the other."""
    every = list(rows)
    return {
        "schema": SCHEMA,
        "ledger": str(path),
        **{str(source): [row_document(row) for row in every if row.source is source] for source in Source},
    }


def rows_document(rows: Iterable[Row]) -> dict[str, Any]:
    """Rows that were named one by one, each with its own `source`."""
    return {"schema": SCHEMA, "rows": [row_document(row) for row in rows]}
