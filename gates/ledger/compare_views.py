"""A comparison for a terminal, for a thread (Markdown) and for programs (schema 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text

from gates.ledger.change import Bounded, Change, Ladder
from gates.ledger.compare import Comparison, Side
from gates.ledger.document import SCHEMA
from gates.ledger.fitted import PIPED_WIDTH, Heading, Line, fitted
from gates.ledger.words import NOTHING, configuration_in_words, number, workload_in_words
from gates.ledger.writers import escaped, markdown_table
from gates.report_terminal import printable
from gates.throughput.records import AGGREGATE, DECODE, GAP, HIGHER_IS_BETTER, TTFT, Figure

_HEADINGS: Final = {
    DECODE: "tok/s per user, after the first token",
    AGGREGATE: "tok/s, all streams together",
    TTFT: "time to the first token, ms",
    GAP: "time between two chunks, ms",
}
_WIDEST: Final = 2.0
"""Bounds that reach beyond three times the estimated ratio say nothing but that there are too few rounds."""
_TOO_WIDE: Final = "beyond ×3"
_STYLES: Final = {"better": "green", "worse": "red"}
_COLUMNS: Final = ("workload", "users", "A", "rounds", "B", "rounds", "change", "95 %", "")
_TABLE: Final = tuple(Heading(name, left=name in ("workload", "")) for name in _COLUMNS)
_FIRST_OUT: Final = (5, 3, 7, 2, 4)
"""What a narrow terminal does without: rounds, bounds, the figures themselves; never the change and what it says."""


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
        "shapes": {
            "a": [asdict(shape) for shape in comparison.shapes_a],
            "b": [asdict(shape) for shape in comparison.shapes_b],
        },
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


def comparison_drawn(comparison: Comparison, *, width: int = PIPED_WIDTH) -> Iterator[Text]:
    """Warnings stand before the numbers that they are about. `width`: of the reader's terminal."""
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        yield Text(printable(f"{letter}  {_side_in_words(side)}"), style="bold")
    for warning in comparison.warnings:
        yield Text(printable(f"! {warning}"), style="bold yellow")
    yield Text()
    yield from _drawn_differences(comparison, width)
    for metric in dict.fromkeys(change.metric for change in comparison.changes):
        yield Text()
        yield Text(_HEADINGS[metric], style="bold")
        lines = [
            Line([*line, says], (*[""] * len(line), _STYLES.get(says, "dim")))
            for line, says in _lines(comparison, metric)
        ]
        yield from fitted(_TABLE, lines, width=width, first_out=_FIRST_OUT)
    yield Text()
    for note in _notes(comparison):
        yield Text(printable(note), style="dim")
    for crossover in comparison.crossovers:
        yield Text(printable(crossover.sentence), style="dim" if crossover.at is None else "bold")
    for words, cliff in _shapes(comparison):
        yield Text(printable(words), style="bold yellow" if cliff else "dim")


def _drawn_differences(comparison: Comparison, width: int) -> Iterator[Text]:
    if not comparison.differences:
        yield Text("the configurations do not differ in anything that is known", style="dim")
        return
    headings = [Heading(name, left=True) for name in ("differs in", "A", "B")]
    lines = [Line((difference.name, difference.a, difference.b)) for difference in comparison.differences]
    if sum(max(cell_len(line.cells[number]) for line in lines) for number in range(3)) + 4 <= width:
        yield from fitted(headings, lines, width=width, gap=2)
        return
    # Long values have lines of their own, which a terminal folds where it has to.
    yield Text("differs in", "dim")
    for difference in comparison.differences:
        yield Text(printable(difference.words))


def comparison_markdown(comparison: Comparison) -> str:
    parts = [f"## {escaped(comparison.a.label)} → {escaped(comparison.b.label)}"]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        parts.append(f"{letter}: {escaped(_side_in_words(side))}")
    parts += [f"**{escaped(warning)}**" for warning in comparison.warnings]
    if comparison.differences:
        differing = [[escaped(d.name), escaped(d.a), escaped(d.b)] for d in comparison.differences]
        parts.append(markdown_table(["differs in", "A", "B"], differing))
    for metric in dict.fromkeys(change.metric for change in comparison.changes):
        lines = [[*map(escaped, line), says] for line, says in _lines(comparison, metric)]
        parts += [f"### {_HEADINGS[metric]}", markdown_table(_COLUMNS, lines)]
    parts += [
        escaped(note) for note in (*(c.sentence for c in comparison.crossovers), *(w for w, _ in _shapes(comparison)))
    ]
    parts += [escaped(note) for note in _notes(comparison)]
    return "\n\n".join(parts) + "\n"


def _lines(comparison: Comparison, metric: str) -> Iterator[tuple[list[str], str]]:
    for change in comparison.changes:
        if change.metric == metric:
            workload = workload_in_words(change.key.workload, change.definition)
            line = [workload, str(change.key.concurrency), *_figure(change.a, metric), *_figure(change.b, metric)]
            yield [*line, *_bounds(change.change)], change.change.says(metric)
    for ladder in comparison.ladders:
        if ladder.metric == metric:
            line = [f"all {ladder.cells} cells", "", "", "", "", "", *_bounds(ladder.change)]
            yield line, ladder.change.says(metric)


def _figure(figure: Figure, metric: str) -> tuple[str, str]:
    """Rates as they are, times in milliseconds; of a reference requests, where it says them."""
    scale = 1 if HIGHER_IS_BETTER[metric] else 1000
    return number(None if figure.value is None else figure.value * scale), str(figure.n or "?")


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


def _shapes(comparison: Comparison) -> Iterator[tuple[str, bool]]:
    """In words, and whether there is a cliff."""
    for letter, found in (("A", comparison.shapes_a), ("B", comparison.shapes_b)):
        for shape in found:
            yield f"{letter}  {shape.sentence}", shape.cliff


def _notes(comparison: Comparison) -> Iterator[str]:
    for letter, cells in (("A", comparison.only_a), ("B", comparison.only_b)):
        if cells:
            yield f"only {letter} has {', '.join(cells)}"
    bounded = [*(one.change for one in comparison.changes), *(one.change for one in comparison.ladders)]
    if any(map(_too_wide, bounded)):
        yield f"{_TOO_WIDE}: rounds that differ so much, and so few of them, bound nothing; `cutover bench --rounds 5`"
    if comparison.spread:
        yield f"{comparison.spread}; bounds are for one line looked at alone: of twenty, one is wrong by chance"
