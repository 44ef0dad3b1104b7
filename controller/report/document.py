"""The report as JSON and back: the schema `cutover-report/1` (docs/morning-report.md)."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from .records import SCHEMA, Report

_REPORT = TypeAdapter(Report)


def to_document(report: Report) -> dict[str, Any]:
    """Plain data: instants in ISO 8601 with the offset of the window's timezone."""
    document = _REPORT.dump_python(report, mode="json")
    assert isinstance(document, dict)  # noqa: S101 - a dataclass is nothing else
    return document


def to_json(report: Report) -> str:
    return _REPORT.dump_json(report, indent=1).decode() + "\n"


def from_document(document: object) -> Report:
    """Raises `ValueError`, one sentence, for what is no report of this schema."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"this is no report of schema {SCHEMA} (it says {schema!r})")
    try:
        return _REPORT.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"this is no report of schema {SCHEMA}: {place}: {first['msg']}") from None


def from_json(text: str | bytes) -> Report:
    """The same of JSON text."""
    try:
        return _REPORT.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"this is no report of schema {SCHEMA}: {first['msg']}") from None
