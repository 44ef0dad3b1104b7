"""How the journal's state changes: for every action, what its intent and its outcome do to the records.

Pure. An action that does not fit the state raises `IllegalMove` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from . import actions as act
from .records import (
    ACTIVE,
    TERMINAL,
    Attempt,
    AttemptState,
    GateResult,
    GateRun,
    Kind,
    Nap,
    Now,
    Phase,
    Rollout,
    Seat,
    State,
)
from .table import Event, IllegalMove, follow
from .verify import check_results

LEAVES = frozenset(AttemptState) - {AttemptState.RETIRING, AttemptState.STOPPING, AttemptState.STOPPED}
"""From these an attempt can be retired."""


def with_rollout(state: State, rollout: Rollout) -> State:
    return replace(state, rollouts={**state.rollouts, rollout.id: rollout})


def with_attempt(state: State, attempt: Attempt) -> State:
    return replace(state, attempts={**state.attempts, attempt.id: attempt})


def rollout_of(state: State, rollout_id: str) -> Rollout:
    try:
        return state.rollouts[rollout_id]
    except KeyError:
        raise IllegalMove(f"there is no rollout {rollout_id}") from None


def attempt_of(state: State, attempt_id: str, *allowed: AttemptState) -> Attempt:
    try:
        attempt = state.attempts[attempt_id]
    except KeyError:
        raise IllegalMove(f"there is no attempt {attempt_id}") from None
    if allowed and attempt.state not in allowed:
        raise IllegalMove(f"attempt {attempt_id} is {attempt.state}, not {' or '.join(allowed)}")
    return attempt


def advance(rollout: Rollout, event: Event, now: Now, why: str) -> Rollout:
    """The rollout after `event`; the seconds that its last phase took are kept under that phase's name."""
    phase = follow(rollout.phase, event)
    spent_s = now.boot_s - rollout.phase_since_s if rollout.phase_boot_id == now.boot_id else 0.0
    return replace(
        rollout,
        phase=phase,
        phase_since_s=now.boot_s,
        phase_boot_id=now.boot_id,
        why=why,
        times={**rollout.times, rollout.phase.value: round(spent_s, 3)},
        ended_wall_s=now.wall_s if phase in TERMINAL else None,
    )


def expose_live(state: State) -> State:
    """Mark the ready attempts of live as seen by users: from now on they are drained, never dropped."""
    for attempt in state.seat_attempts(state.live):
        if attempt.state is AttemptState.READY and not attempt.exposed:
            state = with_attempt(state, replace(attempt, exposed=True))
    return state


def rest(attempt: Attempt, to: AttemptState, now: Now, why: str) -> Attempt:
    return replace(attempt, state=to, state_since_s=now.boot_s, why=why)


# --- what people ask for ----------------------------------------------------------------------------------------------


def _propose(state: State, action: act.Propose, now: Now, why: str) -> State:
    number = state.rollout_seq + 1
    rollout = Rollout(
        id=f"r{number:04d}",
        kind=action.kind,
        release=action.release.id,
        asked_by=action.by,
        created_wall_s=now.wall_s,
        phase_since_s=now.boot_s,
        phase_boot_id=now.boot_id,
        why=why,
        options=action.options,
        profile=action.profile,
        target=action.target,
        instead_of=action.instead_of,
    )
    state = replace(
        state,
        rollout_seq=number,
        releases={**state.releases, action.release.id: action.release},
    )
    active = state.active
    if action.kind is Kind.ROLLBACK and active is not None and active.phase is not Phase.ROLLING_BACK:
        # Production comes first: whoever wants the old release back does not wait for somebody's experiment.
        state = with_rollout(state, replace(active, abort_by=action.by))
    return with_rollout(state, rollout)


