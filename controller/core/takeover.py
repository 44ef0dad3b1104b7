"""Live keeps dying and serves nobody: the last known good release takes over, once, where the policy says so. Pure.

It comes by the way of every rollback: it must generate at the moment of the switch, and where it does not, what is live
stays. Then, and where there is no such release, everything is held and a person is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from . import actions as act
from .actions import Decision
from .policy import LAST_KNOWN_GOOD, Policy
from .records import Kind, Options, Phase, Release, Rollout, Seat, State
from .remembered import remembered
from .restarts import given_up, stands_before_nobody
from .seen import Seen

BY = "the daemon"
_DECIDED = frozenset({Phase.PROMOTED, Phase.ROLLBACK_FAILED})
_LED_BACK = frozenset({Phase.ROLLED_BACK})
_SHOWN_BAD = frozenset({Phase.ROLLED_BACK, Phase.REJECTED})


def take_over(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """File the way back to the last known good release.

    What is being tried goes first: it ends within its deadlines, and may serve users itself. One that only waits for an
    approval does not: nobody may be there. A freeze, and a rollback that somebody asked for, leave it to people.
    """
    if policy.when_live_keeps_dying != LAST_KNOWN_GOOD or state.freeze is not None or not is_lost(state):
        return None
    busy = state.active is not None and state.active.phase is not Phase.AWAITING_APPROVAL
    if busy or any(r.kind is Kind.ROLLBACK for r in state.queue) or last_takeover(state) is not None:
        return None
    seat = last_known_good(state, seen.releases_gone)
    if seat is None or state.live is None:
        return None
    asks = act.Propose(Kind.ROLLBACK, state.releases[seat.release], BY, Options(), (), seat, state.live)
    why = f"{state.live.release} keeps dying and serves nobody: {seat.release}, which was good, takes over"
    return Decision(asks, why)


def is_lost(state: State) -> bool:
    """Of what users reach of live everything is given up, or stands before engines that are.

    While one instance serves, or may still come back, that is less capacity and no reason to switch.
    """
    if state.live is None:
        return False
    gone = {a.instance for a in given_up(state, state.live)}
    begun = state.begun(state.live)
    release = state.releases[state.live.release]
    fronted = [i.name for i in release.instances if i.fronted and i.name in begun]
    return bool(gone) and all(name in gone or stands_before_nobody(release, name, gone) for name in fronted)


@remembered
def last_takeover(state: State) -> Rollout | None:
    """The newest take-over, for as long as no person has decided since who is live: until then there is no second."""
    for rollout in reversed(tuple(state.rollouts.values())):
        if rollout.instead_of is not None and (rollout.phase is Phase.REFUSED or _was_cut_short(rollout, state)):
            continue
        if rollout.instead_of is not None:
            return rollout if _is_in_effect(rollout, rollout.instead_of, state) else None
        if decides(rollout):
            return None
    return None


def decides(rollout: Rollout) -> bool:
    """Whether a person has decided by it who is live."""
    return rollout.phase in _DECIDED or _is_return(rollout)


def last_known_good(state: State, releases_gone: Collection[str] = ()) -> Seat | None:
    """The newest other release that passed its bake and serves the same models; None where there is none.

    What has not been good since: what was given up, left behind by a rollback, worse in a bake, or rejected by a gate.
    What cannot be started: a release whose files are gone.
    """
    if state.live is None:
        return None
    live = state.releases[state.live.release]
    bad, found_bad = {live.id, *releases_gone}, marks(state)
    for rollout in reversed(tuple(state.rollouts.values())):
        bad.update(found_bad.get(rollout.id, ()))
        release = state.releases[rollout.release]
        if rollout.phase is Phase.PROMOTED and release.id not in bad and _serves_as(release, live):
            known = state.previous
            return known if known is not None and known.release == release.id else rollout.seat
    return None


def marks(state: State) -> Mapping[str, frozenset[str]]:
    """Rollout → releases that have not been good since: what it left behind, or showed; what died in its seat."""
    found = {rollout.id: set(_found_bad(rollout)) for rollout in state.rollouts.values()}
    for attempt in state.attempts.values():
        if attempt.given_up and attempt.rollout in found:
            found[attempt.rollout].add(attempt.release)
    return {name: frozenset(releases) for name, releases in found.items() if releases}


def candidates(state: State) -> tuple[str, ...]:
    """Releases whose files somebody should look at: only where a take-over may be near."""
    if not is_lost(state):
        return ()
    return tuple({r.release for r in state.rollouts.values() if r.phase is Phase.PROMOTED})


def _was_cut_short(rollout: Rollout, state: State) -> bool:
    """The host was rebooted while the target was being started: that says nothing about it."""
    begun = (a for a in state.attempts.values() if a.rollout == rollout.id)
    return rollout.phase is Phase.ROLLBACK_FAILED and any(a.boot_id != rollout.phase_boot_id for a in begun)


def _is_in_effect(rollout: Rollout, dying: Seat, state: State) -> bool:
    """What it led to is still live: what waited in the queue meanwhile may have been promoted since."""
    if rollout.ended_wall_s is None:
        return True
    if rollout.phase is not Phase.ROLLED_BACK:
        return state.live == dying
    return state.live in {rollout.target, Seat(rollout.release, rollout.id)}


def _is_return(rollout: Rollout) -> bool:
    return rollout.phase in _LED_BACK and rollout.kind is Kind.ROLLBACK


def _found_bad(rollout: Rollout) -> Iterator[str]:
    """What a rollback left behind, or what a proposal of it has shown."""
    if _is_return(rollout):
        yield from (left.release for left in rollout.before[:1] if left is not None)
    elif rollout.phase in _SHOWN_BAD:
        yield rollout.release


def _serves_as(release: Release, live: Release) -> bool:
    return set(live.serves) <= set(release.serves)
