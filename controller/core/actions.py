"""The system-call table of the controller: everything a decision can ask for.

A `Record` changes only the journal (one transaction). An `Effect` changes the world: its intent is journalled before,
its outcome after, and it is find-or-do, because a crash can fall between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .night_records import Night, Sweep
from .records import Attempt, Bake, Checked, Closed, Freeze, GateResult, Kind, Options, Release, Seat
from .route import Route
from .table import Event


@dataclass(frozen=True, slots=True)
class Action:
    """Base of all actions."""


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Nothing to do in this pass."""


@dataclass(frozen=True, slots=True)
class Record(Action):
    """Changes the journal only."""


@dataclass(frozen=True, slots=True)
class Effect(Action):
    """Changes the world."""


@dataclass(frozen=True, slots=True)
class Move(Record):
    """A rollout follows an event of the table."""

    rollout: str
    event: Event


@dataclass(frozen=True, slots=True)
class Accept(Record):
    """Its turn has come. `until_s` (clock of the box): what is not over by then is undone."""

    rollout: str
    night: str = ""
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class TryAgain(Record):
    """It ends by no fault of its own (`event`), and where it waited for a window it waits again, as another try."""

    rollout: str
    event: Event


@dataclass(frozen=True, slots=True)
class Reorder(Record):
    """Among those that wait, this one's turn comes earlier or later."""

    rollout: str
    priority: int


@dataclass(frozen=True, slots=True)
class NoteNight(Record):
    """A window opened, closed, or was missed."""

    night: Night


@dataclass(frozen=True, slots=True)
class MeasureLive(Record):
    """Before the first candidate of a night: what live shows in this very night, by the candidate's own measure."""

    night: str
    profile: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class FileSweep(Record):
    """A sweep with a rollout for each of its arms; arms carry the release they are tried as, `options` is for all."""

    sweep: Sweep  # without id
    releases: tuple[Release, ...]
    options: Options
    profile: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ConcludeSweep(Record):
    """Every arm was tried: the pick, or that no arm is better."""

    sweep: str
    pick: str


@dataclass(frozen=True, slots=True)
class WithdrawSweep(Record):
    """Somebody takes it back: it is decided without a pick, and what it still has is aborted."""

    sweep: str
    by: str


@dataclass(frozen=True, slots=True)
class AdoptPlan(Record):
    """Preflight is over: these cards, in this way."""

    rollout: str
    plan: Mapping[str, Any]
    gpu_map: Mapping[str, tuple[str, ...]]
    baseline: Bake  # what live shows before anybody makes room


