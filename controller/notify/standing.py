"""Alarms as events: told once when they stand, and again only after they were gone for a while. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from ..core.records import Now
from .events import Event, sentence
from .kinds import Kind, Severity

SETTLE_S = 10.0
"""What the box heals by itself before that (a front door that is started again) calls nobody."""
FORGET_S = 600.0
"""An alarm that comes and goes is one alarm."""

_FIGURE = re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?= (?:s|min|h|d|KiB|MiB|GiB|messages?|times)\b)")


class Standing:
    """Which alarms stand, and which of them people were told of."""

    def __init__(self, told: Mapping[str, str], now: Now) -> None:
        """`told`: digest of an alarm → id of its event, as a daemon before this one left it."""
        self.told = dict(told)
        self._first_s: dict[str, float] = {}
        self._last_s = dict.fromkeys(told, now.boot_s)

    def look(self, sentences: Iterable[str], now: Now) -> list[Event]:
        """What is new: it has stood for `SETTLE_S` without a break, and nobody was told."""
        standing = {_digest(text): text for text in sentences}
        for digest in standing:
            self._first_s.setdefault(digest, now.boot_s)
            self._last_s[digest] = now.boot_s
        self._forget(standing, now)
        new = [
            Event(f"alarm.{digest}.{now.wall_s:.0f}", Kind.ALARM, Severity.CRITICAL, sentence(text), now.wall_s)
            for digest, text in standing.items()
            if digest not in self.told and now.boot_s - self._first_s[digest] >= SETTLE_S
        ]
        self.told |= {event.id.split(".")[1]: event.id for event in new}
        return new

    def _forget(self, standing: Mapping[str, str], now: Now) -> None:
        for digest, last_s in list(self._last_s.items()):
            if digest in standing:
                continue
            self._first_s.pop(digest, None)
            if digest not in self.told or now.boot_s - last_s >= FORGET_S:
                self.told.pop(digest, None)
                del self._last_s[digest]


def _digest(text: str) -> str:
    """Of the sentence without its figures: `since 40 s` and `since 41 s` are one alarm."""
    return hashlib.sha256(_FIGURE.sub("#", text).encode()).hexdigest()[:12]
