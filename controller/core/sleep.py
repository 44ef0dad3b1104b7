"""Who makes room by sleeping, and what it takes to believe an engine that it sleeps or is awake. Pure."""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .cards import holders, is_back, no_places, shows, told_apart_mib
from .desired import wanted_seats
from .policy import Policy
from .records import Attempt, AttemptState, Seat, State
from .seats import is_failed_bake, is_recallable
from .seen import Seen


def may_sleep(attempt: Attempt, state: State, policy: Policy) -> bool:
    """Whether an attempt that makes room sleeps instead of being stopped.

    Only who is wanted back sleeps: each sleeper costs host memory for its weights. A release that is left because it
    is worse is not wanted back.
    """
    release = state.releases[attempt.release]
    healthy = not attempt.hurry and not attempt.lent and attempt.ready_at_s is not None and bool(attempt.gpus)
    if not (policy.sleep and release.can_sleep and healthy) or attempt.gave_way_to is None:
        return False
    rollout = state.rollouts[attempt.gave_way_to]
    if is_failed_bake(rollout) or Seat(attempt.release, attempt.rollout) not in wanted_seats(state, policy):
        return False
    comes = state.releases[rollout.target.release if rollout.target else rollout.release]
    return no_places(state, comes, policy) is None  # a sleeper keeps its ports and its slot


def used_mib(attempt: Attempt, seen: Seen) -> dict[str, int]:
    """Card of the attempt → memory in use on it now, where that can be read; strangers' is not, where it is told."""
    used = {gpu.id: told_apart_mib(gpu) for gpu in seen.gpus if gpu.trusted}
    return {gpu: mib for gpu in attempt.gpus if (mib := used.get(gpu)) is not None}


def leftover_mib(gpu: str, attempt: Attempt, state: State, policy: Policy) -> int:
    """What sleepers other than this attempt may keep on a card: their CUDA contexts stay there."""
    beside = [a for a in state.held if a.lent and gpu in a.gpus and a.id != attempt.id]
    return policy.sleep_leftover_mib * len(beside)


def not_given_back(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> str:
    """The first card whose memory a sleeper still has, in words; empty when all are free for others.

    It may keep `policy.sleep_leftover_mib` on each. A declared card has no memory that could be looked at.
    """
    cards = {gpu.id: gpu for gpu in seen.gpus}
    for gpu in attempt.gpus:
        kept_mib = policy.sleep_leftover_mib + leftover_mib(gpu, attempt, state, policy)
        card, limit_mib = cards.get(gpu), attempt.memory_before_mib.get(gpu, 0) + kept_mib
        if card is None or not card.trusted:
            return shows(gpu, card)
        if card.memory_used_mib is not None and not is_back(card, limit_mib):
            return f"{shows(gpu, card)}, expected {limit_mib} at most"
    return ""


def unreadable(attempt: Attempt, seen: Seen) -> str:
    """The first card of an attempt that nobody can look at now; empty when all can be read."""
    trusted = {gpu.id for gpu in seen.gpus if gpu.trusted}
    return next((gpu for gpu in attempt.gpus if gpu not in trusted), "")


def not_taken_again(attempt: Attempt, seen: Seen) -> str:
    """The first card on which a woken attempt has not half of the memory that it had, in words; empty when it has.

    A card that cannot be read now, or that showed nothing before, says nothing.
    """
    has = used_mib(attempt, seen)
    for gpu, had_mib in attempt.naps[-1].used_mib.items():
        has_mib, before_mib = has.get(gpu), attempt.memory_before_mib.get(gpu, 0)
        if has_mib is None or had_mib <= before_mib:
            continue
        if has_mib - before_mib < (had_mib - before_mib) / 2:
            return f"{gpu} shows {has_mib} MiB in use, before its sleep it was {had_mib}"
    return ""


def wake(attempt: Attempt, state: State, for_rollout: str) -> Decision | None:
    """Wake a sleeper when its cards are free, and no other instance of its seat loads; else None."""
    held = holders(state)
    siblings = state.seat_attempts(Seat(attempt.release, attempt.rollout))
    if any(gpu in held for gpu in attempt.gpus) or any(a.state is AttemptState.STARTING for a in siblings):
        return None
    cards = ", ".join(attempt.gpus)
    return Decision(act.WakeAttempt(attempt.id, for_rollout), f"{cards} free again: {attempt.id} is woken")


def in_the_way(attempt: Attempt, state: State) -> tuple[str, ...]:
    """Who has the cards of a sleeper."""
    held = holders(state)
    return tuple(dict.fromkeys(held[gpu].id for gpu in attempt.gpus if gpu in held))


def sleeps_whole(state: State, seat: Seat) -> bool:
    """Whether every instance of the seat is there or can be woken, and at least one has to be."""
    attempts = state.seat_attempts(seat)
    there = {a.instance for a in attempts if a.is_staying or a.is_in_bed or is_recallable(a)}
    whole = all(instance.name in there for instance in state.releases[seat.release].instances)
    return whole and any(a.is_in_bed or a.is_waking for a in attempts)


def who_leaves(state: State, seat: Seat) -> tuple[tuple[str, ...], bool]:
    """Whose cards the sleepers of a seat need first, and whether nothing of live would serve meanwhile.

    One instance after the other where live can spare its cards; else all of them at once. What stands behind a router
    leaves as a whole.
    """
    live = state.seat_attempts(state.live)
    sleepers = [a for a in state.seat_attempts(seat) if a.state is AttemptState.ASLEEP]
    ways = sorted((in_the_way(a, state) for a in sleepers), key=len)
    names = tuple(dict.fromkeys(name for way in ways for name in way))
    if any(a.slot is None for a in live):
        behind = tuple(a.id for a in live) if {a.id for a in live} & set(names) else ()
        return tuple(dict.fromkeys((*behind, *names))), bool(behind)
    serving = {a.id for a in live if a.state is AttemptState.READY}
    for way in ways:
        if serving - set(way):
            return way, False
    return names, True


def leaves_its_bed(attempt: Attempt, state: State, seen: Seen) -> bool:
    """Whether a sleeper on the cards of this attempt is being stopped; one that does not end is not waited for."""
    return any(
        a.lent and a.state is AttemptState.STOPPING and set(a.gpus) & set(attempt.gpus)
        for a in state.attempts.values()
        if seen.now.boot_s - a.state_since_s <= state.releases[a.release].stop_grace_s
    )


def profiles_beside(attempt: Attempt, state: State) -> bool:
    """Whether another one starts on the cards of this sleeper: its memory profile must not be disturbed."""
    return attempt.lent and any(
        a.state is AttemptState.STARTING and a.holds_cards and set(a.gpus) & set(attempt.gpus)
        for a in state.attempts.values()
        if a.id != attempt.id
    )
