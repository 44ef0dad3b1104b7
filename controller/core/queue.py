"""What waits, for what, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from . import actions as act
from .actions import Decision
from .budget import budget
from .cards import Refusal
from .night_records import NightState
from .nights import MEASURE, can_open, left_of, left_of_night, minutes, noise, open_night
from .plan import Plan, make_plan
from .policy import Policy
from .records import Kind, Phase, Release, Rollout, State
from .room import Strategy
from .seats import move
from .seen import Seen
from .table import Event
from .window import Schedule

AGAIN_S = 300.0  # what yielded waits that long before it is tried again; twice as long before each next try
DARK_TRIES = 2  # of a swap in one night: each is dark for users
CLOCK_SLACK_S = 60.0  # what clocks may differ by in a week


def expire(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """What was not begun in time is skipped, never run late."""
    for rollout in state.queue:
        if rollout.kind is Kind.ROLLBACK:
            continue
        until_s = expires_s(rollout, policy)
        if seen.now.wall_s >= until_s and _has_waited(rollout, seen, until_s - rollout.created_wall_s):
            if until_s == rollout.options.finish_by_wall_s:
                return move(rollout, Event.DEADLINE, "it was to be over by now, and there was no time to begin it")
            days = (until_s - rollout.created_wall_s) / 86_400.0
            waited = f"{days:.0f} days" if days >= 2 else minutes(days * 86_400.0)
            return move(rollout, Event.DEADLINE, f"it waited for {waited}, and was to begin within that: propose again")
        if rollout.kind is Kind.MEASURE and (over := _measurement_is_late(rollout, state, seen, policy)):
            return move(rollout, Event.MISSED, over)
    return None


def _has_waited(rollout: Rollout, seen: Seen, seconds: float) -> bool:
    """By the clock of the box, too, as far as that goes back: a clock that is wrong for a moment ends nothing."""
    waited_s = seen.now.boot_s - rollout.phase_since_s
    return rollout.phase_boot_id != seen.now.boot_id or bool(rollout.again_for) or waited_s >= seconds - CLOCK_SLACK_S


def expires_s(rollout: Rollout, policy: Policy) -> float:
    """When it is too late to begin it: seconds since the epoch."""
    asked_s = rollout.options.expires_wall_s
    finish_s = rollout.options.finish_by_wall_s
    until_s = rollout.created_wall_s + policy.expires_s if asked_s is None else asked_s
    return until_s if finish_s is None else min(until_s, finish_s)


def _measurement_is_late(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """Live is measured in a quiet moment of its own night, or not at all."""
    night = next((n for n in state.nights.values() if n.baseline == rollout.id), None)
    if night is None or night.state is not NightState.OPEN or left_of_night(night, state, seen, policy) <= 0:
        return "its night is over"
    if state.live != rollout.target:
        return "what was to be measured is not live any more"
    waited_s = seen.now.boot_s - rollout.phase_since_s
    if rollout.phase_boot_id != seen.now.boot_id or waited_s <= policy.quiet_patience_s:
        return ""
    return f"no quiet moment in {policy.quiet_patience_s / 60:.0f} min ({noise(seen, policy) or 'others went first'})"


def first_of_each(state: State) -> Iterator[Rollout]:
    """The queue without arms that wait for just what an arm before them waits for, so that a thousand cost as one.

    Whoever goes through the queue goes on from one only because it cannot begin now; then its like cannot either.
    """
    known: list[tuple[object, ...]] = []
    tried = {r.release for r in state.rollouts.values() if r.phase is not Phase.QUEUED} | state.by_release.keys()
    for rollout in state.queue:
        if rollout.options.sweep and not rollout.again_for and rollout.release not in tried:
            likeness = _likeness(rollout, state.releases[rollout.release])
            if likeness in known:
                continue
            known.append(likeness)
        yield rollout


def _likeness(rollout: Rollout, release: Release) -> tuple[object, ...]:
    """All that the turn of an arm depends on of which this box has measured nothing yet; its settings are not in it."""
    takes = (release.instances, release.serves, release.start_timeout_s, release.stop_grace_s, release.can_sleep)
    return rollout.kind, rollout.options, rollout.profile, *takes


def why_not_yet(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """What a rollout that waits for a window, or has to be over by some time, still waits for; empty: it may begin."""
    options = rollout.options
    night = open_night(rollout, state, seen, policy)
    if options.window and options.window not in policy.schedules:
        return f"there is no window {options.window} in the configuration any more"
    if options.window and night is None:
        return f"window {options.window} opens {_next(policy.schedules[options.window], state, seen)}"
    if rollout.kind is Kind.MEASURE:
        return noise(seen, policy)
    left_s = left_of(rollout, night, state, seen, policy)
    if left_s is None:
        return ""
    plan = planned(rollout, state, seen, policy)
    if isinstance(plan, Refusal):  # by night cards become free; else its turn has come, and it is told
        return f"its cards are not to be had: {plan.why}" if options.window else ""
    if late := no_time(rollout, plan, state, policy, left_s):
        return late
    if not options.window:
        return ""
    loud = noise(seen, policy) if plan.strategy == Strategy.SWAP else ""
    spare_s = left_s - budget(rollout, plan, state, policy).total_s
    return loud or _pauses(rollout, plan, state, seen) or _awaits_measurement(rollout, state, spare_s)


def _pauses(rollout: Rollout, plan: Plan, state: State, seen: Seen) -> str:
    """A job that comes and goes must not have a model loaded all night, and users not wait each time in the dark."""
    yielded = [r for r in state.tries(rollout) if r.phase is Phase.SKIPPED]
    if not yielded:
        return ""
    tonight = [r for r in yielded if r.night == yielded[0].night and r.strategy == Strategy.SWAP]
    night = state.nights.get(yielded[0].night)
    if plan.strategy == Strategy.SWAP and len(tonight) >= DARK_TRIES and night and night.state is NightState.OPEN:
        return f"it has yielded {len(tonight)} times tonight, and users wait in the dark each time"
    pause_s = AGAIN_S * 2 ** (len(yielded) - 1)
    left_s = pause_s - (seen.now.boot_s - rollout.phase_since_s)
    if rollout.phase_boot_id != seen.now.boot_id or left_s <= 0:
        return ""
    return f"it has yielded ({yielded[0].why}), and is tried again in {minutes(left_s)}"


def _next(schedule: Schedule, state: State, seen: Seen) -> str:
    opening = schedule.next(seen.now.wall_s)
    while not can_open(opening, state):  # it was there already, and the clock was set back
        opening = schedule.next(opening.opens_s)
    return f"{schedule.local(opening.opens_s):%a %Y-%m-%d %H:%M} ({schedule.zone_name or schedule.zone})"


def _awaits_measurement(rollout: Rollout, state: State, spare_s: float) -> str:
    """Whoever is compared with live waits for what it shows tonight, as long as that costs it no night."""
    first = next((r for r in state.queue if r.kind is Kind.MEASURE), None)
    compared = any(step["name"] == MEASURE for step in rollout.profile)
    return f"{first.id} measures live first" if first is not None and compared and spare_s > AGAIN_S else ""


def planned(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Plan | Refusal:
    release = state.releases[rollout.release]
    return make_plan(state, release, seen.gpus, policy, options=rollout.options, profile=rollout.profile)


def no_time(rollout: Rollout, plan: Plan, state: State, policy: Policy, left_s: float) -> str:
    """A candidate that could not be undone in time is not started."""
    need_s = budget(rollout, plan, state, policy).total_s
    if need_s <= left_s:
        return ""
    return f"it needs about {minutes(need_s)} with the way back, and {minutes(left_s)} are left"


def obstacle(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """What was in its way when its window closed, as far as it still can be seen."""
    if state.freeze is not None:
        return f"frozen by {state.freeze.by} ({state.freeze.why})"
    plan = planned(rollout, state, seen, policy)
    if isinstance(plan, Refusal):
        return f"its cards are not to be had: {plan.why}"
    if plan.strategy == Strategy.SWAP and (loud := noise(seen, policy)):
        return loud
    return f"there was no time left, it needs about {minutes(budget(rollout, plan, state, policy).total_s)}"


def acceptance(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> act.Accept:
    """Its turn has come: in which night, and by when it has to be over on the clock of the box."""
    night = open_night(rollout, state, seen, policy)
    left_s = left_of(rollout, night, state, seen, policy)
    return act.Accept(rollout.id, night.id if night else "", None if left_s is None else seen.now.boot_s + left_s)
