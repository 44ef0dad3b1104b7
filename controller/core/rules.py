"""What happens next: an ordered list of rules; the first that applies wins, and the order is the policy.

Production comes first: the front door, then processes that died, then live, and only then somebody's experiment.
"""

from __future__ import annotations

from collections.abc import Callable

from . import actions as act
from .actions import Decision
from .cards import Refusal
from .desired import SWITCHED, desired_route
from .plan import live_already, make_plan
from .policy import Policy
from .progress import PHASES, deadline_s
from .queue import acceptance, expire, first_of_each, why_not_yet
from .records import AttemptState, Kind, Phase, Rollout, State
from .restarts import paused
from .route import differs
from .rules_attempts import (
    adopt_start,
    bury_dead,
    lift_quarantine,
    mark_ready,
    retire_unwanted,
    start_planned,
    stop_retired,
)
from .rules_live import comes_back, give_up_start, retire_silent, revive_live
from .rules_nights import keep_to_the_time, measure_live, note_nights, once_more, thaw, yield_cards
from .rules_sleep import watch_sleep
from .seats import move
from .seen import RETRY_S, Seen
from .settle import settling
from .sweeps import conclude_sweep
from .table import Event
from .takeover import take_over
from .verify import verify_ready

Rule = Callable[[State, Seen, Policy], Decision | None]


# --- front door -------------------------------------------------------------------------------------------------------


