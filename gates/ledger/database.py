"""The SQLite file: made once, opened by many processes at a time, every failure told in one sentence."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from gates.ledger.errors import LedgerError

APPLICATION_ID: Final = 1129598023
PATIENCE_S: Final = 30.0
"""Writers hold the file for milliseconds; one that holds it this long is stuck."""


@contextlib.contextmanager
def writing(path: Path, patience_s: float = PATIENCE_S) -> Iterator[sqlite3.Connection]:
    """A connection inside a transaction: all of it is kept, or nothing. Makes the file when there is none."""
    with _in_sentences(path, "nothing was recorded", patience_s):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        _make_for_the_owner(path)
        with contextlib.closing(_open(path, patience_s)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite ends it by itself on a full disk
                    db.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def reading(path: Path, patience_s: float = PATIENCE_S) -> Iterator[sqlite3.Connection | None]:
    """A connection that sees one state of the file; None when there is no ledger yet. Never makes one."""
    with _in_sentences(path, "nothing was changed", patience_s):
        if not path.exists() or path.stat().st_size == 0:
            yield None
            return
        with contextlib.closing(_open_to_read(path, patience_s)) as db:
            db.execute("BEGIN")
            yield db


def _make_for_the_owner(path: Path) -> None:
    """Root may measure first: the file is theirs whose directory it lies in, and SQLite's files beside it follow."""
    if os.geteuid() == 0 and not path.exists():
        owner = path.parent.stat()
        path.touch()
        os.chown(path, owner.st_uid, owner.st_gid)


def _open_to_read(path: Path, patience_s: float) -> sqlite3.Connection:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        try:
            return _open(path, patience_s)
        except sqlite3.OperationalError as error:
            # A full disk has no room for the files that WAL mode wants beside this one; what is in it can be read.
            if _primary(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
                raise
    return _open_read_only(path, patience_s)


def _open(path: Path, patience_s: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        schema = _schema()
        if _version(db, path, len(schema)) < len(schema):
            _bring_up_to_date(db, path, schema)
        # NORMAL could lose the last rows in a power cut: FULL costs a millisecond, a measurement minutes.
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            db.execute(f"PRAGMA {pragma}")
        _refuse_damage(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _open_read_only(path: Path, patience_s: float) -> sqlite3.Connection:
    """For people who may read the ledger and not write beside it, as SQLite wants to in WAL mode."""
    # Without anything in a log beside it the file is the whole of it.
    log = path.with_name(f"{path.name}-wal")
    settled = not log.exists() or log.stat().st_size == 0
    address = f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if settled else "")
    db = sqlite3.connect(address, timeout=patience_s, isolation_level=None, uri=True)
    try:
        _refuse_older(db, path)
        _refuse_damage(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _refuse_older(db: sqlite3.Connection, path: Path) -> None:
    known = len(_schema())
    if _version(db, path, known) < known:
        raise LedgerError(
            f"the ledger {path} is of an older version, and you may not write it; let its owner read it once"
        )


def _bring_up_to_date(db: sqlite3.Connection, path: Path, schema: list[str]) -> None:
    """Under a kernel lock: two gates may find no ledger at the same moment, and only one may make it."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        db.execute("PRAGMA journal_mode=WAL")
        version = _version(db, path, len(schema))
        for number, script in enumerate(schema[version:], version + 1):
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
            except sqlite3.Error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
    finally:
        os.close(directory)


def _schema() -> list[str]:
    folder = resources.files("gates.ledger") / "schema"
    return [file.read_text() for file in sorted(folder.iterdir(), key=lambda f: f.name) if file.name.endswith(".sql")]


def _version(db: sqlite3.Connection, path: Path, known: int) -> int:
    """Which schema the file has; 0 for a new one. Raises `LedgerError` for what is no ledger of ours."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    mine = int(db.execute("PRAGMA application_id").fetchone()[0]) == APPLICATION_ID
    empty = not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if not mine and not (version == 0 and empty):
        raise LedgerError(f"{path} is a database, but no ledger; nothing was changed: name the ledger's own file")
    if version > known:
        raise LedgerError(
            f"the ledger {path} was written by a newer version (schema {version}, this one knows {known}); "
            "upgrade cutover, nothing was changed"
        )
    return version


def _refuse_damage(db: sqlite3.Connection, path: Path) -> None:
    problem = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise LedgerError(_damaged(path, problem))


def _damaged(path: Path, problem: object) -> str:
    said = " ".join(str(problem).split())
    return (
        f"the ledger {path} is damaged ({said}); nothing was changed: put a backup in its place, "
        f"or save what is left with `sqlite3 {path} .recover`"
    )


@contextlib.contextmanager
def _in_sentences(path: Path, consequence: str, patience_s: float) -> Iterator[None]:
    """Foreign exceptions are mapped here, and only here."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        primary = _primary(error)
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise LedgerError(_damaged(path, error)) from error
        if primary == sqlite3.SQLITE_BUSY:
            raise LedgerError(
                f"another process has held the ledger {path} for {patience_s:.0f} s; {consequence}: "
                f"see which one with `fuser {path}`"
            ) from error
        if primary == sqlite3.SQLITE_FULL:
            raise LedgerError(
                f"the disk of the ledger {path} is full; {consequence}: free some space and try again"
            ) from error
        raise LedgerError(f"the ledger {path} cannot be used ({error}); {consequence}") from error
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be used ({error.strerror}); {consequence}") from error


def _primary(error: sqlite3.Error) -> int | None:
    """SQLite's error code without what it adds to it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None
