"""Rules for attempts that fall asleep or wake up: believed only when the memory says so too, and not for ever. Pure.

Whatever goes wrong leads to what was done before there was sleep: the process is stopped, and the way back is a start.
"""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .policy import Policy
from .records import Attempt, AttemptState, Phase, Seat, State
from .seats import move
from .seen import Seen, SleepSeen
from .sleep import not_given_back, not_taken_again, unreadable
from .table import Event

GARBAGE_PROBES = 2


def watch_sleep(state: State, seen: Seen, policy: Policy) -> Decision | None:
    for attempt in state.held:
        decision = None
        if attempt.state is AttemptState.DOZING:
            decision = _falling_asleep(attempt, state, seen, policy)
        elif attempt.is_waking:
            decision = _waking(attempt, seen, policy)
        if decision is not None:
            return decision
    return None


def _out(attempt: Attempt, why: str) -> Decision:
    # It still made room for somebody: while that rollout runs, it is not started again.
    return Decision(act.Retire(attempt.id, hurry=True, gives_way_to=attempt.gave_way_to), why)


def _heard(attempt: Attempt, wanted: str, seen: Seen) -> SleepSeen | None:
    """What became of the wish, as far as this daemon knows: it may have been made before a crash."""
    heard = seen.sleeps.get(attempt.id)
    return heard if heard is not None and heard.wanted == wanted else None


def _falling_asleep(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Decision | None:
    heard = _heard(attempt, "sleep", seen)
    late = seen.now.boot_s - attempt.state_since_s > policy.sleep_deadline_s
    if heard is None and not late:
        asked = act.SleepAttempt(attempt.id, attempt.naps[-1].used_mib, again=True)
        return Decision(asked, "its sleep was begun and not recorded")
    if heard is not None and heard.ok is False:
        return _out(attempt, f"it could not be put to sleep ({heard.sentence}): it is stopped")
    answered = heard is not None and heard.ok
    kept = not_given_back(attempt, state, seen, policy) if answered else "its engine has not answered"
    unseen = unreadable(attempt, seen)
    if kept and answered and unseen and Seat(attempt.release, attempt.rollout) == state.live:
        return _blind(attempt, state, unseen, late=late)
    if kept:
        said = f"it was put to sleep {policy.sleep_deadline_s:.0f} s ago, and {kept}: it is stopped"
        return _out(attempt, said) if late else None
    slept_s = seen.now.boot_s - attempt.state_since_s
    return Decision(act.MarkAsleep(attempt.id), f"{attempt.id} sleeps, its cards are free ({slept_s:.1f} s)")


def _blind(attempt: Attempt, state: State, unseen: str, *, late: bool) -> Decision | None:
    """Live sleeps, and nobody can tell whether its cards are free: nobody gets them, and it wakes up.

    Were it stopped, it could not be started again either, for as long as its cards cannot be read.
    """
    rollout = state.rollouts[attempt.gave_way_to or attempt.naps[-1].for_rollout]
    if rollout.ended_wall_s is not None:
        return Decision(act.MarkAsleep(attempt.id), f"{attempt.id} says that it sleeps, and nobody waits for its cards")
    if not late or rollout.phase not in {Phase.LEASING, Phase.ROLLING_BACK}:
        return None  # later nobody waits for these cards
    why = f"{unseen} cannot be read, so nobody can have it from {attempt.id}, which sleeps: live goes on"
    return move(rollout, Event.DEADLINE, why)


def _waking(attempt: Attempt, seen: Seen, policy: Policy) -> Decision | None:
    awake_at_s, probe = attempt.naps[-1].awake_at_s, seen.probes.get(attempt.id)
    if seen.now.boot_s - attempt.state_since_s > policy.sleep_deadline_s:
        said = not_taken_again(attempt, seen) if probe is not None and probe.ok else "no answer makes sense"
        return _out(attempt, f"woken {policy.sleep_deadline_s:.0f} s ago, and {said}: it is started again")
    if awake_at_s is not None:
        if probe is not None and probe.layer == "output" and not probe.ok and probe.streak >= GARBAGE_PROBES:
            return _out(attempt, f"what it writes after its sleep is no text ({probe.sentence}): it is started again")
        return None
    heard = _heard(attempt, "wake", seen)
    if heard is None:
        again = act.WakeAttempt(attempt.id, attempt.naps[-1].woken_for or "", again=True)
        return Decision(again, "its wake was begun and not recorded")
    if heard.ok is False:
        return _out(attempt, f"it could not be woken ({heard.sentence}): it is started again")
    return Decision(act.MarkAwake(attempt.id), f"{attempt.id} says that it is awake") if heard.ok else None
