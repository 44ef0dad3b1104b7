"""What is still to be told, per destination, in a file that survives the daemon.

Written before anything is sent, and again after: whatever kills the daemon in between makes a message come twice, with
the same id, and never lets one get lost. A disk that takes nothing stops nobody: it is kept in memory, and written as
soon as it can be.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import structlog

from .. import wholefile
from ..core.records import Now
from .destination import Destination
from .events import Event, event_from

log = structlog.get_logger("notify")

MOST_WAITING = 200
"""Messages that wait for one destination; the oldest goes when there is one more."""
OLDEST_S = 86_400.0
"""What happened longer ago is not news."""
_REMEMBERED = 512  # ids of what was told lately: the same line may be looked at again after a crash
_WRITE_EVERY = 200  # lines of the journal that tell nothing, after which the place is written down all the same


@dataclass(slots=True)
class Lane:
    """Of one destination."""

    waiting: deque[Event] = field(default_factory=deque)
    dropped: int = 0  # since the last message that was taken
    reached_wall_s: float | None = None
    failing_since_s: float | None = None  # on the clock of the box, in `failing_boot_id`
    failing_boot_id: str = ""
    trouble: str = ""  # of the last try; empty: it was taken, or there was none


class Outbox:
    """Thread-safe. Every change is on disk before the method returns, unless the disk takes nothing."""

    def __init__(self, file: Path, to: Sequence[Destination], start_at: int, now: Callable[[], Now]) -> None:
        """`start_at`: the journal's newest line; where there is no file, nothing of before is told."""
        self._file = file
        self._to = {destination.name: destination for destination in to}
        self._now = now
        self._lock = threading.Lock()
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)
        self._unwritten = False
        self.cursor = start_at
        self.told_alarms: Mapping[str, str] = {}
        self._since_s: dict[str, float] = {}  # of messages that wait: when they happened, on the clock of the box
        self._lanes = {name: Lane() for name in self._to}
        self._written_cursor = start_at
        if not self._read(start_at):
            self._write()  # from here on nothing is missed, also by a daemon that is killed before anything happens

    # --- what happened ------------------------------------------------------------------------------------------------

    def put(self, events: Iterable[Event], cursor: int, told_alarms: Mapping[str, str]) -> None:
        """Everything up to the journal's line `cursor` was looked at, and this came out."""
        with self._lock:
            new = 0
            for event in events:
                if event.id not in self._recent:  # two lines of one look may tell the same
                    self._recent.append(event.id)
                    self._queue(event)
                    new += 1
            changed = bool(new) or told_alarms != self.told_alarms or cursor - self._written_cursor >= _WRITE_EVERY
            self.cursor, self.told_alarms = cursor, dict(told_alarms)
            if changed or self._unwritten:
                self._write()

    def _queue(self, event: Event) -> None:
        for name, lane in self._lanes.items():
            if not self._to[name].target.wants(event.kind, event.severity):
                continue
            lane.waiting.append(event)
            self._since_s.setdefault(event.id, self._now().boot_s)
            if len(lane.waiting) > MOST_WAITING:
                self._drop(name, lane, f"{MOST_WAITING} wait already")

    def _drop(self, name: str, lane: Lane, why: str) -> None:
        gone = lane.waiting.popleft()
        self._forget(gone)
        lane.dropped += 1
        log.warning("not told", target=name, message=gone.id, why=why)

    def _forget(self, event: Event) -> None:
        if not any(event in lane.waiting for lane in self._lanes.values()):
            self._since_s.pop(event.id, None)

    # --- telling it ---------------------------------------------------------------------------------------------------

    def next(self, name: str) -> tuple[Event, int] | None:
        """The oldest message for this destination, and how many were dropped before it. Too old ones are dropped."""
        with self._lock:
            lane = self._lanes[name]
            now = self._now()
            before = lane.dropped
            while lane.waiting and self._age_s(lane.waiting[0], now) > OLDEST_S:
                self._drop(name, lane, "it is a day old")
            if lane.dropped != before:
                self._write()
            return (lane.waiting[0], lane.dropped) if lane.waiting else None

    def _age_s(self, event: Event, now: Now) -> float:
        """By the clock of the box, since this daemon knows of it: a clock on the wall that jumps drops nothing."""
        since_s = self._since_s.setdefault(event.id, now.boot_s - max(0.0, now.wall_s - event.wall_s))
        return now.boot_s - since_s

    def taken(self, name: str, event: Event, dropped: int) -> None:
        """It was told, together with that count."""
        with self._lock:
            lane = self._lanes[name]
            with suppress(ValueError):  # it may have been dropped while it was sent
                lane.waiting.remove(event)
            self._forget(event)
            lane.dropped -= dropped
            lane.reached_wall_s = self._now().wall_s
            lane.failing_since_s, lane.trouble = None, ""
            self._write()

    def failed(self, name: str, why: str) -> bool:
        """It was not taken. True where that is news."""
        with self._lock:
            lane, now = self._lanes[name], self._now()
            is_news = lane.trouble != why
            if lane.failing_since_s is None or lane.failing_boot_id != now.boot_id:
                lane.failing_since_s, lane.failing_boot_id = now.boot_s, now.boot_id
                is_news = True
            lane.trouble = why
            if is_news:
                self._write()
            return is_news

    def unreached(self, for_s: float) -> tuple[str, ...]:
        """A sentence for every destination that has not taken anything for so long although something waits.

        Without the lock, which is held while the disk is written: whoever asks how things stand is not to wait for it.
        """
        now = self._now()
        found = []
        for name, lane in self._lanes.items():
            since_s, boot_id = lane.failing_since_s, lane.failing_boot_id
            if lane.waiting and since_s is not None and boot_id == now.boot_id and now.boot_s - since_s >= for_s:
                found.append(
                    f"notification target {name} has not been reached for {_hours(now.boot_s - since_s)}: "
                    f"{lane.trouble}; {_messages(len(lane.waiting))}; "
                    f"`cutover notify test {self._to[name].target.name}`"
                )
        return tuple(found)

    def close(self) -> None:
        with self._lock:
            self._write()

    # --- the file -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        document = {
            "schema": 1,
            "cursor": self.cursor,
            "alarms": dict(self.told_alarms),
            "recent": list(self._recent),
            "targets": {
                name: {**{key: value for key, value in _fields(lane) if key != "waiting"}, "waiting": _list(lane)}
                for name, lane in self._lanes.items()
            },
        }
        try:
            wholefile.put(self._file, json.dumps(document), mode=0o600)
        except OSError as error:
            if not self._unwritten:
                log.warning("what was told cannot be written down", file=str(self._file), why=error.strerror)
            self._unwritten = True
        else:
            self._unwritten = False
            self._written_cursor = self.cursor

    def _read(self, newest: int) -> bool:
        """Whether there was a file. One that cannot be understood is as none: what it held is not told."""
        found = read_outbox(self._file)
        if found is None:
            return False
        try:
            lanes = {name: _lane(record) for name, record in found["targets"].items()}
            cursor, alarms, recent = int(found["cursor"]), dict(found["alarms"]), list(found["recent"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("what was to be told cannot be read", file=str(self._file), why=type(error).__name__)
            return False
        self.cursor = self._written_cursor = min(cursor, newest)  # the journal was restored from a backup that is older
        self.told_alarms = alarms
        self._recent.extend(recent)
        for name, lane in lanes.items():
            if name in self._lanes:
                self._lanes[name] = lane
            elif lane.waiting:
                log.warning("not told", target=name, messages=len(lane.waiting), why="there is no such target any more")
        return True


def read_outbox(file: Path) -> dict[str, Any] | None:
    """The file as it stands, for whoever shows it; None where there is none that can be read."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_lanes(file: Path) -> dict[str, Lane]:
    """Its destinations, for whoever shows them; none where it cannot be understood."""
    found = read_outbox(file) or {}
    try:
        return {name: _lane(record) for name, record in found["targets"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _fields(lane: Lane) -> Iterable[tuple[str, Any]]:
    return ((name, getattr(lane, name)) for name in Lane.__dataclass_fields__)


def _list(lane: Lane) -> list[dict[str, Any]]:
    return [asdict(event) for event in lane.waiting]


def _lane(record: Mapping[str, Any]) -> Lane:
    waiting = deque(event_from(event) for event in record["waiting"])
    return Lane(**{**record, "waiting": waiting, "dropped": int(record["dropped"])})


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 7200 else f"{seconds / 60:.0f} min"


def _messages(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count} messages wait"
