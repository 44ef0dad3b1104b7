"""What happens next: an ordered list of rules; the first that applies wins, and the order is the policy.

Production comes first: the front door, then processes that died, then live, and only then somebody's experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import actions as act
from .actions import Decision
from .cards import Places, Refusal, holders, is_back, no_places, place, without_holder
from .desired import SWITCHED, candidate_seat, desired_route, wanted_seats
from .plan import make_plan
from .policy import Policy
from .progress import PHASES, deadline_s
from .records import Attempt, AttemptState, Closed, Kind, Phase, Release, Rollout, Seat, State
from .route import DoorSeen, Route, SlotState
from .seats import all_ready, is_fresh, is_recallable, missing_instances, move, new_attempts
from .seen import Life, ProcessSeen, Seen
from .table import Event

Rule = Callable[[State, Seen, Policy], Decision | None]

DOOR_RETRY_S = 1.0
STRAY_GRACE_S = 10.0
BEGUN = frozenset({AttemptState.STARTING, AttemptState.READY})
LEAVING = frozenset({AttemptState.RETIRING, AttemptState.STOPPING})


# --- front door -------------------------------------------------------------------------------------------------------


def open_door(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    if seen.door.alive:
        return None
    if seen.door_tried_s is not None and seen.now.boot_s - seen.door_tried_s < DOOR_RETRY_S:
        return None
    return Decision(act.OpenDoor(), f"the front door does not answer ({seen.door.why or 'not started'})")


def route_differs(route: Route, door: DoorSeen) -> bool:
    """Whether the front door serves something else than `route`; a slot that nobody wants must be in maintenance."""
    if door.mode is not route.mode:
        return True
    for wanted, have in ((route.public, door.public), (route.preview, door.preview)):
        slots = {slot.number: slot for slot in wanted}
        for slot_seen in have:
            slot = slots.pop(slot_seen.number, None)
            if slot is None:
                if slot_seen.state is not SlotState.MAINT:
                    return True
            elif slot_seen.state is not slot.state or slot_seen.port != slot.port:
                return True
        if slots:
            return True
    return False


def repair_route(state: State, seen: Seen, policy: Policy) -> Decision | None:
    if not seen.door.alive:
        return None
    route = desired_route(state, policy)
    if not route_differs(route, seen.door):
        return None
    named = ", ".join(f"{slot.attempt} {slot.state}" for slot in route.public) or "nobody"
    return Decision(
        act.SetRoute(route), f"route {route.generation}: {named}" + (", and a preview" if route.preview else "")
    )


def record_switch(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """`repair_route` has nothing left to do, so the front door serves what was committed: the switch is over."""
    if not seen.door.alive:
        return None
    switched = {*SWITCHED, Phase.PROMOTED, Phase.ROLLED_BACK}
    for rollout in state.rollouts.values():
        if rollout.switched_at_s is None and rollout.decided_at_s is not None and rollout.phase in switched:
            return Decision(act.RecordSwitch(rollout.id), "the front door serves what was decided")
    return None


# --- processes --------------------------------------------------------------------------------------------------------


def process_of(attempt: Attempt, seen: Seen) -> ProcessSeen:
    """What is left of an attempt; of an earlier boot nothing can be."""
    if attempt.boot_id != seen.now.boot_id:
        return ProcessSeen(Life.ABSENT, sentence="the host has been rebooted since")
    return seen.processes.get(attempt.id, ProcessSeen(Life.ABSENT, sentence="there is no such process"))


def bury_dead(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Any unplanned exit is a failure, whatever the code (vllm#48966 exits 0 on engine death)."""
    for attempt in state.attempts.values():
        if attempt.state not in BEGUN or attempt.pid is None:
            continue
        process = process_of(attempt, seen)
        if process.life is Life.STRAYS and is_fresh(seen.probes.get(attempt.id), seen, policy.probe_fresh_s):
            continue  # its shim was killed and the engine generates: nobody gains from cutting its streams
        if process.life is not Life.RUNNING:
            why = process.sentence or "its process is gone"
            return Decision(act.Retire(attempt.id, hurry=True, port_conflict=process.port_conflict), why)
    return None


