"""Which night it is, how long it still lasts, and whether users are quiet: what the rules of nights ask. Pure.

The daemon owns the window: it is asked for in every pass by the clock on the wall, and what has begun is bounded by the
clock of the box from then on, so that a clock that is set cannot make a night longer or let one happen twice.
"""

from __future__ import annotations

from .night_records import Night, NightState
from .policy import Policy
from .records import Rollout, State
from .seen import Seen
from .window import Opening

MEASURE = "throughput"  # the gate whose figures are compared with live's


def can_open(opening: Opening, state: State) -> bool:
    """No night happens twice. One in which nothing began has not happened: a clock was wrong when it was over."""
    night = state.nights.get(opening.id)
    if night is None:
        return True
    used = night.baseline or any(r.night == night.id for r in state.rollouts.values())
    return night.state is not NightState.OPEN and not used


def left_of_night(night: Night, state: State, seen: Seen, policy: Policy) -> float:
    """Seconds until it closes, by the clock on the wall or by that of the box, whichever says less.

    A clock that is set back cannot make a night longer, also where the box was started anew meanwhile: what is written
    down of this night happened. Nor can a schedule that was made shorter.
    """
    latest = next((w for w in reversed(state.happened_wall_s) if w < night.closes_wall_s), 0.0)
    left_s = night.closes_wall_s - max(seen.now.wall_s, latest if latest >= night.opens_wall_s else 0.0)
    if night.boot_id == seen.now.boot_id:
        left_s = min(left_s, night.closes_boot_s - seen.now.boot_s)
    schedule = policy.schedules.get(night.window)
    return left_s if schedule is None else min(left_s, night.opens_wall_s + schedule.duration_s - seen.now.wall_s)


def open_night(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Night | None:
    """The night that is going on in the window that a rollout waits for."""
    schedule = policy.schedules.get(rollout.options.window)
    opening = schedule.current(seen.now.wall_s) if schedule else None
    night = state.nights.get(opening.id) if opening else None
    return night if night is not None and night.state is NightState.OPEN else None


def left_of(rollout: Rollout, night: Night | None, state: State, seen: Seen, policy: Policy) -> float | None:
    """Seconds until it has to be over; None where it has all the time in the world."""
    finish_s = rollout.options.finish_by_wall_s
    ends = [left_of_night(night, state, seen, policy)] if night else []
    ends += [] if finish_s is None else [finish_s - seen.now.wall_s]
    return min(ends) if ends else None


def noise(seen: Seen, policy: Policy) -> str:
    """Why this is no quiet moment; empty: it is one. What nobody can count is not quiet."""
    users = seen.users
    if users is None:
        return "how much users ask for is not known"
    if users.in_flight > policy.quiet_in_flight:
        return f"{count(users.in_flight, 'request')} of users in flight, quiet is {policy.quiet_in_flight} or less"
    if users.per_min > policy.quiet_per_min:
        return f"users ask {users.per_min:.0f} times a minute, quiet is {policy.quiet_per_min:g} or less"
    return ""


def minutes(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
