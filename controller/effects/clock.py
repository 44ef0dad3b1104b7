"""The only reader of time. Boot time runs through suspends; the wall clock is only ever shown."""

from __future__ import annotations

import time
from pathlib import Path

from ..core.records import Now

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    def __init__(self) -> None:
        self._boot_id = _BOOT_ID.read_text().strip()

    def now(self) -> Now:
        return Now(self._boot_id, self.boot_s(), time.time())

    @staticmethod
    def boot_s() -> float:
        """Seconds since boot, suspends included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
