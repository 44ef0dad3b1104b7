"""From everything that was looked up to one report of one night. Pure."""

from __future__ import annotations

from datetime import datetime

from ..core.night_records import NightState
from ..core.records import Kind, Phase, Rollout
from .headline import headline
from .material import Material, is_for
from .present import present
from .records import SCHEMA, CardPart, NightPart, NotBegun, Report
from .rollouts import outcome, rollout_part, users_part, why
from .sweeps import sweep_parts
from .words import dark_s

_QUARTER_S = 900
_ROUND_MIN = (60, 15, 5, 1)
_FEWEST_TICKS = 3
_CARDS = frozenset({"CloseCard", "OpenCard"})


def build(material: Material) -> Report:
    """The report of `material.night`, as of `material.now`. One of a night that is open says so."""
    counted = material.counted.get(material.night.id)
    parts = tuple(rollout_part(rollout, material) for rollout in material.rollouts())
    night = _night(material)
    users = users_part(counted, material, material.night.opens_wall_s) if counted else None
    not_begun = _not_begun(material)
    now = present(material)
    return Report(
        schema=SCHEMA,
        made_at=material.local(material.now.wall_s),
        headline=headline(night, parts, not_begun, users, now),
        night=night,
        rollouts=parts,
        not_begun=not_begun,
        sweeps=sweep_parts(material),
        users=users,
        dark_s=round(sum(dark_s(part) for part in parts), 3),
        cards=_cards(material),
        present=now,
    )


def _night(material: Material) -> NightPart:
    night = material.night
    return NightPart(
        id=night.id,
        window=night.window,
        date=night.date,
        timezone=material.zone_name,
        state=night.state.value,
        opens=material.local(night.opens_wall_s),
        closes=material.local(night.closes_wall_s),
        ended=material.local_or_none(night.ended_wall_s),
        why=night.why,
        said=night.said,
        hours=_hours(material),
        baseline=night.baseline,
        baseline_why=_not_measured(material),
        baseline_pending=_is_pending(material),
        live_before=_live_at(material, night.opens_wall_s),
        live_after=_live_at(material, material.ends_s),
    )


def _not_measured(material: Material) -> str:
    rollout = material.state.rollouts.get(material.night.baseline)
    if rollout is None or rollout.phase is Phase.MEASURED:
        return ""
    if rollout.ended_wall_s is not None:
        return rollout.why
    waits = material.waits.get(rollout.id, "") if rollout.phase is Phase.QUEUED else ""
    return f"{rollout.id} {f'waits: {waits}' if waits else f'is {rollout.phase.words}'}"


def _is_pending(material: Material) -> bool:
    rollout = material.state.rollouts.get(material.night.baseline)
    return rollout is not None and rollout.ended_wall_s is None


def _live_at(material: Material, wall_s: float) -> str:
    """Who was live then: what the first to lead users elsewhere after it found live, else who is live now."""
    moved = [(began, r) for r in material.state.rollouts.values() if (began := _moved_s(r, material)) is not None]
    later = [r.before[0] for moved_s, r in sorted(moved, key=lambda pair: (pair[0], pair[1].id)) if moved_s > wall_s]
    seat = later[0] if later else material.state.live
    return seat.release if seat else ""


def _moved_s(rollout: Rollout, material: Material) -> float | None:
    """When users were led to it, near enough to put it before or after a night; None: never."""
    if rollout.before == (None, None) and rollout.decided_at_s is None:
        return None
    if rollout.decided_at_s is not None and rollout.ended_wall_s is not None:
        return rollout.ended_wall_s - max(0.0, rollout.phase_since_s - rollout.decided_at_s)
    return material.began_s(rollout)


def _hours(material: Material) -> tuple[datetime, ...]:
    """Round times on the clocks there, hours where the window is long enough: none of them need be one of UTC."""
    night = material.night
    last = max(night.closes_wall_s, night.ended_wall_s or 0.0)
    for minutes in _ROUND_MIN:
        step_s = min(minutes * 60, _QUARTER_S)  # offsets of timezones are whole quarters of an hour
        first = -(-int(night.opens_wall_s) // step_s) * step_s
        steps = (material.local(float(at)) for at in range(first, int(last) + 1, step_s))
        found = tuple(at for at in steps if at.minute % minutes == 0)
        if len(found) >= _FEWEST_TICKS:
            return found
    return ()


def _not_begun(material: Material) -> tuple[NotBegun, ...]:
    """Who waited for this window and did not begin in it, with what is known of why."""
    return tuple(
        _waited(rollout, material)
        for rollout in material.state.rollouts.values()
        if is_for(rollout, material.night) and rollout.night != material.night.id and _was_waiting(rollout, material)
    )


def _was_waiting(rollout: Rollout, material: Material) -> bool:
    """In the night, or since the last one: who was superseded by day has not been told of yet."""
    if rollout.created_wall_s >= material.ends_s or rollout.kind is Kind.ROLLBACK:
        return False
    began_s = material.began_s(rollout)
    left_s = rollout.ended_wall_s if began_s is None else began_s
    return left_s is None or left_s > _since_s(material)


def _since_s(material: Material) -> float:
    """When the night before this one was over; a week ago where there was none."""
    night = material.night
    before = [
        other.ended_wall_s or other.closes_wall_s
        for other in material.state.nights.values()
        if other.window == night.window and other.opens_wall_s < night.opens_wall_s
    ]
    return max(before, default=night.opens_wall_s - 7 * 86_400.0)


def _waited(rollout: Rollout, material: Material) -> NotBegun:
    over = rollout.ended_wall_s is not None and rollout.ended_wall_s <= material.ends_s
    waits = material.waits.get(rollout.id, "")
    return NotBegun(
        id=rollout.id,
        release=rollout.release,
        asked_by=rollout.asked_by,
        outcome=outcome(rollout, material) if over else "waits",
        why=why(rollout, material) if over else _why_it_waits(waits, material),
        at=material.local_or_none(rollout.ended_wall_s) if over else None,
        command=f"cutover show {rollout.id}",
    )


def _why_it_waits(waits: str, material: Material) -> str:
    if material.night.state is NightState.MISSED:
        return "it had waited for this night, and waits for the next one: nothing is run late"
    return waits or "its turn did not come while the window was open"


def _cards(material: Material) -> tuple[CardPart, ...]:
    closed = material.state.closed
    lines = [entry for entry in material.entries if entry.action in _CARDS]
    return tuple(
        CardPart(entry.subject, entry.why, material.local(entry.wall_s), entry.subject in closed) for entry in lines
    )
