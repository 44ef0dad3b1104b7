"""What a journal file is, without changing it: sound, of another version, torn, or no database at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..core.records import State
from .database import StoreError, known_schema
from .journal import load_state

MAGIC = b"SQLite format 3\0"
REBUILD = (
    "traffic is not touched; `cutover restore FILE` takes a backup, and `cutover doctor --rebuild` makes a new journal "
    "of what runs; the damaged one is kept beside it"
)
UPGRADE = "traffic is not touched; install the version of cutover that wrote it, or `cutover restore` an older backup"


class Kind(StrEnum):
    ABSENT = "absent"
    EMPTY = "empty"
    SOUND = "sound"
    OLDER = "older"  # of a previous schema: the daemon migrates it when it opens it
    NEWER = "newer"
    STRANGE = "strange"  # a sound database, and none of ours
    NO_DATABASE = "no database"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Condition:
    """`sentence` says what was found, `remedy` what to do; `state` is what it holds, where it can be read."""

    kind: Kind
    sentence: str
    remedy: str = ""
    schema: int = 0
    entries: int = 0
    state: State | None = None

    @property
    def usable(self) -> bool:
        return self.kind in {Kind.SOUND, Kind.OLDER}


def look(path: Path) -> Condition:
    """Reads the whole file, which takes a second per some hundred MiB. Nothing is changed; raises nothing."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return Condition(Kind.ABSENT, f"{path} is not there")
    except OSError as error:
        return Condition(Kind.UNREADABLE, f"{path} cannot be read: {error.strerror}", "run this as the daemon's user")
    if not size_bytes:
        return Condition(Kind.EMPTY, f"{path} is empty", REBUILD)
    if not header.startswith(MAGIC):
        return Condition(Kind.NO_DATABASE, f"{path} is not a database", REBUILD)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as db:
            return _look_inside(path, db, header, size_bytes)
    except sqlite3.Error as error:
        return _broken(path, str(error), header, size_bytes)


def _look_inside(path: Path, db: sqlite3.Connection, header: bytes, size_bytes: int) -> Condition:
    said = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if said != "ok":
        return _broken(path, said.splitlines()[-1], header, size_bytes)
    schema, known = int(db.execute("PRAGMA user_version").fetchone()[0]), known_schema()
    if schema > known:
        sentence = f"{path} was written by a newer version (schema {schema}, this one knows {known})"
        return Condition(Kind.NEWER, sentence, UPGRADE, schema)
    tables = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"records", "journal", "requests"} <= tables:
        return Condition(Kind.STRANGE, f"{path} is a database, and not a journal of cutover", REBUILD, schema)
    if schema < 1:
        return Condition(Kind.DAMAGED, f"{path} has the tables of a journal and does not say its schema", REBUILD)
    entries = int(db.execute("SELECT count(*) FROM journal").fetchone()[0])
    try:
        state = load_state(db)
    except StoreError as error:
        return Condition(Kind.DAMAGED, f"{path}: {error}", REBUILD, schema, entries)
    if schema < known:
        sentence = f"{path} is of schema {schema}; the daemon brings it to {known}, {entries} entries"
        return Condition(Kind.OLDER, sentence, "", schema, entries, state)
    return Condition(Kind.SOUND, f"{path} is sound, {entries} entries", "", schema, entries, state)


def _broken(path: Path, said: str, header: bytes, size_bytes: int) -> Condition:
    """Whether it is shorter than it says of itself is asked only now: a write-ahead log may hold the rest."""
    page_bytes = int.from_bytes(header[16:18], "big")
    wanted_bytes = (65_536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")
    if size_bytes < wanted_bytes:
        sentence = f"{path} is truncated: {size_bytes} of {wanted_bytes} bytes are there ({said})"
        return Condition(Kind.TRUNCATED, sentence, REBUILD)
    if _is_on_read_only_disk(path):
        sentence = f"{path} cannot be looked at, its disk is read-only ({said})"
        return Condition(Kind.UNREADABLE, sentence, READ_ONLY)
    return Condition(Kind.DAMAGED, f"{path} is damaged ({said})", REBUILD)


READ_ONLY = (
    "traffic is not touched; see `dmesg` why, then `mount -o remount,rw` it: the daemon goes on by itself; what the "
    "kernel has stopped after an error has to be unmounted and repaired, which takes a reboot"
)
_STOPPED = frozenset({"emergency_ro", "shutdown"})  # ext4, xfs: after an error, and statvfs says nothing of it


def _is_on_read_only_disk(path: Path) -> bool:
    """Mounted so, or stopped by the kernel after an error."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY) or bool(_STOPPED & _superblock_options(path))
    except OSError:
        return False


def _superblock_options(path: Path) -> frozenset[str]:
    """Of the file system that `path` is on; empty where nobody can tell (btrfs has devices of its own)."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return frozenset(after.split()[-1].split(","))
    return frozenset()


def written_by_nobody(path: Path) -> str:
    """Why the journal cannot be written where it lies, in one sentence; empty when it can be."""
    if _is_on_read_only_disk(path.parent):
        return f"the disk of {path.parent} is read-only"
    for place in (path, path.parent):
        if place.exists() and not os.access(place, os.W_OK):
            return f"{place} cannot be written by this user"
    return ""
