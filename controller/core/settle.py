"""Power rails: once a model has loaded, the next start waits `settle_s`. Pure."""

from __future__ import annotations

from .policy import Policy
from .records import Attempt, AttemptState, State
from .seen import Seen


def settles_for_s(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> float:
    """Seconds that this start has still to wait because another has just ended; 0: it may begin.

    As with loading itself, an instance of live that has to come back does not wait for a candidate. A router loads
    nothing: it neither waits nor is waited for.
    """
    if not policy.settle_s or attempt.role == "router":
        return 0.0
    live = {a.id for a in state.seat_attempts(state.live)}
    counted = [a for a in state.attempts.values() if a.id in live or attempt.id not in live]
    ends = [end_s for a in counted if (end_s := _end_of_start_s(a, seen)) is not None]
    return max(0.0, policy.settle_s - (seen.now.boot_s - max(ends))) if ends else 0.0


def _end_of_start_s(attempt: Attempt, seen: Seen) -> float | None:
    """When it was ready, or given up; None: it loads, or never loaded a model since the host is up."""
    if attempt.role == "router" or attempt.pid is None or attempt.boot_id != seen.now.boot_id:
        return None
    return attempt.retired_at_s if attempt.ready_at_s is None else attempt.ready_at_s


def settling(state: State, seen: Seen, policy: Policy) -> str:
    """Which start waits for that, in a sentence; empty: none does."""
    for attempt in state.attempts.values():
        if attempt.state is AttemptState.PLANNED and (left_s := settles_for_s(attempt, state, seen, policy)):
            return f"{attempt.id} starts in {left_s:.0f} s: settle_s after the last start has not passed"
    return ""
