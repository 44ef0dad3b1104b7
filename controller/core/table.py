"""THE TABLE: which phase may follow which, and for how long a phase may last.

Everything that decides whether a move of a rollout is legal lives in this file (the rule is h11's). A missing key is
the error: `follow` raises `IllegalMove` and changes nothing. `docs/phases.md` is drawn from these tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from .records import TERMINAL, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping


class Event(StrEnum):
    """What can happen to a rollout."""

    ACCEPTED = "accepted"  # its turn has come
    PLANNED = "planned"
    LEASED = "leased"
    READY = "ready"
    PASSED = "passed"
    ASK = "ask"  # passed, and somebody wants to be asked
    APPROVED = "approved"
    COMMITTED = "committed"
    COMMITTED_IN_PART = "committed_in_part"  # rolling: users are switched to the instances that are there
    BAKED = "baked"
    WORSE = "worse"
    RETURN = "return"  # a rollback's turn has come
    REFUSED = "refused"
    GATE_FAILED = "gate_failed"
    UNDECIDED = "undecided"
    BROKEN = "broken"  # a process of the candidate died, or machinery failed
    ABORTED = "aborted"
    DEADLINE = "deadline"
    HOPELESS = "hopeless"
    SUPERSEDED = "superseded"
    MISSED = "missed"  # its window is over, or would be before it is: whatever it had begun is undone
    MEASURE = "measure"  # live is measured: there is nothing to plan and to start
    TRIED = "tried"  # passed, and nobody wants to switch to it
    YIELDED = "yielded"  # somebody else needs its cards


MOVES: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.QUEUED: {
        Event.ACCEPTED: Phase.PREFLIGHT,
        Event.MEASURE: Phase.GATING,
        Event.RETURN: Phase.ROLLING_BACK,
        Event.REFUSED: Phase.REFUSED,
        Event.ABORTED: Phase.ABORTED,
        Event.SUPERSEDED: Phase.SUPERSEDED,
        Event.MISSED: Phase.SKIPPED,
        Event.DEADLINE: Phase.SKIPPED,
    },
    Phase.PREFLIGHT: {
        Event.PLANNED: Phase.LEASING,
        Event.REFUSED: Phase.REFUSED,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.FAILED,
        Event.MISSED: Phase.SKIPPED,
        Event.YIELDED: Phase.SKIPPED,
    },
    Phase.LEASING: {
        Event.LEASED: Phase.STARTING,
        Event.REFUSED: Phase.REFUSED,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.FAILED,
        Event.MISSED: Phase.SKIPPED,
        Event.YIELDED: Phase.SKIPPED,
    },
    Phase.STARTING: {
        Event.READY: Phase.GATING,
        Event.BROKEN: Phase.FAILED,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.FAILED,
        Event.MISSED: Phase.SKIPPED,
        Event.YIELDED: Phase.SKIPPED,
    },
    Phase.GATING: {
        Event.PASSED: Phase.CUTTING_OVER,
        Event.ASK: Phase.AWAITING_APPROVAL,
        Event.GATE_FAILED: Phase.REJECTED,
        Event.BROKEN: Phase.REJECTED,
        Event.UNDECIDED: Phase.INCONCLUSIVE,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.INCONCLUSIVE,
        Event.TRIED: Phase.MEASURED,
        Event.MISSED: Phase.SKIPPED,
        Event.YIELDED: Phase.SKIPPED,
    },
    Phase.AWAITING_APPROVAL: {
        Event.APPROVED: Phase.CUTTING_OVER,
        Event.GATE_FAILED: Phase.REJECTED,
        Event.BROKEN: Phase.REJECTED,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.ABORTED,
        Event.MISSED: Phase.SKIPPED,
        Event.YIELDED: Phase.SKIPPED,
    },
    Phase.CUTTING_OVER: {
        Event.COMMITTED: Phase.BAKING,
        Event.COMMITTED_IN_PART: Phase.COMPLETING,
        Event.BROKEN: Phase.FAILED,
        Event.ABORTED: Phase.ABORTED,
        Event.DEADLINE: Phase.FAILED,
        Event.MISSED: Phase.SKIPPED,
    },
    Phase.COMPLETING: {
        Event.READY: Phase.BAKING,
        Event.BROKEN: Phase.ROLLING_BACK,
        Event.ABORTED: Phase.ROLLING_BACK,
        Event.DEADLINE: Phase.ROLLING_BACK,
        Event.MISSED: Phase.ROLLING_BACK,
    },
    Phase.BAKING: {
        Event.BAKED: Phase.PROMOTED,
        Event.WORSE: Phase.ROLLING_BACK,
        Event.ABORTED: Phase.ROLLING_BACK,
        Event.DEADLINE: Phase.ROLLING_BACK,
        Event.MISSED: Phase.ROLLING_BACK,
    },
    Phase.ROLLING_BACK: {
        Event.COMMITTED: Phase.ROLLED_BACK,
        Event.HOPELESS: Phase.ROLLBACK_FAILED,
        Event.ABORTED: Phase.ABORTED,  # only a manual rollback that has not been committed
        Event.DEADLINE: Phase.ROLLBACK_FAILED,
    },
    **{phase: {} for phase in TERMINAL},
}

# Seconds a phase may last. LEASING, STARTING, GATING, COMPLETING, BAKING and ROLLING_BACK get more from the policy
# (`progress.deadline_s`): streams drain, engines load for twenty minutes, gates bring deadlines of their own, and a
# bake is as long as somebody asked for.
DEADLINE_S: Mapping[Phase, float] = {
    Phase.QUEUED: 7 * 86_400.0,
    Phase.PREFLIGHT: 120.0,
    Phase.LEASING: 300.0,
    Phase.STARTING: 15.0,
    Phase.GATING: 60.0,
    Phase.AWAITING_APPROVAL: 86_400.0,
    Phase.CUTTING_OVER: 60.0,
    Phase.COMPLETING: 120.0,
    Phase.BAKING: 120.0,
    Phase.ROLLING_BACK: 120.0,
}


class IllegalMove(Exception):  # noqa: N818 - it is what it says, and nothing was changed
    """This event cannot happen in this phase."""


def follow(phase: Phase, event: Event) -> Phase:
    """The phase after `event`; raises `IllegalMove` when the table has no such move."""
    try:
        return MOVES[phase][event]
    except KeyError:
        raise IllegalMove(f"a rollout that is {phase} cannot be {event}") from None
