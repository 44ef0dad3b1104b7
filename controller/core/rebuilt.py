"""A journal that was lost, made again of what runs and of what the front door serves. Pure.

What nothing on the box says is lost with it: history, cordons, a freeze, and whatever was being tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .records import Attempt, AttemptState, Kind, Now, Phase, Release, Rollout, Seat, State

BY = "doctor --rebuild"
UNKNOWN = "r0000"
"""The rollout of a start whose run directory does not name it."""


@dataclass(frozen=True, slots=True)
class Found:
    """One run directory that matters: its processes live, or the front door's route names it."""

    id: str
    release: Release
    instance: str
    rollout: str
    port: int
    pid: int
    start_ticks: int
    boot_id: str
    slot: int | None = None
    gpus: tuple[str, ...] = ()
    workers: tuple[int, ...] = ()
    memory_before_mib: Mapping[str, int] = field(default_factory=dict)
    running: bool = True
    serves: bool = False  # users' new requests go to it
    drains: bool = False  # users' streams run on it
    sleeps: bool = False  # or its cards are others' by now

    @property
    def seat(self) -> Seat:
        return Seat(self.release.id, self.rollout)


def rebuild(found: Sequence[Found], now: Now, rollout_seq: int, attempt_seq: int) -> State:
    """The state that a daemon can go on from: who serves is live, who was live before it is previous.

    Whoever else runs is known and wanted by nobody, so that the daemon stops it. `rollout_seq` and `attempt_seq` are
    the highest numbers that were ever seen here.
    """
    live = _live(found)
    previous = _previous(found, live)
    rollouts = {f.rollout: _rollout(f, now, kept=f.seat in {live, previous}) for f in found}
    if live is not None:  # a restart keeps the release in a rollout of its own: the seat's own record wins
        rollouts[live.rollout] = next(_rollout(f, now, kept=True) for f in found if f.seat == live)
    return State(
        generation=1,
        rollout_seq=max([rollout_seq, *(_number(f.rollout) for f in found)]),
        attempt_seq=max([attempt_seq, *(_number(f.id) for f in found)]),
        live=live and Seat(live.release, live.rollout, now.wall_s),
        previous=previous,
        releases={f.release.id: f.release for f in found},
        rollouts=rollouts,
        attempts={f.id: _attempt(f, now) for f in sorted(found, key=lambda f: _number(f.id))},
    )


def _live(found: Sequence[Found]) -> Seat | None:
    """The seat that serves users; where two do, in the middle of a switch, the newer one."""
    serving = [f for f in found if f.serves]
    return max(serving, key=lambda f: (_number(f.rollout), _number(f.id))).seat if serving else None


def _previous(found: Sequence[Found], live: Seat | None) -> Seat | None:
    """The newest seat before live's that runs as a whole; a candidate has a higher number than live."""
    if live is None:
        return None
    running = [f for f in found if f.running and not f.sleeps and _number(f.rollout) < _number(live.rollout)]
    whole = [
        f
        for f in running
        if {i.name for i in f.release.instances} == {other.instance for other in running if other.seat == f.seat}
    ]
    return max(whole, key=lambda f: _number(f.rollout)).seat if whole else None


def _rollout(found: Found, now: Now, *, kept: bool) -> Rollout:
    return Rollout(
        id=found.rollout,
        kind=Kind.PROPOSE,
        release=found.release.id,
        asked_by=BY,
        created_wall_s=now.wall_s,
        phase=Phase.PROMOTED if kept else Phase.FAILED,
        phase_since_s=now.boot_s,
        phase_boot_id=now.boot_id,
        why="found running, its record is lost"
        if kept
        else "its record is lost, and nobody knows what it was to become",
        ended_wall_s=now.wall_s,
    )


def _attempt(found: Found, now: Now) -> Attempt:
    resting = found.sleeps
    return Attempt(
        id=found.id,
        rollout=found.rollout,
        release=found.release.id,
        instance=found.instance,
        role=found.release.instance(found.instance).role,
        gpus=found.gpus,
        port=found.port,
        slot=found.slot,
        workers=found.workers,
        state=AttemptState.RETIRING if resting else AttemptState.READY,
        state_since_s=now.boot_s,
        boot_id=found.boot_id,
        pid=found.pid,
        start_ticks=found.start_ticks,
        planned_at_s=now.boot_s,
        started_at_s=now.boot_s,
        ready_at_s=now.boot_s,
        exposed=found.serves or found.drains,
        hurry=resting,
        retired_at_s=now.boot_s if resting else None,
        why="it sleeps, or its cards are another's, and its record is lost" if resting else f"found by `{BY}`",
        memory_before_mib=found.memory_before_mib,
        lent=resting,
    )


def _number(name: str) -> int:
    """``r0012`` → 12, ``qwen-a-7`` → 7."""
    digits = name.rpartition("-")[2].removeprefix("r")
    return int(digits) if digits.isdecimal() else 0
