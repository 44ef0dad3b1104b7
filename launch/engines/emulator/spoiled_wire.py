"""The wire of an answer that a fault has struck: written well, read back, edited, written again."""

import json
from collections.abc import Iterator, Sequence

from .faults import Edit, Event
from .tokens import Piece
from .wire import LAST_CHUNK, Usage, Wire, Written, compact, framed

_DATA = b"data: {"


class SpoiledWire:
    """Wraps the wire of any dialect. Slower than that one, and used for struck answers only."""

    def __init__(self, inner: Wire, edits: Sequence[Edit]) -> None:
        self.request_id = inner.request_id
        self._inner = inner
        self._edits = edits

    def opening(self, choice: int = 0) -> bytes:
        return self._edited(self._inner.opening(choice))

    def events(self, group: list[Piece], choice: int = 0, usage: Usage | None = None) -> bytes:
        return self._edited(self._inner.events(group, choice, usage))

    def finishing(self, finish: str, choice: int = 0, matched: str | None = None, usage: Usage | None = None) -> bytes:
        return self._edited(self._inner.finishing(finish, choice, matched, usage))

    def closing(self, usage: Usage | None) -> bytes:
        return self._edited(self._inner.closing(usage))

    def failure(self, message: str, kind: str, status: int) -> bytes:
        return self._inner.failure(message, kind, status)

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        for edit in self._edits:
            for written in choices:
                edit.written(written)
        document = json.loads(self._inner.body(choices, usage))
        for edit in self._edits:
            document = edit.body(document)
        return compact(document)

    def finish_of_calls(self) -> str:
        return self._inner.finish_of_calls()

    def _edited(self, data: bytes) -> bytes:
        whole, ending = (data.removesuffix(LAST_CHUNK), LAST_CHUNK) if data.endswith(LAST_CHUNK) else (data, b"")
        events = [_read(event) for event in _unframed(whole)]
        for edit in self._edits:
            events = edit.stream(events)
        return b"".join(framed(_written(event)) for event in events) + ending


def _unframed(data: bytes) -> Iterator[bytes]:
    """The events inside HTTP chunks, one event in each."""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        data = rest[length + 2 :]


def _read(event: bytes) -> Event:
    if not event.startswith(_DATA):
        return event
    document: Event = json.loads(event.removeprefix(b"data: "))
    return document


def _written(event: Event) -> bytes:
    return event if isinstance(event, bytes) else b"data: " + compact(event) + b"\n\n"
