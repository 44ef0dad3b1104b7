"""How long a rollout needs, and how long it would take to undo it: what a window has to have room for. Pure.

What this box has measured counts, with some slack; what it has not counts as the limit that ends it. So nothing begins
by night that its own deadlines would not let end in time.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import history
from .bake import bake_s
from .desired import SWITCHED
from .plan import Plan
from .policy import Policy
from .records import Release, Rollout, Seat, State
from .room import Strategy
from .seats import all_ready
from .sleep import sleeps_whole

SWITCH_S = 10.0  # a command to the front door and the probes around it, with room for a slow box


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds from its beginning to the cutover, of its bake, and of the way back before and after the cutover."""

    before_s: float
    bake_s: float
    undo_s: float
    return_s: float

    @property
    def total_s(self) -> float:
        """Until it is promoted, or everything is as it was: the longer of the two."""
        return self.before_s + max(self.undo_s, self.bake_s + self.return_s)


def budget(rollout: Rollout, plan: Plan, state: State, policy: Policy) -> Budget:
    """What `rollout` needs if it begins now, by `plan`."""
    release = state.releases[rollout.release]
    start_s = _known(plan.start_s, _start_limit_s(release, policy), policy)
    gates_s = _known(history.gates_s(state, release.id, rollout.profile), _gates_limit_s(rollout), policy)
    dark = plan.strategy == Strategy.SWAP
    leaves = {state.attempts[a].release for a in (*plan.gives_way, *plan.later) if a in state.attempts}
    room_s = max((_leave_s(state, name, policy, dark=dark) for name in leaves), default=0.0)
    trial = rollout.options.trial
    return Budget(
        before_s=room_s + start_s + gates_s + SWITCH_S,
        bake_s=0.0 if trial else bake_s(rollout, policy),
        undo_s=_undo_s(release, plan, state, policy),
        return_s=0.0 if trial else _return_s(plan, state, policy),
    )


def undo_s(rollout: Rollout, state: State, policy: Policy) -> float:
    """How long it takes from now until everything is as it was before this rollout, which has begun."""
    release = state.releases[rollout.release]
    if rollout.phase in SWITCHED:
        return return_s(rollout.before[0], state, policy) if rollout.before[0] is not None else 0.0
    gone = {a.release for a in state.attempts.values() if a.gave_way_to == rollout.id}
    return _come_back_s(gone, release, state, policy)


def return_s(seat: Seat, state: State, policy: Policy) -> float:
    """How long it takes to lead users back to a seat, as it stands: a switch where it runs, else a wake or a start."""
    if all_ready(state, seat) and not state.unborn(seat):
        return SWITCH_S
    back_s = history.wake_s(state, seat.release) if sleeps_whole(state, seat) else None
    if back_s is None:
        back_s = history.start_s(state, seat.release, policy)
    return SWITCH_S + _known(back_s, _start_limit_s(state.releases[seat.release], policy), policy)


def _undo_s(release: Release, plan: Plan, state: State, policy: Policy) -> float:
    gone = {state.attempts[a].release for a in plan.gives_way if a in state.attempts}
    return _come_back_s(gone, release, state, policy)


def _come_back_s(gone: set[str], candidate: Release, state: State, policy: Policy) -> float:
    """The candidate stops, and who made room for it and serves users comes back."""
    live = state.live.release if state.live else None
    stop_s = _known(history.stop_s(state, candidate.id), candidate.stop_grace_s + policy.memory_back_s, policy)
    if live is None or live not in gone:
        return stop_s
    back_s = history.wake_s(state, live) if policy.sleep else None
    if back_s is None:
        back_s = history.start_s(state, live, policy)
    return stop_s + SWITCH_S + _known(back_s, _start_limit_s(state.releases[live], policy), policy)


def _return_s(plan: Plan, state: State, policy: Policy) -> float:
    if plan.rollback in {"running", "none"}:
        return SWITCH_S
    limit_s = _start_limit_s(state.releases[state.live.release], policy) if state.live else 0.0
    return SWITCH_S + _known(plan.rollback_s, limit_s, policy)


def _leave_s(state: State, release: str, policy: Policy, *, dark: bool) -> float:
    drain_s = _known(history.drain_s(state, release), policy.swap_drain_s if dark else policy.drain_s, policy)
    stop_s = history.sleep_s(state, release) or history.stop_s(state, release)
    return drain_s + _known(stop_s, state.releases[release].stop_grace_s + policy.memory_back_s, policy)


def _start_limit_s(release: Release, policy: Policy) -> float:
    return ((release.start_timeout_s or policy.start_s) + policy.settle_s) * len(release.instances)


def _gates_limit_s(rollout: Rollout) -> float:
    """Once each: a gate that could not tell is tried again, but the window does not wait for that."""
    return sum(float(step["deadline_s"]) for step in rollout.profile)


def _known(seconds: float | None, limit_s: float, policy: Policy) -> float:
    """What was measured, with slack; where nothing was, the limit."""
    return limit_s if seconds is None else seconds * policy.undo_slack