def _ask_abort(state: State, action: act.AskAbort, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.phase in TERMINAL:
        raise IllegalMove(f"rollout {rollout.id} is over ({rollout.phase.words}): there is nothing to abort")
    return with_rollout(state, replace(rollout, abort_by=action.by))


def _approve(state: State, action: act.Approve, now: Now, why: str) -> State:
    rollout = replace(rollout_of(state, action.rollout), approved_by=action.by)
    return with_rollout(state, advance(rollout, Event.APPROVED, now, why))


def _set_freeze(state: State, action: act.SetFreeze, now: Now, why: str) -> State:  # noqa: ARG001
    return replace(state, freeze=action.freeze)


def _stand_down(state: State, action: act.StandDown, now: Now, why: str) -> State:  # noqa: ARG001
    if state.live is None:
        raise IllegalMove("nothing is live: there is nothing to stop")
    if state.active is not None:
        raise IllegalMove(f"rollout {state.active.id} is {state.active.phase.words}: abort it first")
    return replace(state, generation=state.generation + 1, live=None, previous=state.live)


# --- records ----------------------------------------------------------------------------------------------------------


def _move(state: State, action: act.Move, now: Now, why: str) -> State:
    before = rollout_of(state, action.rollout)
    rollout = advance(before, action.event, now, why)
    if rollout.phase in ACTIVE and before.phase not in ACTIVE and state.active is not None:
        raise IllegalMove(f"rollout {state.active.id} is {state.active.phase}: one at a time")
    if rollout.phase is Phase.ROLLING_BACK:
        rollout = replace(rollout, decided_at_s=now.boot_s, switched_at_s=None)
        if rollout.kind is not Kind.ROLLBACK:
            rollout = replace(rollout, target=rollout.before[0])
    before_it = rollout.before[0]
    if rollout.phase is Phase.PROMOTED and before_it is not None and before_it.release == rollout.release:
        # The same release in fresh processes: what one would return to is still the release before it.
        state = replace(state, previous=rollout.before[1])
    return with_rollout(state, rollout)


def _adopt_plan(state: State, action: act.AdoptPlan, now: Now, why: str) -> State:
    rollout = advance(rollout_of(state, action.rollout), Event.PLANNED, now, why)
    return with_rollout(state, replace(rollout, plan=action.plan, gpu_map=action.gpu_map, bake=action.baseline))


def _conflict(attempt: Attempt, held: list[Attempt]) -> str | None:
    for other in held:
        if (other.holds_cards and set(attempt.gpus) & set(other.gpus)) or attempt.port == other.port:
            return f"attempt {attempt.id} wants cards or ports that {other.id} holds"
        if attempt.slot is not None and attempt.slot == other.slot:
            return f"attempt {attempt.id} wants the front-door slot of {other.id}"
    return None


def _add_attempts(state: State, action: act.AddAttempts | act.TakeLease, now: Now, why: str) -> State:
    """New attempts, planned; never gives a card, a port or a slot to two."""
    held = list(state.held)
    attempts = dict(state.attempts)
    for attempt in action.attempts:
        problem = f"attempt {attempt.id} exists already" if attempt.id in attempts else _conflict(attempt, held)
        closed = [gpu for gpu in attempt.gpus if gpu in state.closed]
        if closed and not problem:
            problem = f"{closed[0]} is {state.closed[closed[0]].word}"
        if problem:
            raise IllegalMove(problem)
        planned = replace(rest(attempt, AttemptState.PLANNED, now, why), planned_at_s=now.boot_s, boot_id=now.boot_id)
        held.append(planned)
        attempts[attempt.id] = planned
    return replace(
        state,
        attempts=attempts,
        attempt_seq=state.attempt_seq + len(action.attempts),
        last_port=action.attempts[-1].port if action.attempts else state.last_port,
        last_slot=next((a.slot for a in reversed(action.attempts) if a.slot is not None), state.last_slot),
    )


def _take_lease(state: State, action: act.TakeLease, now: Now, why: str) -> State:
    rollout = advance(rollout_of(state, action.rollout), Event.LEASED, now, why)
    return _add_attempts(with_rollout(state, rollout), action, now, why)


def _mark_ready(state: State, action: act.MarkReady, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.STARTING)
    ready = rest(attempt, AttemptState.READY, now, why)
    ready = _nap(ready, ready_at_s=now.boot_s) if attempt.is_waking else replace(ready, ready_at_s=now.boot_s)
    return _lit(expose_live(with_attempt(state, ready)), now)


def _record_checks(state: State, action: act.RecordChecks, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.READY)
    if attempt.checks:
        raise IllegalMove(f"attempt {attempt.id} was looked at already")
    state = with_attempt(state, replace(attempt, checks=action.checks, kv_tokens=action.kv_tokens))
    rollout = rollout_of(state, attempt.rollout)
    if rollout.ended_wall_s is not None:
        return state  # an instance of live that was started again: its own record says it
    results = check_results(rollout, attempt.id, action.checks, action.kv_tokens)
    return with_rollout(state, replace(rollout, gates=(*rollout.gates, *results)))


def _lit(state: State, now: Now) -> State:
    """Something serves again: the dark time of whoever caused it is over."""
    if not state.is_served():
        return state
    for rollout in state.rollouts.values():
        if rollout.dark_since_s is not None:
            state = with_rollout(state, _dark_is_over(rollout, now))
    return state


def _dark_is_over(rollout: Rollout, now: Now) -> Rollout:
    if rollout.dark_since_s is None:
        return rollout
    # A reboot in the dark: the clock began anew, and how long it was nobody knows.
    dark_s = max(0.0, now.boot_s - rollout.dark_since_s)
    return replace(rollout, dark_since_s=None, times={**rollout.times, "dark_s": round(dark_s, 3)})


def _retire(state: State, action: act.Retire, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, *LEAVES)
    retiring = replace(
        rest(attempt, AttemptState.RETIRING, now, why),
        hurry=action.hurry,
        port_conflict=action.port_conflict,
        gave_way_to=action.gives_way_to,
        retired_at_s=now.boot_s,
    )
    served = state.is_served()
    state = with_attempt(state, retiring)
    if action.gives_way_to is None or state.is_served() or not served:
        return state
    return with_rollout(state, replace(rollout_of(state, action.gives_way_to), dark_since_s=now.boot_s))


def _give_up(state: State, action: act.GiveUp, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING, AttemptState.STOPPED)
    if attempt.given_up:
        raise IllegalMove(f"attempt {attempt.id} is given up already")
    return with_attempt(state, replace(attempt, given_up=why))


def _recall(state: State, action: act.Recall, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING)
    if attempt.hurry or attempt.ready_at_s is None or attempt.lent:
        raise IllegalMove(f"attempt {attempt.id} was not retired in good health")
    return _lit(with_attempt(state, replace(rest(attempt, AttemptState.READY, now, why), gave_way_to=None)), now)


def _nap(attempt: Attempt, **changes: Any) -> Attempt:
    """The attempt with its last nap changed."""
    return replace(attempt, naps=(*attempt.naps[:-1], replace(attempt.naps[-1], **changes)))


def _mark_asleep(state: State, action: act.MarkAsleep, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.DOZING)
    # Nobody's stream runs through it: users have to be sent to it anew.
    asleep = replace(rest(attempt, AttemptState.ASLEEP, now, why), lent=True, exposed=False)
    return with_attempt(state, _nap(asleep, asleep_at_s=now.boot_s))


def _mark_awake(state: State, action: act.MarkAwake, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.STARTING)
    if not attempt.is_waking:
        raise IllegalMove(f"attempt {attempt.id} does not wake up, it starts")
    return with_attempt(state, _nap(attempt, awake_at_s=now.boot_s))


def _mark_gone(state: State, action: act.MarkGone, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    return with_attempt(state, replace(attempt, gone_at_s=now.boot_s))


def _mark_stopped(state: State, action: act.MarkStopped, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    gone_at_s = now.boot_s if attempt.gone_at_s is None else attempt.gone_at_s
    stopped = replace(
        rest(attempt, AttemptState.STOPPED, now, attempt.why), gone_at_s=gone_at_s, stopped_at_s=now.boot_s
    )
    return with_attempt(state, replace(stopped, log_tail=action.log_tail))


def _close_card(state: State, action: act.CloseCard, now: Now, why: str) -> State:  # noqa: ARG001
    known = state.closed.get(action.gpu)
    found_full = known is not None and known.unseen and not action.closed.unseen  # it can be read again
    if known is not None and bool(known.by) >= bool(action.closed.by) and not found_full:
        raise IllegalMove(f"{action.gpu} is {known.word} already: {known.why}")
    return replace(state, closed={**state.closed, action.gpu: action.closed})


def _open_card(state: State, action: act.OpenCard, now: Now, why: str) -> State:  # noqa: ARG001
    if action.gpu not in state.closed:
        raise IllegalMove(f"{action.gpu} is not closed")
    return replace(state, closed={gpu: closed for gpu, closed in state.closed.items() if gpu != action.gpu})


def _record_gate(state: State, action: act.RecordGate, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.gate is None or rollout.gate.run != action.result.run:
        raise IllegalMove(f"rollout {rollout.id} does not wait for gate run {action.result.run}")
    return with_rollout(state, replace(rollout, gate=None, gates=(*rollout.gates, action.result), why=why))


def _commit_cutover(state: State, action: act.CommitCutover, now: Now, why: str) -> State:
    rollout = rollout_of(state, action.rollout)
    event = Event.COMMITTED_IN_PART if state.unborn(rollout.seat) else Event.COMMITTED
    rollout = advance(rollout, event, now, why)
    bake = replace(action.baseline, last_sample_s=now.boot_s)
    rollout = replace(
        rollout, before=(state.live, state.previous), bake=bake, decided_at_s=now.boot_s, switched_at_s=None
    )
    return expose_live(
        replace(
            with_rollout(state, rollout),
            generation=state.generation + 1,
            live=replace(rollout.seat, since_wall_s=now.wall_s),
            previous=state.live or state.previous,
        )
    )


def rollback_seat(state: State, rollout: Rollout) -> Seat | None:
    """Who would carry production after this rollback: attempts started for it, else those that were kept warm."""
    if rollout.target is None:
        return None
    started = Seat(rollout.target.release, rollout.id)
    if rollout.kind is not Kind.ROLLBACK and started == rollout.seat:
        return rollout.target  # a restart: the attempts of this rollout are the ones that were worse
    return started if state.seat_attempts(started) else rollout.target


def _before(state: State, left: Seat, seat: Seat) -> Seat | None:
    """The way back once `seat` has taken over from what keeps dying; None where there is no other release."""
    known = (state.previous, *state.rollouts[left.rollout].before)
    return next((s for s in known if s is not None and s.release not in {left.release, seat.release}), None)


def _commit_rollback(state: State, action: act.CommitRollback, now: Now, why: str) -> State:
    rollout = rollout_of(state, action.rollout)
    seat = rollback_seat(state, rollout)
    if seat is None:
        raise IllegalMove(f"rollout {rollout.id} has no release to return to")
    # After a failed bake the bad release is nobody's rollback target: the one before it is again. After a manual
    # rollback the release left behind was good, and a second `rollback` returns to it. What keeps dying was not.
    if rollout.instead_of is not None:
        previous = _before(state, rollout.instead_of, seat)
    else:
        previous = state.live if rollout.kind is Kind.ROLLBACK else rollout.before[1]
    returned = advance(rollout, Event.COMMITTED, now, why)
    if rollout.kind is Kind.ROLLBACK:  # else it is what was there before its cutover
        returned = replace(returned, before=(state.live, state.previous))
    return expose_live(
        replace(
            with_rollout(state, returned),
            generation=state.generation + 1,
            live=replace(seat, since_wall_s=now.wall_s),
            previous=previous,
        )
    )


def _record_switch(state: State, action: act.RecordSwitch, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.switched_at_s is not None:
        raise IllegalMove(f"the switch of {rollout.id} is recorded already")
    key = "rollback_s" if rollout.phase is Phase.ROLLED_BACK else "switch_s"
    took_s = now.boot_s - (now.boot_s if rollout.decided_at_s is None else rollout.decided_at_s)
    times = {**rollout.times, key: round(took_s, 3)}
    switched = _dark_is_over(replace(rollout, switched_at_s=now.boot_s, times=times), now)
    return _lit(with_rollout(state, switched), now)  # a rollback ends the dark of whom it interrupted, too


def _record_sample(state: State, action: act.RecordSample, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.phase is not Phase.BAKING:
        raise IllegalMove(f"rollout {rollout.id} is {rollout.phase}: there is nothing to sample")
    return with_rollout(state, replace(rollout, bake=action.bake, why=why))


# --- intents of effects -----------------------------------------------------------------------------------------------


def _begin_start(state: State, action: act.StartAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.PLANNED, AttemptState.STARTING)
    if attempt.pid is not None:
        raise IllegalMove(f"attempt {attempt.id} was started already")
    starting = rest(attempt, AttemptState.STARTING, now, why)
    return with_attempt(state, replace(starting, started_at_s=now.boot_s, boot_id=now.boot_id))


def _begin_stop(state: State, action: act.StopAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    if attempt.state is AttemptState.STOPPING:
        return state
    stopping = replace(rest(attempt, AttemptState.STOPPING, now, attempt.why or why), stopping_at_s=now.boot_s)
    return with_attempt(state, stopping)


def _begin_sleep(state: State, action: act.SleepAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.DOZING)
    if attempt.state is AttemptState.DOZING:
        return state
    if attempt.hurry or attempt.ready_at_s is None or attempt.retired_at_s is None or attempt.gave_way_to is None:
        raise IllegalMove(f"attempt {attempt.id} did not make room in good health: it is stopped, not put to sleep")
    nap = Nap(attempt.gave_way_to, attempt.retired_at_s, now.boot_s, used_mib=action.used_mib)
    return with_attempt(state, replace(rest(attempt, AttemptState.DOZING, now, why), naps=(*attempt.naps, nap)))


def _begin_wake(state: State, action: act.WakeAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.ASLEEP, AttemptState.STARTING)
    if attempt.state is AttemptState.STARTING:
        return state
    for other in state.attempts.values():
        if other.holds_cards and set(attempt.gpus) & set(other.gpus):
            raise IllegalMove(f"attempt {attempt.id} cannot wake up on cards that {other.id} holds")
    starting = replace(rest(attempt, AttemptState.STARTING, now, why), lent=False)
    return with_attempt(state, _nap(starting, woken_for=action.for_rollout, woken_at_s=now.boot_s))


def _begin_gate(state: State, action: act.RunGate, now: Now, why: str) -> State:
    rollout = rollout_of(state, action.rollout)
    if rollout.phase is not Phase.GATING or rollout.gate is not None:
        raise IllegalMove(f"rollout {rollout.id} is {rollout.phase} and cannot begin gate {action.gate}")
    run = GateRun(action.gate, action.index, action.run, now.boot_s)
    return with_rollout(state, replace(rollout, gate=run, why=why))


def _unchanged(state: State, action: act.Action, now: Now, why: str) -> State:  # noqa: ARG001
    return state


# --- outcomes of effects ----------------------------------------------------------------------------------------------


def _started(state: State, action: act.StartAttempt, outcome: act.Outcome, now: Now) -> State:
    attempt = attempt_of(state, action.attempt)
    if outcome.ok:
        return with_attempt(state, replace(attempt, pid=outcome.pid, start_ticks=outcome.start_ticks))
    if attempt.state is not AttemptState.STARTING:
        return state
    retiring = rest(attempt, AttemptState.RETIRING, now, outcome.sentence)
    return with_attempt(state, replace(retiring, port_conflict=outcome.port_conflict, hurry=True))


def _stop_asked(state: State, action: act.StopAttempt, outcome: act.Outcome, now: Now) -> State:  # noqa: ARG001
    return with_attempt(state, replace(attempt_of(state, action.attempt), stop_asked=outcome.ok))


def _not_begun(state: State, action: act.SleepAttempt | act.WakeAttempt, outcome: act.Outcome, now: Now) -> State:
    """Its engine could not even be asked: it is stopped."""
    attempt = attempt_of(state, action.attempt)
    if outcome.ok or attempt.state not in {AttemptState.DOZING, AttemptState.STARTING}:
        return state
    return with_attempt(state, replace(rest(attempt, AttemptState.RETIRING, now, outcome.sentence), hurry=True))


def _gate_begun(state: State, action: act.RunGate, outcome: act.Outcome, now: Now) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if outcome.ok or rollout.gate is None:
        return state
    result = GateResult(action.gate, action.index, action.run, "error", outcome.sentence)
    return with_rollout(state, replace(rollout, gate=None, gates=(*rollout.gates, result)))


def _gate_stopped(state: State, action: act.StopGate, outcome: act.Outcome, now: Now) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    return with_rollout(state, replace(rollout, gate=None)) if outcome.ok else state


INTENTS: Mapping[type[act.Action], Callable[[State, Any, Now, str], State]] = {
    act.Propose: _propose,
    act.AskAbort: _ask_abort,
    act.Approve: _approve,
    act.SetFreeze: _set_freeze,
    act.StandDown: _stand_down,
    act.Move: _move,
    act.AdoptPlan: _adopt_plan,
    act.TakeLease: _take_lease,
    act.AddAttempts: _add_attempts,
    act.MarkReady: _mark_ready,
    act.RecordChecks: _record_checks,
    act.Retire: _retire,
    act.GiveUp: _give_up,
    act.Recall: _recall,
    act.MarkAsleep: _mark_asleep,
    act.MarkAwake: _mark_awake,
    act.MarkGone: _mark_gone,
    act.MarkStopped: _mark_stopped,
    act.CloseCard: _close_card,
    act.OpenCard: _open_card,
    act.RecordGate: _record_gate,
    act.CommitCutover: _commit_cutover,
    act.CommitRollback: _commit_rollback,
    act.RecordSwitch: _record_switch,
    act.RecordSample: _record_sample,
    act.StartAttempt: _begin_start,
    act.StopAttempt: _begin_stop,
    act.SleepAttempt: _begin_sleep,
    act.WakeAttempt: _begin_wake,
    act.RunGate: _begin_gate,
    act.ClearStrays: _unchanged,
    act.StopGate: _unchanged,
    act.SetRoute: _unchanged,
    act.OpenDoor: _unchanged,
    act.CutSlot: _unchanged,
}

OUTCOMES: Mapping[type[act.Action], Callable[[State, Any, act.Outcome, Now], State]] = {
    act.StartAttempt: _started,
    act.StopAttempt: _stop_asked,
    act.SleepAttempt: _not_begun,
    act.WakeAttempt: _not_begun,
    act.RunGate: _gate_begun,
    act.StopGate: _gate_stopped,
}


def intend(state: State, action: act.Action, now: Now, why: str) -> State:
    """The state once `action` is decided; for a `Record` that is all there is to it."""
    return INTENTS[type(action)](state, action, now, why)


def conclude(state: State, action: act.Effect, outcome: act.Outcome, now: Now) -> State:
    """The state once the effect has been tried."""
    settle = OUTCOMES.get(type(action))
    return settle(state, action, outcome, now) if settle else state
