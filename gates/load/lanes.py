"""The closed loop's bookkeeping: what a stream sends next, when it pauses, and why it stops."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gates.load.tape import Tape
from gates.wire import Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.load.cost import ClientCost
    from gates.wire import Failure

_PAUSE_S: Final = 0.1
"""After a failure: a server that refuses is not to be hammered."""
_MAX_FAILURES: Final = 3
_TIMER_S: Final = 0.01
"""So much too early may a timer be: the end of time is not to be taken for time left."""


@dataclass(frozen=True)
class Load:
    """What a closed loop brought back: per stream its exchanges in the order of its bodies, as far as they were sent.

    `unsent`: how many bodies never left; `stopped`: why, or None where only the time to send was over.
    """

    streams: tuple[tuple[Exchange, ...], ...]
    cost: ClientCost
    unsent: int = 0
    stopped: str | None = None

    @property
    def exchanges(self) -> list[Exchange]:
        return [exchange for stream in self.streams for exchange in stream]


@dataclass
class Window:
    """Bounds that all streams of a run share: monotonic times, and bytes held in memory."""

    deadline_s: float
    send_until_s: float
    request_timeout_s: float | None
    max_held_bytes: int
    held_bytes: int = 0
    stopped: str | None = None

    def until_s(self) -> float:
        """When a request that starts now has to be over."""
        if self.request_timeout_s is None:
            return self.deadline_s
        return min(self.deadline_s, time.monotonic() + self.request_timeout_s)

    def open(self) -> bool:
        if self.held_bytes > self.max_held_bytes:
            mib = self.max_held_bytes / 1024 / 1024
            self.stopped = self.stopped or f"the client holds {mib:g} MiB of answers; measure in shorter rounds"
            return False
        return time.monotonic() < min(self.send_until_s, self.deadline_s - _TIMER_S)


class Lane:
    """One stream."""

    def __init__(self, payloads: Sequence[bytes], window: Window) -> None:
        self.window = window
        self.pause_s = 0.0
        self._payloads = payloads
        self._ends: list[Tape | Exchange] = []
        self._failures = 0

    def next(self) -> bytes | None:
        """The body to send now, or None when this stream is over."""
        number = len(self._ends)
        if number == len(self._payloads) or not self.window.open():
            return None
        if self._failures >= _MAX_FAILURES:
            self.window.stopped = self.window.stopped or f"a stream failed {_MAX_FAILURES} times in a row and stopped"
            return None
        return self._payloads[number]

    def answered(self, tape: Tape) -> None:
        """The last body's answer has ended, well or not."""
        self._ends.append(tape)
        self.window.held_bytes += tape.size_bytes
        self._count(good=tape.good)

    def unanswered(self, failure: Failure) -> None:
        """The last body could not be sent."""
        now_s = time.monotonic()
        payload = self._payloads[len(self._ends)]
        self._ends.append(Exchange("POST", "", payload, now_s, now_s, failure=failure))
        self._count(good=False)

    def exchanges(self, path: str) -> tuple[Exchange, ...]:
        """All answers in HTTP's terms; once, after the run."""
        return tuple(
            end.exchange("POST", path, payload) if isinstance(end, Tape) else end
            for end, payload in zip(self._ends, self._payloads, strict=False)
        )

    def _count(self, *, good: bool) -> None:
        self._failures = 0 if good else self._failures + 1
        self.pause_s = 0.0 if good else _PAUSE_S
