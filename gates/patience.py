"""A limit of computing time for what may take for ever: a user's regular expression on an unlucky text, say."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class RunawayError(Exception):
    """It took longer than it was allowed. The text, if any, says what it was."""


@contextmanager
def computing_limit(limit_s: float) -> Iterator[None]:
    """Raises `RunawayError` in whatever runs inside for `limit_s` of this process's own computing time.

    Not of the clock's: a busy machine must not make anything a runaway. A timer's signal is what reaches Python's `re`
    in the middle of a match; no other thread gets a turn meanwhile. Only the main thread hears signals, in others
    nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    inside = True

    def over(number: int, frame: FrameType | None) -> None:
        del number, frame
        if inside:
            raise RunawayError

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        inside = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
