"""Rules for attempts, whosever they are: they die, are adopted, become ready, drain, stop and give back. Pure."""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .cards import is_back, shows
from .desired import candidate_seat, wanted_seats
from .policy import Policy
from .records import Attempt, AttemptState, Closed, Seat, State
from .restarts import given_up, stands_before_nobody
from .route import SlotState
from .seats import is_fresh, missing_instances
from .seen import Life, ProcessSeen, Seen
from .settle import settles_for_s
from .silence import why_dead
from .sleep import (
    leaves_its_bed,
    leftover_mib,
    may_sleep,
    not_taken_again,
    profiles_beside,
    sleeps_whole,
    used_mib,
)

STRAY_GRACE_S = 10.0
BEGUN = frozenset({AttemptState.STARTING, AttemptState.READY, AttemptState.DOZING, AttemptState.ASLEEP})
LEAVING = frozenset({AttemptState.RETIRING, AttemptState.STOPPING})


def process_of(attempt: Attempt, seen: Seen) -> ProcessSeen:
    """What is left of an attempt; of an earlier boot nothing can be."""
    if attempt.boot_id != seen.now.boot_id:
        return ProcessSeen(Life.ABSENT, sentence="the host has been rebooted since")
    return seen.processes.get(attempt.id, ProcessSeen(Life.ABSENT, sentence="there is no such process"))


