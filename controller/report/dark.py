"""When nothing served, and for how long users were on what was taken back: by the journal's own lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core.dark import Window, dark_parts, dark_windows
from ..core.records import Attempt, Kind, Phase, Rollout
from ..core.room import Strategy
from .material import Material
from .records import Dark

_SAME_S = 2.0  # two tellings of one dark time: passes of the loop lie between them


def switched_s(rollout: Rollout, material: Material) -> float | None:
    """When users were led to it; None: never."""
    return next(iter(_switches(rollout, material)), None)


def left_s(rollout: Rollout, material: Material) -> float | None:
    """When users had left what was worse: the way back was switched, or nothing of it served any more before that."""
    both = _there_and_back(rollout, material)
    if both is None:
        return None
    gone_s = _gone_s(rollout, material, both)
    return both[1] if gone_s is None else gone_s


def dark(rollout: Rollout, material: Material) -> Dark | None:
    """When nothing served before it did, or instead of it; None: it was never dark."""
    both = _there_and_back(rollout, material)
    if both is not None:
        return _dark_there(rollout, material, both[0])
    return next(iter(_known_darks(rollout, material)), None)


def dark_back(rollout: Rollout, material: Material) -> Dark | None:
    """When nothing served after it, on the way back of what was worse; None: somebody did all the time."""
    both = _there_and_back(rollout, material)
    if both is None:  # the way back goes on, or has failed
        later = _known_darks(rollout, material)[1:]
        return later[-1] if later else None
    gone_s = _gone_s(rollout, material, both)
    return None if gone_s is None else _told(rollout, material, gone_s, both[1])


def _switches(rollout: Rollout, material: Material) -> list[float]:
    return [e.wall_s for e in material.lines("RecordSwitch", rollout.id)]


def _there_and_back(rollout: Rollout, material: Material) -> tuple[float, float] | None:
    """The moments of both switches of what users were led to and back from."""
    switches = _switches(rollout, material)
    gone_back = rollout.phase is Phase.ROLLED_BACK and rollout.kind is not Kind.ROLLBACK
    return (switches[0], switches[-1]) if gone_back and len(switches) > 1 else None


def _gone_s(rollout: Rollout, material: Material, both: tuple[float, float]) -> float | None:
    """When the last of its instances got no more requests, if that was before the way back was switched."""
    seat = (rollout.id, rollout.release)
    attempts = [a for a in material.state.attempts.values() if (a.rollout, a.release) == seat]
    own = {a.id for a in attempts if a.slot is not None and a.ready_at_s is not None}
    left = _retired(own, material, both[1])
    return max(left.values()) if own and set(left) == own and max(left.values()) < both[1] else None


def _dark_there(rollout: Rollout, material: Material, switched: float) -> Dark | None:
    if rollout.strategy != Strategy.SWAP or rollout.before[0] is None:
        return None
    others = [a for a in material.state.attempts.values() if a.rollout != rollout.id and a.slot is not None]
    left = _retired({a.id for a in others if _made_room(a, rollout)}, material, switched)
    return _told(rollout, material, max(left.values()), switched) if left else None


def _made_room(attempt: Attempt, rollout: Rollout) -> bool:
    return attempt.gave_way_to == rollout.id or any(nap.for_rollout == rollout.id for nap in attempt.naps)


def _retired(attempts: Iterable[str], material: Material, before_s: float) -> dict[str, float]:
    """When each of them first got no more requests, of those that did so by then."""
    known = set(attempts)
    lines = [e for e in material.lines("Retire") if e.subject in known and e.wall_s <= before_s]
    return {e.subject: e.wall_s for e in reversed(lines)}


def _told(rollout: Rollout, material: Material, since_s: float, until_s: float) -> Dark:
    """What it went into is known where it is a dark time that the record of the rollout has."""
    zero_s = _wall_zero_s(rollout, material)

    def is_it(window: Window) -> bool:
        return abs(zero_s + window[0] - since_s) <= _SAME_S and abs(zero_s + window[1] - until_s) <= _SAME_S

    kept = next(filter(is_it, dark_windows(material.state, rollout)), None)
    parts = {} if kept is None else dict(dark_parts(material.state, rollout, kept))
    return Dark(round(until_s - since_s, 3), parts, material.local(since_s), material.local(until_s))


def _known_darks(rollout: Rollout, material: Material) -> tuple[Dark, ...]:
    """Those that the record has, in order, and the one that is not over."""
    zero_s = _wall_zero_s(rollout, material)
    known = [
        Dark(
            round(end - begin, 3),
            dict(dark_parts(material.state, rollout, (begin, end))),
            *((material.local(zero_s + begin), material.local(zero_s + end)) if begin > 0 else (None, None)),
        )
        for begin, end in dark_windows(material.state, rollout)
    ]
    return (*known, *_not_over(rollout, material))


def _not_over(rollout: Rollout, material: Material) -> Iterator[Dark]:
    now = material.now
    if rollout.dark_since_s is None:
        return
    if rollout.phase_boot_id != now.boot_id:
        yield Dark(0.0, {}, None, None)
        return
    seconds = max(0.0, now.boot_s - rollout.dark_since_s)
    yield Dark(round(seconds, 3), {}, material.local(now.wall_s - seconds), None)


def _wall_zero_s(rollout: Rollout, material: Material) -> float:
    """What the clock on the wall showed when that of the box began: a rollout that is over ended on both at once."""
    if rollout.ended_wall_s is not None:
        return rollout.ended_wall_s - rollout.phase_since_s
    return material.now.wall_s - material.now.boot_s
