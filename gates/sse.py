"""Server-sent events out of body pieces: each event with the arrival time of the bytes that completed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gates.wire import Piece


@dataclass(frozen=True)
class Event:
    """The joined `data` lines of one event."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class StrayLine:
    """A line that is neither a field nor a comment: framing is broken here."""

    at_s: float
    line: bytes


_FIELDS = (b"data", b"event", b"id", b"retry")


def events(pieces: Iterable[Piece]) -> Iterator[Event | StrayLine]:
    """Events in order. An event that the end of the body cut off is given too: the reader of JSON will judge it."""
    data: list[bytes] = []
    at_s = 0.0
    for at_s, line in _lines(pieces):
        if not line:
            if data:
                yield Event(at_s, b"\n".join(data))
                data = []
            continue
        name, _, value = line.partition(b":")
        if not name:
            continue  # a comment, as `: ping`
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name not in _FIELDS:
            yield StrayLine(at_s, line)
    if data:
        yield Event(at_s, b"\n".join(data))


def _lines(pieces: Iterable[Piece]) -> Iterator[tuple[float, bytes]]:
    held: list[bytes] = []  # joined once per line: an endless line without a newline stays linear
    at_s = 0.0
    for piece in pieces:
        at_s = piece.at_s
        first, *rest = piece.data.split(b"\n")
        held.append(first)
        for part in rest:
            yield at_s, b"".join(held).removesuffix(b"\r")
            held = [part]
    last = b"".join(held)
    if last:
        yield at_s, last
