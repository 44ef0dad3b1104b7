"""What must hold on a real box when nothing is left to do: the core's own rules, on what is really there."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.core.invariants import unsettled, violations
from controller.core.records import AttemptState, Seat, State
from controller.core.route import SlotState
from controller.core.seats import missing_instances
from controller.core.seen import Seen
from controller.effects.clock import Clock
from controller.effects.frontdoor.committed import committed_route
from launch.attempts import log_path, observe
from launch.identity import strays_in

if TYPE_CHECKING:
    from controller.demo.stage import Stage

Members = dict[int, int]
"""pid → start time in clock ticks after boot: together an identity."""

SETTLED = {AttemptState.READY, AttemptState.ASLEEP}
STARTED = "(emulated), model"  # what an emulated engine says once, when it begins


@dataclass(frozen=True)
class Excuse:
    """A kill that may have cost the requests that were in flight between these two moments (`time.monotonic`)."""

    why: str
    from_s: float
    to_s: float


def members(run_dir: Path) -> Members:
    """Every process that lives in a run directory: the shim, and whatever it started."""
    return strays_in(str(run_dir.resolve()), 0)


def settled(run_dir: Path) -> Members:
    """The shim and the engine, without the passing ones of a start, which forks twice before there is either."""
    identity = observe(run_dir).identity
    return {
        pid: ticks
        for pid, ticks in members(run_dir).items()
        if (identity is not None and pid == identity.pid) or _is_engine(pid)
    }


def _is_engine(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"launch.engines.emulator" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def at_rest(stage: Stage, state: State, acknowledged: list[str]) -> list[str]:
    """Sentences that name what does not hold (yet). `acknowledged`: rollouts that somebody was told were filed."""
    door = stage.door().read()
    seen = Seen(now=Clock().now(), door=door)
    found = [f"{r.id} is {r.phase}" for r in state.rollouts.values() if r.ended_wall_s is None]
    found += [f"{name} was acknowledged and is gone" for name in acknowledged if name not in state.rollouts]
    found += violations(state, door)
    found += unsettled(state, seen, stage.config.policy)
    if not door.alive:
        found.append(f"the front door does not answer: {door.why}")
    serves = {(slot.number, slot.state) for slot in door.public if slot.state is not SlotState.MAINT}
    remembered = set(committed_route(stage.config.door_dir).values())
    if serves != remembered:
        found.append(f"the front door serves {sorted(serves)}, and would come back with {sorted(remembered)}")
    found += [*_live(state), *_leases(state), *_processes(stage, state), *_journal(stage)]
    return found


def _live(state: State) -> Iterator[str]:
    """One release is live, and all of it is ready."""
    if state.live is None:
        yield "nothing is live"
        return
    missing = [*missing_instances(state, state.live), *state.unborn(state.live)]
    if missing:
        yield f"live lacks {', '.join(missing)}"
    yield from (
        f"{a.id} is live and {a.state}" for a in state.seat_attempts(state.live) if a.state is not AttemptState.READY
    )


def _leases(state: State) -> Iterator[str]:
    """Who holds something serves, or is kept for the way back."""
    for attempt in state.attempts.values():
        if not attempt.holds:
            continue
        if Seat(attempt.release, attempt.rollout) not in {state.live, state.previous}:
            yield f"{attempt.id} holds {', '.join(attempt.gpus)} and is neither live nor previous"
        if attempt.state not in SETTLED:
            yield f"{attempt.id} is {attempt.state}"


def _processes(stage: Stage, state: State) -> Iterator[str]:
    """Each lease has its engine, each attempt had one engine at most, and nobody else lives in a run directory."""
    for folder in sorted(stage.config.runs_dir.iterdir()):
        there, attempt = members(folder), state.attempts.get(folder.name)
        holds = attempt is not None and attempt.holds
        engines = {pid for pid in there if attempt is None or pid != attempt.pid}
        if there and not holds:
            yield f"{folder.name} holds nothing, and {sorted(there)} live in it"
        if holds and len(engines) != 1:
            yield f"{folder.name} has the engines {sorted(engines)}"
        with contextlib.suppress(FileNotFoundError):
            starts = log_path(folder).read_text(errors="replace").count(STARTED)
            if starts > 1:
                yield f"{folder.name} is one attempt, and {starts} engines were started for it"
    if stage.config.gates_dir.is_dir():
        for folder in stage.config.gates_dir.iterdir():
            if folder.is_dir() and (there := members(folder)):
                yield f"the gate run {folder.name} is over, and {sorted(there)} live in it"


def _journal(stage: Stage) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(f"file:{stage.config.journal}?mode=ro", uri=True, timeout=5)) as db:
        said = db.execute("PRAGMA integrity_check").fetchone()[0]
        if said != "ok":
            yield f"the journal is damaged: {said}"


def unexcused(problems: list[dict[str, Any]], excuses: list[Excuse]) -> list[str]:
    """Requests that were lost and were not in flight at a kill that may cost requests."""
    return [
        f"{p['problem']} (status {p['status']}, sent at {p['sent_s']:.3f} s, ended at {p['ended_s']:.3f} s)"
        for p in problems
        if not any(p["sent_s"] <= e.to_s and p["ended_s"] >= e.from_s for e in excuses)
    ]
