"""What actions do to the queue, to nights and to sweeps. Pure."""

from __future__ import annotations

from . import actions as act
from .edits import rollout_of, with_rollout
from .frozen import replace
from .moves_rollouts import advance, file, is_older, propose
from .night_records import Night, OnSuccess, Sweep
from .records import Kind, Now, Options, Phase, Rollout, State
from .table import Event, IllegalMove


def accept(state: State, action: act.Accept, now: Now, why: str) -> State:
    before = rollout_of(state, action.rollout)
    if state.active is not None:
        raise IllegalMove(f"rollout {state.active.id} is {state.active.phase}: one at a time")
    if state.freeze is not None and before.kind is not Kind.ROLLBACK:
        raise IllegalMove(f"{state.freeze.by} has frozen the box")
    event = Event.MEASURE if before.kind is Kind.MEASURE else Event.ACCEPTED
    rollout = advance(before, event, now, why)
    return with_rollout(state, replace(rollout, night=action.night, until_s=action.until_s))


def try_again(state: State, action: act.TryAgain, now: Now, why: str) -> State:
    """It ends, and whoever waited for a window waits again, with what is left of its patience, as a new try."""
    before = rollout_of(state, action.rollout)
    if before.abort_by is not None:
        raise IllegalMove(f"{before.abort_by} has aborted {before.id}")
    rollout = advance(before, action.event, now, why)
    state = with_rollout(state, rollout)
    if not rollout.options.window or any(is_older(rollout, waiting, state) for waiting in state.queue):
        return state
    number = state.rollout_seq + 1
    again = Rollout(
        id=f"r{number:04d}",
        kind=rollout.kind,
        release=rollout.release,
        asked_by=rollout.asked_by,
        created_wall_s=rollout.created_wall_s,
        phase_since_s=now.boot_s,
        phase_boot_id=now.boot_id,
        why=f"{rollout.id} once more: {why}",
        options=rollout.options,
        profile=rollout.profile,
        again_for=rollout.id,
    )
    state = _with_arm_of(replace(state, rollout_seq=number), rollout, again)
    return with_rollout(state, again)


def _with_arm_of(state: State, old: Rollout, new: Rollout) -> State:
    sweep = state.sweeps.get(old.options.sweep)
    if sweep is None:
        return state
    arms = tuple(replace(arm, rollout=new.id) if arm.rollout == old.id else arm for arm in sweep.arms)
    return _with_sweep(state, replace(sweep, arms=arms))


def reorder(state: State, action: act.Reorder, now: Now, why: str) -> State:  # noqa: ARG001
    rollout = rollout_of(state, action.rollout)
    if rollout.phase is not Phase.QUEUED:
        raise IllegalMove(f"rollout {rollout.id} is {rollout.phase.words}: only what waits can be reordered")
    return with_rollout(state, replace(rollout, options=replace(rollout.options, priority=action.priority)))


def note_night(state: State, action: act.NoteNight, now: Now, why: str) -> State:  # noqa: ARG001
    return _with_night(state, action.night)


def measure_live(state: State, action: act.MeasureLive, now: Now, why: str) -> State:
    """File the measurement, at most one in a night."""
    night = state.nights[action.night]
    if night.baseline:
        raise IllegalMove(f"{night.baseline} has measured live in {night.id} already")
    if state.live is None:
        raise IllegalMove("nothing is live: there is nothing to measure")
    release = state.releases[state.live.release]
    options = Options(window=night.window, force=True)
    asked = act.Propose(Kind.MEASURE, release, "cutover", options, action.profile, state.live)
    state = propose(state, asked, now, why)
    return _with_night(state, replace(night, baseline=f"r{state.rollout_seq:04d}"))


def file_sweep(state: State, action: act.FileSweep, now: Now, why: str) -> State:
    """The sweep, and a rollout for every arm, in one transaction: a crash leaves all of them or none."""
    number = state.sweep_seq + 1
    sweep = replace(action.sweep, id=f"s{number:04d}", created_wall_s=now.wall_s)
    releases = {release.id: release for release in action.releases}
    options = replace(action.options, trial=True, sweep=sweep.id)
    arms = []
    for arm in sweep.arms:
        asked = act.Propose(Kind.PROPOSE, releases[arm.release], sweep.asked_by, options, action.profile)
        state = propose(state, asked, now, f"{why}: {arm.name}")
        arms.append(replace(arm, rollout=f"r{state.rollout_seq:04d}"))
    return _with_sweep(replace(state, sweep_seq=number), replace(sweep, arms=tuple(arms)))


def conclude_sweep(state: State, action: act.ConcludeSweep, now: Now, why: str) -> State:
    """The decision, and, where it was asked for, the pick as a proposal of its own, with gates of its own."""
    sweep = state.sweeps[action.sweep]
    if sweep.decided_wall_s is not None:
        raise IllegalMove(f"sweep {sweep.id} is decided already")
    against = state.live.release if state.live else ""
    decided = replace(sweep, decided_wall_s=now.wall_s, pick=action.pick, why=why, against=against)
    if action.pick and sweep.on_success is not OnSuccess.REPORT:
        arm = next(a for a in sweep.arms if a.name == action.pick)
        tried = state.rollouts[arm.rollout]
        options = replace(
            tried.options,
            trial=False,
            sweep="",
            require_approval=sweep.on_success is OnSuccess.ASK,
            expires_wall_s=None,
            finish_by_wall_s=None,
            priority=max(0, tried.options.priority),
            note=f"the pick of sweep {sweep.id}",
        )
        asked = act.Propose(Kind.PROPOSE, state.releases[arm.release], sweep.asked_by, options, tried.profile)
        state = file(state, asked, now, f"the pick of sweep {sweep.id}: {arm.name}")  # a person's own revision stays
        decided = replace(decided, followed_by=f"r{state.rollout_seq:04d}")
    return _with_sweep(state, decided)


def withdraw_sweep(state: State, action: act.WithdrawSweep, now: Now, why: str) -> State:
    """Whatever of it waits or runs is aborted, in the same transaction."""
    sweep = state.sweeps[action.sweep]
    if sweep.decided_wall_s is not None:
        raise IllegalMove(f"sweep {sweep.id} is decided already: {sweep.why}")
    against = state.live.release if state.live else ""
    for arm in sweep.arms:
        rollout = state.rollouts[arm.rollout]
        if rollout.ended_wall_s is None:
            state = with_rollout(state, replace(rollout, abort_by=action.by))
    return _with_sweep(state, replace(sweep, decided_wall_s=now.wall_s, why=why, against=against))


def _with_night(state: State, night: Night) -> State:
    """In the order of their names, which is that in which the store reads them."""
    return replace(state, nights=dict(sorted({**state.nights, night.id: night}.items())))


def _with_sweep(state: State, sweep: Sweep) -> State:
    return replace(state, sweeps={**state.sweeps, sweep.id: sweep})
