"""The queue as people see it: the windows, who waits for which, and for what besides."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..config import Config
from ..core.night_records import Night, NightState
from ..core.policy import Policy
from ..core.queue import expires_s, why_not_yet
from ..core.records import Kind, Now, Rollout, State
from ..core.rules import waits_for_cards
from ..core.seen import Seen
from ..core.window import Schedule
from .views import SCHEMA


def queue(state: State, seen: Seen | None, policy: Policy, now: Now) -> dict[str, Any]:
    """Windows with their next opening, and what waits, in the order in which it will be looked at."""
    return {
        "schema": SCHEMA,
        "windows": [window(schedule, state, now) for schedule in policy.schedules.values()],
        "freeze": asdict(state.freeze) if state.freeze else None,
        "active": state.active.id if state.active else None,
        "queue": [waiting(rollout, state, seen, policy) for rollout in state.queue],
    }


def window(schedule: Schedule, state: State, now: Now) -> dict[str, Any]:
    current = schedule.current(now.wall_s)
    night = state.nights.get(current.id) if current else None
    coming = schedule.next(now.wall_s)
    return {
        "name": schedule.window,
        "timezone": schedule.zone_name,
        "duration_s": schedule.duration_s,
        "open": current is not None and (night is None or night.state is NightState.OPEN),
        "closes": current.closes_s if current else None,
        "closes_local": f"{schedule.local(current.closes_s):%Y-%m-%d %H:%M}" if current else None,
        "next": coming.opens_s,
        "next_local": f"{schedule.local(coming.opens_s):%a %Y-%m-%d %H:%M}",
    }


def waiting(rollout: Rollout, state: State, seen: Seen | None, policy: Policy) -> dict[str, Any]:
    """One that has not begun: what it waits for, and its times (seconds since the epoch; durations end in `_s`)."""
    options = rollout.options
    active = state.active
    behind = f"{active.id} is {active.phase.words}" if active else ""
    frozen = (
        f"frozen by {state.freeze.by}: {state.freeze.why}" if state.freeze and rollout.kind is not Kind.ROLLBACK else ""
    )
    own = _own(rollout, state, seen, policy) if seen and rollout.kind is not Kind.ROLLBACK else ""
    return {
        "id": rollout.id,
        "kind": rollout.kind.value,
        "release": rollout.release,
        "asked_by": rollout.asked_by,
        "created": rollout.created_wall_s,
        "window": options.window or None,
        "priority": options.priority,
        "expires": expires_s(rollout, policy),
        "finish_by": options.finish_by_wall_s,
        "trial": options.trial,
        "sweep": options.sweep or None,
        "require_approval": options.require_approval,
        "approval_s": approval_s(rollout, policy),
        "waits_for": own or frozen or behind or "its turn",
        "note": options.note,
    }


def _own(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """What keeps this one, whoever is before it: its window, or cards that others have, and how long it is patient."""
    if why := why_not_yet(rollout, state, seen, policy):
        return why
    refusal = waits_for_cards(rollout, state, seen, policy)
    if refusal is None:
        return ""
    patience_s = (rollout.options.wait_for_free_s or 0.0) - (seen.now.boot_s - rollout.phase_since_s)
    return f"its cards, for {patience_s:.0f} s more at most: {refusal.why}"


def approval_s(rollout: Rollout, policy: Policy) -> float | None:
    """How long it waits for its approval when it has passed; None where it needs none."""
    if not rollout.options.require_approval:
        return None
    return policy.approval_s if rollout.options.approval_s is None else rollout.options.approval_s


def nights(state: State, config: Config, limit: int) -> dict[str, Any]:
    """The newest openings of windows, oldest first; `page`: where the report of each lies, once it is written."""
    known = sorted(state.nights.values(), key=lambda night: (night.opens_wall_s, night.id))
    return {"schema": SCHEMA, "nights": [_night(night, state, config) for night in known[-limit:]]}


def _night(night: Night, state: State, config: Config) -> dict[str, Any]:
    page = config.reports_dir / f"{night.id}.html"
    return {
        "id": night.id,
        "window": night.window,
        "date": night.date,
        "state": night.state.value,
        "opens": night.opens_wall_s,
        "closes": night.closes_wall_s,
        "ended": night.ended_wall_s,
        "why": night.why,
        "rollouts": [rollout.id for rollout in state.rollouts.values() if rollout.night == night.id],
        "page": str(page) if page.is_file() else None,
    }
