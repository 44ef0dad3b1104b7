"""The parts of `cutover.yaml` that are mappings of their own: every key with its default."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import time
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ..core.window import DAYS, Schedule
from ..durations import duration_s
from .values import Duration, Seconds, Strict

DAY_SETS = {"daily": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}


class Gpus(Strict):
    """Where the inventory comes from: NVML, or a declared number of cards for boxes that have none."""

    kind: Literal["auto", "nvml", "none"] = "auto"
    count: Annotated[int, Field(ge=0, le=64)] = 0


class Bake(Strict):
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] = 600.0
    interval_s: Seconds = 5.0
    bad_in_row: Annotated[int, Field(ge=1)] = 2
    latency_factor: Annotated[float, Field(gt=1)] = 1.5
    latency_slack_s: Annotated[float, Field(ge=0)] = 0.25
    min_requests: Annotated[int, Field(ge=1)] = 20


class Swap(Strict):
    """While a swap drains, everybody waits: it drains shorter, and cuts what is left or gives up."""

    drain_s: Seconds = 300.0
    at_drain_end: Literal["cut", "give up"] = "cut"


class Sleep(Strict):
    """Who makes room sleeps, where its engine can: the way back is a wake then, and no start."""

    level: int = 1
    deadline_s: Seconds = 60.0
    leftover_mib: Annotated[int, Field(ge=0, le=1 << 20)] = 3072

    @field_validator("level")
    @classmethod
    def _level(cls, level: int) -> int:
        if level == 2:
            raise ValueError(
                "expected 1: at level 2 an engine discards its weights, and whether they are right again after a wake "
                "that loads them anew nobody has verified with this version"
            )
        if level != 1:
            raise ValueError("expected 1, or `sleep: off`")
        return level


def _sleep_or_off(value: object) -> object:
    if value is None or value is False or value == "off":
        return None
    if isinstance(value, Sleep | dict):
        return value
    raise ValueError("expected `off`, or a mapping such as `{level: 1, deadline_s: 60, leftover_mib: 3072}`")


SleepOrOff = Annotated[Sleep | None, BeforeValidator(_sleep_or_off)]


class Watch(Strict):
    probe_fresh_s: Seconds = 15.0
    silent_s: Seconds = 60.0
    prefill_s: Seconds = 300.0
    restart_budget: Annotated[int, Field(ge=0, le=1000)] = 5
    restart_window_s: Seconds = 600.0
    restart_pause_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 5.0
    restart_pause_max_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 60.0
    when_live_keeps_dying: Literal["hold", "last-known-good"] = "hold"


def _sexagesimal(value: object) -> str:
    """YAML 1.1 reads an unquoted 2:30 as 150 and 12:30 as 750 (minutes): what people mean by it is a time.

    Less than an hour is never such a time, as YAML has none that begins with 0: who writes 2 does not mean 00:02.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value < 24 * 60:
        return f"{value // 60:02d}:{value % 60:02d}"
    return str(value)


def _window(value: object) -> float:
    seconds = duration_s(value)
    if not 30 <= seconds <= 86_400:
        raise ValueError(
            "expected a duration of 30 s to 24 h: in less nothing can be started, proved and undone, and in more "
            "it would overlap the next one"
        )
    return seconds


_NO_PLACES = re.compile(r"localtime|posixrules|Factory|(right|posix)/.*")
"""What a tz database has besides names of places: the box's own zone, and clocks that count leap seconds."""


def _is_of_the_tz_database(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return _NO_PLACES.fullmatch(name) is None


class ScheduleConfig(Strict):
    """When automation may act: from a local time of day, for so long."""

    start: str
    duration: Annotated[float, BeforeValidator(_window)]
    timezone: str  # of the people it serves, not of the box: whoever reads 02:00 must not have to guess
    days: list[str] = Field(default=list(DAYS))

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if isinstance(value, cls | Mapping):
            return value
        raise ValueError(
            'expected a mapping, for example {start: "02:00", duration: 4h, timezone: Asia/Taipei}: a window has a '
            "length, and a line of cron has none"
        )

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: object) -> str:
        text = _sexagesimal(value)
        if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text):
            raise ValueError('expected a time of day in quotes, for example "02:00"')
        return text

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, name: str) -> str:
        if not _is_of_the_tz_database(name):
            near = difflib.get_close_matches(name, (n for n in available_timezones() if not _NO_PLACES.fullmatch(n)), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"expected a name of the tz database, for example Asia/Taipei{hint}")
        return name

    @field_validator("days", mode="before")
    @classmethod
    def _days(cls, value: object) -> object:
        if isinstance(value, str):
            value = DAY_SETS.get(value, value)
        if not isinstance(value, list | tuple) or not value or not set(map(str, value)) <= set(DAYS):
            names = ", ".join(DAYS)
            raise ValueError(f"expected a list of {names}, or one of {', '.join(DAY_SETS)}")
        return list(value)

    def named(self, window: str) -> Schedule:
        hour, minute = self.start.split(":")
        return Schedule(
            window=window,
            start=time(int(hour), int(minute)),
            duration_s=self.duration,
            zone=ZoneInfo(self.timezone),
            zone_name=self.timezone,
            days=frozenset(DAYS.index(day) for day in self.days),
        )


class Quiet(Strict):
    """What counts as a quiet moment: by night, production makes room or is measured only then."""

    requests_per_min: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 6.0
    in_flight: Annotated[int, Field(ge=0, le=100_000)] = 0
    patience: Duration = 1800.0  # of the measurement of live


class Keep(Strict):
    """What stays of the past; live, previous and open rollouts stay whatever these say."""

    days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] = 30.0
    runs_gib: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 20.0
    evidence_gib: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 10.0
