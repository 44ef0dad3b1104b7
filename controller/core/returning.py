"""The way back: what a rollout that is rolling back does next. Pure."""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .cards import Places, Refusal, no_places, place, place_some, without_holder
from .desired import wanted_seats
from .frozen import replace
from .moves_rollouts import rollback_seat
from .policy import Policy
from .records import Attempt, AttemptState, Kind, Release, Rollout, Seat, State
from .room import CHEAPEST_FIRST, Room, Strategy, find_room
from .seats import all_ready, ask_to_leave, is_fresh, is_recallable, missing_instances, move, new_attempts
from .seen import Seen
from .sleep import sleeps_whole, unreadable, wake, who_leaves
from .table import Event


def rolling_back(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Rollback has a gate of its own: its target must serve at the moment of the switch (flagger#1931)."""
    target = rollout.target
    if target is None:
        return move(rollout, Event.HOPELESS, "there is no release to return to; what serves stays")
    seat = rollback_seat(state, rollout)
    assert seat is not None  # noqa: S101 - the target is set
    cold = seat.rollout == rollout.id
    if all_ready(state, seat):
        woken = any(a.naps and a.naps[-1].woken_for == rollout.id for a in state.seat_attempts(seat))
        how = "started again" if cold else "woken" if woken else "still warm"
        return _return_to(rollout, state, seat, seen, policy, how)
    if cold:
        return _await_target(rollout, target, state, seat)
    left = state.seat_attempts(target)
    in_part = rollout.strategy == Strategy.ROLLING or _is_half_way(state, target)
    if in_part and any(a.state is AttemptState.READY or is_recallable(a) for a in left):
        return _return_in_part(rollout, state, left, seen, policy)
    return _start_target(rollout, target, state, seen, policy)


def _is_half_way(state: State, target: Seat) -> bool:
    """Live has rolled in only in part, and what it replaces still drains: neither is whole, and half is as good."""
    live = state.live
    if live is None or not _comes_in_parts(state.releases[target.release]):
        return False
    return bool(missing_instances(state, live) or state.unborn(live))


def _return_to(rollout: Rollout, state: State, seat: Seat, seen: Seen, policy: Policy, how: str) -> Decision | None:
    ready = [a for a in state.seat_attempts(seat) if a.state is AttemptState.READY]
    probes = [seen.probes.get(a.id) for a in ready]
    fresh_s = max(2 * policy.bake_interval_s, 5.0)
    if all(is_fresh(probe, seen, fresh_s) for probe in probes):
        return Decision(act.CommitRollback(rollout.id), f"{seat.release} ({how}) is live again")
    if seat.rollout != rollout.id:
        sick = [
            a
            for a, p in zip(ready, probes, strict=True)
            if p is not None and not p.ok and p.streak >= policy.silent_probes
        ]
        if sick:
            return Decision(act.Retire(sick[0].id, hurry=True), "the release to return to is sick: start it again")
    return None


def _await_target(rollout: Rollout, target: Seat, state: State, seat: Seat) -> Decision | None:
    """Fresh attempts of the release to return to load, or have died."""
    if not missing_instances(state, seat):
        return None
    if rollout.kind is not Kind.ROLLBACK:
        return move(rollout, Event.HOPELESS, f"{target.release} does not come back; what serves stays")
    last = [a for a in state.attempts.values() if a.rollout == rollout.id][-1]
    return move(rollout, Event.HOPELESS, f"{target.release} does not come up: {last.why}; what serves stays")


def _return_in_part(
    rollout: Rollout, state: State, left: tuple[Attempt, ...], seen: Seen, policy: Policy
) -> Decision | None:
    """What is left of a release that was being rolled over serves at once; its other instances follow."""
    for attempt in left:
        if is_recallable(attempt):
            return Decision(act.Recall(attempt.id), f"{attempt.id} still drains: it serves again")
    seat = Seat(left[0].release, left[0].rollout)
    return _return_to(rollout, state, seat, seen, policy, "what is left of it")


def _start_target(rollout: Rollout, target: Seat, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """The release to return to is not running whole: clear what is left of it and start it again."""
    left = state.seat_attempts(target)
    release = state.releases[target.release]
    if sleeps_whole(state, target):
        return _wake_target(rollout, target, state, seen, policy)
    if draining := _all_there(left, release):
        return Decision(act.Recall(draining.id), f"{draining.id} still drains: it serves again")
    starting = [a for a in left if a.state in {AttemptState.PLANNED, AttemptState.STARTING}]
    if starting and not missing_instances(state, target):
        return None
    for attempt in left:
        if attempt.is_staying or attempt.is_in_bed:
            return Decision(
                act.Retire(attempt.id), "an instance of it is gone: the release is started again as a whole"
            )
    if left:
        return None
    if rollout.kind is not Kind.ROLLBACK and target.release == rollout.release:
        return move(rollout, Event.HOPELESS, f"{target.release} died in old and in fresh processes; what serves stays")
    placed = place(release.instances, without_holder(state, seen.gpus), seen.gpus)
    if isinstance(placed, Refusal):
        return _make_room_to_return(rollout, state, release, placed, seen, policy)
    return _start_again(rollout, state, release, placed, seen, policy)


def _wake_target(rollout: Rollout, target: Seat, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """The release to return to sleeps: whoever has its cards makes room, and it is woken instance by instance."""
    left = state.seat_attempts(target)
    for attempt in left:
        if is_recallable(attempt):
            return Decision(act.Recall(attempt.id), f"{attempt.id} still drains: it serves again")
    if any(a.state in {AttemptState.STARTING, AttemptState.DOZING} for a in left):
        return None  # no longer than its deadline
    for attempt in left:
        if attempt.state is AttemptState.ASLEEP and set(attempt.gpus) & set(state.closed):
            return _wake_elsewhere(rollout, state, attempt, seen)
        if attempt.state is AttemptState.ASLEEP and (comes := wake(attempt, state, rollout.id)):
            return comes
    if any(a.state is AttemptState.READY for a in left):
        return _return_to(rollout, state, target, seen, policy, "what is awake of it")
    names, _ = who_leaves(state, target)
    staying = [state.attempts[name] for name in names if state.attempts[name].is_staying]
    if unseen := next((gpu for a in staying if (gpu := unreadable(a, seen))), ""):
        return _stay_while_blind(rollout, target, unseen, seen, policy)
    return ask_to_leave(rollout, state, names, seen, policy)


def _stay_while_blind(rollout: Rollout, target: Seat, unseen: str, seen: Seen, policy: Policy) -> Decision | None:
    """Whoever made room now would do so in vain: nobody could tell that its cards are free. It serves on meanwhile."""
    if seen.now.boot_s - rollout.phase_since_s <= policy.sleep_deadline_s:
        return None
    why = f"{unseen} cannot be read, so that nobody could have it from who is on it, and {target.release} sleeps on"
    return move(rollout, Event.HOPELESS, f"{why}; what serves stays")


def _wake_elsewhere(rollout: Rollout, state: State, attempt: Attempt, seen: Seen) -> Decision:
    """Its cards are closed: it is started on others, and where there are none it sleeps on until its own are open."""
    room, _ = find_room(state, state.releases[attempt.release], seen.gpus, CHEAPEST_FIRST)
    if not isinstance(room, Refusal):
        return Decision(act.Retire(attempt.id, hurry=True), "its cards are closed: it is started elsewhere")
    closed = "; ".join(f"{gpu} is {state.closed[gpu].word}" for gpu in attempt.gpus if gpu in state.closed)
    why = f"{attempt.id} sleeps on cards that it cannot have ({closed}), and there are no others; what serves stays"
    return move(rollout, Event.HOPELESS, why)


def _start_again(
    rollout: Rollout, state: State, release: Release, placed: Places, seen: Seen, policy: Policy
) -> Decision | None:
    names = tuple(placed)
    if no_places(state, release, policy, frozenset(), *names):
        return None  # whoever drains gives them back
    attempts = new_attempts(state, seen, policy, Seat(release.id, rollout.id), placed, *names)
    return Decision(
        act.AddAttempts(attempts), f"{release.id} is started again ({', '.join(names)}): its cards are free"
    )


def _comes_in_parts(release: Release) -> bool:
    """Whether one instance alone can serve: a part of a release is better than nothing, and than a dark time."""
    return all(i.fronted and not i.start_after for i in release.instances)


def _make_room_to_return(
    rollout: Rollout, state: State, release: Release, refusal: Refusal, seen: Seen, policy: Policy
) -> Decision | None:
    """The cards of the release to return to are taken: by what leaves anyway, or by live, which makes room then."""
    leaving = [a for a in state.attempts.values() if a.holds_cards and a.gave_way_to == rollout.id]
    leaving = [a for a in leaving if not a.is_staying]
    if any(a.slot is None for a in leaving):  # it ends when its router has: what stands behind one leaves as a whole
        return ask_to_leave(rollout, state, tuple(a.id for a in state.seat_attempts(state.live)), seen, policy)
    if leaving:
        return None
    free, soon = without_holder(state, seen.gpus), without_holder(state, seen.gpus, _leaving(state, policy))
    if _comes_in_parts(release) and (some := place_some(release.instances, free, seen.gpus)):
        return _start_again(rollout, state, release, some, seen, policy)
    if not isinstance(place(release.instances, soon, seen.gpus), Refusal):
        return None  # its cards are being given back just now
    if _comes_in_parts(release) and place_some(release.instances, soon, seen.gpus):
        return None
    room, _ = find_room(state, release, seen.gpus, CHEAPEST_FIRST)
    if isinstance(room, Room) and (leaves := ask_to_leave(rollout, state, room.gives_way, seen, policy)):
        return leaves
    if isinstance(room, Room):
        return None
    if _may_see_again(rollout, state, release, seen, policy):
        return None
    return move(rollout, Event.HOPELESS, f"{release.id} cannot be started again: {refusal.sentence}; what serves stays")


def _may_see_again(rollout: Rollout, state: State, release: Release, seen: Seen, policy: Policy) -> bool:
    """Whether only cards that cannot be read just now are missing: a moment of silent NVML ends no way back."""
    room, _ = find_room(state, release, tuple(replace(gpu, trusted=True) for gpu in seen.gpus), CHEAPEST_FIRST)
    made_room = (a.state_since_s for a in state.attempts.values() if a.gave_way_to == rollout.id)
    since_s = max((rollout.phase_since_s, *made_room))
    blind = any(not gpu.trusted for gpu in seen.gpus)
    return blind and isinstance(room, Room) and seen.now.boot_s - since_s <= policy.memory_back_s


def _all_there(left: tuple[Attempt, ...], release: Release) -> Attempt | None:
    """The first draining attempt of a seat that would be whole if those that drain came back."""
    ready = {a.instance for a in left if a.state is AttemptState.READY}
    draining = {a.instance: a for a in left if is_recallable(a) and a.instance not in ready}
    whole = all(i.name in ready or i.name in draining for i in release.instances)
    return next(iter(draining.values()), None) if whole else None


def _leaving(state: State, policy: Policy) -> frozenset[str]:
    """Attempts that hold cards and have no reason to: they are on their way out, or about to be."""
    wanted = wanted_seats(state, policy)
    return frozenset(
        a.id
        for a in state.held
        if a.state in {AttemptState.RETIRING, AttemptState.STOPPING} or Seat(a.release, a.rollout) not in wanted
    )
