"""Named points at which tests make the daemon die. In production `crash_point` does nothing.

`CUTOVER_CRASH_AT=name` kills the process with SIGKILL the first time that point is reached, `name:3` the third time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_reached: Counter[str] = Counter()
_armed = os.environ.get("CUTOVER_CRASH_AT", "")


def crash_point(name: str) -> None:
    """Die here if a test asked for it."""
    if not _armed:
        return
    wanted, _, count = _armed.partition(":")
    if name != wanted:
        return
    _reached[name] += 1
    if _reached[name] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
