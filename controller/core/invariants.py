"""What must hold at every boundary: the oracle of the tests, and the daemon's tripwire. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .desired import SWITCHED, candidate_seat
from .policy import Policy
from .progress import deadline_s
from .records import ACTIVE, TERMINAL, Attempt, AttemptState, Kind, Phase, Rollout, Seat, State
from .remembered import remembered
from .route import DoorSeen, SlotState
from .rules_nights import waits_for_a_person
from .seats import missing_instances
from .seen import Seen

_ASLEEP = frozenset({AttemptState.ASLEEP})
_BEGUN = ACTIVE - {Phase.ROLLING_BACK}
_USERS_FOLLOW = frozenset({Phase.CUTTING_OVER, *SWITCHED, Phase.PROMOTED})
_OPEN = frozenset({SlotState.READY})
# One that is not started yet waits until the front door, which may have refused its route, no longer has its port.
_NOBODY_THERE = frozenset({AttemptState.PLANNED, AttemptState.STOPPING})


def violations(state: State, door: DoorSeen | None = None) -> list[str]:
    """Sentences that name what is wrong; empty when everything holds. With `door`, also whom it leads users to."""
    found = list(_inconsistent(state))
    if door is not None:
        found += _served(state, door)
    return found


@remembered
def _inconsistent(state: State) -> Sequence[str]:
    """All that can be seen in the records alone."""
    found = [*_exclusive(state), *_one_at_a_time(state), *_gated(state), *_seats(state), *_never_dark(state)]
    return [*found, *_records(state), *_nights(state)]


def _exclusive(state: State) -> list[str]:
    """A card, a port, a slot has one holder; the cards of a sleeper are others', its port and its slot are not."""
    held = state.held
    found = [
        f"{what} {thing} has {count} holders"
        for what, things in (
            ("GPU", [gpu for a in held if a.holds_cards for gpu in a.gpus]),
            ("port", [a.port for a in held]),
            ("slot", [a.slot for a in held if a.slot is not None]),
        )
        if len(set(things)) < len(things)
        for thing, count in Counter(things).items()
        if count > 1
    ]
    found += [f"{a.id} is {a.state} and its cards are lent" for a in held if a.lent and a.is_staying]
    return found + [f"{a.id} sleeps and holds its cards" for a in held if a.state in _ASLEEP and not a.lent]


def _one_at_a_time(state: State) -> list[str]:
    active = [r.id for r in state.rollouts.values() if r.phase in ACTIVE]
    return [f"rollouts {', '.join(active)} are active at once"] if len(active) > 1 else []


def _passed(rollout: Rollout) -> bool:
    misplaced = [r for r in rollout.gates if r.index < 0 and r.verdict == "fail" and not r.observe]
    if misplaced and rollout.phase is not Phase.COMPLETING:  # there users came first, and the next pass leads back
        return False
    last = {r.index: r.verdict for r in rollout.gates}
    for index, step in enumerate(rollout.profile):
        if last.get(index) != "pass" and not (index in last and step.get("observe")):
            return False
    return True


def _gated(state: State) -> list[str]:
    """Nobody is switched to whose gates did not pass in this very rollout."""
    return [
        f"rollout {r.id} is {r.phase} and not all its gates passed"
        for r in state.rollouts.values()
        if r.phase in _USERS_FOLLOW and r.kind is not Kind.ROLLBACK and not _passed(r)
    ]


def _seats(state: State) -> list[str]:
    found = []
    if state.live is not None and state.live == state.previous:
        found.append("live and previous are the same seat")
    active = state.active
    if active is not None and active.phase in SWITCHED and state.live != active.seat:
        found.append(f"{active.id} is {active.phase} and is not live")
    return found


def _records(state: State) -> list[str]:
    """Every record is whole."""
    found = [
        f"{what} is {seat.release} of {seat.rollout}, which nobody knows"
        for what, seat in (("live", state.live), ("previous", state.previous))
        if seat is not None and (seat.release not in state.releases or seat.rollout not in state.rollouts)
    ]
    found += [
        f"{r.id} is {r.phase}, and its end is {r.ended_wall_s}"
        for r in state.rollouts.values()
        if (r.ended_wall_s is None) is (r.phase in TERMINAL)
    ]
    for attempt in state.attempts.values():
        if attempt.pid is None and attempt.state is AttemptState.READY:
            found.append(f"{attempt.id} is ready and has no process")
        if attempt.stopped_at_s is None and not attempt.holds:
            found.append(f"{attempt.id} is stopped and nobody saw when")
    return found