def open_door(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    if seen.door.alive:
        return None
    if seen.door_tried_s is not None and seen.now.boot_s - seen.door_tried_s < RETRY_S:
        return None
    return Decision(act.OpenDoor(), f"the front door does not answer ({seen.door.why or 'not started'})")


def repair_route(state: State, seen: Seen, policy: Policy) -> Decision | None:
    if not seen.door.alive:
        return None
    route = desired_route(state, policy)
    if not differs(route, seen.door):
        return None
    named = ", ".join(f"{slot.attempt} {slot.state}" for slot in route.public) or "nobody"
    return Decision(
        act.SetRoute(route), f"route {route.generation}: {named}" + (", and a preview" if route.preview else "")
    )


_WAS_SWITCHED = SWITCHED | {Phase.PROMOTED, Phase.ROLLED_BACK}


def record_switch(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """`repair_route` has nothing left to do, so the front door serves what was committed: the switch is over."""
    if not seen.door.alive or seen.door_refuses:
        return None
    for rollout in state.rollouts.values():
        if rollout.switched_at_s is None and rollout.decided_at_s is not None and rollout.phase in _WAS_SWITCHED:
            return Decision(act.RecordSwitch(rollout.id), "the front door serves what was decided")
    return None


# --- rollouts ---------------------------------------------------------------------------------------------------------


def honour_abort(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    for rollout in state.rollouts.values():
        if rollout.abort_by is None or rollout.ended_wall_s is not None:
            continue
        if rollout.phase is Phase.ROLLING_BACK and rollout.kind is not Kind.ROLLBACK:
            continue  # it is on the way back already
        back = next((r for r in state.queue if r.kind is Kind.ROLLBACK and r.asked_by == rollout.abort_by), None)
        for_it = f", who wants {back.release} back" if back is not None and back is not rollout else ""
        return move(rollout, Event.ABORTED, f"aborted by {rollout.abort_by}{for_it}")
    active = state.active
    wanted = next((r for r in state.queue if r.kind is Kind.ROLLBACK), None)
    if wanted is not None and active is not None and active.phase is not Phase.ROLLING_BACK:
        # It was accepted in the moment in which somebody asked for the rollback.
        return move(active, Event.ABORTED, f"aborted by {wanted.asked_by}, who wants {wanted.release} back")
    return None


def enforce_deadline(state: State, seen: Seen, policy: Policy) -> Decision | None:
    rollout = state.active
    if rollout is None:
        return None
    if rollout.phase_boot_id != seen.now.boot_id:
        return _after_reboot(rollout, state)
    spent_s = seen.now.boot_s - rollout.phase_since_s
    limit_s = deadline_s(rollout, state, policy)
    if spent_s <= limit_s:
        return None
    waiting = [a for a in state.seat_attempts(rollout.seat) if a.state is AttemptState.STARTING]
    detail = f": {seen.gpus_why}" if rollout.phase is Phase.PREFLIGHT and seen.gpus_why else ""
    if waiting:
        probe = seen.probes.get(waiting[0].id)
        detail = f": {waiting[0].id} {probe.layer}, {probe.sentence}" if probe else f": {waiting[0].id} was never heard"
    return move(rollout, Event.DEADLINE, f"{rollout.phase.words} took longer than {limit_s:.0f} s{detail}")


def _after_reboot(rollout: Rollout, state: State) -> Decision:
    """Every process of before the reboot is gone: what was being tried is over, what served comes back."""
    why = "the host was rebooted in the middle of it"
    if rollout.kind is Kind.MEASURE:
        return move(rollout, Event.MISSED, why)
    event = {
        Phase.PREFLIGHT: Event.DEADLINE,
        Phase.LEASING: Event.DEADLINE,
        Phase.STARTING: Event.BROKEN,
        Phase.GATING: Event.BROKEN,
        Phase.AWAITING_APPROVAL: Event.BROKEN,
        Phase.CUTTING_OVER: Event.BROKEN,
        Phase.COMPLETING: Event.BROKEN,
        Phase.BAKING: Event.WORSE,
        Phase.ROLLING_BACK: Event.DEADLINE,
    }[rollout.phase]
    return once_more(rollout, state, event, why)


def advance(state: State, seen: Seen, policy: Policy) -> Decision | None:
    rollout = state.active
    return PHASES[rollout.phase](rollout, state, seen, policy) if rollout is not None else None


def stop_orphan_gate(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    for rollout in state.rollouts.values():
        if rollout.gate is not None and rollout.phase not in {Phase.GATING, Phase.AWAITING_APPROVAL}:
            return Decision(act.StopGate(rollout.id, rollout.gate.run), f"{rollout.id} is {rollout.phase.words}")
    return None


def accept_next(state: State, seen: Seen, policy: Policy) -> Decision | None:
    if state.active is not None or seen.door_refuses:
        return None
    for rollout in first_of_each(state):
        if rollout.kind is not Kind.ROLLBACK and comes_back(state, seen, policy):
            continue
        if waits_for_cards(rollout, state, seen, policy):
            continue
        if rollout.kind is Kind.ROLLBACK:
            if overtaken := _is_overtaken(rollout, state):
                return move(rollout, Event.REFUSED, overtaken)
            target = rollout.target.release if rollout.target else rollout.release
            return move(rollout, Event.RETURN, f"back to {target}, asked by {rollout.asked_by}")
        if rollout.kind is Kind.RESTART and (state.live is None or state.live.release != rollout.release):
            serves = state.live.release if state.live else "nothing"
            return move(rollout, Event.REFUSED, f"{rollout.release} is not live any more, {serves} is: restart that")
        if rollout.kind is Kind.PROPOSE and rollout.options.window:
            already = live_already(state, state.releases[rollout.release], force=rollout.options.force)
            if already is not None:
                return move(rollout, Event.REFUSED, f"{already.why} by now")
        if state.freeze is None and not why_not_yet(rollout, state, seen, policy):
            turn = f"its turn: {rollout.kind} {rollout.release}, asked by {rollout.asked_by}"
            return Decision(acceptance(rollout, state, seen, policy), turn)
    return None


def _is_overtaken(rollout: Rollout, state: State) -> str:
    """Why this rollback makes no sense any more; empty: it does."""
    if rollout.instead_of is not None:
        return "" if state.live == rollout.instead_of else f"{rollout.instead_of.release} is not live any more"
    same = rollout.target is not None and rollout.target == state.previous
    return "" if same else "the release to return to is not `previous` any more"


def waits_for_cards(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Refusal | None:
    """Somebody else's job is on the cards: a proposal that may wait lets others pass until they are free."""
    patience_s = rollout.options.wait_for_free_s
    if patience_s is None or rollout.phase_boot_id != seen.now.boot_id:
        return None
    if seen.now.boot_s - rollout.phase_since_s > patience_s:
        return None  # its turn, and its refusal says what is in the way
    plan = make_plan(
        state, state.releases[rollout.release], seen.gpus, policy, options=rollout.options, profile=rollout.profile
    )
    return plan if isinstance(plan, Refusal) else None


def _waits(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> str:
    if refusal := waits_for_cards(rollout, state, seen, policy):
        return f" for its cards: {refusal.why}"
    why = why_not_yet(rollout, state, seen, policy) if rollout.kind is not Kind.ROLLBACK else ""
    return f": {why}" if why else ""


RULES: tuple[Rule, ...] = (
    open_door,
    repair_route,
    record_switch,
    bury_dead,
    adopt_start,
    mark_ready,
    watch_sleep,
    retire_silent,
    give_up_start,
    revive_live,
    take_over,
    verify_ready,
    honour_abort,
    enforce_deadline,
    keep_to_the_time,
    yield_cards,
    advance,
    stop_orphan_gate,
    retire_unwanted,
    stop_retired,
    lift_quarantine,
    start_planned,
    thaw,
    note_nights,
    expire,
    measure_live,
    conclude_sweep,
    accept_next,
)


def decide(state: State, seen: Seen, policy: Policy) -> Decision:
    """The one next action, with its sentence. What failed a moment ago is passed over: no deadline waits behind it."""
    for rule in RULES:
        decision = rule(state, seen, policy)
        if decision is not None and not seen.rests(decision.action):
            return decision
    return Decision(act.Wait(), at_rest(state, seen, policy))


def at_rest(state: State, seen: Seen, policy: Policy) -> str:
    """What the controller is waiting for, in one sentence."""
    active = state.active
    if active is not None:
        about = f"{active.id} ({active.release}) is {active.phase.words}"
        loading = [a for a in state.attempts.values() if a.rollout == active.id and a.state is AttemptState.STARTING]
        if loading:
            probe = seen.probes.get(loading[0].id)
            heard = f"{probe.layer}, {probe.sentence}" if probe else "not heard yet"
            since_s = seen.now.boot_s - loading[0].state_since_s
            return f"{about}: {loading[0].id} loads for {since_s:.0f} s ({heard})"
        if settles := settling(state, seen, policy):
            return f"{about}: {settles}"
        return f"{about}: {active.why}"
    if seen.door_refuses:
        return f"the front door does not take its route ({seen.door_refuses}): it is told again, and nothing new begins"
    frozen = f"; frozen by {state.freeze.by}: {state.freeze.why}" if state.freeze else ""
    waiting = paused(state, seen, policy)
    pause = f"; instance {waiting[0]} is started again in {waiting[1]:.0f} s" if waiting else ""
    serving = f"{state.live.release} is live" if state.live else "nothing is live"
    queued = next((f"; {r.id} waits{why}" for r in state.queue if (why := _waits(r, state, seen, policy))), "")
    return f"{serving}, no rollout is running{pause}{frozen}{queued}"
