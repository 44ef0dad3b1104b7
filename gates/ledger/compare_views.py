"""A comparison for a terminal, for a thread (Markdown) and for programs (schema 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gates.ledger.change import Bounded, Change, Ladder
from gates.ledger.compare import Comparison, Side
from gates.ledger.document import SCHEMA
from gates.ledger.words import NOTHING, configuration_in_words, number, workload_in_words
from gates.ledger.writers import escaped, markdown_table
from gates.report_terminal import printable
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Figure

_HEADINGS: Final = {
    DECODE: "tok/s per user, after the first token",
    AGGREGATE: "tok/s, all streams together",
    TTFT: "time to the first token, s",
    GAP: "time between two chunks, s",
}
_WIDEST: Final = 2.0
"""Bounds that reach beyond three times the estimated ratio say nothing but that there are too few rounds."""
_TOO_WIDE: Final = "beyond ×3"
_STYLES: Final = {"better": "green", "worse": "red"}
_COLUMNS: Final = ("workload", "users", "A", "n", "B", "n", "change", "95 %", "")


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Shares are relative: 0.05 is 5 % more from a to b."""
    return {
        "schema": SCHEMA,
        "a": _side_document(comparison.a),
        "b": _side_document(comparison.b),
        "differences": [asdict(difference) for difference in comparison.differences],
        "warnings": list(comparison.warnings),
        "unlike": [asdict(unlike) for unlike in comparison.unlike],
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
        "changes": [
            {
                "workload": change.key.workload,
                "definition": dict(change.definition),
                "concurrency": change.key.concurrency,
                "metric": change.metric,
                "a": asdict(change.a),
                "b": asdict(change.b),
                **_change_document(change),
            }
            for change in comparison.changes
        ],
        "ladders": [
            {"metric": ladder.metric, "cells": ladder.cells, **_change_document(ladder)}
            for ladder in comparison.ladders
        ],
        "crossovers": [asdict(crossover) for crossover in comparison.crossovers],
        "spread": comparison.spread,
    }


def _side_document(side: Side) -> dict[str, Any]:
    return {
        "asked": side.asked,
        "name": side.configuration.name,
        "source": str(side.source),
        "measured_at": side.measured_at,
        "runs": sorted({row.run for row in side.rows}),
        "rows": [row.id for row in side.rows],
    }


def _change_document(one: Change | Ladder) -> dict[str, Any]:
    return {**asdict(one.change), "says": one.change.says(one.metric)}


def comparison_drawn(comparison: Comparison) -> Iterator[RenderableType]:
    """Warnings stand before the numbers that they are about."""
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        yield Text(printable(f"{letter}  {_side_in_words(side)}"), style="bold")
    for warning in comparison.warnings:
        yield Text(printable(f"! {warning}"), style="bold yellow")
    yield Text()
    yield from _drawn_differences(comparison)
    for metric in dict.fromkeys(change.metric for change in comparison.changes):
        yield Text()
        yield Text(_HEADINGS[metric], style="bold")
        table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
        for position, heading in enumerate(_COLUMNS):
            words = position in (0, 8)
            table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
        for line, says in _lines(comparison, metric):
            table.add_row(*(Text(printable(cell)) for cell in line), Text(says, style=_STYLES.get(says, "dim")))
        yield table
    yield Text()
    for note in _notes(comparison):
        yield Text(printable(note), style="dim")
    for crossover in comparison.crossovers:
        yield Text(printable(crossover.sentence), style="dim" if crossover.at is None else "bold")


def _drawn_differences(comparison: Comparison) -> Iterator[RenderableType]:
    if not comparison.differences:
        yield Text("the configurations do not differ in anything that is known", style="dim")
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("differs in", "A", "B"):
        table.add_column(heading, overflow="fold")
    for difference in comparison.differences:
        table.add_row(*(Text(printable(cell)) for cell in (difference.field, difference.a, difference.b)))
    yield table


def comparison_markdown(comparison: Comparison) -> str:
    parts = [f"## {escaped(comparison.a.label)} → {escaped(comparison.b.label)}"]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        parts.append(f"{letter}: {escaped(_side_in_words(side))}")
    parts += [f"**{escaped(warning)}**" for warning in comparison.warnings]
    if comparison.differences:
        differing = [[escaped(d.field), escaped(d.a), escaped(d.b)] for d in comparison.differences]
        parts.append(markdown_table(["differs in", "A", "B"], differing))
    for metric in dict.fromkeys(change.metric for change in comparison.changes):
        lines = [[*map(escaped, line), says] for line, says in _lines(comparison, metric)]
        parts += [f"### {_HEADINGS[metric]}", markdown_table(_COLUMNS, lines)]
    parts += [escaped(note) for note in (*(c.sentence for c in comparison.crossovers), *_notes(comparison))]
    return "\n\n".join(parts) + "\n"


def _lines(comparison: Comparison, metric: str) -> Iterator[tuple[list[str], str]]:
    for change in comparison.changes:
        if change.metric == metric:
            workload = workload_in_words(change.key.workload, change.definition)
            line = [workload, str(change.key.concurrency), *_figure(change.a), *_figure(change.b)]
            yield [*line, *_bounds(change.change)], change.change.says(metric)
    for ladder in comparison.ladders:
        if ladder.metric == metric:
            line = [f"all {ladder.cells} cells", "", "", "", "", "", *_bounds(ladder.change)]
            yield line, ladder.change.says(metric)


def _figure(figure: Figure) -> tuple[str, str]:
    return number(figure.value), str(figure.n or "?")


def _bounds(change: Bounded) -> tuple[str, str]:
    if change.low is None or change.high is None:
        return _percent(change.share), NOTHING
    if _too_wide(change):
        return _percent(change.share), _TOO_WIDE
    return _percent(change.share), f"{_percent(change.low)} … {_percent(change.high)}"


def _too_wide(change: Bounded) -> bool:
    """Is the upper bound more than three times the estimated ratio, and the lower one less than a third of it?"""
    if change.low is None or change.high is None:
        return False
    return (1 + change.high) / (1 + change.share) > 1 + _WIDEST


def _percent(share: float) -> str:
    return f"{share * 100:+.1f} %"


def _side_in_words(side: Side) -> str:
    configuration = side.configuration
    rest = configuration_in_words(configuration).removeprefix(configuration.name)
    run = f" · run {side.asked}" if side.asked == side.rows[-1].run else ""
    return f"{side.label}{rest}{run} · measured {side.measured_at[:16].replace('T', ' ')}"


def _notes(comparison: Comparison) -> Iterator[str]:
    for letter, cells in (("A", comparison.only_a), ("B", comparison.only_b)):
        if cells:
            yield f"only {letter} has {', '.join(cells)}"
    bounded = [*(one.change for one in comparison.changes), *(one.change for one in comparison.ladders)]
    if any(map(_too_wide, bounded)):
        yield f"{_TOO_WIDE}: rounds that differ so much, and so few of them, bound nothing; `cutover bench --rounds 5`"
    if comparison.spread:
        yield f"{comparison.spread}; bounds are for one line looked at alone: of twenty, one is wrong by chance"
