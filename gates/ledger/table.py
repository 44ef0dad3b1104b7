"""The tables as data: rows by configuration, and one metric across configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.ledger.columns import Column
from gates.ledger.rows import Configuration, Row, canonical
from gates.ledger.words import workload_in_words


@dataclass(frozen=True)
class Group:
    """Rows of one configuration, in the order of the ladder, the newest first within a rung."""

    configuration: Configuration
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Matrix:
    """One metric of one workload: a line per configuration, a column per concurrency. Only rows that count are in it.

    `cells[i][j]`: the newest row, None where nothing was measured.
    """

    workload: str
    column: Column
    concurrencies: tuple[int, ...]
    configurations: tuple[Configuration, ...]
    cells: tuple[tuple[Row | None, ...], ...]


def groups(rows: Iterable[Row]) -> tuple[Group, ...]:
    """By configuration; the configuration that was measured last comes last, where a terminal ends."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.started_at, row.id)):
        key = row.configuration.identity
        members = found.pop(key, [])  # and in again, at the end
        members.append(row)
        found[key] = members
    return tuple(Group(members[-1].configuration, tuple(_in_ladder_order(members))) for members in found.values())


def matrices(rows: Iterable[Row], column: Column) -> tuple[Matrix, ...]:
    """`rows` of one source: a matrix that mixed them would hide which number is whose."""
    shown = [row for row in rows if row.counts and column.figure(row).value is not None]
    by_workload: dict[str, list[Row]] = {}
    for row in _in_ladder_order(shown):
        by_workload.setdefault(workload_key(row), []).append(row)
    names = _distinct_names(shown)
    return tuple(_matrix(names[key], column, members) for key, members in by_workload.items())


def _matrix(name: str, column: Column, rows: Sequence[Row]) -> Matrix:
    concurrencies = tuple(sorted({row.cell.key.concurrency for row in rows}))
    found = groups(rows)
    lines = []
    for group in found:
        newest = {row.cell.key.concurrency: row for row in sorted(group.rows, key=lambda r: (r.started_at, r.id))}
        lines.append(tuple(newest.get(concurrency) for concurrency in concurrencies))
    return Matrix(name, column, concurrencies, tuple(group.configuration for group in found), tuple(lines))


def workload_key(row: Row) -> str:
    """Name and definition: equal for one workload alone."""
    return f"{row.cell.key.workload}\n{canonical(row.definition)}"


def _in_ladder_order(rows: Sequence[Row]) -> list[Row]:
    """By prompt length, workload, concurrency; the newest first."""

    def place(row: Row) -> tuple[float, str, int, int]:
        length = row.definition.get("prompt_tokens")
        size = float(length) if isinstance(length, int | float) else float("inf" if length == "limit" else 0)
        return (size, workload_key(row), row.cell.key.concurrency, -row.id)

    return sorted(rows, key=place)


def workload_names(rows: Sequence[Row]) -> dict[str, str]:
    """By `workload_key`: the name where it says which workload is meant, else with its lengths."""
    meant: dict[str, set[str]] = {}
    for row in rows:
        meant.setdefault(row.cell.key.workload, set()).add(workload_key(row))
    long = _distinct_names(rows)
    return {key: name if len(keys) == 1 else long[key] for name, keys in meant.items() for key in keys}


def _distinct_names(rows: Sequence[Row]) -> dict[str, str]:
    """Short names; two workloads that would read the same are numbered."""
    names: dict[str, str] = {}
    for row in rows:
        key = workload_key(row)
        if key not in names:
            name = workload_in_words(row.cell.key.workload, row.definition)
            same = sum(other == name or other.startswith(f"{name} #") for other in names.values())
            names[key] = f"{name} #{same + 1}" if same else name
    return names
