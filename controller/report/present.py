"""How things stand when somebody asks: what is live and why, what waits and until when, what needs a person. Pure."""

from __future__ import annotations

from ..core.queue import why_not_yet
from ..core.records import Kind, Phase, Rollout, Seat, State
from .material import Material
from .records import CardPart, Opens, Present, QueuedPart


def present(material: Material) -> Present:
    state, now = material.state, material.now
    live = state.live
    return Present(
        at=material.local(now.wall_s),
        live=live.release if live else "",
        live_since=material.local(live.since_wall_s) if live and live.since_wall_s else None,
        live_rollout=maker.id if (maker := _made_live(state, live)) else "",
        live_why=_live_why(maker),
        previous=state.previous.release if state.previous else "",
        active=_active(state),
        frozen=_frozen(material),
        alarms=material.alarms,
        closed_cards=tuple(
            CardPart(gpu, f"{closed.word}: {closed.why}", material.local(closed.since_wall_s), closed=True)
            for gpu, closed in state.closed.items()
        ),
        queue=tuple(_queued(rollout, material) for rollout in state.queue),
        windows=tuple(_opens(name, material) for name in material.policy.schedules),
    )


def _made_live(state: State, live: Seat | None) -> Rollout | None:
    """The rollout that led users to it: the way back, where one was gone, else the one that carries it."""
    if live is None:
        return None
    back = (r for r in state.rollouts.values() if r.phase is Phase.ROLLED_BACK and r.ended_wall_s == live.since_wall_s)
    return next(back, None) or state.rollouts.get(live.rollout)


def _live_why(maker: Rollout | None) -> str:
    if maker is None:
        return ""
    asked = f"{maker.id}, asked for by {maker.asked_by}"
    return f"{asked}, is {maker.phase.words}: {maker.why}" if maker.why else f"{asked}, is {maker.phase.words}"


def _active(state: State) -> str:
    active = state.active
    return f"{active.id} ({active.release}) is {active.phase.words}: {active.why}" if active else ""


def _frozen(material: Material) -> str:
    freeze = material.state.freeze
    if freeze is None:
        return ""
    until = f", until {material.local(freeze.until_wall_s):%a %Y-%m-%d %H:%M}" if freeze.until_wall_s else ""
    return f"frozen by {freeze.by} since {material.local(freeze.since_wall_s):%a %Y-%m-%d %H:%M}{until}: {freeze.why}"


def _queued(rollout: Rollout, material: Material) -> QueuedPart:
    options = rollout.options
    return QueuedPart(
        id=rollout.id,
        kind=rollout.kind.value,
        release=rollout.release,
        asked_by=rollout.asked_by,
        window=options.window,
        opens=_opens(options.window, material).opens if options.window in material.policy.schedules else None,
        waits_for=_waits_for(rollout, material),
        priority=options.priority,
        trial=options.trial,
        sweep=options.sweep,
        note=options.note,
    )


def _waits_for(rollout: Rollout, material: Material) -> str:
    state, seen = material.state, material.seen
    if rollout.kind is Kind.ROLLBACK:
        return "its turn"
    own = why_not_yet(rollout, state, seen, material.policy) if seen is not None else ""
    behind = f"{state.active.id} is {state.active.phase.words}" if state.active else ""
    return own or _frozen(material) or behind or "its turn"


def _opens(window: str, material: Material) -> Opens:
    """The opening that goes on, or the next one that is not on record yet: no night happens twice."""
    schedule = material.policy.schedules[window]
    opening = schedule.current(material.now.wall_s)
    if opening is None:
        opening = schedule.next(material.now.wall_s)
        while opening.id in material.state.nights:
            opening = schedule.next(opening.opens_s)
    return Opens(
        window,
        schedule.zone_name or str(schedule.zone),
        schedule.local(opening.opens_s),
        schedule.local(opening.closes_s),
    )
