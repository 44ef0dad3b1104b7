"""Waivers: a check that is known to fail, let through for a reason and until a date. Never silently.

In a profile: ``{check: P13, reason: "vLLM#58228, fixed in 0.28", expires: 2027-01-31}``. `mode` and `fault` narrow it
to one way of failing. Today's date is an argument: nothing in here reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from gates.errors import GateUsageError, nearest
from gates.strict import StrictModel, read_model

MAX_DAYS_AHEAD: Final = 366
"""A waiver that outlives the memory of its reason is a hole in the gate."""
MAX_WAIVERS: Final = 200

Mode = Literal["stream", "whole"]


@dataclass(frozen=True)
class Seen:
    """How one check ended. `mode` when it failed in one mode only; `sentence` says what was seen."""

    check: str
    failed: bool
    sentence: str = ""
    mode: Mode | None = None


def _calendar_date(value: Any) -> date:
    # YAML reads a date as a date, JSON carries it as text; a time of day would depend on somebody's time zone.
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and len(value) == len("2027-01-31"):
        return date.fromisoformat(value)
    raise ValueError("is no calendar date; expected one as 2027-01-31")


def _written(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is blank; say in words what the next reader has to know")
    return value.strip() if isinstance(value, str) else value


_Words = Annotated[str, BeforeValidator(_written), Field(max_length=500)]


class Waiver(StrictModel):
    """One entry of `waivers` in a profile."""

    check: _Words
    """The id of a check; covers its parts too (`J01` covers `J01.choice`)."""
    reason: _Words
    expires: Annotated[date, BeforeValidator(_calendar_date)]
    """The last day on which it waives."""
    mode: Mode | None = None
    """Covers only a failure in this mode alone."""
    fault: _Words | None = None
    """Covers only a failure whose sentence holds these words, in any case."""

    @property
    def words(self) -> str:
        """For the report, beside the check that it waives."""
        return f"{self.reason} (until {self.expires.isoformat()})"

    def concerns(self, check: str) -> bool:
        """Is it about this check at all?"""
        return check == self.check or check.startswith(f"{self.check}.")

    def covers(self, seen: Seen) -> bool:
        """Does it cover this failure, whatever the date? A failure in both modes is more than a narrow waiver knew."""
        if not (seen.failed and self.concerns(seen.check)):
            return False
        if self.mode is not None and seen.mode != self.mode:
            return False
        return self.fault is None or self.fault.casefold() in seen.sentence.casefold()


class State(StrEnum):
    """What became of a waiver in a run."""

    USED = "used"
    EXPIRED = "expired"
    NOT_NEEDED = "not needed any more"
    OTHER_FAILURE = "covers another failure"
    NOT_RUN = "check not run"


@dataclass(frozen=True)
class Notice:
    """One waiver in the report of a run; every waiver has one, every time."""

    waiver: Waiver
    state: State
    sentence: str


def read_waivers(
    entries: Sequence[Any], today: date, where: str, known: Collection[str] | None = None
) -> tuple[Waiver, ...]:
    """`entries` as YAML or JSON gave them. `where` names the file in sentences; `known` are the ids of all checks.

    Raises `GateUsageError` for the first mistake: a wrong or missing key, a date too far ahead, a check that does not
    exist, the same waiver twice.
    """
    if len(entries) > MAX_WAIVERS:
        raise GateUsageError(f"{where}: {len(entries)} waivers; at most {MAX_WAIVERS} are read.")
    waivers: list[Waiver] = []
    for number, entry in enumerate(entries):
        place = f"{where}: waivers.{number}"
        if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
            raise GateUsageError(f"{place}: expected a mapping with check, reason and expires; got {entry!r:.80}.")
        waiver = read_model(Waiver, entry, place)
        _check_horizon(waiver, today, place)
        if known is not None and not any(waiver.concerns(check) for check in known):
            raise GateUsageError(f"{place}: there is no check {waiver.check!r}; {nearest(waiver.check, known)}")
        if any(_same_scope(waiver, other) for other in waivers):
            raise GateUsageError(f"{place}: {waiver.check} is waived twice for the same; remove one of them.")
        waivers.append(waiver)
    return tuple(waivers)


def waiving(seen: Seen, waivers: Iterable[Waiver], today: date) -> Waiver | None:
    """The waiver that lets this failure through today; None when it blocks. Expired ones waive nothing."""
    return next((waiver for waiver in waivers if today <= waiver.expires and waiver.covers(seen)), None)


def account(waivers: Iterable[Waiver], seen: Iterable[Seen], today: date) -> tuple[Notice, ...]:
    """What became of each waiver, in their order. `seen`: every check that was run and not skipped."""
    checks = tuple(seen)
    return tuple(_notice(waiver, checks, today) for waiver in waivers)


def _notice(waiver: Waiver, checks: tuple[Seen, ...], today: date) -> Notice:
    mine = [one for one in checks if waiver.concerns(one.check)]
    used = any(waiver.covers(one) for one in mine)
    until = waiver.expires.isoformat()
    if today > waiver.expires:
        now = "the check still fails" if used else "take it out of the profile"
        return Notice(
            waiver, State.EXPIRED, f"{waiver.check}: the waiver expired on {until}; {now} (it was: {waiver.reason})"
        )
    if used:
        left = (waiver.expires - today).days
        days = "today is its last day" if left == 0 else f"{left} day{'s' * (left > 1)} left"
        return Notice(waiver, State.USED, f"{waiver.check} is waived until {until} ({days}): {waiver.reason}")
    if not mine:
        return Notice(
            waiver, State.NOT_RUN, f"{waiver.check}: waived until {until}, and not run this time: {waiver.reason}"
        )
    if any(one.failed for one in mine):
        narrow = " and ".join(f"{key} {value!r}" for key in ("mode", "fault") if (value := getattr(waiver, key)))
        sentence = f"{waiver.check} failed otherwise than this waiver allows ({narrow}): {waiver.reason}"
        return Notice(waiver, State.OTHER_FAILURE, sentence)
    sentence = f"{waiver.check}: the waiver is not needed any more, the check passed; take it out ({waiver.reason})"
    return Notice(waiver, State.NOT_NEEDED, sentence)


def _check_horizon(waiver: Waiver, today: date, place: str) -> None:
    last = today + timedelta(days=MAX_DAYS_AHEAD)
    if waiver.expires > last:
        raise GateUsageError(
            f"{place}: expires: {waiver.expires.isoformat()} is more than {MAX_DAYS_AHEAD} days ahead; "
            f"the last day allowed is {last.isoformat()}, then look at it again."
        )


def _same_scope(one: Waiver, other: Waiver) -> bool:
    return (one.check, one.mode, one.fault) == (other.check, other.mode, other.fault)
