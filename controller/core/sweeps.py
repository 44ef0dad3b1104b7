"""When a sweep is decided. Pure.

Its arms are rollouts in the queue like any other, so that a sweep goes on by itself after whatever happened, over as
many nights as it takes; there is nothing of it besides them but its record.
"""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .policy import Policy
from .ranking import rank
from .records import TERMINAL, State
from .seen import Seen


def conclude_sweep(state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    """Once every arm is over: the pick, or that no arm is better."""
    for sweep in state.sweeps.values():
        if sweep.decided_wall_s is None and all(state.rollouts[arm.rollout].phase in TERMINAL for arm in sweep.arms):
            ranking = rank(state, sweep)
            return Decision(act.ConcludeSweep(sweep.id, ranking.pick), ranking.why)
    return None
