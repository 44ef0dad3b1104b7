"""What may begin by night, what waits and for what, and when what runs has to be over. Pure.

The daemon owns the window: it is asked for in every pass by the clock on the wall, and what has begun is bounded by the
clock of the box from then on, so that a clock that is set cannot make a night longer or let one happen twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import actions as act
from .actions import Decision
from .bake import bake_s
from .budget import budget, return_s, undo_s
from .cards import Refusal
from .desired import SWITCHED
from .night_records import Night, NightState
from .plan import Plan, make_plan
from .policy import Policy
from .records import ACTIVE, Kind, Phase, Release, Rollout, State
from .room import Strategy
from .seats import move
from .seen import Seen
from .table import Event
from .window import Opening, Schedule, clock_words

BEFORE_SWITCH = ACTIVE - SWITCHED - {Phase.ROLLING_BACK}
ON_CARDS = frozenset({Phase.STARTING, Phase.GATING, Phase.AWAITING_APPROVAL})
MEASURE = "throughput"  # the gate whose figures are compared with live's
AGAIN_S = 300.0  # what yielded waits that long before it is tried again; twice as long before each next try
DARK_TRIES = 2  # of a swap in one night: each is dark for users
CLOCK_SLACK_S = 60.0  # what clocks may differ by in a week
MISSED_KEPT = 14  # nights of a daemon that did not run that are written down one by one


# --- windows ----------------------------------------------------------------------------------------------------------


def note_nights(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Write down that a window opened, closed, or was missed."""
    for night in state.nights.values():
        if night.state is NightState.OPEN and (closed := _closes(night, state, seen, policy)):
            return closed
    for schedule in policy.schedules.values():
        opening = schedule.last(seen.now.wall_s)
        if opening is None:
            continue
        if missed := _missed(opening, schedule, state, seen):
            return missed
        if opening.is_open(seen.now.wall_s) and _can_open(opening, state):
            until = clock_words(schedule, opening.closes_s)
            return Decision(act.NoteNight(_night(opening, seen)), f"window {schedule.window} is open until {until}")
    return None


def _can_open(opening: Opening, state: State) -> bool:
    """No night happens twice. One in which nothing began has not happened: a clock was wrong when it was over."""
    night = state.nights.get(opening.id)
    if night is None:
        return True
    used = night.baseline or any(r.night == night.id for r in state.rollouts.values())
    return night.state is not NightState.OPEN and not used


def _night(opening: Opening, seen: Seen) -> Night:
    return Night(
        id=opening.id,
        window=opening.window,
        date=opening.date.isoformat(),
        opens_wall_s=opening.opens_s,
        closes_wall_s=opening.closes_s,
        closes_boot_s=seen.now.boot_s + opening.closes_s - seen.now.wall_s,
        boot_id=seen.now.boot_id,
        seen_wall_s=seen.now.wall_s,
    )


