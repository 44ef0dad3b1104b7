"""Ctrl-C, `kill` and a closed terminal end a run of gates in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED: Final = 130
"""The exit code, as a shell reports SIGINT."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[threading.Event]:
    """Gates run in sessions of their own and do not hear Ctrl-C: they are ended, and what was found is still shown.

    What is ignored stays ignored: `nohup` means that a closed terminal ends nothing.
    """
    cancel = threading.Event()
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in heard}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
