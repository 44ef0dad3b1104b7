"""Rules for production: a live instance that falls silent or dies comes back, on its own cards if it can. Pure."""

from __future__ import annotations

from . import actions as act
from .actions import Decision
from .cards import Places, Refusal, holders, no_places, place, without_holder
from .desired import SWITCHED, candidate_seat
from .policy import Policy
from .records import Attempt, AttemptState, Kind, Phase, Release, Seat, State
from .restarts import deaths_in_a_row, give_up, given_up, pause_left_s, paused, stands_before_nobody
from .rules_attempts import LEAVING
from .seats import is_failed_bake, is_recallable, missing_instances, new_attempts
from .seen import Seen
from .silence import why_dead
from .sleep import in_the_way, wake


def retire_silent(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Busy is not down: live is given up only when probes fail *and* its own counters stand still."""
    if state.active is not None and state.active.phase in SWITCHED:
        return None  # the bake judges it
    for attempt in state.seat_attempts(state.live):
        if attempt.state is not AttemptState.READY:
            continue
        if why := why_dead(seen.probes.get(attempt.id), seen.now.boot_s, policy):
            return Decision(act.Retire(attempt.id, hurry=True), why)
    return None


def give_up_start(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance of live that was started again and does not come up: another try, and others may load meanwhile.

    Candidates and releases that are returned to have the deadline of their phase.
    """
    for attempt in state.seat_attempts(state.live):
        if attempt.state is not AttemptState.STARTING or attempt.started_at_s is None or attempt.is_waking:
            continue  # a wake has a deadline of its own
        limit_s = state.releases[attempt.release].start_timeout_s or policy.start_s
        if attempt.boot_id == seen.now.boot_id and seen.now.boot_s - attempt.started_at_s > limit_s:
            return Decision(act.Retire(attempt.id, hurry=True), f"its start took longer than {limit_s:.0f} s")
    return None


def revive_live(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance of live that is gone is started again on its own cards, after a pause, until its budget is spent.

    One that made room for the active rollout is not gone: it comes back when that one has ended without a switch.
    """
    seat, active = state.live, state.active
    if seat is None or (active is not None and (active.phase in SWITCHED or is_failed_bake(active))):
        return None
    release, missing = state.releases[seat.release], missing_instances(state, seat)
    gone = {name for name in missing if state.attempts_of(seat, name)[-1].given_up}
    for name in missing:
        mine = state.attempts_of(seat, name)
        if active is not None and (mine[-1].gave_way_to == active.id or mine[-1].id in active.planned("gives_way")):
            continue  # it made room, or was gone before it was asked to
        if mine[-1].gave_way_to and is_recallable(mine[-1]):
            return Decision(act.Recall(mine[-1].id), "its cards are not needed any more: it serves again")
        if mine[-1].is_in_bed:
            if comes := _wake_live(mine[-1], state, seen):
                return comes
            continue
        if name in gone or stands_before_nobody(release, name, gone):
            continue
        if ends := give_up(mine, seen, policy):
            return ends
        if any(a.state in LEAVING for a in mine) or pause_left_s(mine, seen, policy) > 0:
            continue
        if yields := _yields_to_live(state, set(mine[-1].gpus)):
            return yields
        cards = _cards_to_revive(state, seen, mine[-1], release)
        if cards is None or no_places(state, release, policy, frozenset(), name):
            continue  # given to somebody while it was not allowed to start: when they are back, it is
        gpu_map = {name: cards}
        deaths = deaths_in_a_row(mine, seen, policy)
        counted = f" (start {deaths} of {policy.restart_budget})" if deaths else ""
        return Decision(
            act.AddAttempts(new_attempts(state, seen, policy, seat, gpu_map, name)),
            f"live instance {name} is gone ({mine[-1].why}): start it again{counted}",
        )
    return _bear(state, seen, policy, seat) or _rewire_router(state, seen, policy, seat)


def _wake_live(last: Attempt, state: State, seen: Seen) -> Decision | None:
    """A sleeping instance of live; where its cards are closed or its sisters' by now, it is started elsewhere.

    Where there is no elsewhere it sleeps on: cards that are opened again cost it a wake then, and no start.
    """
    if last.state is not AttemptState.ASLEEP:
        return None  # it falls asleep first, or is stopped: that takes no longer than its deadline
    sisters = {a.id for a in state.seat_attempts(state.live) if a.is_staying}
    if set(last.gpus) & set(state.closed) or sisters & set(in_the_way(last, state)):
        wanted = state.releases[last.release].instance(last.instance)
        others = {a.id for a in _besides(state)}
        if isinstance(place((wanted,), without_holder(state, seen.gpus, others), seen.gpus), Refusal):
            return None
        return Decision(act.Retire(last.id, hurry=True, gives_way_to=last.gave_way_to), "its cards are not to be had")
    return _yields_to_live(state, set(last.gpus)) or wake(last, state, last.gave_way_to or "")


def _cards_to_revive(state: State, seen: Seen, last: Attempt, release: Release) -> tuple[str, ...] | None:
    """Its own cards; free ones when one of its own is closed or somebody else's; None when there are none."""
    if not set(last.gpus) & (set(state.closed) | set(holders(state))):
        return last.gpus
    placed = place((release.instance(last.instance),), without_holder(state, seen.gpus), seen.gpus)
    return None if isinstance(placed, Refusal) else placed[last.instance]


def _besides(state: State) -> tuple[Attempt, ...]:
    """Attempts that carry neither live nor what is being tried or returned to: production may have their cards."""
    active = state.active
    target = active.target if active is not None and active.phase is Phase.ROLLING_BACK else None
    kept = (state.live, candidate_seat(active), target)
    return tuple(a for a in state.held if Seat(a.release, a.rollout) not in kept)


def _yields_to_live(state: State, cards: set[str]) -> Decision | None:
    for attempt in _besides(state):
        if attempt.is_staying and cards & set(attempt.gpus):
            why = f"live needs {', '.join(sorted(cards & set(attempt.gpus)))}"
            return Decision(act.Retire(attempt.id, gives_way_to=_left_by(attempt, state)), why)
    return None


def _left_by(attempt: Attempt, state: State) -> str | None:
    """The rollback that led users away from it while it came back in part: what was good is wanted back, and sleeps."""
    seat = Seat(attempt.release, attempt.rollout)
    if seat != state.previous:
        return None
    back = [r for r in state.rollouts.values() if r.kind is Kind.ROLLBACK and r.before[0] == seat]
    return back[-1].id if back and back[-1].phase is Phase.ROLLED_BACK else None


def _bear(state: State, seen: Seen, policy: Policy, seat: Seat) -> Decision | None:
    """Instances of live that were never started: it came back in part, so that nobody had to wait for all of it."""
    release, names = state.releases[seat.release], state.unborn(seat)
    placed = _places_of_unborn(state, seen, seat) if names else None
    if not placed:
        return None
    cards = {gpu for gpus in placed.values() for gpu in gpus}
    if yields := _yields_to_live(state, cards):
        return yields
    if cards & set(holders(state)) or no_places(state, release, policy, frozenset(), *names):
        return None
    attempts = new_attempts(state, seen, policy, seat, placed, *names)
    return Decision(act.AddAttempts(attempts), f"their cards are free: {', '.join(names)} of {release.id} follows")


def _places_of_unborn(state: State, seen: Seen, seat: Seat) -> Places | None:
    others = {a.id for a in _besides(state)}
    release, names = state.releases[seat.release], state.unborn(seat)
    wanted = [i for i in release.instances if i.name in names]
    placed = place(wanted, without_holder(state, seen.gpus, others), seen.gpus)
    return None if isinstance(placed, Refusal) else placed


def _rewire_router(state: State, seen: Seen, policy: Policy, seat: Seat) -> Decision | None:
    """A revived engine has another port: its router must learn it, and smg forgets workers over a restart anyway.

    The successor comes up beside it: a router that drains takes no requests, and a long stream can drain for an hour.
    """
    carried = [a for a in state.seat_attempts(seat) if a.state not in LEAVING]
    ports = {a.port for a in carried if a.role != "router"}
    stale = [a for a in carried if a.role == "router" and a.state is AttemptState.READY and set(a.workers) != ports]
    if not stale or not ports or not _all_ready_that_will_be(state, seat):
        return None
    old, release = stale[0], state.releases[seat.release]
    successors = [a for a in carried if a.instance == old.instance and set(a.workers) == ports]
    if any(a.state is AttemptState.READY for a in successors):
        return Decision(act.Retire(old.id), "its engines have other ports now, and its successor is ready")
    mine = state.attempts_of(seat, old.instance)
    if mine[-1].given_up and not ports & set(old.workers):  # it leads to nobody; what is gone is told to people
        return Decision(act.Retire(old.id), "its engines have other ports now, and no router that knows them comes up")
    if successors or mine[-1].given_up or mine[-1].state in LEAVING:
        return None
    if ends := give_up(mine, seen, policy):
        return ends
    if pause_left_s(mine, seen, policy) > 0:
        return None
    if no_places(state, release, policy, frozenset(), old.instance):
        return Decision(act.Retire(old.id), "its engines have other ports now: the router is started again")
    attempts = new_attempts(state, seen, policy, seat, {}, old.instance)
    return Decision(act.AddAttempts(attempts), f"the engines behind {old.id} have other ports now: a router that knows")


def _all_ready_that_will_be(state: State, seat: Seat) -> bool:
    gone = {a.instance for a in given_up(state, seat)}
    ready = {a.instance for a in state.seat_attempts(seat) if a.state is AttemptState.READY}
    return all(name in ready or name in gone for name in state.begun(seat))


def comes_back(state: State, seen: Seen, policy: Policy) -> bool:
    """Instances of live that made room, or wait for their next start, are on their way back.

    Nothing new begins before production is whole: it could take their cards.
    """
    if state.live is None:
        return False
    if _places_of_unborn(state, seen, state.live) or paused(state, seen, policy):
        return True
    ready = {a.instance for a in state.seat_attempts(state.live) if a.state is AttemptState.READY}
    release, gone = state.releases[state.live.release], {a.instance for a in given_up(state, state.live)}
    for name in state.begun(state.live):
        if name in ready or name in gone or stands_before_nobody(release, name, gone):
            continue
        if any(a.gave_way_to for a in state.attempts_of(state.live, name)):
            return True
    return False
