"""Named points at which tests make the daemon die. In production `crash_point` does nothing.

`CUTOVER_CRASH_AT=name` kills the process with SIGKILL the first time that point is reached, `name:3` the third time.
A simulator in this process listens instead, and raises where the daemon shall die.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

POINTS = (
    "begin-before",
    "begin-torn",  # inside the transaction of an intent
    "begin-after",
    "effect-before",
    "effect-after",
    "finish-before",
    "finish-torn",  # inside the transaction of an outcome
    "finish-after",
    "request-before",
    "request-after",  # filed, and nobody was told
)

_reached: Counter[str] = Counter()
_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None] | None) -> None:
    """Hear of every point that is reached, until the next call; None: nobody does."""
    _listeners[:] = [listener] if listener is not None else []


def crash_point(name: str) -> None:
    """Die here if a test asked for it."""
    if _listeners:
        _listeners[0](name)
        return
    armed = os.environ.get("CUTOVER_CRASH_AT")
    if not armed:
        return
    wanted, _, count = armed.partition(":")
    if name != wanted:
        return
    _reached[name] += 1
    if _reached[name] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
