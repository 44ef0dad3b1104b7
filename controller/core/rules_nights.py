"""Rules for nights: windows open and close, live is measured, and what has begun keeps to its time or yields. Pure."""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .bake import bake_s
from .budget import return_s, undo_s
from .desired import SWITCHED
from .frozen import replace
from .night_records import Night, NightState
from .nights import MEASURE, can_open, count, left_of_night, minutes, noise, open_night
from .plan import Plan
from .policy import Policy
from .queue import first_of_each, no_time, obstacle, planned
from .records import ACTIVE, Kind, Phase, Rollout, State
from .room import Strategy
from .seats import move
from .seen import Seen
from .table import Event
from .window import Opening, Schedule, clock_words

BEFORE_SWITCH = ACTIVE - SWITCHED - {Phase.ROLLING_BACK}
ON_CARDS = frozenset({Phase.STARTING, Phase.GATING, Phase.AWAITING_APPROVAL})
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
        if opening.is_open(seen.now.wall_s) and can_open(opening, state):
            until = clock_words(schedule, opening.closes_s)
            return Decision(act.NoteNight(_night(opening, seen)), f"window {schedule.window} is open until {until}")
    return None


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
    if left_of_night(night, state, seen, policy) > 0 and night.window in policy.schedules:
        return None
    active = state.active
    if active is not None and active.night == night.id and not waits_for_a_person(active):
        return None
    began = [r for r in state.rollouts.values() if r.night == night.id]
    waiting = [r for r in state.queue if r.options.window == night.window and r.kind is not Kind.MEASURE]
    waits = "waits" if len(waiting) == 1 else "wait"
    why = f"{count(len(began), 'rollout')} began, {count(len(waiting), 'proposal')} {waits}"
    said = tuple(f"{r.id} ({r.release}) did not begin: {obstacle(r, state, seen, policy)}" for r in waiting)
    closed = replace(night, state=NightState.CLOSED, ended_wall_s=seen.now.wall_s, why=why, said=said)
    return Decision(act.NoteNight(closed), f"window {night.window} is closed: {why}")


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


# --- live's own figures -----------------------------------------------------------------------------------------------


def measure_live(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Before the first candidate of a night that will be compared with live: live, in this night, once."""
    if state.active is not None or state.freeze is not None or not state.is_served():
        return None
    if any(n.baseline for n in state.nights.values() if n.state is NightState.OPEN):
        return None  # once, also where windows overlap
    for rollout in first_of_each(state):
        step = next((s for s in rollout.profile if s["name"] == MEASURE), None)
        night = open_night(rollout, state, seen, policy)
        if night is None or step is None or rollout.kind is not Kind.PROPOSE:
            continue
        plan = planned(rollout, state, seen, policy)
        left_s = left_of_night(night, state, seen, policy) - float(step["deadline_s"])
        if isinstance(plan, Plan) and left_s > 0 and not no_time(rollout, plan, state, policy, left_s):
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
            said = f"{minutes(left_s)} are left, and the way back takes about {minutes(need_s)}: live stays"
            return move(rollout, Event.MISSED, said)
        if rollout.phase is Phase.CUTTING_OVER:
            return _no_time_to_bake(rollout, state, left_s, policy)
    if rollout.phase in SWITCHED and left_s <= need_s:
        said = f"{minutes(left_s)} are left and it has not baked: back, which takes about {minutes(need_s)}"
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
    bakes = f"it has to bake for {minutes(asked_s)}, and the way back takes {minutes(back_s)}"
    said = f"{minutes(left_s)} are left, {bakes}"
    return move(rollout, Event.MISSED, said)


def _let_users_pass(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Never a ladder on top of users' traffic."""
    if rollout.phase is not Phase.GATING:
        return None
    if state.live != rollout.target or not state.is_served():
        return move(rollout, Event.MISSED, "what was to be measured does not serve any more")
    loud = noise(seen, policy)
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
    return noise(seen, policy) if rollout.options.window and plan.strategy == Strategy.SWAP else ""


def once_more(rollout: Rollout, state: State, event: Event, why: str) -> Decision:
    """What the host took down with it is tried once more in its window, and then no more: it may be why it went."""
    tried = any(r.why == why for r in state.tries(rollout))
    if tried or not rollout.options.window or rollout.kind is not Kind.PROPOSE or rollout.phase not in BEFORE_SWITCH:
        return move(rollout, event, why)
    return Decision(act.TryAgain(rollout.id, event), why)
