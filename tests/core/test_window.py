"""When a window opens and closes: daylight saving, midnight, weekdays, zones."""

from __future__ import annotations

from datetime import date, datetime, time
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from controller.core.window import Schedule

BERLIN, TAIPEI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Taipei")


def nightly(start: str = "02:00", hours: float = 4, zone: ZoneInfo = BERLIN, days=range(7)) -> Schedule:
    return Schedule("nightly", time.fromisoformat(start), hours * 3600, zone, zone.key, frozenset(days))


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("start", "day", "opens", "closes"),
    [
        ("02:00", "2026-06-01", "2026-06-01T02:00+02:00", "2026-06-01T06:00+02:00"),
        # Clocks go forward at 02:00: what does not exist becomes the moment of the jump; four hours stay four hours.
        ("02:00", "2026-03-29", "2026-03-29T03:00+02:00", "2026-03-29T07:00+02:00"),
        ("02:30", "2026-03-29", "2026-03-29T03:00+02:00", "2026-03-29T07:00+02:00"),
        ("03:00", "2026-03-29", "2026-03-29T03:00+02:00", "2026-03-29T07:00+02:00"),
        ("01:30", "2026-03-29", "2026-03-29T01:30+01:00", "2026-03-29T06:30+02:00"),
        # Clocks go back at 03:00: what comes twice is its first coming, and it opens once.
        ("02:30", "2026-10-25", "2026-10-25T02:30+02:00", "2026-10-25T05:30+01:00"),
        ("01:30", "2026-10-25", "2026-10-25T01:30+02:00", "2026-10-25T04:30+01:00"),
        # Over midnight.
        ("23:00", "2026-12-31", "2026-12-31T23:00+01:00", "2027-01-01T03:00+01:00"),
        ("23:00", "2026-10-24", "2026-10-24T23:00+02:00", "2026-10-25T02:00+01:00"),
    ],
)
def test_opens_and_closes(start, day, opens, closes):
    opening = nightly(start).opening_of(date.fromisoformat(day))
    assert opening is not None
    assert opening.id == f"nightly@{day}"
    assert (opening.opens_s, opening.closes_s) == (at(opens), at(closes))


def test_midnight_that_does_not_exist():
    """In Havana clocks go forward at midnight: the day begins at one."""
    opening = nightly("00:00", zone=ZoneInfo("America/Havana")).opening_of(date(2026, 3, 8))
    assert opening is not None
    assert opening.opens_s == at("2026-03-08T01:00-04:00")


def test_every_night_of_a_year_opens_once_and_is_as_long():
    """No date is left out, none comes twice, and neighbours do not overlap."""
    for zone in (BERLIN, TAIPEI, ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")):
        for start in ("00:00", "01:30", "02:30", "23:30"):
            schedule = nightly(start, zone=zone)
            openings = []
            now_s = at("2026-01-01T12:00+00:00")
            while now_s < at("2027-01-01T12:00+00:00"):
                openings.append(schedule.next(now_s))
                now_s = openings[-1].opens_s
            assert len({o.id for o in openings}) == len(openings) in {365, 366}
            assert all(o.closes_s - o.opens_s == 4 * 3600 for o in openings)
            assert all(a.closes_s < b.opens_s for a, b in pairwise(openings))


def test_current_last_and_next():
    schedule = nightly("23:00", zone=TAIPEI)
    before, inside, after = at("2026-11-30T22:00+08:00"), at("2026-12-01T02:59+08:00"), at("2026-12-01T03:00+08:00")
    assert schedule.current(before) is None
    assert schedule.current(after) is None
    current = schedule.current(inside)
    assert current is not None
    assert current.id == "nightly@2026-11-30"
    assert schedule.last(after) == current
    assert schedule.next(before) == current
    assert schedule.next(current.opens_s).id == "nightly@2026-12-01"


def test_days_are_those_on_which_it_opens():
    schedule = nightly("23:00", zone=TAIPEI, days=[4])  # Fridays, into Saturday
    assert schedule.current(at("2026-12-05T01:00+08:00")) is not None
    assert schedule.current(at("2026-12-04T01:00+08:00")) is None
    assert schedule.next(at("2026-12-05T00:00+08:00")).date == date(2026, 12, 11)
    last = schedule.last(at("2026-12-10T12:00+08:00"))
    assert last is not None
    assert last.date == date(2026, 12, 4)
