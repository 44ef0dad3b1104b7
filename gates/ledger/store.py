"""The ledger: every measurement ever taken. Rows are added and retracted, never edited, and never leave."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates.errors import nearest
from gates.ledger.database import PATIENCE_S, reading, writing
from gates.ledger.encoding import COLUMNS, MODEL, TABLES, UNNAMED, cell_body, row_of, run_body
from gates.ledger.errors import LedgerError, LedgerRefusedError, NoSuchRowError
from gates.ledger.rows import Configuration, Kind, Row, Source, canonical, configuration_of
from gates.ledger.spread import Tau, spread_between_starts
from gates.throughput.records import DECODE, Cell, Run

if TYPE_CHECKING:
    import sqlite3

    from gates.ledger.reference import Reference
    from gates.ledger.selection import Selection

_SHORT_DIGEST: Final = 8


@dataclass(frozen=True)
class Recorded:
    """What `record` made: the run's id and the numbers of its rows, in the order of the cells."""

    run: str
    rows: tuple[int, ...]


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The ledger in `path`. Made by the first row; any number of processes may write and read it at a time.

    Every method raises `LedgerError` with one sentence where the file cannot be used, and then has changed nothing.
    `patience_s`: how long another process that holds the file is waited for.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = _now, *, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self._now = now
        self._patience_s = patience_s

    def refuse_unwritable(self) -> None:
        """To be asked before an hour of measuring: could rows be kept here? Makes nothing."""
        with reading(self.path, self._patience_s):
            pass
        place = (
            self.path if self.path.exists() else next(each for each in self.path.absolute().parents if each.exists())
        )
        if not os.access(place, os.W_OK) or (place != self.path and not place.is_dir()):
            raise LedgerError(
                f"the ledger {self.path} cannot be used: nothing can be written there; name another file with "
                "--ledger-file, or keep nothing with --no-ledger"
            )

    # --- writing ------------------------------------------------------------------------------------------------------

    def record(
        self,
        run: Run,
        *,
        who: str,
        hardware: Mapping[str, Any],
        kind: Kind = Kind.CELL,
        start: str = "",
        note: str = "",
        run_id: str | None = None,
    ) -> Recorded:
        """Keep a run of our own, one row per cell, all or none.

        `hardware`: see `Configuration`. `start` names the start of the engine (an attempt's id); without one every
        run counts as a start of its own. Raises `LedgerRefusedError` when `run_id` was recorded before.
        """
        started_at = _utc(run.started_at)
        name = run_id or _run_id(started_at)
        unknown = sorted({cell.key.workload for cell in run.cells} - set(run.workloads))
        if unknown:
            raise LedgerError(f"the run has cells of the workload {unknown[0]!r}, and does not say what that is")
        configuration = configuration_of(run, hardware)
        with _plain("the configuration"):
            body = run_body(configuration, start or name, "", note, run.duration_s)
        cells = [_cell_values(cell, run.workloads[cell.key.workload]) for cell in run.cells]
        with writing(self.path, self._patience_s) as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (name,)).fetchone():
                raise LedgerRefusedError(f"the run {name} is in the ledger already; nothing was recorded twice")
            self._add_run(db, name, Source.OURS, kind, started_at, who, configuration, body)
            return Recorded(name, _add_cells(db, name, cells))

    def add_reference(self, references: Sequence[Reference], *, who: str) -> tuple[int, ...]:
        """Keep what was typed in from elsewhere, all or none; the numbers of the new rows, in their order."""
        rows: list[int] = []
        with writing(self.path, self._patience_s) as db:
            for reference in references:
                started_at = _utc(reference.date)
                name = _run_id(started_at)
                body = run_body(reference.configuration, name, reference.origin, reference.note, 0.0)
                self._add_run(db, name, Source.REFERENCE, Kind.CELL, started_at, who, reference.configuration, body)
                cell = reference.cell
                rows += _add_cells(db, name, [_cell_values(cell, reference.definition)])
        return tuple(rows)

    def retract(self, what: str, *, reason: str, who: str) -> tuple[Row, ...]:
        """Take a row (its number) or all rows of a run (its id) out of every conclusion; they stay visible.

        Returns the rows as they are now. Raises `NoSuchRowError`, and `LedgerRefusedError` when all of them were
        retracted before.
        """
        if not reason.strip():
            raise LedgerRefusedError("a row is retracted with a reason; say in words what the next reader has to know")
        rows = self.find(what)
        fresh = [row for row in rows if row.retracted is None]
        if not fresh:
            first = rows[0].retracted
            assert first is not None  # noqa: S101 - what is not fresh is retracted
            raise LedgerRefusedError(f"{what} was retracted already, on {first.at} by {first.who}: {first.reason}")
        at = self._now().isoformat(timespec="seconds")
        with writing(self.path, self._patience_s) as db:
            for row in fresh:
                # Somebody else may have been quicker: the first reason stays.
                db.execute("INSERT OR IGNORE INTO retractions VALUES (?, ?, ?, ?)", (row.id, at, who, reason.strip()))
        return self.find(what)

    def _add_run(
        self,
        db: sqlite3.Connection,
        name: str,
        source: Source,
        kind: Kind,
        started_at: str,
        who: str,
        configuration: Configuration,
        body: str,
    ) -> None:
        c = configuration
        at = self._now().isoformat(timespec="seconds")
        about = (c.topology, c.release, c.digest, c.engine, c.engine_version, body)
        values = (name, source, kind, started_at, at, who, *about)
        db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - question marks

    # --- reading ------------------------------------------------------------------------------------------------------

    def rows(self, selection: Selection) -> tuple[Row, ...]:
        """The rows that `selection` names, the oldest run first, in the order in which they were recorded."""
        condition, values = selection.sql()
        with reading(self.path, self._patience_s) as db:
            if db is None:
                return ()
            query = f"SELECT {COLUMNS} FROM {TABLES} WHERE {condition} ORDER BY started_at, cells.id"  # noqa: S608 - the condition is made of our own words and question marks
            return tuple(row_of(record) for record in db.execute(query, values))

    def find(self, what: str) -> tuple[Row, ...]:
        """One row by its number, or the rows of a run by its id. Raises `NoSuchRowError`."""
        number = int(what) if what.isdecimal() and len(what) <= 18 else -1
        with reading(self.path, self._patience_s) as db:
            if db is None:
                raise NoSuchRowError(f"there is no row {what}: the ledger {self.path} is empty")
            query = f"SELECT {COLUMNS} FROM {TABLES} WHERE cells.id = ? OR cells.run = ? ORDER BY cells.id"  # noqa: S608 - our own words
            rows = tuple(row_of(record) for record in db.execute(query, (number, what)))
            if rows:
                return rows
            last = db.execute("SELECT max(id) FROM cells").fetchone()[0]
            runs = [run for (run,) in db.execute("SELECT id FROM runs")]
        if what.isdecimal():
            raise NoSuchRowError(f"there is no row {what} in the ledger {self.path}; its newest is {last}")
        raise NoSuchRowError(f"there is no row or run {what} in the ledger {self.path}; {nearest(what, runs[-8:])}")

    def known(self, source: Source | None = None) -> dict[str, tuple[str, ...]]:
        """The names that selections can use: topology, release, engine, workload → what the ledger has of them; model:
        of what has neither topology nor release.
        """
        found: dict[str, tuple[str, ...]] = {}
        with reading(self.path, self._patience_s) as db:
            for name in ("topology", "release", "engine", "workload"):
                query = f"SELECT DISTINCT {name} FROM {TABLES} WHERE {name} <> '' AND source LIKE ? ORDER BY {name}"  # noqa: S608 - our own words
                found[name] = tuple(value for (value,) in db.execute(query, (source or "%",))) if db else ()
            query = f"SELECT DISTINCT {MODEL} FROM {TABLES} WHERE {UNNAMED} AND source LIKE ? ORDER BY 1"  # noqa: S608 - our own words
            found["model"] = tuple(value for (value,) in db.execute(query, (source or "%",)) if value) if db else ()
        return found

    # --- for gates ----------------------------------------------------------------------------------------------------

    def latest(
        self,
        digest: str,
        *,
        workload: Mapping[str, Any] | None = None,
        hardware: Mapping[str, Any] | None = None,
        rounds: int = 0,
    ) -> tuple[Row, ...]:
        """What a release showed last: the newest row of our own that counts, for every cell.

        `digest`: of the release, whole or at least its first eight characters. `workload`: only cells of exactly this
        definition. `hardware`: only rows that agree with every key in it (`gpus`, `driver`, `host`, …). `rounds`: only
        rows of so many or more, so that a quick look does not hide a measurement.
        """
        return newest_by_cell(self._of_release(digest, workload, hardware, rounds))

    def starts(
        self, digest: str, *, hardware: Mapping[str, Any] | None = None, rounds: int = 0
    ) -> dict[str, tuple[Row, ...]]:
        """What every named start of a release showed last, by the start's name; see `latest`."""
        found: dict[str, list[Row]] = {}
        for row in self._of_release(digest, None, hardware, rounds):
            if row.kind is Kind.RESTART:
                found.setdefault(row.start, []).append(row)
        return {start: newest for start, rows in found.items() if (newest := newest_by_cell(rows))}

    def _of_release(
        self, digest: str, workload: Mapping[str, Any] | None, hardware: Mapping[str, Any] | None, rounds: int
    ) -> list[Row]:
        """Rows of our own, from old to new."""
        if len(digest) < _SHORT_DIGEST:
            raise LedgerError(f"{digest!r} is no digest of a release; expected at least {_SHORT_DIGEST} characters")
        with reading(self.path, self._patience_s) as db:
            if db is None:
                return []
            query = (
                f"SELECT {COLUMNS} FROM {TABLES} WHERE source = 'ours' AND length(digest) >= ? "  # noqa: S608 - our own words
                "AND substr(digest, 1, length(?2)) = substr(?2, 1, length(digest)) ORDER BY started_at, cells.id"
            )
            rows = [row_of(record) for record in db.execute(query, (_SHORT_DIGEST, digest))]
        return [row for row in rows if row.rounds >= rounds and _agrees(row, workload, hardware)]

    def tau(
        self,
        engine: str,
        *,
        engine_version: str | None = None,
        digest: str | None = None,
        hardware: Mapping[str, Any] | None = None,
        metric: str = DECODE,
    ) -> Tau | None:
        """How far starts of the same engine lie apart, as measured by restarts kept here; see `spread.py`.

        None when fewer than two starts of one release on one hardware were ever measured.
        """
        from gates.ledger.selection import Selection

        rows = self.rows(Selection(sources=(Source.OURS,), kind=Kind.RESTART, retracted=False))
        mine = [
            row
            for row in rows
            if row.configuration.engine == engine
            and engine_version in (None, row.configuration.engine_version)
            and (digest is None or _same_digest(row.configuration.digest, digest))
            and _agrees(row, None, hardware)
        ]
        return spread_between_starts(mine, metric)


