"""A thread of its own for what takes long, or hangs with a disk: it delays no decision."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("rounds")


class Rounds:
    """Calls `look` again and again, `every_s` after the last one ended; one that raises is told, and the next comes."""

    def __init__(self, name: str, look: Callable[[], None], every_s: float) -> None:
        self._name = name
        self._look = look
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_ending(self) -> bool:
        """Whether a round that has more to do should leave it."""
        return self._ending.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing is looked at any more; the journal may be closed then."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._look()
            except Exception:
                # It looks after the house; that it stumbles must not bring down who decides.
                log.exception("a round failed", of=self._name)
            self._ending.wait(self._every_s)
