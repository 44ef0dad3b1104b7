"""Requests, errors and times to the first byte of every attempt, counted from the access log."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, NamedTuple

from ...core.route import Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .accesslog import Entry, Follower

FIRST_BYTES_KEPT = 512
_MOST_ENTRIES = 100_000  # of one attempt: a bake of ten minutes at 160 requests/s


class _Totals(NamedTuple):
    """Running totals up to and including one entry, so that "since" is a subtraction."""

    requests: int = 0
    errors_5xx: int = 0
    truncated: int = 0
    client_left: int = 0

    def plus(self, entry: Entry) -> _Totals:
        return _Totals(
            self.requests + 1,
            self.errors_5xx + (entry.status >= 500),
            self.truncated + entry.is_truncated,
            self.client_left + entry.client_left,
        )


class _Tally:
    """What one attempt has answered, in the order of the log."""

    def __init__(self) -> None:
        self._ends_s: list[float] = []
        self._totals: list[_Totals] = []
        self._first_bytes_s: list[float | None] = []
        self._forgotten = _Totals()

    def add(self, end_s: float, entry: Entry) -> None:
        before = self._totals[-1] if self._totals else self._forgotten
        self._ends_s.append(end_s)
        self._totals.append(before.plus(entry))
        self._first_bytes_s.append(entry.header_s)
        if len(self._ends_s) > 2 * _MOST_ENTRIES:
            self._forgotten = self._totals[_MOST_ENTRIES - 1]
            for kept in (self._ends_s, self._totals, self._first_bytes_s):
                del kept[:_MOST_ENTRIES]

    def since(self, since_s: float, attempt: str) -> Traffic:
        first = bisect.bisect_left(self._ends_s, since_s)
        before = self._totals[first - 1] if first else self._forgotten
        now = self._totals[-1]
        first_bytes_s = [value for value in self._first_bytes_s[first:] if value is not None]
        counted = _Totals(*(late - early for late, early in zip(now, before, strict=True)))
        return Traffic(attempt, *counted, first_byte_s=tuple(first_bytes_s[-FIRST_BYTES_KEPT:]))


class TrafficCounter:
    """Users' traffic: the public address only. The preview's is that of the gates, who measure it themselves."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._tallies: dict[str, _Tally] = {}
        self._read_at_s = 0.0  # boot time clock
        self._last_end_s = 0.0

    def since(self, since_s: float) -> Mapping[str, Traffic]:
        """By attempt: requests that ended at ``since_s`` (boot time clock) or later. One without any is absent.

        "" has what the door answered itself: refused, waited too long, not on the list, and, as 5xx, what every engine
        it was given to went away from. At most the last 100,000 requests of an attempt are remembered.
        """
        self._take_in()
        found = ((attempt, tally.since(since_s, attempt)) for attempt, tally in self._tallies.items())
        return {attempt: traffic for attempt, traffic in found if traffic.requests}

    def _take_in(self) -> None:
        """HAProxy stamps lines with the wall clock; its distance to the boot time clock is that of this moment.

        A line that is new must have been written since the last look: that bounds what a step of the wall clock can do.
        """
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        distance_s = now_s - time.time()
        for entry in self._follower.read():
            end_s = min(max(entry.end_s + distance_s, self._read_at_s, self._last_end_s), now_s)
            self._last_end_s = end_s
            if entry.door == "public":
                self._tallies.setdefault(entry.attempt, _Tally()).add(end_s, entry)
        self._read_at_s = now_s
