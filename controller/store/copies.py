"""Copies of the journal by SQLite's online backup, and putting another database in its place."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.records import Now, State
from ..errors import NotFoundError, RefusedError
from .condition import Condition, look
from .database import StoreError
from .journal import Journal

SIDECARS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The highest number that was ever given to a rollout and to an attempt."""

    rollouts: int = 0
    attempts: int = 0


def backup(journal: Path, target: Path, *, replace: bool = False) -> Condition:
    """Copy the journal as it is at one moment, also while a daemon writes it; the copy is one file.

    It is checked, forced to disk and only then given its name. Raises `NotFoundError` where there is no journal,
    `RefusedError` where `target` exists and may not be replaced, `StoreError` where it cannot be read or written.
    """
    refuse_existing(journal, target, replace=replace)
    new = target.with_name(f".{target.name}.new")
    try:
        with removed_if_broken(new):
            copy_database(journal, new)
            found = look(new)
            if not found.usable:
                raise StoreError(f"the journal cannot be backed up: {found.sentence}")
            new.replace(target)
            sync(target.parent)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{journal} could not be copied to {target}: {words(error)}") from error
    return found


def refuse_existing(journal: Path, target: Path, *, replace: bool) -> None:
    if not journal.exists():
        raise NotFoundError(f"there is no journal {journal}: nothing was ever proposed here")
    if target.exists() and not target.is_file():  # /dev/null would be a file of ours from then on, and root may do that
        raise RefusedError(f"{target} is no file whose place a backup could take: name another")
    if target.exists() and (not replace or target.samefile(journal)):
        hint = "it is the journal itself" if target.samefile(journal) else "--force replaces it"
        raise RefusedError(f"{target} exists: name another file ({hint})")


def restore(source: Path, journal: Path, at_least: Numbers) -> Path | None:
    """Put a copy of the database `source` in the journal's place; returns where the old one lies now, if there was one.

    The caller holds the state directory's lock. New rollouts and attempts count on from `at_least`, so that none gets
    the name of one that the copy is too old to know. Raises `StoreError`; the journal is untouched then.
    """
    new = journal.with_name(f"{journal.name}.new")
    try:
        with removed_if_broken(new):
            copy_database(source, new)
            _count_on(new, at_least)
            return put_in_place(new, journal)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{source} could not be restored to {journal}: {words(error)}") from error


def put_in_place(new: Path, journal: Path) -> Path | None:
    """Rename `new` to the journal; the old one is kept beside. A crash in between leaves the one or the other."""
    sync(new)
    old = set_aside(journal)
    new.replace(journal)
    sync(journal.parent)
    return old


def remake(journal: Path, state: State, why: str, now: Now) -> Path | None:
    """Put a new journal that begins with `state` in the journal's place; returns where the old one lies now."""
    new = journal.with_name(f"{journal.name}.new")
    try:
        with removed_if_broken(new):
            new.unlink(missing_ok=True)
            fresh = Journal(new)
            fresh.begin_with(state, why, now)
            fresh.close()
            return put_in_place(new, journal)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"a new journal could not be written in {journal.parent}: {words(error)}") from error


def set_aside(journal: Path) -> Path | None:
    """Keep the journal under a second name, and take its write-ahead log away from what comes in its place."""
    if not journal.exists():
        for suffix in SIDECARS:
            journal.with_name(journal.name + suffix).unlink(missing_ok=True)
        return None
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(journal)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else what its log holds would have to come with it
    old = _free_name(journal)
    os.link(journal, old)
    for suffix in SIDECARS:
        with contextlib.suppress(FileNotFoundError):
            journal.with_name(journal.name + suffix).rename(old.with_name(old.name + suffix))
    return old


def _free_name(journal: Path) -> Path:
    names = (journal.with_name(f"{journal.stem}.old-{number}{journal.suffix}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def copy_database(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    uri = f"file:{source}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as old,
        contextlib.closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")  # one file that can be carried away; the daemon sets its own mode
    sync(target)


def _count_on(path: Path, at_least: Numbers) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        row = db.execute("SELECT body FROM records WHERE kind = 'state'").fetchone()
        if row is None:
            return
        state = json.loads(row[0])
        state["rollout_seq"] = max(state["rollout_seq"], at_least.rollouts)
        state["attempt_seq"] = max(state["attempt_seq"], at_least.attempts)
        db.execute("UPDATE records SET body = ? WHERE kind = 'state'", (json.dumps(state),))


@contextlib.contextmanager
def removed_if_broken(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for suffix in ("", "-journal", *SIDECARS):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def words(error: sqlite3.Error | OSError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