def _closes(night: Night, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Over by its time, or because its schedule is gone; not while something that it began is still running."""
    if _left_of_night(night, state, seen, policy) > 0 and night.window in policy.schedules:
        return None
    active = state.active
    if active is not None and active.night == night.id and not waits_for_a_person(active):
        return None
    began = [r for r in state.rollouts.values() if r.night == night.id]
    waiting = [r for r in state.queue if r.options.window == night.window and r.kind is not Kind.MEASURE]
    waits = "waits" if len(waiting) == 1 else "wait"
    why = f"{_count(len(began), 'rollout')} began, {_count(len(waiting), 'proposal')} {waits}"
    said = tuple(f"{r.id} ({r.release}) did not begin: {_obstacle(r, state, seen, policy)}" for r in waiting)
    closed = replace(night, state=NightState.CLOSED, ended_wall_s=seen.now.wall_s, why=why, said=said)
    return Decision(act.NoteNight(closed), f"window {night.window} is closed: {why}")


def _obstacle(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """What was in its way when its window closed, as far as it still can be seen."""
    if state.freeze is not None:
        return f"frozen by {state.freeze.by} ({state.freeze.why})"
    plan = _planned(rollout, state, seen, policy)
    if isinstance(plan, Refusal):
        return f"its cards are not to be had: {plan.why}"
    if plan.strategy == Strategy.SWAP and (loud := _noise(seen, policy)):
        return loud
    return f"there was no time left, it needs about {_minutes(budget(rollout, plan, state, policy).total_s)}"


def _left_of_night(night: Night, state: State, seen: Seen, policy: Policy) -> float:
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


def _open_night(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Night | None:
    """The night that is going on in the window that a rollout waits for."""
    schedule = policy.schedules.get(rollout.options.window)
    opening = schedule.current(seen.now.wall_s) if schedule else None
    night = state.nights.get(opening.id) if opening else None
    return night if night is not None and night.state is NightState.OPEN else None


def _missed(newest: Opening, schedule: Schedule, state: State, seen: Seen) -> Decision | None:
    """It opened and closed while nobody looked. Who had waited for it waits on: nothing is run late."""
    on_record = [n.closes_wall_s for n in state.nights.values() if n.window == schedule.window]
    waits_since = [r.created_wall_s for r in state.queue if r.options.window == schedule.window]
    if not on_record and not waits_since:
        return None  # it is younger than the schedule, or nobody ever wanted it
    since_s = max(on_record) if on_record else min(waits_since)
    passed: list[Opening] = []
    opening: Opening | None = newest
    while opening is not None and opening.closes_s > since_s and len(passed) < MISSED_KEPT:
        if opening.id not in state.nights and not opening.is_open(seen.now.wall_s):
            passed.append(opening)
        opening = schedule.last(opening.opens_s - 1.0)
    if not passed:
        return None
    first = passed[-1]
    opened, closed = clock_words(schedule, first.opens_s), clock_words(schedule, first.closes_s)
    why = f"it opened at {opened} and closed at {closed} while the daemon did not run"
    night = replace(_night(first, seen), state=NightState.MISSED, ended_wall_s=seen.now.wall_s, why=why)
    return Decision(act.NoteNight(night), f"window {first.window} of {first.date.isoformat()} was missed: {why}")


def thaw(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """A freeze that was to end by itself ends."""
    freeze = state.freeze
    if freeze is None or freeze.until_wall_s is None or seen.now.wall_s < freeze.until_wall_s:
        return None
    return Decision(act.SetFreeze(None), f"the freeze of {freeze.by} ({freeze.why}) is over")


# --- the queue --------------------------------------------------------------------------------------------------------


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
            waited = f"{days:.0f} days" if days >= 2 else _minutes(days * 86_400.0)
            return move(rollout, Event.DEADLINE, f"it waited for {waited}, and was to begin within that: propose again")
        if rollout.kind is Kind.MEASURE and (over := _measurement_is_late(rollout, state, seen, policy)):
            return move(rollout, Event.MISSED, over)
    return None


def _has_waited(rollout: Rollout, seen: Seen, seconds: float) -> bool:
    """By the clock of the box, too, as far as that goes back: a clock that is wrong for a moment ends nothing."""
    waited_s = seen.now.boot_s - rollout.phase_since_s
    return rollout.phase_boot_id != seen.now.boot_id or bool(rollout.again_for) or waited_s >= seconds - CLOCK_SLACK_S


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


def expires_s(rollout: Rollout, policy: Policy) -> float:
    """When it is too late to begin it: seconds since the epoch."""
    asked_s = rollout.options.expires_wall_s
    finish_s = rollout.options.finish_by_wall_s
    until_s = rollout.created_wall_s + policy.expires_s if asked_s is None else asked_s
    return until_s if finish_s is None else min(until_s, finish_s)


def _measurement_is_late(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """Live is measured in a quiet moment of its own night, or not at all."""
    night = next((n for n in state.nights.values() if n.baseline == rollout.id), None)
    if night is None or night.state is not NightState.OPEN or _left_of_night(night, state, seen, policy) <= 0:
        return "its night is over"
    if state.live != rollout.target:
        return "what was to be measured is not live any more"
    waited_s = seen.now.boot_s - rollout.phase_since_s
    if rollout.phase_boot_id != seen.now.boot_id or waited_s <= policy.quiet_patience_s:
        return ""
    return f"no quiet moment in {policy.quiet_patience_s / 60:.0f} min ({_noise(seen, policy) or 'others went first'})"


def why_not_yet(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    """What a rollout that waits for a window, or has to be over by some time, still waits for; empty: it may begin."""
    options = rollout.options
    night = _open_night(rollout, state, seen, policy)
    if options.window and options.window not in policy.schedules:
        return f"there is no window {options.window} in the configuration any more"
    if options.window and night is None:
        return f"window {options.window} opens {_next(policy.schedules[options.window], state, seen)}"
    if rollout.kind is Kind.MEASURE:
        return _noise(seen, policy)
    left_s = left_of(rollout, night, state, seen, policy)
    if left_s is None:
        return ""
    plan = _planned(rollout, state, seen, policy)
    if isinstance(plan, Refusal):  # by night cards become free; else its turn has come, and it is told
        return f"its cards are not to be had: {plan.why}" if options.window else ""
    if late := _no_time(rollout, plan, state, policy, left_s):
        return late
    if not options.window:
        return ""
    loud = _noise(seen, policy) if plan.strategy == Strategy.SWAP else ""
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
    return f"it has yielded ({yielded[0].why}), and is tried again in {_minutes(left_s)}"


def _next(schedule: Schedule, state: State, seen: Seen) -> str:
    opening = schedule.next(seen.now.wall_s)
    while not _can_open(opening, state):  # it was there already, and the clock was set back
        opening = schedule.next(opening.opens_s)
    return f"{schedule.local(opening.opens_s):%a %Y-%m-%d %H:%M} ({schedule.zone_name or schedule.zone})"


def left_of(rollout: Rollout, night: Night | None, state: State, seen: Seen, policy: Policy) -> float | None:
    """Seconds until it has to be over; None where it has all the time in the world."""
    finish_s = rollout.options.finish_by_wall_s
    ends = [_left_of_night(night, state, seen, policy)] if night else []
    ends += [] if finish_s is None else [finish_s - seen.now.wall_s]
    return min(ends) if ends else None


def acceptance(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> act.Accept:
    """Its turn has come: in which night, and by when it has to be over on the clock of the box."""
    night = _open_night(rollout, state, seen, policy)
    left_s = left_of(rollout, night, state, seen, policy)
    return act.Accept(rollout.id, night.id if night else "", None if left_s is None else seen.now.boot_s + left_s)


def _planned(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Plan | Refusal:
    release = state.releases[rollout.release]
    return make_plan(state, release, seen.gpus, policy, options=rollout.options, profile=rollout.profile)


def _no_time(rollout: Rollout, plan: Plan, state: State, policy: Policy, left_s: float) -> str:
    """A candidate that could not be undone in time is not started."""
    need_s = budget(rollout, plan, state, policy).total_s
    if need_s <= left_s:
        return ""
    return f"it needs about {_minutes(need_s)} with the way back, and {_minutes(left_s)} are left"


def _awaits_measurement(rollout: Rollout, state: State, spare_s: float) -> str:
    """Whoever is compared with live waits for what it shows tonight, as long as that costs it no night."""
    first = next((r for r in state.queue if r.kind is Kind.MEASURE), None)
    compared = any(step["name"] == MEASURE for step in rollout.profile)
    return f"{first.id} measures live first" if first is not None and compared and spare_s > AGAIN_S else ""


def _noise(seen: Seen, policy: Policy) -> str:
    """Why this is no quiet moment; empty: it is one. What nobody can count is not quiet."""
    users = seen.users
    if users is None:
        return "how much users ask for is not known"
    if users.in_flight > policy.quiet_in_flight:
        return f"{_count(users.in_flight, 'request')} of users in flight, quiet is {policy.quiet_in_flight} or less"
    if users.per_min > policy.quiet_per_min:
        return f"users ask {users.per_min:.0f} times a minute, quiet is {policy.quiet_per_min:g} or less"
    return ""


# --- live's own figures -----------------------------------------------------------------------------------------------


def measure_live(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Before the first candidate of a night that will be compared with live: live, in this night, once."""
    if state.active is not None or state.freeze is not None or not state.is_served():
        return None
    if any(n.baseline for n in state.nights.values() if n.state is NightState.OPEN):
        return None  # once, also where windows overlap
    for rollout in first_of_each(state):
        step = next((s for s in rollout.profile if s["name"] == MEASURE), None)
        night = _open_night(rollout, state, seen, policy)
        if night is None or step is None or rollout.kind is not Kind.PROPOSE:
            continue
        plan = _planned(rollout, state, seen, policy)
        left_s = _left_of_night(night, state, seen, policy) - float(step["deadline_s"])
        if isinstance(plan, Plan) and left_s > 0 and not _no_time(rollout, plan, state, policy, left_s):
            profile = ({**step, "observe": True},)
            return Decision(act.MeasureLive(night.id, profile), f"live is measured before {rollout.id}, once a night")
    return None


# --- what has begun ---------------------------------------------------------------------------------------------------


def keep_to_the_time(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """What would not be over in time is undone while that still can be done in time."""
    rollout = state.active
    if rollout is None:
        return None
    if rollout.kind is Kind.MEASURE:
        return _let_users_pass(rollout, state, seen, policy)
    if rollout.until_s is None or rollout.phase_boot_id != seen.now.boot_id or waits_for_a_person(rollout):
        return None
    if rollout.phase in SWITCHED and rollout.before[0] is None:
        return None  # nothing served before it: there is no way back, and users stay
    left_s = rollout.until_s - seen.now.boot_s
    need_s = undo_s(rollout, state, policy)
    if rollout.phase in BEFORE_SWITCH:
        if left_s <= need_s:
            said = f"{_minutes(left_s)} are left, and the way back takes about {_minutes(need_s)}: live stays"
            return move(rollout, Event.MISSED, said)
        if rollout.phase is Phase.CUTTING_OVER:
            return _no_time_to_bake(rollout, state, left_s, policy)
    if rollout.phase in SWITCHED and left_s <= need_s:
        said = f"{_minutes(left_s)} are left and it has not baked: back, which takes about {_minutes(need_s)}"
        return move(rollout, Event.MISSED, said)
    return None


def waits_for_a_person(rollout: Rollout) -> bool:
    """It has passed, live is whole beside it, and people sleep by night: it waits as long as an approval may take."""
    return rollout.phase is Phase.AWAITING_APPROVAL and rollout.strategy == Strategy.BLUE_GREEN


def _no_time_to_bake(rollout: Rollout, state: State, left_s: float, policy: Policy) -> Decision | None:
    """Users are not led to what could not be watched, and left again, in time."""
    asked_s = bake_s(rollout, policy)
    back_s = return_s(state.live, state, policy) if state.live is not None else 0.0
    if left_s >= asked_s + back_s:
        return None
    bakes = f"it has to bake for {_minutes(asked_s)}, and the way back takes {_minutes(back_s)}"
    said = f"{_minutes(left_s)} are left, {bakes}"
    return move(rollout, Event.MISSED, said)


def _let_users_pass(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Never a ladder on top of users' traffic."""
    if rollout.phase is not Phase.GATING:
        return None
    if state.live != rollout.target or not state.is_served():
        return move(rollout, Event.MISSED, "what was to be measured does not serve any more")
    loud = _noise(seen, policy)
    return move(rollout, Event.MISSED, f"{loud}: live is not measured under users") if loud else None


def yield_cards(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """A candidate that users do not see goes when somebody else comes onto its cards, or wants one of them."""
    rollout = state.active
    if rollout is None or rollout.phase not in ON_CARDS or rollout.kind is not Kind.PROPOSE:
        return None
    if not rollout.options.window and not rollout.options.trial:
        return None  # somebody waits for its verdict
    mine = {gpu for a in state.seat_attempts(rollout.seat) for gpu in a.gpus}
    for gpu in seen.gpus:
        if gpu.id in mine and gpu.foreign:
            return _yields(rollout, f"it yields GPU {gpu.index} to somebody else: {gpu.foreign[0]}")
        closed = state.closed.get(gpu.id) if gpu.id in mine else None
        if closed is not None and closed.by:
            return _yields(rollout, f"it yields GPU {gpu.index}: {closed.word} ({closed.why})")
    return None


def _yields(rollout: Rollout, why: str) -> Decision:
    return Decision(act.TryAgain(rollout.id, Event.YIELDED), why)


def refused(rollout: Rollout, why: str) -> Decision:
    """What came between its acceptance and its cards is no end for who waits for a window: it waits again."""
    return _yields(rollout, why) if rollout.options.window else move(rollout, Event.REFUSED, why)


def has_become_loud(rollout: Rollout, plan: Plan, seen: Seen, policy: Policy) -> str:
    """It was to start beside live, and would take live from users now."""
    return _noise(seen, policy) if rollout.options.window and plan.strategy == Strategy.SWAP else ""


def once_more(rollout: Rollout, state: State, event: Event, why: str) -> Decision:
    """What the host took down with it is tried once more in its window, and then no more: it may be why it went."""
    tried = any(r.why == why for r in state.tries(rollout))
    if tried or not rollout.options.window or rollout.kind is not Kind.PROPOSE or rollout.phase not in BEFORE_SWITCH:
        return move(rollout, event, why)
    return Decision(act.TryAgain(rollout.id, event), why)


def _minutes(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
