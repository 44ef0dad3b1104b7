"""Server-sent events out of body pieces: each event with the arrival time of the bytes that completed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gates.wire import Piece


class Event(NamedTuple):
    """The joined `data` lines of one event."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class StrayLine:
    """A line that is neither a field nor a comment: framing is broken here."""

    at_s: float
    line: bytes


class Flood(StrayLine):
    """The last that is given: so many lines came that the rest is not read. `line` says so."""


MAX_LINES: Final = 1_000_000
"""The longest answers have some hundred thousand lines, pings included; blank lines and comments are cheap to send."""

_FIELDS = (b"data", b"event", b"id", b"retry")


BEFORE = b"data: "
AFTER = b"\n\n"
"""What stands around an event on one line."""


def events(
    pieces: Iterable[Piece], take: Callable[[float, bytes], bool] = lambda _at_s, _data: False
) -> Iterator[Event | StrayLine]:
    """Events in order. An event that the end of the body cut off is given too: the reader of JSON will judge it.

    `take` is offered every piece that begins where an event begins, with its time; what it takes is not given.
    """
    lines = _Lines()
    for at_s, data in pieces:
        if not (lines.held or lines.data):
            if take(at_s, data):
                continue
            # Nearly every piece is one event on one line and needs no closer look.
            if data.startswith(BEFORE) and data.endswith(AFTER):
                said = data[len(BEFORE) : -len(AFTER)]
                if b"\n" not in said and b"\r" not in said:
                    yield Event(at_s, said)
                    continue
        yield from lines.feed(at_s, data)
        if lines.count > MAX_LINES:
            yield Flood(at_s, b"more than %d lines came; the rest was not read" % MAX_LINES)
            return
    yield from lines.end()


@dataclass
class _Lines:
    """Lines and events that go over the ends of pieces."""

    held: list[bytes] = field(default_factory=list)  # joined once per line: an endless one stays linear
    data: list[bytes] = field(default_factory=list)
    at_s: float = 0.0
    count: int = 0

    def feed(self, at_s: float, data: bytes) -> Iterator[Event | StrayLine]:
        self.at_s = at_s
        first, *rest = data.split(b"\n")
        self.held.append(first)
        self.count += len(rest)
        for part in rest:
            yield from self._line(b"".join(self.held).removesuffix(b"\r"))
            self.held = [part] if part else []

    def end(self) -> Iterator[Event | StrayLine]:
        if last := b"".join(self.held):
            yield from self._line(last)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[Event | StrayLine]:
        name, _, value = line.partition(b":")
        if not line:
            if self.data:
                yield Event(self.at_s, b"\n".join(self.data))
                self.data = []
        elif name == b"data":
            self.data.append(value.removeprefix(b" "))
        elif name and name not in _FIELDS:  # no name: a comment, as `: ping`
            yield StrayLine(self.at_s, line)