def adopt_start(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """A crash fell between the intent of a start and its outcome: the effect finds the attempt or starts it."""
    for attempt in state.attempts.values():
        if attempt.state is AttemptState.STARTING and attempt.pid is None:
            return Decision(act.StartAttempt(attempt.id), "its start was begun and not recorded")
    return None


def mark_ready(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """Ready means that it generated, seen by a probe that began after the start."""
    for attempt in state.attempts.values():
        if attempt.state is not AttemptState.STARTING or attempt.pid is None:
            continue
        probe = seen.probes.get(attempt.id)
        if probe is not None and probe.ok and probe.started_at_s >= (attempt.started_at_s or 0.0):
            took_s = seen.now.boot_s - (attempt.started_at_s or seen.now.boot_s)
            return Decision(act.MarkReady(attempt.id), f"{attempt.id} generates, {took_s:.1f} s after its start")
    return None


def start_planned(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """One instance loads at a time: several together have collapsed a power supply (field notes §1).

    An instance of live that has to come back does not wait for a candidate that loads.
    """
    live = {a.id for a in state.seat_attempts(state.live)}
    planned = [a for a in state.attempts.values() if a.state is AttemptState.PLANNED]
    for attempt in sorted(planned, key=lambda a: a.id not in live):
        loading = [
            a
            for a in state.attempts.values()
            if a.state is AttemptState.STARTING and (a.id in live or attempt.id not in live)
        ]
        seat = Seat(attempt.release, attempt.rollout)
        ready = {a.instance for a in state.seat_attempts(seat) if a.state is AttemptState.READY}
        after = state.releases[attempt.release].instance(attempt.instance).start_after
        loads_a_model = attempt.role != "router"
        if loads_a_model and len(loading) >= policy.max_concurrent_starts:
            continue
        if set(after) <= ready:
            cards = ", ".join(attempt.gpus) or "no GPU"
            return Decision(act.StartAttempt(attempt.id), f"start {attempt.id} on {cards}, port {attempt.port}")
    return None


def retire_unwanted(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    wanted = wanted_seats(state, policy)
    for attempt in state.attempts.values():
        staying = attempt.holds and attempt.state not in LEAVING
        if staying and Seat(attempt.release, attempt.rollout) not in wanted:
            return Decision(act.Retire(attempt.id), f"{attempt.id} is neither live, candidate nor previous")
    return None


def is_drained(attempt: Attempt, state: State, seen: Seen) -> bool:
    """Nobody's stream runs through this attempt any more, as far as the front door can tell."""
    if attempt.hurry:
        return True
    if attempt.slot is None:
        seat = Seat(attempt.release, attempt.rollout)
        return not any(a.role == "router" for a in state.seat_attempts(seat))
    if not attempt.exposed:
        return True
    if not seen.door.alive:
        return False
    slot = next((s for s in seen.door.public if s.number == attempt.slot), None)
    return slot is None or (slot.state is not SlotState.READY and slot.in_flight == 0)


def stop_retired(state: State, seen: Seen, policy: Policy) -> Decision | None:
    for attempt in state.attempts.values():
        if attempt.state not in LEAVING:
            continue
        process = process_of(attempt, seen)
        since_s = seen.now.boot_s - attempt.state_since_s
        if process.life is Life.STRAYS:
            force = since_s > STRAY_GRACE_S
            return Decision(act.ClearStrays(attempt.id, force=force), "its shim is dead and processes of it live on")
        if process.life is not Life.RUNNING:
            if waits := _await_memory(attempt, state, seen, policy):
                if isinstance(waits.action, act.Wait):
                    continue
                return waits
            return Decision(
                act.MarkStopped(attempt.id, process.log_tail), f"{attempt.id} is gone, nothing of it is left"
            )
        if attempt.state is AttemptState.STOPPING:
            if not attempt.stop_asked:
                return Decision(act.StopAttempt(attempt.id), "its stop was begun and not recorded")
            continue
        if is_drained(attempt, state, seen):
            return Decision(act.StopAttempt(attempt.id), f"stop {attempt.id}: {attempt.why}")
        limit_s = _drain_limit_s(attempt, state, policy)
        if attempt.slot is not None and since_s > limit_s and seen.door.alive:
            streams = next((s.in_flight for s in seen.door.public if s.number == attempt.slot), 0)
            cut = "1 request is cut" if streams == 1 else f"{streams} requests are cut"
            return Decision(
                act.CutSlot(attempt.slot, attempt.id), f"the drain deadline of {limit_s:.0f} s is over: {cut}"
            )
    return None


def _await_memory(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """A lease ends when the memory is back; a card that does not give it back in time is nobody's."""
    if attempt.boot_id != seen.now.boot_id:
        return None  # nothing outlives a reboot
    cards = {gpu.id: gpu for gpu in seen.gpus}
    late = [
        (gpu, free_mib + policy.memory_slack_mib)
        for gpu, free_mib in attempt.memory_before_mib.items()
        if gpu not in state.closed and not is_back(cards.get(gpu), free_mib + policy.memory_slack_mib)
    ]
    if not late:
        return None
    gpu, limit_mib = late[0]
    card = cards.get(gpu)
    used = "cannot be read" if card is None or not card.trusted else f"shows {card.memory_used_mib} MiB in use"
    if attempt.gone_at_s is None:
        return Decision(act.MarkGone(attempt.id), f"{attempt.id} is gone, and {gpu} {used}: waiting for its memory")
    if seen.now.boot_s - attempt.gone_at_s < policy.memory_back_s:
        return Decision(act.Wait(), f"{gpu} {used}")
    why = f"{gpu} {used} {policy.memory_back_s:.0f} s after {attempt.id} was gone, expected {limit_mib} at most"
    return Decision(act.CloseCard(gpu, Closed("", why, seen.now.wall_s, limit_mib)), f"quarantined: {why}")


def lift_quarantine(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """Memory that came back late came back; what a human has cordoned, a human gives back."""
    for gpu in seen.gpus:
        closed = state.closed.get(gpu.id)
        if closed is None or closed.by or closed.free_mib is None or gpu.foreign:
            continue
        if is_back(gpu, closed.free_mib):
            return Decision(act.OpenCard(gpu.id), f"the memory of {gpu.id} is back: {gpu.memory_used_mib} MiB in use")
    return None


def _drain_limit_s(attempt: Attempt, state: State, policy: Policy) -> float:
    """Shorter while everybody waits for this drain to end."""
    dark = any(r.dark_since_s is not None for r in state.rollouts.values() if r.id == attempt.gave_way_to)
    return min(policy.swap_drain_s, policy.drain_s) if dark else policy.drain_s


# --- live -------------------------------------------------------------------------------------------------------------


def retire_silent(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Busy is not down: live is given up only when probes fail *and* its token counters stand still.

    An engine that writes garbage counts its tokens as if nothing were wrong: there the probes alone decide.
    """
    if state.active is not None and state.active.phase in SWITCHED:
        return None  # the bake judges it
    for attempt in state.seat_attempts(state.live):
        probe = seen.probes.get(attempt.id)
        if attempt.state is not AttemptState.READY or probe is None or probe.ok:
            continue
        still_s = seen.now.boot_s - max(probe.streak_since_s, probe.progress_at_s or 0.0)
        if probe.streak < policy.silent_probes:
            continue
        if probe.layer == "output":
            why = f"{probe.layer}: {probe.sentence}, {probe.streak} probes in a row"
            return Decision(act.Retire(attempt.id, hurry=True), why)
        if still_s >= policy.silent_s:
            why = f"{probe.layer}: {probe.sentence}; no token for {still_s:.0f} s"
            return Decision(act.Retire(attempt.id, hurry=True), why)
    return None


def give_up_start(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance of live that was started again and does not come up: another try, and others may load meanwhile.

    Candidates and releases that are returned to have the deadline of their phase.
    """
    for attempt in state.seat_attempts(state.live):
        if attempt.state is not AttemptState.STARTING or attempt.started_at_s is None:
            continue
        limit_s = state.releases[attempt.release].start_timeout_s or policy.start_s
        if attempt.boot_id == seen.now.boot_id and seen.now.boot_s - attempt.started_at_s > limit_s:
            return Decision(act.Retire(attempt.id, hurry=True), f"its start took longer than {limit_s:.0f} s")
    return None


def is_failed_bake(rollout: Rollout) -> bool:
    """What is live just now is what is being left, because it is worse: nothing of it is worth a start."""
    return rollout.phase is Phase.ROLLING_BACK and rollout.kind is not Kind.ROLLBACK


def revive_live(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance of live that is gone is started again on its own cards, within the restart budget.

    One that made room for the active rollout is not gone: it comes back when that one has ended without a switch.
    """
    seat, active = state.live, state.active
    if seat is None or (active is not None and (active.phase in SWITCHED or is_failed_bake(active))):
        return None
    for name in missing_instances(state, seat):
        mine = state.attempts_of(seat, name)
        if active is not None and mine[-1].gave_way_to == active.id:
            continue
        if mine[-1].gave_way_to and is_recallable(mine[-1]):
            return Decision(act.Recall(mine[-1].id), "its cards are not needed any more: it serves again")
        recent = _recent_starts(mine, seen, policy)
        if any(a.state in LEAVING for a in mine) or recent > policy.restart_budget:
            continue
        release = state.releases[seat.release]
        if yields := _yields_to_live(state, set(mine[-1].gpus)):
            return yields
        cards = _cards_to_revive(state, seen, mine[-1], release)
        if cards is None or no_places(state, release, policy, frozenset(), name):
            continue  # given to somebody while it was not allowed to start: when they are back, it is
        gpu_map = {name: cards}
        return Decision(
            act.AddAttempts(new_attempts(state, seen, policy, seat, gpu_map, name)),
            f"live instance {name} is gone ({mine[-1].why}): start it again ({recent} starts so far)",
        )
    return _bear(state, seen, policy, seat) or _rewire_router(state, seen, policy, seat)


def _cards_to_revive(state: State, seen: Seen, last: Attempt, release: Release) -> tuple[str, ...] | None:
    """Its own cards; free ones instead of a card that is closed; None when there are none."""
    if not set(last.gpus) & set(state.closed):
        return None if set(last.gpus) & set(holders(state)) else last.gpus
    placed = place((release.instance(last.instance),), without_holder(state, seen.gpus), seen.gpus)
    return None if isinstance(placed, Refusal) else placed[last.instance]


def _besides(state: State) -> tuple[Attempt, ...]:
    """Attempts that carry neither live nor what is being tried: production may have their cards."""
    kept = (state.live, candidate_seat(state.active))
    return tuple(a for a in state.attempts.values() if a.holds and Seat(a.release, a.rollout) not in kept)


def _yields_to_live(state: State, cards: set[str]) -> Decision | None:
    for attempt in _besides(state):
        if attempt.is_staying and cards & set(attempt.gpus):
            return Decision(act.Retire(attempt.id), f"live needs {', '.join(sorted(cards & set(attempt.gpus)))}")
    return None


def _bear(state: State, seen: Seen, policy: Policy, seat: Seat) -> Decision | None:
    """Instances of live that were never started: it came back in part, so that nobody had to wait for all of it."""
    release, names = state.releases[seat.release], state.unborn(seat)
    placed = _places_of_unborn(state, seen, seat) if names else None
    if not placed:
        return None
    cards = {gpu for gpus in placed.values() for gpu in gpus}
    if yields := _yields_to_live(state, cards):
        return yields
    if cards & set(holders(state)) or no_places(state, release, policy, frozenset(), *names):
        return None
    attempts = new_attempts(state, seen, policy, seat, placed, *names)
    return Decision(act.AddAttempts(attempts), f"their cards are free: {', '.join(names)} of {release.id} follows")


def _places_of_unborn(state: State, seen: Seen, seat: Seat) -> Places | None:
    others = {a.id for a in _besides(state)}
    release, names = state.releases[seat.release], state.unborn(seat)
    wanted = [i for i in release.instances if i.name in names]
    placed = place(wanted, without_holder(state, seen.gpus, others), seen.gpus)
    return None if isinstance(placed, Refusal) else placed


def _recent_starts(mine: Sequence[Attempt], seen: Seen, policy: Policy) -> int:
    begun = [a for a in mine if a.boot_id == seen.now.boot_id]
    return sum(seen.now.boot_s - a.planned_at_s < policy.restart_window_s for a in begun)


def _rewire_router(state: State, seen: Seen, policy: Policy, seat: Seat) -> Decision | None:
    """A revived engine has another port: its router must learn it, and smg forgets workers over a restart anyway.

    The successor comes up beside it: a router that drains takes no requests, and a long stream can drain for an hour.
    """
    carried = [a for a in state.seat_attempts(seat) if a.state not in LEAVING]
    ports = {a.port for a in carried if a.role != "router"}
    stale = [a for a in carried if a.role == "router" and a.state is AttemptState.READY and set(a.workers) != ports]
    if not stale or not all_ready(state, seat):
        return None
    old, release = stale[0], state.releases[seat.release]
    successors = [a for a in carried if a.instance == old.instance and set(a.workers) == ports]
    if any(a.state is AttemptState.READY for a in successors):
        return Decision(act.Retire(old.id), "its engines have other ports now, and its successor is ready")
    mine = [a for a in state.attempts.values() if a.rollout == seat.rollout and a.instance == old.instance]
    if successors or _recent_starts(mine, seen, policy) > policy.restart_budget:
        return None
    if no_places(state, release, policy, frozenset(), old.instance):
        return Decision(act.Retire(old.id), "its engines have other ports now: the router is started again")
    attempts = new_attempts(state, seen, policy, seat, {}, old.instance)
    return Decision(act.AddAttempts(attempts), f"the engines behind {old.id} have other ports now: a router that knows")


# --- rollouts ---------------------------------------------------------------------------------------------------------


def honour_abort(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    for rollout in state.rollouts.values():
        if rollout.abort_by is None or rollout.ended_wall_s is not None:
            continue
        if rollout.phase is Phase.ROLLING_BACK and rollout.kind is not Kind.ROLLBACK:
            continue  # it is on the way back already
        return move(rollout, Event.ABORTED, f"aborted by {rollout.abort_by}")
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
        return _after_reboot(rollout.id, rollout.phase)
    spent_s = seen.now.boot_s - rollout.phase_since_s
    limit_s = deadline_s(rollout, state, policy)
    if spent_s <= limit_s:
        return None
    waiting = [a for a in state.seat_attempts(rollout.seat) if a.state is AttemptState.STARTING]
    detail = ""
    if waiting:
        probe = seen.probes.get(waiting[0].id)
        detail = f": {waiting[0].id} {probe.layer}, {probe.sentence}" if probe else f": {waiting[0].id} was never heard"
    return move(rollout, Event.DEADLINE, f"{rollout.phase.words} took longer than {limit_s:.0f} s{detail}")


def _after_reboot(rollout_id: str, phase: Phase) -> Decision:
    """Every process of before the reboot is gone: what was being tried is over, what served comes back."""
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
    }[phase]
    return Decision(act.Move(rollout_id, event), "the host was rebooted in the middle of it")


def advance(state: State, seen: Seen, policy: Policy) -> Decision | None:
    rollout = state.active
    return PHASES[rollout.phase](rollout, state, seen, policy) if rollout is not None else None


def stop_orphan_gate(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    for rollout in state.rollouts.values():
        if rollout.gate is not None and rollout.phase is not Phase.GATING:
            return Decision(act.StopGate(rollout.id, rollout.gate.run), f"{rollout.id} is {rollout.phase.words}")
    return None


def accept_next(state: State, seen: Seen, policy: Policy) -> Decision | None:
    if state.active is not None:
        return None
    for rollout in state.queue:
        if rollout.kind is not Kind.ROLLBACK and _comes_back(state, seen, policy):
            continue
        if _waits_for_cards(rollout, state, seen, policy):
            continue
        if rollout.kind is Kind.ROLLBACK:
            if rollout.target is None or rollout.target != state.previous:
                return move(rollout, Event.REFUSED, "the release to return to is not `previous` any more")
            return move(rollout, Event.RETURN, f"back to {rollout.target.release}, asked by {rollout.asked_by}")
        if rollout.kind is Kind.RESTART and (state.live is None or state.live.release != rollout.release):
            serves = state.live.release if state.live else "nothing"
            return move(rollout, Event.REFUSED, f"{rollout.release} is not live any more, {serves} is: restart that")
        if state.freeze is None:
            return move(
                rollout, Event.ACCEPTED, f"its turn: {rollout.kind} {rollout.release}, asked by {rollout.asked_by}"
            )
    return None


def _comes_back(state: State, seen: Seen, policy: Policy) -> bool:
    """Instances of live that made room are on their way back: nothing new begins before production is whole."""
    if state.live is None:
        return False
    if _places_of_unborn(state, seen, state.live):
        return True
    ready = {a.instance for a in state.seat_attempts(state.live) if a.state is AttemptState.READY}
    for name in state.begun(state.live):
        mine = state.attempts_of(state.live, name)
        moved = any(a.gave_way_to for a in mine)
        if name not in ready and moved and _recent_starts(mine, seen, policy) <= policy.restart_budget:
            return True
    return False


def _waits_for_cards(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Refusal | None:
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


RULES: tuple[Rule, ...] = (
    open_door,
    repair_route,
    record_switch,
    bury_dead,
    adopt_start,
    mark_ready,
    retire_silent,
    give_up_start,
    revive_live,
    honour_abort,
    enforce_deadline,
    advance,
    stop_orphan_gate,
    retire_unwanted,
    stop_retired,
    lift_quarantine,
    start_planned,
    accept_next,
)


def decide(state: State, seen: Seen, policy: Policy) -> Decision:
    """The one next action, with its sentence."""
    for rule in RULES:
        decision = rule(state, seen, policy)
        if decision is not None:
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
        return f"{about}: {active.why}"
    frozen = f"; frozen by {state.freeze.by}: {state.freeze.why}" if state.freeze else ""
    serving = f"{state.live.release} is live" if state.live else "nothing is live"
    waits = [(r.id, refusal) for r in state.queue if (refusal := _waits_for_cards(r, state, seen, policy))]
    queued = f"; {waits[0][0]} waits for its cards: {waits[0][1].why}" if waits else ""
    return f"{serving}, no rollout is running{frozen}{queued}"
