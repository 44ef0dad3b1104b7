"""When automation may act: a window that opens at a local time of day and stays open for real hours. Pure.

Local time is where mistakes live: in the night in which clocks go forward 02:30 does not exist, in the one in which
they go back it comes twice. A window opens at the first instant at which a clock on the wall shows its start or more,
once per date, and its length is counted in elapsed seconds: four hours are four hours in every night of the year.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ALWAYS = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a window, by the date on which it opens there. Seconds since the epoch."""

    window: str
    date: date
    opens_s: float
    closes_s: float

    @property
    def id(self) -> str:
        return f"{self.window}@{self.date.isoformat()}"

    def is_open(self, wall_s: float) -> bool:
        return self.opens_s <= wall_s < self.closes_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """`zone` is the timezone of `start`; `days` are weekdays (0 = Monday) of the date on which the window opens."""

    window: str
    start: time
    duration_s: float
    zone: tzinfo
    zone_name: str = ""
    days: frozenset[int] = ALWAYS

    def opening_of(self, day: date) -> Opening | None:
        """The opening on that date; None on a weekday that the schedule leaves out."""
        if day.weekday() not in self.days:
            return None
        opens_s = _first_instant(day, self.start, self.zone)
        return Opening(self.window, day, opens_s, opens_s + self.duration_s)

    def last(self, wall_s: float) -> Opening | None:
        """The newest opening that has begun by `wall_s`; None where there was none within eight days."""
        today = self._date(wall_s)
        for back in range(-1, 9):
            opening = self.opening_of(today - timedelta(days=back))
            if opening is not None and opening.opens_s <= wall_s:
                return opening
        return None

    def current(self, wall_s: float) -> Opening | None:
        """The opening that is going on; the newest one, where a window is as long as a day."""
        opening = self.last(wall_s)
        return opening if opening is not None and opening.is_open(wall_s) else None

    def next(self, wall_s: float) -> Opening:
        """The first opening after `wall_s`."""
        today = self._date(wall_s)
        for ahead in range(-1, 9):
            opening = self.opening_of(today + timedelta(days=ahead))
            if opening is not None and opening.opens_s > wall_s:
                return opening
        raise AssertionError("a schedule without days is refused where it is read")

    def local(self, wall_s: float) -> datetime:
        return datetime.fromtimestamp(wall_s, self.zone)

    def _date(self, wall_s: float) -> date:
        return self.local(wall_s).date()


def _first_instant(day: date, start: time, zone: tzinfo) -> float:
    """The first instant of that date at which a wall clock shows `start` or more.

    A time that comes twice is its first coming (fold=0 of PEP 495). One that does not exist becomes the instant at
    which the clocks jump over it: PEP 495 maps it with fold=0 to the offset of before, so that going there and back
    shows another time.
    """
    naive = datetime.combine(day, start)
    instant = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
    shown = instant.astimezone(zone).replace(tzinfo=None)
    if shown == naive:
        return instant.timestamp()
    # In the gap: `instant` lies behind the jump by as much as `start` lies behind the last time that exists before it.
    return _jump(instant, zone).timestamp()


def _jump(behind: datetime, zone: tzinfo) -> datetime:
    """The instant (a whole second) of the change of offset that `behind` (UTC) follows by less than a day."""
    high = int(behind.timestamp())
    after, low = behind.astimezone(zone).utcoffset(), high - 86_400
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, UTC)


def clock_words(schedule: Schedule, wall_s: float) -> str:
    """``02:00 (Asia/Taipei)``: an instant as people there read it."""
    return f"{schedule.local(wall_s):%H:%M} ({schedule.zone_name or schedule.zone})"
