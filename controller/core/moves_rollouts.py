"""What actions do to rollouts, and to who is live: asked for, advanced, gated, committed, gone back on. Pure."""

from __future__ import annotations

from . import actions as act
from .edits import dark_is_over, expose_live, lit, rollout_of, with_rollout
from .frozen import replace
from .moves_attempts import add_attempts
from .records import ACTIVE, TERMINAL, GateResult, GateRun, Kind, Now, Phase, Rollout, Seat, State
from .table import Event, IllegalMove, follow


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


def propose(state: State, action: act.Propose, now: Now, why: str) -> State:
    """File it; older revisions of it that wait for the same window are superseded."""
    state = file(state, action, now, why)
    newer = state.rollouts[f"r{state.rollout_seq:04d}"]
    for older in state.queue:
        if is_older(older, newer, state):
            said = f"{newer.id} ({newer.release}) is a newer revision of {state.releases[newer.release].name}"
            state = with_rollout(state, advance(older, Event.SUPERSEDED, now, said))
    return state


def file(state: State, action: act.Propose, now: Now, why: str) -> State:
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


def is_older(older: Rollout, newer: Rollout, state: State) -> bool:
    """Whether both want a topology of the same name, by the same window, and `newer` was filed later.

    A trial is never live, so it replaces no proposal; the arms of a sweep are what they are.
    """
    kinds = (older.kind, newer.kind)
    if older.id == newer.id or kinds != (Kind.PROPOSE, Kind.PROPOSE) or older.options.sweep or newer.options.sweep:
        return False
    same = older.options.window == newer.options.window and older.options.trial == newer.options.trial
    names = {state.releases[older.release].name, state.releases[newer.release].name}
    filed_later = _filed_as(newer, state) > _filed_as(older, state)
    return bool(newer.options.window) and same and filed_later and len(names) == 1


def _filed_as(rollout: Rollout, state: State) -> tuple[int, str]:
    """What somebody filed first, where this is once more: ids are in order, a clock on the wall may be set."""
    first = (rollout, *state.tries(rollout))[-1].id
    return len(first), first


def ask_abort(state: State, action: act.AskAbort, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.phase in TERMINAL:
        raise IllegalMove(f"rollout {rollout.id} is over ({rollout.phase.words}): there is nothing to abort")
    return with_rollout(state, replace(rollout, abort_by=action.by))


def approve(state: State, action: act.Approve, now: Now, why: str) -> State:
    rollout = replace(rollout_of(state, action.rollout), approved_by=action.by)
    # A person is awake and wants it now: the window bounds it no more, a time that they gave it themselves does.
    finish_s = rollout.options.finish_by_wall_s
    rollout = replace(rollout, until_s=None if finish_s is None else now.boot_s + finish_s - now.wall_s)
    return with_rollout(state, advance(rollout, Event.APPROVED, now, why))


def set_freeze(state: State, action: act.SetFreeze, now: Now, why: str) -> State:  # noqa: ARG001
    return replace(state, freeze=action.freeze)


def stand_down(state: State, action: act.StandDown, now: Now, why: str) -> State:  # noqa: ARG001
    if state.live is None:
        raise IllegalMove("nothing is live: there is nothing to stop")
    if state.active is not None:
        raise IllegalMove(f"rollout {state.active.id} is {state.active.phase.words}: abort it first")
    return replace(state, generation=state.generation + 1, live=None, previous=state.live)


def move(state: State, action: act.Move, now: Now, why: str) -> State:
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


def adopt_plan(state: State, action: act.AdoptPlan, now: Now, why: str) -> State:
    rollout = advance(rollout_of(state, action.rollout), Event.PLANNED, now, why)
    return with_rollout(state, replace(rollout, plan=action.plan, gpu_map=action.gpu_map, bake=action.baseline))


def take_lease(state: State, action: act.TakeLease, now: Now, why: str) -> State:
    rollout = advance(rollout_of(state, action.rollout), Event.LEASED, now, why)
    return add_attempts(with_rollout(state, rollout), action, now, why)


def record_gate(state: State, action: act.RecordGate, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.gate is None or rollout.gate.run != action.result.run:
        raise IllegalMove(f"rollout {rollout.id} does not wait for gate run {action.result.run}")
    return with_rollout(state, replace(rollout, gate=None, gates=(*rollout.gates, action.result), why=why))


def record_recheck(state: State, action: act.RecordRecheck, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.gate is None or rollout.gate.run != action.run:
        raise IllegalMove(f"rollout {rollout.id} does not wait for gate run {action.run}")
    return with_rollout(state, replace(rollout, gate=None, rechecked_at_s=now.boot_s))


def commit_cutover(state: State, action: act.CommitCutover, now: Now, why: str) -> State:
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
    """The way back once `seat` has taken over from what keeps dying; None where no other is known."""
    known = (s for s in (state.previous, *state.rollouts[left.rollout].before) if s is not None)
    others = (s for s in known if s.release not in {left.release, seat.release})
    return next((s for s in others if s.rollout in state.rollouts and s.release in state.releases), None)


def commit_rollback(state: State, action: act.CommitRollback, now: Now, why: str) -> State:
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
    cause = "" if rollout.kind is Kind.ROLLBACK else f"{rollout.why}; "  # what a person looks for in the morning
    returned = advance(rollout, Event.COMMITTED, now, f"{cause}{why}")
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


def record_switch(state: State, action: act.RecordSwitch, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.switched_at_s is not None:
        raise IllegalMove(f"the switch of {rollout.id} is recorded already")
    key = "rollback_s" if rollout.phase is Phase.ROLLED_BACK else "switch_s"
    took_s = now.boot_s - (now.boot_s if rollout.decided_at_s is None else rollout.decided_at_s)
    times = {**rollout.times, key: round(took_s, 3)}
    switched = dark_is_over(replace(rollout, switched_at_s=now.boot_s, times=times), now)
    return lit(with_rollout(state, switched), now)  # a rollback ends the dark of whom it interrupted, too


def record_sample(state: State, action: act.RecordSample, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.phase is not Phase.BAKING:
        raise IllegalMove(f"rollout {rollout.id} is {rollout.phase}: there is nothing to sample")
    return with_rollout(state, replace(rollout, bake=action.bake, why=why))


def begin_gate(state: State, action: act.RunGate, now: Now, why: str) -> State:
    rollout = rollout_of(state, action.rollout)
    if rollout.phase not in {Phase.GATING, Phase.AWAITING_APPROVAL} or rollout.gate is not None:
        raise IllegalMove(f"rollout {rollout.id} is {rollout.phase} and cannot begin gate {action.gate}")
    run = GateRun(action.gate, action.index, action.run, now.boot_s)
    return with_rollout(state, replace(rollout, gate=run, why=why))


def gate_begun(state: State, action: act.RunGate, outcome: act.Outcome, now: Now) -> State:
    rollout = rollout_of(state, action.rollout)
    if outcome.ok or rollout.gate is None:
        return state
    if rollout.phase is Phase.AWAITING_APPROVAL:  # what it passed, it passed
        return with_rollout(state, replace(rollout, gate=None, rechecked_at_s=now.boot_s))
    result = GateResult(action.gate, action.index, action.run, "error", outcome.sentence)
    return with_rollout(state, replace(rollout, gate=None, gates=(*rollout.gates, result)))


def gate_stopped(state: State, action: act.StopGate, outcome: act.Outcome, now: Now) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    return with_rollout(state, replace(rollout, gate=None)) if outcome.ok else state
