"""What must hold between one state of the journal and the next: the oracle of the simulator. Pure.

`core.invariants` judges one state; here a single write is judged, whoever asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from .desired import SWITCHED
from .night_records import NightState
from .policy import LAST_KNOWN_GOOD, Policy
from .records import ACTIVE, TERMINAL, Attempt, AttemptState, Kind, Phase, Rollout, Seat, State
from .seats import all_ready, is_fresh
from .seen import Life, Seen
from .table import MOVES
from .takeover import last_known_good, last_takeover

LIVES: Mapping[str, tuple[str, ...]] = {
    "planned": ("starting", "retiring"),
    "starting": ("ready", "retiring"),
    "ready": ("retiring",),
    "retiring": ("ready", "dozing", "stopping", "stopped"),
    "dozing": ("asleep", "retiring", "stopping", "stopped"),
    "asleep": ("starting", "retiring", "stopping", "stopped"),
    "stopping": ("stopped",),
    "stopped": (),
}
"""Which state of an attempt may follow which. By value, as they stand in the journal."""


def broken_steps(before: State, after: State, seen: Seen | None, policy: Policy) -> list[str]:
    """Sentences that name what a write broke. `seen`: the look that it was decided on; None: a person asked for it."""
    found = [*_forgotten(before, after)]
    for name, rollout in after.rollouts.items():
        known = before.rollouts.get(name)
        if known is not rollout:
            found += _rollout(known, rollout, after) if known else _filed(rollout, before, policy)
            if known is not None and known.phase is Phase.QUEUED and rollout.phase in ACTIVE:
                found += _begun(rollout, before, seen, policy)
    for name, night in after.nights.items():
        over = name in before.nights and before.nights[name].state is not NightState.OPEN
        used = any(rollout.night == name for rollout in before.rollouts.values())
        if over and used and night.state is NightState.OPEN:
            found.append(f"night {name} happens twice")
    for name, attempt in after.attempts.items():
        old = before.attempts.get(name)
        if old is not attempt:
            found += _attempt(old, attempt, before, after, seen) if old else _born(attempt, before, policy)
    return [*found, *_live(before, after, seen, policy)]


def _forgotten(before: State, after: State) -> Iterator[str]:
    """What was acknowledged once is there, until it has ended and nothing that is left refers to it."""
    kinds = ("releases", "rollouts", "attempts", "nights", "sweeps")
    if all(getattr(before, kind).keys() <= getattr(after, kind).keys() for kind in kinds):
        return
    open_ones = [r for r in before.rollouts.values() if r.ended_wall_s is None]
    unfinished = [
        *((a.id, after.attempts) for a in before.held),
        *((r.id, after.rollouts) for r in open_ones),
        *((n.id, after.nights) for n in before.nights.values() if n.state is NightState.OPEN),
        *((s.id, after.sweeps) for s in before.sweeps.values() if s.decided_wall_s is None),
    ]
    yield from (f"{name} has not ended and is forgotten" for name, there in unfinished if name not in there)
    yield from (f"{name} is forgotten, and {by} refers to it" for by, name in _dangling(after, open_ones))
    for what, asked in (("the last known good release", last_known_good), ("the last take-over", last_takeover)):
        if asked(before) != asked(after):
            yield f"{what} was {asked(before)}, and is {asked(after)} since something was forgotten"


def _dangling(state: State, open_ones: Iterable[Rollout]) -> Iterator[tuple[str, str]]:
    seats = [("live", state.live), ("previous", state.previous)]
    seats += [(r.id, seat) for r in open_ones for seat in (*r.before, r.target, r.instead_of)]
    rollouts = [(by, seat.rollout) for by, seat in seats if seat is not None]
    rollouts += [(a.id, a.rollout) for a in state.attempts.values()]
    rollouts += [(sweep.id, arm.rollout) for sweep in state.sweeps.values() for arm in sweep.arms]
    releases = [(by, seat.release) for by, seat in seats if seat is not None]
    releases += [(r.id, r.release) for r in state.rollouts.values()]
    releases += [(a.id, a.release) for a in state.attempts.values()]
    yield from ((by, name) for by, name in rollouts if name not in state.rollouts)
    yield from ((by, name) for by, name in releases if name not in state.releases)


def _filed(rollout: Rollout, before: State, policy: Policy) -> Iterator[str]:
    if rollout.phase is not Phase.QUEUED:
        yield f"rollout {rollout.id} was born {rollout.phase}"
    if rollout.instead_of is not None:
        yield from _taken_over(rollout, before, policy)


def _rollout(before: Rollout, after: Rollout, new: State) -> Iterator[str]:
    if after.phase is before.phase:
        if (after.phase_since_s, after.phase_boot_id) != (before.phase_since_s, before.phase_boot_id):
            yield f"the deadline of {after.id} ({after.phase}) was restarted"
    elif after.phase not in MOVES[before.phase].values():
        yield f"rollout {after.id} went from {before.phase} to {after.phase}"
    approved = before.approved_by is None and after.approved_by is not None
    if before.until_s is not None and after.until_s != before.until_s and not approved:
        yield f"the time of {after.id} was changed"
    if before.phase in TERMINAL and after.ended_wall_s != before.ended_wall_s:
        yield f"rollout {after.id} ended twice"
    if before.abort_by is not None and after.abort_by is None:
        yield f"the abort of {after.id} is forgotten"
    if before.approved_by is not None and after.approved_by is None:
        yield f"the approval of {after.id} is forgotten"
    if after.gates[: len(before.gates)] != before.gates:
        yield f"verdicts of {after.id} were changed"
    if after.phase is Phase.PROMOTED and before.phase is not Phase.PROMOTED:
        yield from _promoted(after, new)


def _begun(rollout: Rollout, state: State, seen: Seen | None, policy: Policy) -> Iterator[str]:
    """Nothing but the way back begins in a freeze, outside of its window, or too late."""
    if rollout.kind is Kind.ROLLBACK:
        return
    if state.freeze is not None:
        yield f"{rollout.id} began while {state.freeze.by} had frozen everything"
    window = policy.schedules.get(rollout.options.window)
    if seen is None or not rollout.options.window:
        return
    if window is None or window.current(seen.now.wall_s) is None:
        yield f"{rollout.id} began outside of window {rollout.options.window}"
    elif state.nights[rollout.night].state is not NightState.OPEN:
        yield f"{rollout.id} began in {rollout.night}, which was over"
    expires_s = rollout.options.expires_wall_s
    if expires_s is None or seen.now.wall_s < expires_s:
        return
    if _waited_s(rollout, state, seen) >= expires_s - rollout.created_wall_s:
        yield f"{rollout.id} began after it had expired"


def _waited_s(rollout: Rollout, state: State, seen: Seen) -> float:
    """Seconds in the queue by the clock of the box: one on the wall that is wrong for a moment expires nothing."""
    queued = state.rollouts[rollout.id]
    return seen.now.boot_s - queued.phase_since_s if queued.phase_boot_id == seen.now.boot_id else math.inf


def _taken_over(rollout: Rollout, state: State, policy: Policy) -> Iterator[str]:
    """A release takes over by itself where that is wanted and nobody is served, and once until a person decides."""
    if policy.when_live_keeps_dying != LAST_KNOWN_GOOD or state.freeze is not None:
        yield f"{rollout.id} takes over, and nobody wanted that"
    mine = [a for a in state.attempts.values() if Seat(a.release, a.rollout) == state.live]
    if state.is_served() and any(a.role != "router" and a.state is AttemptState.READY for a in mine):
        yield f"{rollout.id} takes over from what serves"
    if not any(a.given_up for a in mine):
        yield f"{rollout.id} takes over from what was not given up"
    if not any(r.phase is Phase.PROMOTED and r.release == rollout.release for r in state.rollouts.values()):
        yield f"{rollout.id} takes over with {rollout.release}, which never passed a bake"
    for other in state.rollouts.values():  # what it led to is live still, and dies: nobody takes over from that
        led_to = (other.instead_of, other.target, Seat(other.release, other.id))
        rebooted = any(a.rollout == other.id and a.boot_id != other.phase_boot_id for a in state.attempts.values())
        if other.instead_of is None or (other.phase is Phase.ROLLBACK_FAILED and rebooted):
            continue
        if state.live in led_to and not _decided_since(other, state):
            yield f"{rollout.id} takes over, and so did {other.id}, and no person has decided since"


def _decided_since(takeover: Rollout, state: State) -> bool:
    ends = {Phase.PROMOTED, Phase.ROLLBACK_FAILED, Phase.ROLLED_BACK}
    later = [r for r in state.rollouts.values() if _after(r, takeover) and r.instead_of is None and r.phase in ends]
    return any(r.phase is not Phase.ROLLED_BACK or r.kind is Kind.ROLLBACK for r in later)


def _after(rollout: Rollout, other: Rollout) -> bool:
    return (len(rollout.id), rollout.id) > (len(other.id), other.id)


def _promoted(rollout: Rollout, state: State) -> Iterator[str]:
    if state.live != rollout.seat:
        yield f"{rollout.id} was promoted and is not live"
    if rollout.switched_at_s is None:
        yield f"{rollout.id} was promoted and the front door was never seen with it"
    if not all_ready(state, rollout.seat) or state.unborn(rollout.seat):
        yield f"{rollout.id} was promoted and is not whole"


def _born(attempt: Attempt, before: State, policy: Policy) -> Iterator[str]:
    """Production that keeps dying is not started for ever, and not as fast as it dies."""
    if attempt.state is not AttemptState.PLANNED:
        yield f"attempt {attempt.id} was born {attempt.state}"
    seat, active = Seat(attempt.release, attempt.rollout), before.active
    mine = before.attempts_of(seat, attempt.instance)
    if seat != before.live or not mine or (active is not None and active.phase in SWITCHED):
        return
    if mine[-1].given_up:
        yield f"attempt {attempt.id} is a start of what was given up ({mine[-1].id})"
    died = 0
    for a in mine:
        served_s = (a.retired_at_s or 0.0) - (a.ready_at_s or 0.0) if a.ready_at_s else 0.0
        well = a.ready_at_s is not None and not a.hurry
        if a.boot_id != attempt.boot_id or a.naps or well or served_s >= policy.restart_window_s:
            died = 0  # who slept in between may have served long enough before: that is not judged
        died += a.boot_id == attempt.boot_id and a.hurry and a.gave_way_to is None
    if died > policy.restart_budget:
        yield f"attempt {attempt.id} is started after {died} deaths in a row"
    ended_s = mine[-1].stopped_at_s
    if died > 1 and mine[-1].hurry and mine[-1].gave_way_to is None and ended_s is not None:
        least_s = min(policy.restart_pause_s * 2 ** (died - 2), policy.restart_pause_max_s)
        if attempt.planned_at_s - ended_s < least_s - 0.001:
            yield f"attempt {attempt.id} is started {attempt.planned_at_s - ended_s:.1f} s after death {died} of it"


def _attempt(before: Attempt, after: Attempt, old: State, new: State, seen: Seen | None) -> Iterator[str]:
    if before.pid is not None and (after.pid, after.start_ticks) != (before.pid, before.start_ticks):
        yield f"attempt {after.id} has another process now ({before.pid}, then {after.pid})"
    if before.given_up and not after.given_up:
        yield f"that {after.id} was given up is forgotten"
    if after.state is before.state:
        return
    if after.state.value not in LIVES[before.state.value]:
        yield f"attempt {after.id} went from {before.state} to {after.state}"
    if after.state is AttemptState.STOPPED:
        yield from _given_back(after, seen)
    if after.state is AttemptState.READY and before.state is AttemptState.STARTING:
        probe = seen.probes.get(after.id) if seen is not None else None
        if probe is None or not probe.ok:
            yield f"attempt {after.id} is called ready and has not generated"
    if before.state is AttemptState.READY and after.state is AttemptState.RETIRING:
        yield from _sent_away(after, old, new, seen)


def _given_back(attempt: Attempt, seen: Seen | None) -> Iterator[str]:
    """Cards, ports and slot are given back when every holder is seen dead."""
    if seen is None:
        yield f"attempt {attempt.id} was called stopped by somebody who did not look"
    elif attempt.boot_id == seen.now.boot_id and attempt.id in seen.processes:
        life = seen.processes[attempt.id].life
        if life not in {Life.ABSENT, Life.EXITED}:
            yield f"attempt {attempt.id} gave its cards back and its processes are {life}"


def _sent_away(attempt: Attempt, before: State, after: State, seen: Seen | None) -> Iterator[str]:
    """Production that serves leaves for a reason only, and so does what it could go back to while it bakes."""
    seat = Seat(attempt.release, attempt.rollout)
    if attempt.gave_way_to is not None or attempt.role == "router":
        return
    active = before.active
    kept = active is not None and active.phase is Phase.BAKING and active.strategy == "blue-green"
    is_live = seat == before.live == after.live
    if not is_live and not (kept and active is not None and seat == active.before[0]):
        return
    what = "production" if is_live else "the way back"
    probe = seen.probes.get(attempt.id) if seen is not None else None
    process = seen.processes.get(attempt.id) if seen is not None else None
    runs = process is not None and process.life is Life.RUNNING and seen is not None
    if runs and attempt.boot_id == (seen.now.boot_id if seen else "") and (probe is None or probe.ok):
        yield f"{attempt.id} is {what}, is well and was sent away"


def _live(before: State, after: State, seen: Seen | None, policy: Policy) -> Iterator[str]:
    """Who is live changes by a commit only: onto what generates at that moment, never onto a hope."""
    if before.live == after.live:
        if after.generation != before.generation:
            yield f"generation {after.generation} has the live release of generation {before.generation}"
        return
    if after.generation != before.generation + 1:
        yield f"live changed from generation {before.generation} to {after.generation}"
    if after.live is None:
        return
    ready = [a for a in after.seat_attempts(after.live) if a.state is AttemptState.READY]
    if not any(a.slot is not None for a in ready):
        yield f"{after.live.release} became live and nothing of it is ready"
    fresh_s = max(policy.probe_fresh_s, 2 * policy.bake_interval_s, 5.0)
    for attempt in ready:
        if seen is None or not is_fresh(seen.probes.get(attempt.id), seen, fresh_s):
            yield f"{after.live.release} became live and {attempt.id} was not heard in the last {fresh_s:.0f} s"
