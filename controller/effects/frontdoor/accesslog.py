"""The access log, read as it grows: one JSON object per request, between HAProxy's own messages."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

_FINGERPRINT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished request. Times are of HAProxy; ``end_s`` is its wall clock."""

    end_s: float
    door: str  # public or preview
    attempt: str  # "" when no engine was asked
    status: int  # -1 when none was sent
    termination: str  # HAProxy's two letters: who ended it, and in which state
    header_s: float | None  # from the request sent to the engine until its response header
    path: str
    hold: str = ""  # how its wait at the door ended: released, timed_out, refused, full, left; "": it did not wait
    held_s: float | None = None

    @property
    def is_truncated(self) -> bool:
        """The engine's side ended a response that had begun (or we did: ``K``, a slot that was cut)."""
        return self.termination[:1] in ("S", "s", "K", "D", "U") and self.termination[1:2] in ("D", "L")

    @property
    def client_left(self) -> bool:
        return self.termination[:1] in ("C", "c")


def parse(line: bytes) -> Entry | None:
    """None for a line that is not a request of ours."""
    if not line.startswith(b'{"end_ms"'):
        return None
    try:
        record = json.loads(line)
        header_ms = record["header_ms"]
        return Entry(
            end_s=record["end_ms"] / 1000,
            door=record["door"],
            attempt=next((name for name in (record["attempt"], record["slot_attempt"]) if name != "-"), ""),
            status=record["status"],
            termination=record["end"],
            header_s=header_ms / 1000 if header_ms >= 0 else None,
            path=record["path"],
            hold=str(record.get("hold", "-")).replace("-", ""),
            held_s=float(held_ms) / 1000 if (held_ms := str(record.get("held_ms", "-"))).isdigit() else None,
        )
    except (ValueError, KeyError, TypeError):  # cut in two by a rotation, or a full disk
        return None


class Follower:
    """New entries since the last call, also across a cut of the log in place (its newest part goes to ``.1``)."""

    def __init__(self, log: Path, history_bytes: int = 8 << 20) -> None:
        self._log = log
        self._kept = log.with_name(f"{log.name}.1")
        self._history_bytes = history_bytes
        self._offset: int | None = None  # None: nothing read yet
        self._before = b""  # the bytes in front of the offset: they tell whether this is still the text we know

    def read(self) -> list[Entry]:
        """The first call goes back ``history_bytes``, so that a daemon that starts again still knows its traffic."""
        try:
            with self._log.open("rb") as file:
                return [entry for line in self._new_text(file).splitlines() if (entry := parse(line))]
        except FileNotFoundError:
            return []

    def _new_text(self, file: BinaryIO) -> bytes:
        size_bytes = file.seek(0, os.SEEK_END)
        if self._offset is None:
            earlier = self._tail_of_kept(self._history_bytes - size_bytes)
            self._offset = max(0, size_bytes - self._history_bytes)
        elif self._is_same(file, size_bytes):
            earlier = b""
        else:
            earlier = self._rest_of_kept()
            self._offset, self._before = 0, b""
        file.seek(self._offset)
        text = file.read(size_bytes - self._offset)
        whole = text[: text.rfind(b"\n") + 1]  # a line that is being written waits for the next call
        self._offset += len(whole)
        self._before = (self._before + whole)[-_FINGERPRINT_BYTES:]
        return earlier + whole

    def _is_same(self, file: BinaryIO, size_bytes: int) -> bool:
        assert self._offset is not None  # noqa: S101  # the caller has looked
        if size_bytes < self._offset:
            return False
        file.seek(self._offset - len(self._before))
        return file.read(len(self._before)) == self._before

    def _rest_of_kept(self) -> bytes:
        """What was written after our last look and before the cut."""
        with contextlib.suppress(FileNotFoundError):
            kept = self._kept.read_bytes()
            found = kept.rfind(self._before) if self._before else -1
            return kept[found + len(self._before) :] if found >= 0 else b""
        return b""

    def _tail_of_kept(self, most_bytes: int) -> bytes:
        if most_bytes <= 0:
            return b""
        with contextlib.suppress(FileNotFoundError), self._kept.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read()
        return b""
