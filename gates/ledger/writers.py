"""The ledger as Markdown and CSV, for threads and spreadsheets. What was retracted is marked there too."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from gates.ledger.columns import COLUMNS, FIELDS, flat
from gates.ledger.rows import Row, Source
from gates.ledger.table import Matrix, groups
from gates.ledger.words import (
    configuration_in_words,
    flags_in_words,
    remark,
    sample_size,
    shared_words,
    workload_in_words,
)
from gates.report_terminal import printable


def as_csv(rows: Iterable[Row]) -> str:
    """One line per row; the column `source` keeps ours and reference apart. Lines end as RFC 4180 has it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=FIELDS)
    writer.writeheader()
    for row in rows:
        line = flat(row)
        writer.writerow({key: printable(value) if isinstance(value, str) else value for key, value in line.items()})
    return text.getvalue()


def as_markdown(rows: Iterable[Row]) -> str:
    """A section per source, a table per configuration."""
    every = list(rows)
    parts: list[str] = []
    for source in Source:
        mine = [row for row in every if row.source is source]
        if mine:
            parts.append(f"## {title(source)}")
        for group in groups(mine):
            parts.append(f"### {escaped(configuration_in_words(group.configuration))}")
            if group.configuration.flags:
                parts.append(f"flags: {_code(flags_in_words(group.configuration.flags))}")
            headings = ["id", "workload", "users", *(c.name for c in COLUMNS), "n", "rounds", "date", "remark"]
            parts.append(markdown_table(headings, [_line(row) for row in group.rows]))
    return "\n\n".join(parts) + "\n"


def matrices_as_markdown(matrices: Sequence[Matrix], source: Source) -> str:
    parts = []
    for matrix in matrices:
        common, names = shared_words(matrix.configurations)
        lines = []
        for name, cells in zip(names, matrix.cells, strict=True):
            values = (matrix.column.words(row) if row else "" for row in cells)
            lines.append([escaped(name), *values])
        parts.append(f"## {title(source)}: {matrix.column.name}, {escaped(matrix.workload)}")
        parts += [escaped(common)] if common else []
        parts.append(markdown_table(["", *(f"c{concurrency}" for concurrency in matrix.concurrencies)], lines))
    return "\n\n".join(parts) + "\n"


def title(source: Source) -> str:
    return "ours" if source is Source.OURS else "reference (measured elsewhere)"


def _line(row: Row) -> list[str]:
    cells = [
        str(row.id),
        escaped(workload_in_words(row.cell.key.workload, row.definition)),
        str(row.cell.key.concurrency),
        *(column.words(row) for column in COLUMNS),
        sample_size(row, row.cell.requests),
        sample_size(row, row.rounds),
        row.started_at[:10],
    ]
    if row.retracted is not None:
        cells = [f"~~{cell}~~" for cell in cells]
    return [*cells, escaped(remark(row))]


def markdown_table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def escaped(text: str) -> str:
    """What people and engines wrote must not become markup or end a table's line."""
    return re.sub(r"([\\`*_|<>~\[\]])", r"\\\1", " ".join(printable(text).split()))


def _code(text: str) -> str:
    plain = " ".join(printable(text).split())
    fence = "``" if "`" in plain else "`"
    return f"{fence}{plain}{fence}"
