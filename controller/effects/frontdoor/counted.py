"""What users met between two moments of the wall clock, counted from the access log on the disk.

The log knows it across restarts of the daemon, of the front door and of the host, which no counter in a process does.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING

from ...core.route import Counted
from .accesslog import Entry, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

_STEP_BYTES = 1 << 20  # nearer than that the beginning is not searched, but read
_WELL = ("requests",)
_DOOR_ANSWERED = frozenset({"PR", "LR"})
_OUT_OF_ORDER_S = 60.0  # lines are in the order of their ends, but for a step of the wall clock


def count(log: Path, spans: Sequence[tuple[float, float]]) -> tuple[tuple[Counted, ...], float | None]:
    """For each of `spans` (seconds since the epoch) what users met; and since when the log tells.

    That is 0 where it has everything, None where there is no log. Of a long time under much traffic only the newest
    part is kept (docs/frontdoor.md), and who shows the numbers has to say since when they are.
    """
    sums: list[Counter[str]] = [Counter() for _ in spans]
    waits_s = [0.0 for _ in spans]
    parts = [log.with_name(f"{log.name}.1"), log]
    since_s = min((begin for begin, _ in spans), default=0.0)
    told_since_s = _first_end_s(parts[0]) if parts[0].exists() else 0.0 if log.exists() else None
    for entry in (entry for part in parts for entry in _entries(part, since_s - _OUT_OF_ORDER_S)):
        if entry.door != "public" or entry.path == "/health":
            continue
        kinds = _kinds(entry)
        for number, (begin, end) in enumerate(spans):
            if begin <= entry.end_s < end:
                sums[number].update(kinds)
                waits_s[number] = max(waits_s[number], entry.held_s or 0.0)
    counts = (Counted(**found, longest_wait_s=wait_s) for found, wait_s in zip(sums, waits_s, strict=True))
    return tuple(counts), told_since_s


def _kinds(entry: Entry) -> tuple[str, ...]:
    """What of `Counted` it counts as."""
    if entry.status < 500 and not entry.hold and entry.termination == "--":
        return _WELL
    sent_away = entry.status == 503 and entry.termination in _DOOR_ANSWERED
    timed_out = entry.hold == "timed_out"
    refused = entry.hold == "full" or (sent_away and not timed_out)
    found = {
        "requests": True,
        "held": entry.hold not in {"", "full"},
        "released": entry.hold == "released",
        "timed_out": timed_out,
        "left": entry.hold == "left",
        "refused": refused,
        "cut": entry.is_truncated,
        "errors_5xx": entry.status >= 500 and not refused and not timed_out,
    }
    return tuple(name for name, holds in found.items() if holds)


def _entries(part: Path, since_s: float) -> Iterator[Entry]:
    with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
        file.seek(_offset(file, since_s))
        for line in file:
            if (entry := parse(line)) is not None:
                yield entry


def _offset(file: BinaryIO, since_s: float) -> int:
    """Somewhere before the first line of `since_s`, at most a step before it."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        end_s = _next_end_s(file, middle)
        if end_s is None or end_s >= since_s:
            high = middle
        else:
            low = middle
    return low


def _next_end_s(file: BinaryIO, offset: int) -> float | None:
    """When the first whole request behind `offset` ended."""
    file.seek(offset)
    if offset:
        file.readline()
    for line in file:
        if (entry := parse(line)) is not None:
            return entry.end_s
    return None


def _first_end_s(part: Path) -> float | None:
    with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
        return _next_end_s(file, 0)
    return None