def bury_dead(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Any unplanned exit is a failure, whatever the code (vllm#48966 exits 0 on engine death)."""
    for attempt in state.held:
        if attempt.state not in BEGUN or attempt.pid is None:
            continue
        process = process_of(attempt, seen)
        if process.life is Life.STRAYS and _may_serve(attempt, seen, policy):
            continue  # its shim was killed and the engine generates: nobody gains from cutting its streams
        if process.life is not Life.RUNNING:
            why = process.sentence or "its process is gone"
            # Who died in its sleep made room all the same: while that rollout runs, it is not started again.
            gave_way_to = attempt.gave_way_to if attempt.is_in_bed else None
            gone = act.Retire(attempt.id, hurry=True, port_conflict=process.port_conflict, gives_way_to=gave_way_to)
            return Decision(gone, why)
    return None


def _may_serve(attempt: Attempt, seen: Seen, policy: Policy) -> bool:
    """Whether users may be on an engine whose shim is dead.

    One that was ready is judged as if it had one: a daemon that has just begun has asked nobody yet, and a probe that
    fails is an anecdote. But with its port closed it serves nobody, whatever is left of it.
    """
    probe = seen.probes.get(attempt.id)
    if attempt.state is not AttemptState.READY:
        return is_fresh(probe, seen, policy.probe_fresh_s)
    return probe is None or not (probe.layer == "port" or why_dead(probe, seen.now.boot_s, policy))


def adopt_start(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """A crash fell between the intent of a start and its outcome: the effect finds the attempt or starts it."""
    for attempt in state.held:
        if attempt.state is AttemptState.STARTING and attempt.pid is None:
            return Decision(act.StartAttempt(attempt.id), "its start was begun and not recorded")
    return None


def mark_ready(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """Ready means that it generated, seen by a probe that began after the start."""
    for attempt in state.held:
        if attempt.state is not AttemptState.STARTING or attempt.pid is None:
            continue
        probe, since_s = seen.probes.get(attempt.id), attempt.started_at_s or 0.0
        if attempt.is_waking:  # nothing of before the wake counts, and tokens alone do not either
            since_s = attempt.naps[-1].awake_at_s or seen.now.boot_s + 1.0
            if not_taken_again(attempt, seen):
                continue
        if probe is not None and probe.ok and probe.started_at_s >= since_s:
            took_s = seen.now.boot_s - (attempt.begun_at_s or seen.now.boot_s)
            begun = "wake" if attempt.is_waking else "start"
            return Decision(act.MarkReady(attempt.id), f"{attempt.id} generates, {took_s:.1f} s after its {begun}")
    return None


def start_planned(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """One instance loads at a time, and then `settle_s` pass: several have collapsed a power supply (field notes §1).

    An instance of live that has to come back does not wait for a candidate that loads. None starts while the front door
    may still send users to where another of its port has been.
    """
    if seen.door_refuses:
        return None
    live = {a.id for a in state.seat_attempts(state.live)}
    planned = [a for a in state.held if a.state is AttemptState.PLANNED]
    for attempt in sorted(planned, key=lambda a: a.id not in live):
        loading = [
            a for a in state.held if a.state is AttemptState.STARTING and (a.id in live or attempt.id not in live)
        ]
        seat = Seat(attempt.release, attempt.rollout)
        ready = {a.instance for a in state.seat_attempts(seat) if a.state is AttemptState.READY}
        after = set(state.releases[attempt.release].instance(attempt.instance).start_after)
        loads_a_model = attempt.role != "router"
        if loads_a_model and len(loading) >= policy.max_concurrent_starts:
            continue
        if settles_for_s(attempt, state, seen, policy) > 0 or leaves_its_bed(attempt, state, seen):
            continue
        if not after <= ready:  # those that are given up are not waited for, where others are there
            after = (after - {a.instance for a in given_up(state, seat)}) or after
        if after <= ready:
            cards = ", ".join(attempt.gpus) or "no GPU"
            return Decision(act.StartAttempt(attempt.id), f"start {attempt.id} on {cards}, port {attempt.port}")
    return None


def retire_unwanted(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    wanted = wanted_seats(state, policy)
    for attempt in state.held:
        staying = attempt.state not in LEAVING
        seat = Seat(attempt.release, attempt.rollout)
        if staying and seat not in wanted:
            return Decision(act.Retire(attempt.id), f"{attempt.id} is neither live, candidate nor previous")
        if attempt.state is AttemptState.PLANNED and _waits_in_vain(attempt, seat, state):
            return Decision(act.Retire(attempt.id), f"{attempt.id} waits for an instance that nobody starts again")
        idle = attempt.state is AttemptState.ASLEEP and state.active is None and seat != state.live
        if idle and not sleeps_whole(state, seat):
            why = f"{attempt.id} sleeps for nothing: the other instances of {attempt.release} are gone"
            return Decision(act.Retire(attempt.id), why)
    return None


def _waits_in_vain(attempt: Attempt, seat: Seat, state: State) -> bool:
    """A router, and what stands behind it is gone: of live and of candidates it is started again, until given up."""
    release = state.releases[attempt.release]
    if seat == state.live:
        return stands_before_nobody(release, attempt.instance, {a.instance for a in given_up(state, seat)})
    if seat == candidate_seat(state.active):
        return False
    gone = missing_instances(state, seat)
    return any(name in gone for name in release.instance(attempt.instance).start_after)


def is_drained(attempt: Attempt, state: State, seen: Seen) -> bool:
    """Nobody's stream runs through this attempt any more, as far as the front door can tell."""
    if attempt.hurry or not attempt.exposed:
        return True
    if attempt.slot is not None:
        return _is_empty(attempt, seen)
    # A router that is not started yet carries nobody, and may wait for this one's successor.
    mates = state.seat_attempts(Seat(attempt.release, attempt.rollout))
    routers = [a for a in mates if a.role == "router" and a.state is not AttemptState.PLANNED]
    return all(_is_empty(router, seen) for router in routers)


def _is_empty(attempt: Attempt, seen: Seen) -> bool:
    """The front door leads nobody to its slot any more, and nobody is there still."""
    if not seen.door.alive:
        return False
    slot = next((s for s in seen.door.public if s.number == attempt.slot), None)
    return slot is None or (slot.state is not SlotState.READY and slot.in_flight == 0)


def stop_retired(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Every attempt that leaves takes its next step; one that does not get on holds up no other."""
    for attempt in state.attempts.values():
        decision = _leave(attempt, state, seen, policy) if attempt.state in LEAVING else None
        if decision is not None and not seen.rests(decision.action):
            return decision
    return None


def _leave(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision | None:
    process = process_of(attempt, seen)
    # Users may be with an engine whose shim is dead: it drains like any other before it is ended.
    stray = process.life is Life.STRAYS
    if stray and attempt.state is AttemptState.STOPPING:
        force = seen.now.boot_s - attempt.state_since_s > STRAY_GRACE_S
        return Decision(act.ClearStrays(attempt.id, force=force), "its shim is dead and processes of it live on")
    if process.life is not Life.RUNNING and not stray:
        if waits := _await_memory(attempt, state, seen, policy):
            return None if isinstance(waits.action, act.Wait) else waits
        return Decision(act.MarkStopped(attempt.id, process.log_tail), f"{attempt.id} is gone, nothing of it is left")
    if attempt.state is AttemptState.STOPPING:
        again = Decision(act.StopAttempt(attempt.id), "its stop was begun and not recorded")
        return None if attempt.stop_asked else again
    if profiles_beside(attempt, state):
        return None  # no longer than that start may take
    if is_drained(attempt, state, seen):
        return _lay_down(attempt, state, seen, policy)
    return _cut(attempt, state, seen, policy)


def _cut(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """What outlives the drain is cut; but not while the front door goes on sending users there."""
    limit_s = _drain_limit_s(attempt, state, policy)
    slot = next((s for s in seen.door.public if s.number == attempt.slot), None)
    if slot is None or slot.state is SlotState.READY or seen.now.boot_s - attempt.state_since_s <= limit_s:
        return None
    cut = "1 request is cut" if slot.in_flight == 1 else f"{slot.in_flight} requests are cut"
    return Decision(act.CutSlot(slot.number, attempt.id), f"the drain deadline of {limit_s:.0f} s is over: {cut}")


def _lay_down(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision:
    # Without its shim nobody is there who could give its cards back for a sleep.
    if process_of(attempt, seen).life is Life.RUNNING and may_sleep(attempt, state, policy):
        sleeps = act.SleepAttempt(attempt.id, used_mib(attempt, seen))
        return Decision(sleeps, f"put {attempt.id} to sleep: {attempt.why}")
    return Decision(act.StopAttempt(attempt.id), f"stop {attempt.id}: {attempt.why}")


def _await_memory(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """A lease ends when the memory is back; a card that does not give it back in time is nobody's."""
    if attempt.boot_id != seen.now.boot_id or attempt.lent:
        return None  # nothing outlives a reboot; and who sleeps gave its cards back before
    cards = {gpu.id: gpu for gpu in seen.gpus}
    limits = {
        gpu: free_mib + policy.memory_slack_mib + leftover_mib(gpu, attempt, state, policy)
        for gpu, free_mib in attempt.memory_before_mib.items()
        if gpu not in state.closed
    }
    late = [(gpu, limit_mib) for gpu, limit_mib in limits.items() if not is_back(cards.get(gpu), limit_mib)]
    if not late:
        return None
    gpu, limit_mib = late[0]
    card = cards.get(gpu)
    shown = shows(gpu, card)
    if attempt.gone_at_s is None:
        return Decision(act.MarkGone(attempt.id), f"{attempt.id} is gone, and {shown}: waiting for its memory")
    if seen.now.boot_s - attempt.gone_at_s < policy.memory_back_s:
        return Decision(act.Wait(), shown)
    unseen = card is None or not card.trusted
    expected = "" if unseen else f", expected {limit_mib} at most"
    why = f"{shown} {policy.memory_back_s:.0f} s after {attempt.id} was gone{expected}"
    closed = Closed("", why, seen.now.wall_s, limit_mib, unseen)
    return Decision(act.CloseCard(gpu, closed), f"quarantined: {why}")


def lift_quarantine(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """Memory that came back late came back, and so did a card; what a human has cordoned, a human gives back."""
    for gpu in seen.gpus:
        closed = state.closed.get(gpu.id)
        if closed is None or closed.by or closed.free_mib is None or not gpu.trusted:
            continue
        told = not gpu.foreign or gpu.strangers_mib is not None
        if told and is_back(gpu, closed.free_mib):
            back = f"{gpu.id} is there again" if closed.unseen else f"the memory of {gpu.id} is back"
            return Decision(act.OpenCard(gpu.id), f"{back}: {shows(gpu.id, gpu)}")
        if closed.unseen:  # it is there again, and not empty: that is another quarantine
            why = f"{shows(gpu.id, gpu)} since it is there again, expected {closed.free_mib} at most"
            full = Closed("", why, seen.now.wall_s, closed.free_mib)
            return Decision(act.CloseCard(gpu.id, full), f"quarantined: {why}")
    return None


def _drain_limit_s(attempt: Attempt, state: State, policy: Policy) -> float:
    """Shorter while everybody waits for this drain to end."""
    dark = any(r.dark_since_s is not None for r in state.rollouts.values() if r.id == attempt.gave_way_to)
    return min(policy.swap_drain_s, policy.drain_s) if dark else policy.drain_s
