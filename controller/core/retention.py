"""What of the past is removed, and why: by age first, then the oldest until the rest fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .records import State

DAY_S = 86_400.0
YOUNG_S = 3600.0
"""Whatever its size: what has just ended is what somebody wants to look at."""


@dataclass(frozen=True, slots=True)
class Remnant:
    """Something that has ended and lies on the disk."""

    name: str
    size_bytes: int
    ended_wall_s: float  # when it was last written
    rollout: str = ""  # it belongs to; empty: to none


@dataclass(frozen=True, slots=True)
class Limit:
    """`size_bytes` is of all remnants of a kind together, those that are kept for a reason included."""

    age_s: float
    size_bytes: int


def kept_rollouts(state: State) -> frozenset[str]:
    """Rollouts of which nothing is removed: live's, previous's, every open one and what it may return to."""
    seats = [state.live, state.previous]
    found = set()
    for rollout in state.rollouts.values():
        if rollout.ended_wall_s is None:
            found.add(rollout.id)
            seats += [*rollout.before, rollout.target]
    return frozenset(found | {seat.rollout for seat in seats if seat is not None})


def kept_attempts(state: State) -> frozenset[str]:
    """Attempts whose run directory is not touched: they hold something, or are of a rollout that is kept."""
    kept = kept_rollouts(state)
    return frozenset(a.id for a in state.attempts.values() if a.holds or a.rollout in kept)


def to_remove(
    remnants: Sequence[Remnant], kept: Iterable[str], limit: Limit, now_wall_s: float
) -> tuple[tuple[Remnant, str], ...]:
    """What to remove, the oldest first, each with its why. `kept`: names of those that must stay."""
    names = frozenset(kept)
    total_bytes = sum(r.size_bytes for r in remnants)
    gone: list[tuple[Remnant, str]] = []
    for remnant in sorted(remnants, key=lambda r: (r.ended_wall_s, r.name)):
        age_s = now_wall_s - remnant.ended_wall_s
        if remnant.name in names:
            continue
        if age_s > limit.age_s:
            why = f"it ended {age_s / DAY_S:.0f} days ago, and {limit.age_s / DAY_S:g} are kept"
        elif total_bytes > limit.size_bytes and age_s > YOUNG_S:
            why = f"all of them take {_gib(total_bytes)}, and {_gib(limit.size_bytes)} are kept"
        else:
            continue
        total_bytes -= remnant.size_bytes
        gone.append((remnant, why))
    return tuple(gone)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f} GiB"
