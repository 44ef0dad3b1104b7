"""What actions do to attempts and their cards: planned, started, ready, asleep, retired, stopped. Pure."""

from __future__ import annotations

from typing import Any

from . import actions as act
from .edits import attempt_of, expose_live, lit, rest, rollout_of, with_attempt, with_rollout
from .frozen import replace
from .records import Attempt, AttemptState, Nap, Now, State
from .table import IllegalMove
from .verify import check_results

LEAVES = frozenset(AttemptState) - {AttemptState.RETIRING, AttemptState.STOPPING, AttemptState.STOPPED}
"""From these an attempt can be retired."""


def _conflict(attempt: Attempt, held: list[Attempt]) -> str | None:
    for other in held:
        if (other.holds_cards and set(attempt.gpus) & set(other.gpus)) or attempt.port == other.port:
            return f"attempt {attempt.id} wants cards or ports that {other.id} holds"
        if attempt.slot is not None and attempt.slot == other.slot:
            return f"attempt {attempt.id} wants the front-door slot of {other.id}"
    return None


def add_attempts(state: State, action: act.AddAttempts | act.TakeLease, now: Now, why: str) -> State:
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


def mark_ready(state: State, action: act.MarkReady, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.STARTING)
    ready = rest(attempt, AttemptState.READY, now, why)
    ready = _nap(ready, ready_at_s=now.boot_s) if attempt.is_waking else replace(ready, ready_at_s=now.boot_s)
    return lit(expose_live(with_attempt(state, ready)), now)


def record_checks(state: State, action: act.RecordChecks, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.READY)
    if attempt.checks:
        raise IllegalMove(f"attempt {attempt.id} was looked at already")
    state = with_attempt(state, replace(attempt, checks=action.checks, kv_tokens=action.kv_tokens))
    rollout = rollout_of(state, attempt.rollout)
    if rollout.ended_wall_s is not None:
        return state  # an instance of live that was started again: its own record says it
    results = check_results(rollout, attempt.id, action.checks, action.kv_tokens)
    return with_rollout(state, replace(rollout, gates=(*rollout.gates, *results)))


def retire(state: State, action: act.Retire, now: Now, why: str) -> State:
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
    owner = _owner_of_the_dark(state, action) if served and not state.is_served() else None
    return state if owner is None else with_rollout(state, replace(rollout_of(state, owner), dark_since_s=now.boot_s))


def _owner_of_the_dark(state: State, action: act.Retire) -> str | None:
    """For whom live made room; or who brought what dies while it is watched; None: live died by itself."""
    if action.gives_way_to is not None:
        return action.gives_way_to
    return state.active.id if state.active is not None and state.live == state.active.seat else None


def give_up(state: State, action: act.GiveUp, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING, AttemptState.STOPPED)
    if attempt.given_up:
        raise IllegalMove(f"attempt {attempt.id} is given up already")
    return with_attempt(state, replace(attempt, given_up=why))


def recall(state: State, action: act.Recall, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING)
    if attempt.hurry or attempt.ready_at_s is None or attempt.lent:
        raise IllegalMove(f"attempt {attempt.id} was not retired in good health")
    return lit(with_attempt(state, replace(rest(attempt, AttemptState.READY, now, why), gave_way_to=None)), now)


def _nap(attempt: Attempt, **changes: Any) -> Attempt:
    """The attempt with its last nap changed."""
    return replace(attempt, naps=(*attempt.naps[:-1], replace(attempt.naps[-1], **changes)))


def mark_asleep(state: State, action: act.MarkAsleep, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.DOZING)
    # Nobody's stream runs through it: users have to be sent to it anew.
    asleep = replace(rest(attempt, AttemptState.ASLEEP, now, why), lent=True, exposed=False)
    return with_attempt(state, _nap(asleep, asleep_at_s=now.boot_s))


def mark_awake(state: State, action: act.MarkAwake, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.STARTING)
    if not attempt.is_waking:
        raise IllegalMove(f"attempt {attempt.id} does not wake up, it starts")
    return with_attempt(state, _nap(attempt, awake_at_s=now.boot_s))