def newest_by_cell(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Of rows from old to new, those that count and that no newer row of the same cell replaces."""
    newest: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        if row.counts:
            newest[row.cell.key.workload, canonical(row.definition), row.cell.key.concurrency] = row
    return tuple(sorted(newest.values(), key=lambda row: row.id))


def _agrees(row: Row, workload: Mapping[str, Any] | None, hardware: Mapping[str, Any] | None) -> bool:
    if workload is not None and canonical(row.definition) != canonical(workload):
        return False
    mine = row.configuration.hardware
    return all(key in mine and canonical(mine[key]) == canonical(value) for key, value in (hardware or {}).items())


def _same_digest(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    return shorter >= _SHORT_DIGEST and one[:shorter] == other[:shorter]


def _add_cells(db: sqlite3.Connection, run: str, cells: Iterable[tuple[str, int, str, str]]) -> tuple[int, ...]:
    insert = "INSERT INTO cells (run, workload, concurrency, definition, body) VALUES (?, ?, ?, ?, ?)"
    return tuple(int(db.execute(insert, (run, *cell)).lastrowid or 0) for cell in cells)


def _cell_values(cell: Cell, definition: Mapping[str, Any]) -> tuple[str, int, str, str]:
    with _plain(str(cell.key)):
        return (cell.key.workload, cell.key.concurrency, canonical(definition), cell_body(cell))


@contextlib.contextmanager
def _plain(what: str) -> Iterator[None]:
    """Numbers that are none must not get in: a NaN in a ledger poisons every median after it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise LedgerError(f"{what} cannot be recorded: {error}; expected plain data with finite numbers") from None


def _utc(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LedgerError(f"{text!r} is no date; expected ISO 8601 in UTC, as 2026-11-30T02:00:00+00:00") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="seconds")


def _run_id(started_at: str) -> str:
    """`b20261130-020000-3fa9c1`: sorts by time, and two that begin in the same second differ."""
    moment = datetime.fromisoformat(started_at)
    return f"b{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
