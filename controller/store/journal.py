"""The SQLite journal: the intent before an effect, the outcome after it. One writer.

`Journal.state` is the newest committed state; it is immutable, so anyone may read it without a lock.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ..core import actions as act
from ..core.moves import conclude, intend
from ..core.records import Attempt, Now, Release, Rollout, State
from ..crashpoints import crash_point
from .database import StoreError, open_database

_RELEASE = TypeAdapter(Release)
_ROLLOUT = TypeAdapter(Rollout)
_ATTEMPT = TypeAdapter(Attempt)
_STATE = TypeAdapter(State)


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


def subject_of(action: act.Action) -> str:
    for name in ("attempt", "run", "rollout"):
        value = getattr(action, name, None)
        if isinstance(value, str):
            return value
    return ""


def rollout_of(action: act.Action, state: State) -> str:
    value = getattr(action, "rollout", None)
    if isinstance(value, str):
        return value
    attempt = state.attempts.get(getattr(action, "attempt", ""))
    return attempt.rollout if attempt else ""


class Journal:
    """The one writer of the state directory's database.

    Raises `StoreError` (see `store.database`) when the database cannot be opened, is damaged or is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = self._open(path)
        self.state = load_state(self._db)
        self.seq = self.last_seq()  # of the newest line; may be read without a lock

    def _open(self, path: Path) -> sqlite3.Connection:
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
            seq = self._write(state, action, why, now, done)
        crash_point("begin-after")
        return seq

    def finish(self, seq: int, action: act.Effect, outcome: act.Outcome, now: Now) -> None:
        """Journal what came of an effect."""
        crash_point("finish-before")
        with self._lock:
            state = conclude(self.state, action, outcome, now)
            text = "ok" if outcome.ok else f"failed: {outcome.sentence}"
            with self._db:
                self._save(state)
                crash_point("finish-torn")
                self._db.execute("UPDATE journal SET outcome = ?, ended_s = ? WHERE seq = ?", (text, now.boot_s, seq))
            self.state = state
        crash_point("finish-after")

    def request(
        self, key: str | None, who: str, verb: str, now: Now, make: Callable[[State], tuple[act.Record, str]]
    ) -> str:
        """File what somebody asked for. `make` sees the newest state and returns the record and its sentence.

        Returns the id of the rollout that it is about, or "". The same key again changes nothing and is answered as
        the first time.
        """
        crash_point("request-before")
        with self._lock:
            row = self._db.execute("SELECT answer FROM requests WHERE key = ?", (key,)).fetchone() if key else None
            if row is not None:
                return str(row[0])
            action, why = make(self.state)
            state = intend(self.state, action, now, why)
            about = newest_rollout(state) if isinstance(action, act.Propose) else rollout_of(action, state)
            asked = (key, now.wall_s, who, verb, about)
            extra = ("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", asked) if key else None
            try:
                self._write(state, action, why, now, "ok", extra)
            except sqlite3.Error as error:
                raise StoreError(f"the journal cannot be written ({error}); nothing was filed") from error
        crash_point("request-after")
        return about

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
        extra: tuple[str, tuple[Any, ...]] | None = None,
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
            if extra:
                self._db.execute(*extra)
        self.state = state
        self.seq = int(cursor.lastrowid or 0)
        return self.seq

    def _save(self, state: State) -> None:
        """Write the records that changed: unchanged ones are the same objects."""
        old = self.state
        rows: list[tuple[str, str, str]] = []
        rows += _changed("release", old.releases, state.releases, _RELEASE)
        rows += _changed("rollout", old.rollouts, state.rollouts, _ROLLOUT)
        rows += _changed("attempt", old.attempts, state.attempts, _ATTEMPT)
        rows.append(("state", "", _STATE.dump_json(replace(state, releases={}, rollouts={}, attempts={})).decode()))
        self._db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", rows)

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

    def last_seq(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])


def load_state(db: sqlite3.Connection) -> State:
    """The newest committed state. Raises `StoreError` for a record that is not what this version writes."""
    try:
        row = db.execute("SELECT body FROM records WHERE kind = 'state'").fetchone()
        state: State = _STATE.validate_json(row[0]) if row else State()
        return replace(
            state,
            releases=_records(db, "release", _RELEASE),
            rollouts=_records(db, "rollout", _ROLLOUT),
            attempts=_by_number(_records(db, "attempt", _ATTEMPT)),
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


def _by_number(attempts: dict[str, Attempt]) -> dict[str, Attempt]:
    """Attempts in the order in which they were made: rules take the last one for the newest."""
    return dict(sorted(attempts.items(), key=lambda item: int(item[0].rsplit("-", 1)[1])))


def _changed(
    kind: str, old: Mapping[str, Any], new: Mapping[str, Any], adapter: TypeAdapter[Any]
) -> list[tuple[str, str, str]]:
    return [(kind, key, adapter.dump_json(value).decode()) for key, value in new.items() if old.get(key) is not value]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
