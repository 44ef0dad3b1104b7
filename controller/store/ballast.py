"""Room that nobody else can take: a file that is removed when the disk is full, so that a way back can be written.

A full disk takes commits away when they are needed most. What was kept free this way is given to the write that failed;
the file is made again when there is plenty of room.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path

_CHUNK_BYTES = 1 << 20
ROOM_FACTOR = 4  # of its size must be free before it is made again, or it would take what it has just given
_NOTHING_BYTES = 256 << 10  # below that a disk is full, whatever an error is called


class Ballast:
    """`size_bytes` 0: there is none. May be used from several threads."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._dropped = False

    @property
    def is_dropped(self) -> bool:
        """It was given away, and there is no room yet to make it again."""
        return self._dropped

    @property
    def is_needed(self) -> bool:
        """The disk is full, or was and what is free on it is the ballast's room."""
        return self._dropped or is_full(self._path.parent)

    def helps(self, error: sqlite3.Error | OSError) -> bool:
        """Whether that failed for want of room. SQLite calls some of it an I/O error."""
        if isinstance(error, OSError):
            return is_full(self._path.parent)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return True
        broken = code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
        return broken and is_full(self._path.parent)

    def drop(self) -> bool:
        """Give the room away; whether there was any to give."""
        with self._lock:
            try:
                self._path.unlink()
            except OSError:
                return False
            self._dropped = True
            return True

    def tend(self) -> str:
        """Make it where it is missing and there is room; a sentence for people while it is missing."""
        if not self._size_bytes:
            return ""
        with self._lock:
            with contextlib.suppress(OSError):
                if self._path.stat().st_size == self._size_bytes:
                    self._dropped = False
                    return ""
            if free_bytes(self._path.parent) >= ROOM_FACTOR * self._size_bytes:
                try:
                    self._make()
                except OSError as error:
                    return f"no ballast can be kept in {self._path.parent}: {error.strerror}"
                self._dropped = False
                return ""
            return self._sentence()

    def _sentence(self) -> str:
        free_mib, wanted_mib = free_bytes(self._path.parent) >> 20, ROOM_FACTOR * self._size_bytes >> 20
        what = "is full and its ballast is spent" if self._dropped else "has no room for ballast"
        then = "; nothing new is begun until there is" if self._dropped else ""
        return (
            f"the disk of {self._path.parent} {what} ({free_mib} MiB free, {wanted_mib} wanted): make room, "
            f"`cutover prune --dry-run` says what could go{then}"
        )

    def _make(self) -> None:
        """Random, or a file system that compresses would keep nothing free with it."""
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("wb") as file:
                for begun in range(0, self._size_bytes, _CHUNK_BYTES):
                    file.write(os.urandom(min(_CHUNK_BYTES, self._size_bytes - begun)))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)
            raise


def is_full(directory: Path) -> bool:
    return free_bytes(directory) < _NOTHING_BYTES


def is_spent(state_dir: Path, size_bytes: int) -> bool:
    """Whether what is free there is the ballast's room, for who is not the daemon; it makes it in its first seconds."""
    missing = (state_dir / "journal.sqlite").exists() and not (state_dir / "ballast").exists()
    return missing and free_bytes(state_dir) < ROOM_FACTOR * size_bytes


def free_bytes(directory: Path) -> int:
    """What an ordinary user may still write there; 0 where nobody can tell."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def total_bytes(directory: Path) -> int:
    """How large its file system is; 0 where nobody can tell."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize
