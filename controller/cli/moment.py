"""A moment as people write it: `8h`, `06:00`, `2026-12-01`, `2026-12-01T06:00`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..durations import duration_s
from ..errors import UsageError

EXPECTED = "expected a duration (8h, 90m, 3d), a time of day (06:00) or a moment (2026-12-01T06:00)"


def moment(option: str, text: str | None, now_wall_s: float) -> float | None:
    """Seconds since the epoch. A time of day is the next one; what names no timezone is of this machine's.

    Raises `UsageError` that names the option.
    """
    if text is None:
        return None
    try:
        return now_wall_s + _positive(duration_s(text))
    except ValueError:
        pass
    now = datetime.fromtimestamp(now_wall_s, UTC).astimezone()
    try:
        if len(text) <= 5 and ":" in text:
            return _next(text, now).timestamp()
        then = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: {EXPECTED}") from None
    return then.timestamp()  # naive: as this machine's clock shows it


def in_full(at_s: float) -> str:
    """``Tue 2026-12-01 16:10 (CST)``: so that whoever typed `16:10` sees which one that is."""
    at = datetime.fromtimestamp(at_s, UTC).astimezone()
    return f"{at:%a %Y-%m-%d %H:%M} ({at:%Z})"


def _positive(seconds: float) -> float:
    if not 0 < seconds < 1e9:
        raise ValueError
    return seconds


def _next(text: str, now: datetime) -> datetime:
    at = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 - its timezone is that of `now`
    naive = now.replace(tzinfo=None, hour=at.hour, minute=at.minute, second=0, microsecond=0)
    today = naive.astimezone()
    return today if today > now else (naive + timedelta(days=1)).astimezone()