def _nights(state: State) -> list[str]:
    """What waits for a window begins in a night; a trial is never switched to; live is measured once a night."""
    found = [
        f"{r.id} waits for window {r.options.window} and began in no night"
        for r in state.rollouts.values()
        if r.options.window and r.phase in _BEGUN and r.night not in state.nights
    ]
    found += [
        f"{r.id} is a trial and {r.phase}"
        for r in state.rollouts.values()
        if r.options.trial and r.phase in _USERS_FOLLOW
    ]
    measured = [r.night for r in state.rollouts.values() if r.night and r.kind is Kind.MEASURE]
    if len(set(measured)) == len(measured):
        return found
    return found + [f"live was measured {count} times in {n}" for n, count in Counter(measured).items() if count > 1]


def _never_dark(state: State) -> list[str]:
    """Only a swap may ask the whole of live to make room; a way back may when nothing smaller helps."""
    active = state.active
    if active is None or active.phase is Phase.ROLLING_BACK or active.strategy == "swap":
        return []
    seat = state.live
    mine = [a for a in state.attempts.values() if seat and (a.release, a.rollout) == (seat.release, seat.rollout)]
    last = {a.instance: a for a in mine}.values()
    if last and all(a.gave_way_to == active.id for a in last):
        return [f"{active.id} is {active.strategy} and asked all of live to make room"]
    return []


def _served(state: State, door: DoorSeen) -> list[str]:
    """Users reach live, or what was live until a moment ago; never a candidate, never an attempt that is stopped."""
    if not door.alive:
        return []
    by_port = {a.port: a for a in state.held}
    found = []
    for slot in door.public:
        if slot.state not in _OPEN:
            continue
        attempt = by_port.get(slot.port)
        if attempt is not None and attempt.is_in_bed:
            found.append(f"the front door sends users to {attempt.id}, which sleeps")
        elif attempt is not None and not attempt.exposed and not _is_expected(attempt, state):
            found.append(f"the front door sends users to {attempt.id}, which was never committed")
    return found


def _is_expected(attempt: Attempt, state: State) -> bool:
    """Nobody is there yet, or it is live's own: a front door that comes back may know its port from one before it."""
    return attempt.state in _NOBODY_THERE or Seat(attempt.release, attempt.rollout) == state.live


def _wait_in_vain(state: State) -> list[str]:
    """What is kept and not started yet, and stands before something that is gone and that nobody starts again."""
    found = []
    for attempt in state.held:
        if attempt.state is not AttemptState.PLANNED:
            continue
        seat = Seat(attempt.release, attempt.rollout)
        after = state.releases[attempt.release].instance(attempt.instance).start_after
        if after and seat not in {state.live, candidate_seat(state.active)}:
            gone = set(after) & set(missing_instances(state, seat))
            found += [f"{attempt.id} waits for {', '.join(sorted(gone))}, and nobody starts that again"] if gone else []
    return found


def _is_overdue(rollout: Rollout, seen: Seen) -> bool:
    """Beyond the time that it was given. Who waits for a person may be, and who has nothing to go back to."""
    if rollout.until_s is None or rollout.phase is Phase.ROLLING_BACK or waits_for_a_person(rollout):
        return False
    return seen.now.boot_s > rollout.until_s and not (rollout.phase in SWITCHED and rollout.before[0] is None)


def unsettled(state: State, seen: Seen, policy: Policy) -> list[str]:
    """What must hold besides whenever there is nothing to do: no phase is overdue, and users reach all of live."""
    found = []
    active = state.active
    if active is not None:
        spent_s, limit_s = seen.now.boot_s - active.phase_since_s, deadline_s(active, state, policy)
        if active.phase_boot_id != seen.now.boot_id:
            found.append(f"{active.id} is {active.phase} since before the reboot")
        elif spent_s > limit_s:
            found.append(f"{active.id} is {active.phase} for {spent_s:.0f} s and may be for {limit_s:.0f} s")
        elif _is_overdue(active, seen):
            found.append(f"{active.id} is {active.phase}, and its time is over")
    found += _wait_in_vain(state)
    if not seen.door.alive or seen.door_refuses:
        return found
    public = {(slot.number, slot.port) for slot in seen.door.public if slot.state in _OPEN}
    ready = {(a.slot, a.port): a.id for a in state.offered}
    found += [f"{name} is live and ready, and users do not reach it" for at, name in ready.items() if at not in public]
    found += [f"users are sent to port {port}, where live is not" for n, port in public if (n, port) not in ready]
    return found
