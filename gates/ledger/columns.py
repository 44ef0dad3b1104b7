"""The columns of the table that people keep by hand, and of its CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.ledger.rows import (
    DRIVER,
    END_TO_END,
    HOST,
    TOKENS_PER_CHUNK,
    TTFT_COLD,
    TTFT_WARM,
    Row,
    gpus_in_words,
)
from gates.ledger.words import flags_in_words, number, time_to_first_token
from gates.throughput.records import AGGREGATE, DECODE, GAP, Figure


@dataclass(frozen=True)
class Column:
    """One number of a row. `heading` for people, with its unit, in two short lines; `figure` in seconds or tokens per
    second, `scale`: how many of the heading's unit that is.
    """

    key: str
    heading: str
    figure: Callable[[Row], Figure]
    scale: float = 1.0

    def words(self, row: Row) -> str:
        """The number as people read it, in the heading's unit."""
        value = self.figure(row).value
        return number(None if value is None else value * self.scale)

    @property
    def name(self) -> str:
        """The heading in one line."""
        return self.heading.replace("\n", " ")


def _named(key: str, heading: str) -> Column:
    return Column(key, heading, lambda row: row.figure(key))


COLUMNS: Final[tuple[Column, ...]] = (
    Column(TTFT_COLD, "TTFT\ncold ms", lambda row: time_to_first_token(row, TTFT_COLD), 1000.0),
    Column(TTFT_WARM, "TTFT\nwarm ms", lambda row: time_to_first_token(row, TTFT_WARM), 1000.0),
    _named(DECODE, "tok/s\neach"),
    _named(END_TO_END, "end to\nend"),
    _named(AGGREGATE, "tok/s\nall"),
    _named(TOKENS_PER_CHUNK, "tok per\nchunk"),
)
METRICS: Final[Mapping[str, Column]] = {
    "decode": COLUMNS[2],
    "aggregate": COLUMNS[4],
    "ttft-cold": COLUMNS[0],
    "ttft-warm": COLUMNS[1],
    "end-to-end": COLUMNS[3],
    "tokens-per-chunk": COLUMNS[5],
}
"""What `--matrix` can show."""


FIELDS: Final = (
    "id", "source", "kind", "retracted", "run", "start", "date", "topology", "release", "digest", "engine",
    "engine_version", "model", "kv_format", "flags", "gpus", "driver", "host", "workload", "prompt_tokens",
    "answer_tokens", "scene", "prompts", "prefix", "concurrency", "n", "rounds", *(column.key for column in COLUMNS),
    GAP, "failures", "problem", "origin", "note",
)  # fmt: skip
"""The header of the CSV; columns are only ever added at the end."""


def flat(row: Row) -> dict[str, Any]:
    """A row by `FIELDS`: empty text where nobody knew. `retracted` holds the reason."""
    c, gone = row.configuration, row.retracted
    d = row.definition
    return {
        "id": row.id,
        "source": str(row.source),
        "kind": str(row.kind),
        "retracted": "" if gone is None else gone.reason,
        "run": row.run,
        "start": row.start,
        "date": row.started_at,
        "topology": c.topology,
        "release": c.release,
        "digest": c.digest,
        "engine": c.engine,
        "engine_version": c.engine_version,
        "model": c.model,
        "kv_format": c.kv_format,
        "flags": flags_in_words(c.flags),
        "gpus": gpus_in_words(c.hardware),
        "driver": c.hardware.get(DRIVER, ""),
        "host": c.hardware.get(HOST, ""),
        "workload": row.cell.key.workload,
        **{key: d.get(key, "") for key in ("prompt_tokens", "answer_tokens", "scene", "prompts", "prefix")},
        "concurrency": row.cell.key.concurrency,
        "n": row.cell.requests or "",
        "rounds": row.rounds or "",
        **{column.key: _blank(column.figure(row).value) for column in COLUMNS},
        GAP: _blank(row.figure(GAP).value),
        "failures": sum(row.cell.failures.values()),
        "problem": row.cell.problem or "",
        "origin": row.origin,
        "note": row.note,
    }


def _blank(value: float | None) -> Any:
    return "" if value is None else value
