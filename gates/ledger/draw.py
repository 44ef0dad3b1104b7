"""The ledger on a terminal. A retracted row is struck through, and says so in words where there is no such style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gates.ledger.columns import COLUMNS
from gates.ledger.fitted import PIPED_WIDTH, Heading, Line, fitted, numbers
from gates.ledger.rows import GPUS, Row, Source, canonical, gpus_in_words
from gates.ledger.table import Group, Matrix, groups
from gates.ledger.words import (
    NOTHING,
    configuration_in_words,
    counted,
    flags_in_words,
    number,
    remark,
    sample_size,
    shared_words,
    workload_in_words,
)
from gates.ledger.writers import title
from gates.report_terminal import printable

_HEADINGS: Final = (
    Heading("id"),
    Heading("workload", left=True),
    Heading("users"),
    *(Heading(column.heading) for column in COLUMNS),
    Heading("requests"),
    Heading("date", left=True),
)
_FIRST_OUT: Final = (
    "tok per chunk", "TTFT warm ms", "end to end", "requests", "date", "TTFT cold ms", "tok/s all",
)  # fmt: skip
"""What a narrow terminal does without, the first one first."""


def drawn_ledger(rows: Iterable[Row], most: int | None = None, *, width: int = PIPED_WIDTH) -> Iterator[RenderableType]:
    """Ours first, then the reference rows in tables of their own; `most`: only so many, the newest of all. `width`: of
    the reader's terminal.
    """
    newest = sorted(rows, key=lambda row: (row.started_at, row.id), reverse=True)
    every = newest[:most]
    for source in Source:
        mine = [row for row in every if row.source is source]
        if mine and len(mine) < len(every) and source is Source.REFERENCE:
            yield Text()
        if mine:
            yield Text(title(source), style="bold cyan" if source is Source.OURS else "bold magenta")
        for group in groups(mine):
            yield from _drawn_group(group, width)
    if left_out := len(newest) - len(every):
        yield Text(f"the newest {counted(len(every), 'row')}; {left_out} more with --all", style="dim")


def drawn_matrices(
    matrices: Sequence[Matrix], source: Source, left_out: int, *, width: int = PIPED_WIDTH
) -> Iterator[RenderableType]:
    """`left_out`: how many rows do not count and are in none of them."""
    for matrix in matrices:
        common, names = shared_words(matrix.configurations)
        yield Text(printable(f"{title(source)}: {matrix.column.name}, {matrix.workload}"), style="bold")
        if common:
            yield Text(printable(common), style="dim")
        headings = [Heading("", left=True), *(Heading(f"c{concurrency}") for concurrency in matrix.concurrencies)]
        lines = [
            Line([name, *(matrix.column.words(row) if row else NOTHING for row in cells)])
            for name, cells in zip(names, matrix.cells, strict=True)
        ]
        yield from fitted(headings, lines, width=width, first_out=range(len(headings) - 1, 1, -1), gap=2)
        yield Text()
    if left_out:
        yield Text(f"{left_out} row{'s' * (left_out > 1)} left out: retracted, or no measurement", style="dim")


def drawn_row(row: Row) -> Iterator[RenderableType]:
    """One row with all that is kept of it."""
    head = f"row {row.id}, {title(row.source)}: {workload_in_words(row.cell.key.workload, row.definition)}"
    yield Text(printable(f"{head}, {row.cell.key.concurrency} at once"), style=_style(row) or "bold")
    yield Text(printable(configuration_in_words(row.configuration)))
    if row.retracted is not None:
        yield Text(printable(f"RETRACTED {row.retracted.at} by {row.retracted.who}: {row.retracted.reason}"), "red")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in _facts(row):
        grid.add_row(name, Text(printable(value)))
    yield grid
    yield _figures(row)


def _drawn_group(group: Group, width: int) -> Iterator[RenderableType]:
    yield Text()
    yield Text(printable(configuration_in_words(group.configuration)), style="bold")
    if group.configuration.flags:
        yield Text(printable(f"flags: {flags_in_words(group.configuration.flags)}"), style="dim")
    lines = [
        Line(
            (
                f"{_mark(row)}{row.id}",
                workload_in_words(row.cell.key.workload, row.definition),
                str(row.cell.key.concurrency),
                *(column.words(row) for column in COLUMNS),
                sample_size(row, row.cell.requests),
                row.started_at[:10],
            ),
            _style(row),
        )
        for row in group.rows
    ]
    yield from fitted(_HEADINGS, lines, width=width, first_out=numbers(_HEADINGS, _FIRST_OUT))
    yield from _remarks(group.rows)


def _mark(row: Row) -> str:
    """What was taken back, and what was never a measurement."""
    return "✗ " if row.retracted is not None else "" if row.counts else "! "


def _remarks(rows: Sequence[Row]) -> Iterator[Text]:
    """Under the table, where a long reason has room; rows that share one share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if words := remark(row):
            said.setdefault((words, _mark(row)), []).append(str(row.id))
    for (words, mark), ids in said.items():
        yield Text(printable(f"{mark}{', '.join(ids)}: {words}"), style="red" if mark else "dim")


def _figures(row: Row) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("rounds", overflow="fold", style="dim")
    for name in {**row.cell.rounds, **row.cell.figures}:
        figure = row.figure(name)
        rounds = " ".join(number(value) for value in row.cell.rounds.get(name, ()))
        table.add_row(Text(printable(name), _style(row)), number(figure.value), sample_size(row, figure.n), rounds)
    return table


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    c = row.configuration
    yield "run", f"{row.run} ({row.kind}), started {row.started_at}, {row.duration_s:.0f} s, start {row.start}"
    yield "recorded", f"{row.recorded_at} by {row.recorded_by}"
    yield "sample", f"requests {sample_size(row, row.cell.requests)}, rounds {sample_size(row, row.rounds)}"
    if row.cell.problem:
        yield "no measurement", row.cell.problem
    if any(row.cell.failures.values()):
        yield "failed", ", ".join(f"{count} {kind}" for kind, count in row.cell.failures.items() if count)
    flags = flags_in_words(c.flags)
    for name, text in (("from", row.origin), ("note", row.note), ("digest", c.digest), ("flags", flags)):
        if text:
            yield name, text
    for name, mapping in (("hardware", c.hardware), ("engine", c.facts), ("workload", row.definition)):
        if mapping:
            yield name, _listed(mapping)


def _listed(mapping: Mapping[str, Any]) -> str:
    words = {key: value if isinstance(value, str) else canonical(value) for key, value in mapping.items()}
    if GPUS in words:
        words[GPUS] = gpus_in_words(mapping)
    return ", ".join(f"{key} {value}" for key, value in words.items())


def _style(row: Row) -> str:
    return "strike dim" if row.retracted is not None else ""