@dataclass(frozen=True, slots=True)
class TakeLease(Record):
    """The cards are free: the attempts exist from now on and hold them."""

    rollout: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class AddAttempts(Record):
    """More attempts for a seat: a revived instance, or a rollback target that has to be started again."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class MarkReady(Record):
    attempt: str


@dataclass(frozen=True, slots=True)
class RecordChecks(Record):
    """What was found when this start was looked at."""

    attempt: str
    checks: tuple[Checked, ...]
    kv_tokens: int | None


@dataclass(frozen=True, slots=True)
class Retire(Record):
    """No new requests for this attempt; it is stopped when its streams are through.

    `hurry`: nothing is left to wait for (the process is dead, or it is alive and silent).
    """

    attempt: str
    hurry: bool = False
    port_conflict: bool = False
    gives_way_to: str | None = None  # the rollout that needs its cards


@dataclass(frozen=True, slots=True)
class GiveUp(Record):
    """The instance of this attempt keeps dying: nobody starts it again in its seat."""

    attempt: str


@dataclass(frozen=True, slots=True)
class Recall(Record):
    """An attempt that drains serves again: its release is wanted back before its last stream is through."""

    attempt: str


@dataclass(frozen=True, slots=True)
class MarkAsleep(Record):
    """It sleeps and the memory of its cards is back: they may go to others, its process, ports and slot stay."""

    attempt: str


@dataclass(frozen=True, slots=True)
class MarkAwake(Record):
    """Its engine says that it is awake; from now on it is probed."""

    attempt: str


@dataclass(frozen=True, slots=True)
class MarkGone(Record):
    """The process tree is proved empty, and the memory of its cards is not back yet."""

    attempt: str


@dataclass(frozen=True, slots=True)
class MarkStopped(Record):
    """The process tree is proved empty and the memory is back: cards, ports and slot are free again."""

    attempt: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class CloseCard(Record):
    """Nobody gets this card any more."""

    gpu: str
    closed: Closed


@dataclass(frozen=True, slots=True)
class OpenCard(Record):
    gpu: str


@dataclass(frozen=True, slots=True)
class RecordGate(Record):
    rollout: str
    result: GateResult


@dataclass(frozen=True, slots=True)
class RecordRecheck(Record):
    """A gate that was asked once more while the rollout waits for its approval, and that did not fail."""

    rollout: str
    run: str


@dataclass(frozen=True, slots=True)
class CommitCutover(Record):
    """live := candidate, previous := live, in one transaction; the route is a consequence that is repaired."""

    rollout: str
    baseline: Bake  # what live showed until now


@dataclass(frozen=True, slots=True)
class CommitRollback(Record):
    rollout: str


@dataclass(frozen=True, slots=True)
class RecordSwitch(Record):
    """The front door was seen with the committed route."""

    rollout: str


@dataclass(frozen=True, slots=True)
class RecordSample(Record):
    rollout: str
    bake: Bake


@dataclass(frozen=True, slots=True)
class Propose(Record):
    """Somebody asks for a rollout: proposal, rollback or restart. Its id is given here."""

    kind: Kind
    release: Release
    by: str
    options: Options
    profile: tuple[Mapping[str, Any], ...] = ()
    target: Seat | None = None
    instead_of: Seat | None = None  # the daemon asks: this seat is live and keeps dying


@dataclass(frozen=True, slots=True)
class AskAbort(Record):
    rollout: str
    by: str


@dataclass(frozen=True, slots=True)
class Approve(Record):
    rollout: str
    by: str


@dataclass(frozen=True, slots=True)
class SetFreeze(Record):
    freeze: Freeze | None


@dataclass(frozen=True, slots=True)
class StandDown(Record):
    """Take production out of service: live drains and stops, and is kept as the release to return to."""

    by: str


@dataclass(frozen=True, slots=True)
class KeepOfThePast:
    """What stays whatever its age. A clock that jumps, or a box that rests for a season, costs no history."""

    newest: int  # rollouts
    measured: int  # releases, the last that were tried: where their times and figures were measured last
    good: int  # releases, the last that were promoted and not found bad since: they could take over


@dataclass(frozen=True, slots=True)
class Forget(Record):
    """What of the past nobody needs any more leaves the journal: see `core.forgetting`."""

    ended_before_wall_s: float
    keep: KeepOfThePast
    rollouts: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    nights: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartAttempt(Effect):
    attempt: str


@dataclass(frozen=True, slots=True)
class StopAttempt(Effect):
    """TERM, grace, KILL of the tree: begun here, seen later."""

    attempt: str


@dataclass(frozen=True, slots=True)
class SleepAttempt(Effect):
    """Its engine is asked to give its cards back: begun here, seen later."""

    attempt: str
    used_mib: Mapping[str, int]  # card → in use now, without strangers
    again: bool = False  # it was asked before, and nobody knows what came of it


@dataclass(frozen=True, slots=True)
class WakeAttempt(Effect):
    """Its cards are its own again, and its engine is asked to use them: begun here, seen later."""

    attempt: str
    for_rollout: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class ClearStrays(Effect):
    """The shim of this attempt is dead and processes of it live on."""

    attempt: str
    force: bool


@dataclass(frozen=True, slots=True)
class RunGate(Effect):
    rollout: str
    index: int
    gate: str
    run: str


@dataclass(frozen=True, slots=True)
class StopGate(Effect):
    rollout: str
    run: str


@dataclass(frozen=True, slots=True)
class SetRoute(Effect):
    route: Route


@dataclass(frozen=True, slots=True)
class OpenDoor(Effect):
    """The front door does not answer: start it, or let its shim bring it back."""


@dataclass(frozen=True, slots=True)
class CutSlot(Effect):
    """The drain deadline is over: streams still in this slot are cut."""

    slot: int
    attempt: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an effect."""

    ok: bool
    sentence: str = ""
    pid: int | None = None
    start_ticks: int | None = None
    port_conflict: bool = False


def aim(effect: Effect) -> tuple[str, str]:
    """What is tried on what: two of one kind on one thing are the same try, whatever else they carry."""
    return type(effect).__name__, getattr(effect, "attempt", "") or getattr(effect, "run", "")


@dataclass(frozen=True, slots=True)
class Decision:
    """One action and the sentence that says why."""

    action: Action
    why: str