def mark_gone(state: State, action: act.MarkGone, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    return with_attempt(state, replace(attempt, gone_at_s=now.boot_s))


def mark_stopped(state: State, action: act.MarkStopped, now: Now, why: str) -> State:  # noqa: ARG001
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    gone_at_s = now.boot_s if attempt.gone_at_s is None else attempt.gone_at_s
    stopped = replace(
        rest(attempt, AttemptState.STOPPED, now, attempt.why), gone_at_s=gone_at_s, stopped_at_s=now.boot_s
    )
    return with_attempt(state, replace(stopped, log_tail=action.log_tail))


def close_card(state: State, action: act.CloseCard, now: Now, why: str) -> State:  # noqa: ARG001
    known = state.closed.get(action.gpu)
    found_full = known is not None and known.unseen and not action.closed.unseen  # it can be read again
    if known is not None and bool(known.by) >= bool(action.closed.by) and not found_full:
        raise IllegalMove(f"{action.gpu} is {known.word} already: {known.why}")
    return replace(state, closed={**state.closed, action.gpu: action.closed})


def open_card(state: State, action: act.OpenCard, now: Now, why: str) -> State:  # noqa: ARG001
    if action.gpu not in state.closed:
        raise IllegalMove(f"{action.gpu} is not closed")
    return replace(state, closed={gpu: closed for gpu, closed in state.closed.items() if gpu != action.gpu})


def begin_start(state: State, action: act.StartAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.PLANNED, AttemptState.STARTING)
    if attempt.pid is not None:
        raise IllegalMove(f"attempt {attempt.id} was started already")
    starting = rest(attempt, AttemptState.STARTING, now, why)
    return with_attempt(state, replace(starting, started_at_s=now.boot_s, boot_id=now.boot_id))


def begin_stop(state: State, action: act.StopAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.STOPPING)
    if attempt.state is AttemptState.STOPPING:
        return state
    stopping = replace(rest(attempt, AttemptState.STOPPING, now, attempt.why or why), stopping_at_s=now.boot_s)
    return with_attempt(state, stopping)


def begin_sleep(state: State, action: act.SleepAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.RETIRING, AttemptState.DOZING)
    if attempt.state is AttemptState.DOZING:
        return state
    if attempt.hurry or attempt.ready_at_s is None or attempt.retired_at_s is None or attempt.gave_way_to is None:
        raise IllegalMove(f"attempt {attempt.id} did not make room in good health: it is stopped, not put to sleep")
    nap = Nap(attempt.gave_way_to, attempt.retired_at_s, now.boot_s, used_mib=action.used_mib)
    return with_attempt(state, replace(rest(attempt, AttemptState.DOZING, now, why), naps=(*attempt.naps, nap)))


def begin_wake(state: State, action: act.WakeAttempt, now: Now, why: str) -> State:
    attempt = attempt_of(state, action.attempt, AttemptState.ASLEEP, AttemptState.STARTING)
    if attempt.state is AttemptState.STARTING:
        return state
    for other in state.attempts.values():
        if other.holds_cards and set(attempt.gpus) & set(other.gpus):
            raise IllegalMove(f"attempt {attempt.id} cannot wake up on cards that {other.id} holds")
    starting = replace(rest(attempt, AttemptState.STARTING, now, why), lent=False)
    return with_attempt(state, _nap(starting, woken_for=action.for_rollout, woken_at_s=now.boot_s))


def started(state: State, action: act.StartAttempt, outcome: act.Outcome, now: Now) -> State:
    attempt = attempt_of(state, action.attempt)
    if outcome.ok:
        return with_attempt(state, replace(attempt, pid=outcome.pid, start_ticks=outcome.start_ticks))
    if attempt.state is not AttemptState.STARTING:
        return state
    retiring = rest(attempt, AttemptState.RETIRING, now, outcome.sentence)
    return with_attempt(state, replace(retiring, port_conflict=outcome.port_conflict, hurry=True))


def stop_asked(state: State, action: act.StopAttempt, outcome: act.Outcome, now: Now) -> State:  # noqa: ARG001
    return with_attempt(state, replace(attempt_of(state, action.attempt), stop_asked=outcome.ok))


def not_begun(state: State, action: act.SleepAttempt | act.WakeAttempt, outcome: act.Outcome, now: Now) -> State:
    """Its engine could not even be asked: it is stopped."""
    attempt = attempt_of(state, action.attempt)
    if outcome.ok or attempt.state not in {AttemptState.DOZING, AttemptState.STARTING}:
        return state
    return with_attempt(state, replace(rest(attempt, AttemptState.RETIRING, now, outcome.sentence), hurry=True))
