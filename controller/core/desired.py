"""What the world should look like, given the journal: the route of the front door, and who must be probed."""

from __future__ import annotations

from dataclasses import dataclass

from .policy import Policy
from .records import Attempt, AttemptState, Kind, Phase, Rollout, Seat, State
from .remembered import remembered
from .route import Mode, Route, Slot, SlotState

TRIED = frozenset({Phase.STARTING, Phase.GATING, Phase.AWAITING_APPROVAL, Phase.CUTTING_OVER})
SWITCHED = frozenset({Phase.COMPLETING, Phase.BAKING})
"""The candidate is live, and is watched."""


def candidate_seat(rollout: Rollout | None) -> Seat | None:
    """The seat of the release that a rollout is trying: its own, or the target's fresh attempts in a cold rollback."""
    if rollout is None:
        return None
    if rollout.phase is Phase.ROLLING_BACK:
        return Seat(rollout.target.release, rollout.id) if rollout.target else None
    if rollout.kind is Kind.MEASURE:
        return rollout.target  # live, by the way of the candidates: users' requests are not counted among the gate's
    return rollout.seat if rollout.phase in TRIED else None


def wanted_seats(state: State, policy: Policy) -> tuple[Seat, ...]:
    """Seats whose attempts have a reason to run. Everything else is retired."""
    active = state.active
    seats = [state.live, candidate_seat(active)]
    # After `stop` nothing is live, and nothing is kept warm either.
    if (policy.keep_previous_warm and state.live is not None) or (
        active is not None and active.phase in {*SWITCHED, Phase.ROLLING_BACK}
    ):
        seats.append(state.previous)
    if active is not None and active.phase in {*SWITCHED, Phase.ROLLING_BACK}:
        seats += [*active.before, active.target]
    return tuple(seat for seat in seats if seat is not None)


def _slot(state: State, attempt: Attempt, slot_state: SlotState) -> Slot:
    health_path = state.releases[attempt.release].instance(attempt.instance).health_path
    return Slot(attempt.slot or 0, attempt.port, health_path, attempt.release, attempt.id, slot_state)


def desired_route(state: State, policy: Policy) -> Route:
    """What the front door should serve now."""
    return _route(state, policy.retry_after_s)


@remembered
def _route(state: State, retry_after_s: int) -> Route:
    """Live's ready instances take new requests; whoever was seen by users and no longer is live drains.

    While nothing of live can answer, requests wait at the front door: it made room, or it is being started again.
    """
    public = [_slot(state, a, SlotState.READY) for a in state.offered]
    listed = {slot.attempt for slot in public}
    draining = [
        _slot(state, a, SlotState.DRAIN)
        for a in state.held
        if a.exposed and a.slot is not None and a.id not in listed and not a.is_in_bed
    ]
    preview = [
        _slot(state, a, SlotState.READY)
        for a in state.seat_attempts(candidate_seat(state.active))
        if a.slot is not None and a.state is AttemptState.READY
    ]
    return Route(
        generation=state.generation,
        public=(*public, *draining),
        preview=tuple(preview),
        mode=Mode.REFUSE if state.live is None else Mode.OPEN if public else Mode.HOLD,
        retry_after_s=retry_after_s,
    )


@dataclass(frozen=True, slots=True)
class ProbeWish:
    """Somebody must be made to generate, at least every `every_s` seconds."""

    target: str  # attempt id, `public` or `preview`
    model: str
    every_s: float
    port: int | None  # None: through the front door
    engine: str
    attempt: str | None = None


AWAITED_S = 0.25
"""Pace of the probes that somebody waits for: in a swap all users do."""


def probe_wishes(state: State, policy: Policy) -> tuple[ProbeWish, ...]:
    """What is waited for at once; in a bake and on the way back as often as samples are taken; else unhurried."""
    active = state.active
    busy = active is not None and active.phase in {Phase.CUTTING_OVER, *SWITCHED, Phase.ROLLING_BACK}
    every_s = min(policy.bake_interval_s, 2.0) if busy else policy.probe_fresh_s / 3
    seat = candidate_seat(active)
    awaited = active is not None and active.phase in {Phase.CUTTING_OVER, Phase.ROLLING_BACK}
    wishes = []
    for attempt in state.attempts.values():
        if attempt.is_waking and attempt.naps[-1].awake_at_s is None:
            continue  # it still sleeps: a question would wait, or worse
        if attempt.state in {AttemptState.STARTING, AttemptState.READY} and attempt.pid is not None:
            release = state.releases[attempt.release]
            comes = awaited and Seat(attempt.release, attempt.rollout) == seat
            pace_s = AWAITED_S if attempt.state is AttemptState.STARTING or comes else every_s
            wishes.append(ProbeWish(attempt.id, release.serves[0], pace_s, attempt.port, release.engine, attempt.id))
    if state.live is not None and state.is_served():  # else it would wait with the users, and tell nothing
        wishes.append(ProbeWish("public", state.releases[state.live.release].serves[0], every_s, None, ""))
    measured = active is not None and active.kind is Kind.MEASURE  # it is asked as live already, and is not to be busy
    if active is not None and seat is not None and not measured and desired_route(state, policy).preview:
        loading = any(a.state is not AttemptState.READY for a in state.seat_attempts(seat))
        hurried = awaited or active.phase is Phase.STARTING
        pace_s = every_s if not hurried else 1.0 if loading else AWAITED_S
        wishes.append(ProbeWish("preview", state.releases[seat.release].serves[0], pace_s, None, ""))
    return tuple(wishes)
