"""The SQLite journal: the intent before an effect, the outcome after it. One writer.

`Journal.state` is the newest committed state; it is immutable, so anyone may read it without a lock.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ..core import actions as act
from ..core.forgetting import KEEP, to_forget, words
from ..core.frozen import replace
from ..core.moves import conclude, intend
from ..core.night_records import Night, Sweep
from ..core.records import Attempt, Now, Phase, Release, Rollout, Seat, State
from ..crashpoints import crash_point
from ..errors import RefusedError
from .ballast import Ballast
from .database import StoreError, open_database

_RELEASE = TypeAdapter(Release)
_ROLLOUT = TypeAdapter(Rollout)
_ATTEMPT = TypeAdapter(Attempt)
_NIGHT = TypeAdapter(Night)
_SWEEP = TypeAdapter(Sweep)
_STATE = TypeAdapter(State)
BEGINS = frozenset({"propose", "restart", "sweep"})
"""Verbs that begin something new: refused while the disk is full."""

_APART = frozenset({"releases", "rollouts", "attempts", "nights", "sweeps"})  # a row for each of their records
_BARE = attrgetter(*(field.name for field in fields(State) if field.name not in _APART))

Written = TypeVar("Written")
Statements = tuple[tuple[str, tuple[Any, ...]], ...]
_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal, as people read it."""

    seq: int
    wall_s: float
    action: str
    subject: str
    rollout: str
    why: str
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the journal with the action itself, for whoever tells others what happened."""

    seq: int
    wall_s: float
    action: str
    rollout: str
    why: str
    detail: Mapping[str, Any]  # the action's own fields, as JSON has them


def subject_of(action: act.Action) -> str:
    for name in ("attempt", "run", "rollout", "gpu"):
        value = getattr(action, name, None)
        if isinstance(value, str):
            return value
    return ""


def rollout_of(action: act.Action, state: State) -> str:
    """In whose story a line stands: who makes room drains, sleeps and is woken in that of the one who needs it.

    What is done to the release that a way back leads to stands in that of the way back, which waits for it.
    """
    for name in ("rollout", "gives_way_to", "for_rollout"):
        if isinstance(value := getattr(action, name, None), str) and value:
            return value
    attempt = state.attempts.get(getattr(action, "attempt", ""))
    if attempt is None:
        return ""
    active = state.active
    seat = Seat(attempt.release, attempt.rollout)
    if active is not None and active.phase is Phase.ROLLING_BACK and active.target == seat:
        return active.id
    return attempt.rollout if attempt.is_staying else attempt.gave_way_to or attempt.rollout


class Journal:
    """The one writer of the state directory's database.

    Raises `StoreError` (see `store.database`) when the database cannot be opened, is damaged or is of a newer version.
    """

    def __init__(self, path: Path, ballast: Ballast | None = None) -> None:
        """`ballast`: what is given away when the disk is full, so that a way back can still be written."""
        self._lock = threading.RLock()
        self._path = path
        self._ballast = ballast
        self._db = self._open(path)
        self._inode = _inode(path)
        self.state = load_state(self._db)
        self.seq = self.last_seq()  # of the newest line; may be read without a lock

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            return open_database(path)
        except StoreError as error:  # a log and its index have to be made beside it
            cause = error.__cause__
            if not isinstance(cause, sqlite3.Error) or not self._make_room(cause):
                raise
        return open_database(path)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin(self, action: act.Action, why: str, now: Now) -> int:
        """Journal the intent of `action`; returns its sequence number. Raises `IllegalMove` and changes nothing."""
        crash_point("begin-before")
        with self._lock:
            state = intend(self.state, action, now, why)
            done = "ok" if isinstance(action, act.Record) else None
            seq = self._with_room(lambda: self._write(state, action, why, now, done))
        crash_point("begin-after")
        return seq

    def finish(self, seq: int, action: act.Effect, outcome: act.Outcome, now: Now) -> None:
        """Journal what came of an effect."""
        crash_point("finish-before")
        with self._lock:
            state = conclude(self.state, action, outcome, now)
            text = "ok" if outcome.ok else f"failed: {outcome.sentence}"
            self._with_room(lambda: self._conclude(state, text, now, seq))
            self.state = state
        crash_point("finish-after")

    def _conclude(self, state: State, text: str, now: Now, seq: int) -> None:
        with self._db:
            self._save(state)
            crash_point("finish-torn")
            self._db.execute("UPDATE journal SET outcome = ?, ended_s = ? WHERE seq = ?", (text, now.boot_s, seq))

    def request(
        self, key: str | None, who: str, verb: str, now: Now, make: Callable[[State], tuple[act.Record, str]]
    ) -> str:
        """File what somebody asked for. `make` sees the newest state and returns the record and its sentence.

        Returns the id of the rollout or sweep that it is about, or "". The same key again changes nothing and is
        answered as the first time. `RefusedError`: it was used for something else, so that nothing would come of this.
        """
        crash_point("request-before")
        with self._lock:
            if key and (told := self._asked_before(key, who, verb)) is not None:
                return told
            if verb in BEGINS and self._ballast is not None and self._ballast.is_dropped:
                raise RefusedError("the disk is full: nothing new is begun until there is room; nothing was filed")
            action, why = make(self.state)
            state = intend(self.state, action, now, why)
            about = filed_as(action, state)
            asked = (key, now.wall_s, who, verb, about)
            extra: Statements = (("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", asked),) if key else ()
            try:
                if verb in BEGINS:  # what was kept free is for the way back
                    self._write(state, action, why, now, "ok", extra)
                else:
                    self._with_room(lambda: self._write(state, action, why, now, "ok", extra))
            except sqlite3.Error as error:
                raise StoreError(f"the journal cannot be written ({error}); nothing was filed") from error
        crash_point("request-after")
        return about

    def _asked_before(self, key: str, who: str, verb: str) -> str | None:
        """What was answered then; None: this key is new. Raises `RefusedError`."""
        row = self._db.execute("SELECT who, verb, answer FROM requests WHERE key = ?", (key,)).fetchone()
        if row is not None and (row[0], row[1]) != (who, verb):
            raise RefusedError(f"this key was used before, by {row[0]} to {row[1]}: every request has its own")
        return None if row is None else str(row[2])

    def forget(self, ended_before_wall_s: float, now: Now, keep: act.KeepOfThePast = KEEP) -> str:
        """Take out what has ended before that moment and nobody needs: its records, its lines, and what was asked then.

        All in one transaction. Returns what went, in words; empty: nothing. The ballast is not for this: raises
        `sqlite3.Error` on a full disk.
        """
        crash_point("request-before")
        with self._lock:
            action = to_forget(self.state, ended_before_wall_s, keep)
            told = words(action)
            if not told and not self._has_lines_before(ended_before_wall_s):
                return ""
            why = f"nobody needs it any more: {told or 'old lines'}"
            state = intend(self.state, action, now, why)
            self._write(state, action, why, now, "ok", _of_the_past(action))
        crash_point("request-after")
        return told or "old lines"

    def _has_lines_before(self, wall_s: float) -> bool:
        """Of those that belong to no rollout; a year of them is looked at by its first."""
        first = self._db.execute("SELECT wall_s FROM journal WHERE rollout = '' ORDER BY seq LIMIT 1").fetchone()
        return first is not None and first[0] < wall_s

    def _with_room(self, write: Callable[[], Written]) -> Written:
        """Once more with the ballast's room, where there was none and there is ballast."""
        try:
            return write()
        except sqlite3.Error as error:
            if not self._make_room(error):
                raise
        return write()

    def _make_room(self, error: sqlite3.Error) -> bool:
        return self._ballast is not None and self._ballast.helps(error) and self._ballast.drop()

    def relieve(self) -> None:
        """Something else that leads back could not be written: where the disk is full, its room is the ballast's."""
        if self._ballast is not None and self._ballast.helps(OSError()):
            self._ballast.drop()

    def mend(self) -> str:
        """Look whether somebody has removed the journal's files under us, and put them back; a sentence where not.

        SQLite goes on writing to a removed file, and all of it would be gone with this process. What was committed
        between the removal and this look is lost only if the process dies before it.
        """
        sidecars = [self._path.with_name(f"{self._path.name}{suffix}") for suffix in ("-wal", "-shm")]
        with self._lock:
            there = _inode(self._path)
            if there is not None and there != self._inode:
                return (
                    f"{self._path} was replaced under the daemon: put it back, or restart the daemon to use the other"
                )
            if there is not None and all(path.exists() for path in sidecars):
                return ""
            try:
                if there is None:
                    self._write_anew()
                elif self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return (
                        f"{sidecars[0]} was removed under the daemon, and somebody reads the journal: it is tried again"
                    )
                self._db.close()
                self._db = self._open(self._path)
                self._inode = _inode(self._path)
            except (sqlite3.Error, OSError) as error:
                return f"the files of {self._path} were removed under the daemon and cannot be put back: {error}"
        return ""

    def _write_anew(self) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(new)) as copy:
            self._db.backup(copy)
        for suffix in ("-wal", "-shm"):  # of the one that is gone: they must not be taken for this one's
            self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)
        new.replace(self._path)

    def begin_with(self, state: State, why: str, now: Now) -> None:
        """The first entry of a journal that is made anew of what was found."""
        with self._lock, self._db:
            self._save(state)
            row = (now.wall_s, now.boot_id, now.boot_s, "Rebuild", "", "", why, "{}", "ok")
            self._db.execute(
                "INSERT INTO journal (wall_s, boot_id, boot_s, action, subject, rollout, why, detail, outcome)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        self.state = state

    def _write(
        self,
        state: State,
        action: act.Action,
        why: str,
        now: Now,
        outcome: str | None,
        extra: Statements = (),
    ) -> int:
        with self._db:
            self._save(state)
            crash_point("begin-torn")
            cursor = self._db.execute(
                "INSERT INTO journal (wall_s, boot_id, boot_s, action, subject, rollout, why, detail, outcome)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    now.wall_s,
                    now.boot_id,
                    now.boot_s,
                    type(action).__name__,
                    subject_of(action) or (newest_rollout(state) if isinstance(action, act.Propose) else ""),
                    rollout_of(action, state) or (newest_rollout(state) if isinstance(action, act.Propose) else ""),
                    why,
                    to_json(action, fallback=_plain).decode(),
                    outcome,
                ),
            )
            for statement in extra:
                self._db.execute(*statement)
        self.state = state
        self.seq = int(cursor.lastrowid or 0)
        return self.seq

    def _save(self, state: State) -> None:
        """Write the records that changed, unchanged ones are the same objects; take out those that are gone."""
        old = self.state
        rows: list[tuple[str, str, str]] = []
        rows += _changed("release", old.releases, state.releases, _RELEASE)
        rows += _changed("rollout", old.rollouts, state.rollouts, _ROLLOUT)
        rows += _changed("attempt", old.attempts, state.attempts, _ATTEMPT)
        rows += _changed("night", old.nights, state.nights, _NIGHT)
        rows += _changed("sweep", old.sweeps, state.sweeps, _SWEEP)
        if not self.seq or any(new is not had for new, had in zip(_BARE(state), _BARE(old), strict=True)):
            bare = replace(state, releases={}, rollouts={}, attempts={}, nights={}, sweeps={})
            rows.append(("state", "", _STATE.dump_json(bare).decode()))
        if rows:
            self._db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", rows)
        if gone := [*_gone(old, state)]:
            self._db.executemany("DELETE FROM records WHERE kind = ? AND id = ?", gone)

    # --- reading ------------------------------------------------------------------------------------------------------

    def entries(self, after: int = 0, rollout: str | None = None, limit: int = 500) -> list[Entry]:
        """Journal lines with a sequence number above `after`, oldest first."""
        query = "SELECT seq, wall_s, action, subject, rollout, why, outcome FROM journal WHERE seq > ?"
        values: list[Any] = [after]
        if rollout is not None:
            query += " AND rollout = ?"
            values.append(rollout)
        with self._lock:
            rows = self._db.execute(query + " ORDER BY seq LIMIT ?", (*values, limit)).fetchall()
        return [Entry(*row) for row in rows]

    def lines(self, after: int, limit: int = 500) -> list[Line]:
        """The same with what was done, oldest first. `state` is at least as new as what this returns."""
        query = "SELECT seq, wall_s, action, rollout, why, detail FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
        with self._lock:
            rows = self._db.execute(query, (after, limit)).fetchall()
        return [Line(seq, at_s, what, of, why, from_json(detail)) for seq, at_s, what, of, why, detail in rows]

    def seq_at(self, wall_s: float) -> int:
        """The newest line of before that moment; as near as lines are in the order of the clock on the wall."""
        low, high = 0, self.last_seq()
        query = "SELECT wall_s FROM journal WHERE seq >= ? ORDER BY seq LIMIT 1"
        while low < high:
            middle = (low + high + 1) // 2
            with self._lock:
                row = self._db.execute(query, (middle,)).fetchone()
            if row is not None and row[0] < wall_s:
                low = middle
            else:
                high = middle - 1
        return low

    def last_seq(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def load_state(db: sqlite3.Connection) -> State:
    """The newest committed state. Raises `StoreError` for a record that is not what this version writes."""
    try:
        row = db.execute("SELECT body FROM records WHERE kind = 'state'").fetchone()
        state: State = _STATE.validate_json(row[0]) if row else State()
        return replace(
            state,
            releases=_records(db, "release", _RELEASE),
            rollouts=_by_number(_records(db, "rollout", _ROLLOUT)),
            attempts=_by_number(_records(db, "attempt", _ATTEMPT)),
            nights=_records(db, "night", _NIGHT),
            sweeps=_by_number(_records(db, "sweep", _SWEEP)),
        )
    except (ValidationError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise StoreError(
            f"the journal holds a record that cannot be read ({first}); traffic is not touched: see `cutover doctor`"
        ) from error


def _records(db: sqlite3.Connection, kind: str, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    rows: Iterable[tuple[str, str]] = db.execute("SELECT id, body FROM records WHERE kind = ? ORDER BY id", (kind,))
    return {key: adapter.validate_json(body) for key, body in rows}


def newest_rollout(state: State) -> str:
    return f"r{state.rollout_seq:04d}"


def filed_as(action: act.Record, state: State) -> str:
    """The id that what was just filed got, or of what it is about."""
    if isinstance(action, act.Propose):
        return newest_rollout(state)
    return f"s{state.sweep_seq:04d}" if isinstance(action, act.FileSweep) else rollout_of(action, state)


def _by_number(records: dict[str, Any]) -> dict[str, Any]:
    """In the order in which they were made: rules take the last one for the newest. ``r9999`` is before ``r10000``."""
    return dict(sorted(records.items(), key=lambda item: int(_NUMBER.search(item[0])[0])))  # type: ignore[index]


def _changed(
    kind: str, old: Mapping[str, Any], new: Mapping[str, Any], adapter: TypeAdapter[Any]
) -> list[tuple[str, str, str]]:
    if new is old:
        return []
    return [(kind, key, adapter.dump_json(value).decode()) for key, value in new.items() if old.get(key) is not value]


def _gone(old: State, new: State) -> Iterator[tuple[str, str]]:
    for kind, had, has in (
        ("release", old.releases, new.releases),
        ("rollout", old.rollouts, new.rollouts),
        ("attempt", old.attempts, new.attempts),
        ("night", old.nights, new.nights),
        ("sweep", old.sweeps, new.sweeps),
    ):
        if has is not had and not had.keys() <= has.keys():
            yield from ((kind, name) for name in had if name not in has)


def _of_the_past(action: act.Forget) -> Statements:
    """Lines of what goes, old ones of no rollout, and what was asked for then: its keys do not come again."""
    before = (action.ended_before_wall_s,)
    return (
        *(("DELETE FROM journal WHERE rollout = ?", (rollout,)) for rollout in action.rollouts),
        ("DELETE FROM journal WHERE rollout = '' AND wall_s < ?", before),
        ("DELETE FROM requests WHERE wall_s < ?", before),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
