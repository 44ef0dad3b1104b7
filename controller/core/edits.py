"""A state with one record replaced: what `moves` are made of. Pure."""

from __future__ import annotations

from .frozen import replace
from .records import Attempt, AttemptState, Now, Rollout, State
from .table import IllegalMove


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


def rest(attempt: Attempt, to: AttemptState, now: Now, why: str) -> Attempt:
    return replace(attempt, state=to, state_since_s=now.boot_s, why=why)


def expose_live(state: State) -> State:
    """Mark the ready attempts of live as seen by users: from now on they are drained, never dropped."""
    for attempt in state.seat_attempts(state.live):
        if attempt.state is AttemptState.READY and not attempt.exposed:
            state = with_attempt(state, replace(attempt, exposed=True))
    return state


def lit(state: State, now: Now) -> State:
    """Something serves again: the dark time of whoever caused it is over."""
    if not state.is_served():
        return state
    for rollout in state.rollouts.values():
        if rollout.dark_since_s is not None:
            state = with_rollout(state, dark_is_over(rollout, now))
    return state


def dark_is_over(rollout: Rollout, now: Now) -> Rollout:
    """What was dark on the way there and on the way back adds up: users waited both times."""
    since_s = rollout.dark_since_s
    if since_s is None:
        return rollout
    # A reboot in the dark: the clock began anew, and how long it was nobody knows.
    until_s = max(since_s, now.boot_s)
    dark_s = rollout.times.get("dark_s", 0.0) + until_s - since_s
    times = {**rollout.times, "dark_s": round(dark_s, 3)}
    return replace(rollout, dark_since_s=None, darks=(*rollout.darks, (since_s, until_s)), times=times)
