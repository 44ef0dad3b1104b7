"""An alarm clock with nanosecond due times: one timerfd for every stream of the engine.

The event loop's own timers count whole milliseconds, which is the whole error we allow ourselves. A timerfd
is armed with the absolute due time of the next chunk, so errors neither round nor add up.
"""

import asyncio
import ctypes
import os
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class Paced(Protocol):
    """Something with due times."""

    def emit(self, due_ns: int) -> None:
        """Do what is due, and nothing else: other streams are due in this very instant."""

    def advance(self) -> int | None:
        """Afterwards, with time to spare: prepare the next thing. When it is due, or None when there is none."""


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class Pacer:
    """Calls `emit` at the due time and then `advance`, for as long as that returns a next due time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = loop
        self._heap: list[tuple[int, int, Paced]] = []
        self._turns: deque[Callable[[], None]] = deque()
        self._sequence = 0
        self._armed_ns = 0
        self._spec = _Itimerspec()
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._fd, self._rang)

    def schedule(self, due_ns: int, paced: Paced) -> None:
        """Put something on the clock; `due_ns` is CLOCK_MONOTONIC, a time in the past is due at once."""
        self._sequence += 1
        heappush(self._heap, (due_ns, self._sequence, paced))
        self._arm()

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> None:
        """Call something once at a due time."""
        self.schedule(due_ns, _Once(callback))

    def in_turn(self, step: Callable[[], None]) -> None:
        """Call something soon, one per turn of the loop: between two of them the loop reads what has come meanwhile."""
        self._turns.append(step)
        if len(self._turns) == 1:
            self._loop.call_soon(self._take_turn)

    def run_due(self) -> None:
        """Do everything that is due by now. Also called between other work, so that it delays no chunk."""
        heap = self._heap
        if not heap or heap[0][0] > time.monotonic_ns():
            return
        fired: list[Paced] = []
        while heap and heap[0][0] <= time.monotonic_ns():
            due_ns, _, paced = heappop(heap)
            paced.emit(due_ns)
            fired.append(paced)
        for paced in fired:
            next_ns = paced.advance()
            if next_ns is not None:
                self._sequence += 1
                heappush(heap, (next_ns, self._sequence, paced))
        self._arm()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _take_turn(self) -> None:
        try:
            self._turns[0]()
        finally:
            self._turns.popleft()
            if self._turns:
                self._loop.call_soon(self._take_turn)

    def _rang(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # re-armed between the wake-up and this read
        self._armed_ns = 0
        self.run_due()
        self._arm()

    def _arm(self) -> None:
        if not self._heap or self._heap[0][0] == self._armed_ns:
            return
        # 0 would disarm the timer; a due time in the past rings at once.
        self._armed_ns = max(1, self._heap[0][0])
        self._spec.value.seconds, self._spec.value.nanoseconds = divmod(self._armed_ns, _NS_PER_S)
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None)


class _Once:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def emit(self, due_ns: int) -> None:  # noqa: ARG002 - the protocol's shape
        self._callback()

    def advance(self) -> int | None:
        return None
