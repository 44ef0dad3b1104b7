"""The records of the journal: frozen, and changed only by `core.moves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .frozen import cached_property
from .night_records import Night, Sweep


@dataclass(frozen=True, slots=True)
class Now:
    """One reading of the clocks. Deadlines live on `boot_s`; `wall_s` is only ever shown.

    After a reboot `boot_id` differs and boot times of before mean nothing.
    """

    boot_id: str
    boot_s: float
    wall_s: float


class Phase(StrEnum):
    """Where a rollout is. Legal moves between phases: `core.table`."""

    QUEUED = "queued"
    PREFLIGHT = "preflight"
    LEASING = "leasing"
    STARTING = "starting"
    GATING = "gating"
    AWAITING_APPROVAL = "awaiting_approval"
    CUTTING_OVER = "cutting_over"
    COMPLETING = "completing"  # rolling: users are switched, the other instances follow
    BAKING = "baking"
    ROLLING_BACK = "rolling_back"
    # exits
    PROMOTED = "promoted"
    REFUSED = "refused"
    REJECTED = "rejected"
    INCONCLUSIVE = "inconclusive"
    ABORTED = "aborted"
    ROLLED_BACK = "rolled_back"
    ROLLBACK_FAILED = "rollback_failed"
    FAILED = "failed"
    SKIPPED = "skipped"
    SUPERSEDED = "superseded"
    MEASURED = "measured"  # tried and judged, as asked, and not switched to

    @property
    def words(self) -> str:
        """For sentences: ``awaiting approval``."""
        return self.value.replace("_", " ")


class Kind(StrEnum):
    """Why there is a rollout: somebody proposed a topology, wants the previous release back, or fresh processes.

    Or live itself is measured in a quiet moment, so that candidates of the night have something to be compared with.
    """

    PROPOSE = "propose"
    ROLLBACK = "rollback"
    RESTART = "restart"
    MEASURE = "measure"


class AttemptState(StrEnum):
    """Life of one start of one instance. Its GPUs are leased until `stopped`, and not while it is `asleep`."""

    PLANNED = "planned"
    STARTING = "starting"
    READY = "ready"
    RETIRING = "retiring"  # gets no new requests; its streams finish
    DOZING = "dozing"  # it was asked to sleep; whether it does, and whether the memory is back, is not proved yet
    ASLEEP = "asleep"  # its process lives and its cards are free: waking it leads back to `starting`
    STOPPING = "stopping"
    STOPPED = "stopped"


# Asked of every attempt in every pass: a set that is made once, where a member that is looked up takes as long as ten
# other look-ups (`EnumType.__getattr__`).
_OVER = frozenset({AttemptState.STOPPED})
_IN_BED = frozenset({AttemptState.DOZING, AttemptState.ASLEEP})
_STAYING = frozenset({AttemptState.PLANNED, AttemptState.STARTING, AttemptState.READY})


@dataclass(frozen=True, slots=True)
class Instance:
    """What the controller needs to know of one instance of a release."""

    name: str
    role: str  # engine | router
    gpu_count: int
    gpus: tuple[str, ...] | None  # explicit ids or indices, else any
    health_path: str
    fronted: bool  # has a slot of its own at the front door
    start_after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """The controller's view of a frozen release; the files lie in the releases directory."""

    id: str  # name@digest8
    name: str
    digest: str
    engine: str
    serves: tuple[str, ...]
    instances: tuple[Instance, ...]
    gates: str  # profile name or path
    capability: Mapping[str, Any] = field(default_factory=dict)
    start_timeout_s: float | None = None
    stop_grace_s: float = 30.0
    needs_admin: tuple[str, ...] = ()
    can_sleep: bool = False  # its engine was told what it needs to give its cards back and to take them again

    def instance(self, name: str) -> Instance:
        return next(instance for instance in self.instances if instance.name == name)


@dataclass(frozen=True, slots=True)
class Seat:
    """A place that serves or could serve: a release together with the rollout whose attempts carry it.

    The same release can sit in two seats at once (a restart starts fresh attempts beside the old ones).
    """

    release: str
    rollout: str
    since_wall_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Nap:
    """One sleep of an attempt, from the wish to the proof that it generates again."""

    for_rollout: str  # that needed its cards
    retired_at_s: float
    asked_at_s: float
    used_mib: Mapping[str, int] = field(default_factory=dict)  # card → used before it slept, without strangers
    asleep_at_s: float | None = None  # its engine says so, and the memory is back
    woken_for: str | None = None  # the rollout that wanted it back; empty: production itself
    woken_at_s: float | None = None  # the wake was asked for
    awake_at_s: float | None = None  # its engine says that it is awake
    ready_at_s: float | None = None  # it generated, and its memory is in use again

    @property
    def wake_s(self) -> float | None:
        """What waking it took, if it succeeded."""
        return None if self.ready_at_s is None or self.woken_at_s is None else self.ready_at_s - self.woken_at_s


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found when a start was looked at: see `core.verify`."""

    name: str
    verdict: str  # pass | fail | inconclusive
    sentence: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one instance; owns a run directory and, until it is stopped, its GPUs, ports and slot."""

    id: str
    rollout: str
    release: str
    instance: str
    role: str
    gpus: tuple[str, ...]
    port: int  # first of a block of internal ports
    slot: int | None  # number at the front door, None when a router stands before it
    workers: tuple[int, ...] = ()  # router: the ports behind it, in order
    state: AttemptState = AttemptState.PLANNED
    state_since_s: float = 0.0
    boot_id: str = ""  # boot in which it was started; another boot means that it is gone
    pid: int | None = None  # of its shim
    start_ticks: int | None = None
    planned_at_s: float = 0.0
    started_at_s: float | None = None
    ready_at_s: float | None = None
    exposed: bool = False  # users' requests may have reached it: drained before it is stopped
    hurry: bool = False  # dead, or alive and silent: there is nothing to drain
    stop_asked: bool = False  # the stop is under way in the world, not only in the journal
    port_conflict: bool = False  # it died because somebody else had one of its ports
    gave_way_to: str | None = None  # the rollout that it made room for: while that one runs, it is not started again
    retired_at_s: float | None = None
    stopping_at_s: float | None = None
    gone_at_s: float | None = None  # its last process
    stopped_at_s: float | None = None  # … and its cards' memory is back
    why: str = ""  # the last sentence about it
    log_tail: str = ""  # of an attempt that failed
    given_up: str = ""  # why nobody starts this instance of live again; empty: somebody does, or it never died
    # Card → in use before it started, without what a process has that the driver names: a stranger, a sleeper.
    memory_before_mib: Mapping[str, int] = field(default_factory=dict)
    strangers_before_mib: Mapping[str, int] = field(default_factory=dict)  # … and what strangers had of it besides
    kv_tokens: int | None = None  # room of its KV pool, as its engine said
    checks: tuple[Checked, ...] = ()  # of its place on the box, made once, when it was ready
    naps: tuple[Nap, ...] = ()
    lent: bool = False  # its cards are not its own any more: it sleeps, or was stopped in its sleep

    @property
    def holds(self) -> bool:
        """Whether ports and slot are still taken, and its GPUs unless it sleeps."""
        return self.state not in _OVER

    @property
    def holds_cards(self) -> bool:
        return self.holds and not self.lent

    @property
    def is_in_bed(self) -> bool:
        """Whether it sleeps or is about to: it takes no requests and answers no probe."""
        return self.state in _IN_BED

    @property
    def is_waking(self) -> bool:
        return bool(self.naps) and self.state is AttemptState.STARTING

    @property
    def begun_at_s(self) -> float | None:
        """When its start began, or the wake that it is in."""
        return self.naps[-1].woken_at_s if self.is_waking else self.started_at_s

    @property
    def is_staying(self) -> bool:
        """Whether it serves, or is on its way to."""
        return self.state in _STAYING


@dataclass(frozen=True, slots=True)
class GateResult:
    """One finished gate run."""

    gate: str
    index: int  # of the step in the profile; -1: a check of a start (`core.verify`), which no profile asks for
    run: str
    verdict: str  # pass | fail | inconclusive | error
    sentence: str
    observe: bool = False
    measurements: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate that was started and has not been judged yet."""

    gate: str
    index: int
    run: str
    started_at_s: float


@dataclass(frozen=True, slots=True)
class Bake:
    """What the watch after cutover has seen so far."""

    samples: int = 0
    bad_streak: int = 0
    last_sample_s: float = 0.0
    last: str = ""
    probes: tuple[tuple[float, float], ...] = ()  # (first token, whole answer) seconds, the last few since the switch
    last_probe_s: float = 0.0
    failures: int = 0  # 5xx and cut streams since the switch, as of the last sample
    # what the release before showed, to compare with like: 0 = unknown
    baseline_first_byte_p95_s: float = 0.0
    baseline_probe_ttft_s: float = 0.0
    baseline_probe_total_s: float = 0.0
    baseline_failure_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who asked wants for this rollout."""

    require_approval: bool = False
    force: bool = False  # serve other model names than live
    bake_s: float | None = None
    gates: str | None = None
    wait_for_free_s: float | None = None  # stay in the queue that long while its cards are not to be had
    strategy: str = "auto"  # or the one that somebody wants: blue-green | rolling | swap
    plan_digest: str | None = None
    note: str = ""
    overruled: Mapping[str, str] = field(default_factory=dict)  # preflight rule or check of a start → reason
    window: str = ""  # begins only while this window is open; empty: as soon as its turn comes
    priority: int = 0  # higher first, among those that may begin
    expires_wall_s: float | None = None  # not begun by then: skipped
    finish_by_wall_s: float | None = None  # live, or everything as it was, by then; with a window the earlier of both
    approval_s: float | None = None  # an approval that has not come by then: aborted
    trial: bool = False  # started and judged, never switched to
    sweep: str = ""  # the sweep that it is an arm of


@dataclass(frozen=True, slots=True)
class Rollout:
    """One try to make a release live."""

    id: str
    kind: Kind
    release: str
    asked_by: str
    created_wall_s: float
    phase: Phase = Phase.QUEUED
    phase_since_s: float = 0.0
    phase_boot_id: str = ""
    why: str = ""
    options: Options = field(default_factory=Options)
    abort_by: str | None = None
    approved_by: str | None = None
    profile: tuple[Mapping[str, Any], ...] = ()  # the steps of the gate profile, pinned when proposed
    gpu_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    target: Seat | None = None  # rollback: the seat to return to
    instead_of: Seat | None = None  # the live seat that keeps dying: the daemon itself wants the target back
    before: tuple[Seat | None, Seat | None] = (None, None)  # live and previous at the moment of the cutover
    night: str = ""  # in which it began
    again_for: str = ""  # the rollout that ended by no fault of its own, and that this one is once more
    until_s: float | None = None  # on the clock of the box: promoted, or everything as it was, by then
    gate: GateRun | None = None
    gates: tuple[GateResult, ...] = ()
    rechecked_at_s: float = 0.0  # while it waits for approval: when a gate was last asked once more
    bake: Bake = field(default_factory=Bake)
    decided_at_s: float | None = None  # cutover or rollback decided
    switched_at_s: float | None = None  # front door seen with the new route; None until then
    dark_since_s: float | None = None  # live made room as a whole, and nothing serves since
    darks: tuple[tuple[float, float], ...] = ()  # when that was, and was over: there, and perhaps on the way back
    ended_wall_s: float | None = None
    times: Mapping[str, float] = field(default_factory=dict)  # measured seconds: start, gates, switch, rollback, …

    @property
    def seat(self) -> Seat:
        return Seat(self.release, self.id)

    @property
    def strategy(self) -> str:
        """Of its plan; empty as long as there is none."""
        return str(self.plan.get("strategy", ""))

    def planned(self, key: str) -> tuple[str, ...]:
        """A list of names of its plan: ``first``, ``gives_way``, ``later``."""
        return tuple(self.plan.get(key, ()))


@dataclass(frozen=True, slots=True)
class Freeze:
    """While set, nobody but a human acts: no queued rollout begins."""

    by: str
    why: str
    since_wall_s: float
    until_wall_s: float | None = None  # it ends by itself then


@dataclass(frozen=True, slots=True)
class Closed:
    """A card that nobody gets: a human has cordoned it, or it was not given back whole (quarantine)."""

    by: str  # a person; empty: quarantine
    why: str
    since_wall_s: float
    free_mib: int | None = None  # quarantine: with no more than that in use it is lifted
    unseen: bool = False  # quarantine: the card was gone, or could not be read; nobody knows about its memory

    @property
    def word(self) -> str:
        return f"cordoned by {self.by}" if self.by else "quarantined"


@dataclass(frozen=True)  # no slots: what is asked for in every pass is kept beside the fields
class State:
    """Everything the journal knows. `moves` makes the next one; the store keeps it."""

    generation: int = 0
    rollout_seq: int = 0
    attempt_seq: int = 0
    live: Seat | None = None
    previous: Seat | None = None
    freeze: Freeze | None = None
    closed: Mapping[str, Closed] = field(default_factory=dict)  # by GPU id
    last_port: int = 0
    last_slot: int = 0
    releases: Mapping[str, Release] = field(default_factory=dict)
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    nights: Mapping[str, Night] = field(default_factory=dict)
    sweep_seq: int = 0
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What was asked of this very state before (`remembered`)."""
        return {}

    @cached_property
    def held(self) -> tuple[Attempt, ...]:
        """Attempts that still hold something, in order."""
        return tuple(attempt for attempt in self.attempts.values() if attempt.holds)

    @cached_property
    def _by_seat(self) -> Mapping[tuple[str, str], Sequence[Attempt]]:
        """Release and rollout → every attempt, also those that are stopped."""
        seats: dict[tuple[str, str], list[Attempt]] = {}
        for attempt in self.attempts.values():
            seats.setdefault((attempt.release, attempt.rollout), []).append(attempt)
        return seats

    @cached_property
    def _held_by_seat(self) -> Mapping[tuple[str, str], tuple[Attempt, ...]]:
        seats: dict[tuple[str, str], tuple[Attempt, ...]] = {}
        for attempt in self.held:
            key = (attempt.release, attempt.rollout)
            seats[key] = (*seats.get(key, ()), attempt)
        return seats

    def seat_attempts(self, seat: Seat | None) -> tuple[Attempt, ...]:
        """Attempts of a seat that still hold something, in order of their start."""
        return () if seat is None else self._held_by_seat.get((seat.release, seat.rollout), ())

    def tries(self, rollout: Rollout) -> tuple[Rollout, ...]:
        """Those that this one is once more, the newest first."""
        found: list[Rollout] = []
        while (before := self.rollouts.get(rollout.again_for)) is not None:
            found.append(before)
            rollout = before
        return tuple(found)

    @cached_property
    def by_release(self) -> Mapping[str, Sequence[Attempt]]:
        """Release → every attempt, in order; the stopped ones too."""
        releases: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            releases.setdefault(attempt.release, []).append(attempt)
        return releases

    @cached_property
    def happened_wall_s(self) -> Sequence[float]:
        """When something was asked for, or ended, in the order of the clock on the wall."""
        times = (w for r in self.rollouts.values() for w in (r.created_wall_s, r.ended_wall_s) if w is not None)
        return sorted(times)

    def attempts_of(self, seat: Seat, instance: str) -> tuple[Attempt, ...]:
        """Every attempt that this instance of the seat ever had, in order; the stopped ones too."""
        return tuple(a for a in self._by_seat.get((seat.release, seat.rollout), ()) if a.instance == instance)

    def begun(self, seat: Seat) -> tuple[str, ...]:
        """Instances of the seat that were ever started, in the order of the release: a rolling one starts in parts."""
        had = {a.instance for a in self._by_seat.get((seat.release, seat.rollout), ())}
        return tuple(i.name for i in self.releases[seat.release].instances if i.name in had)

    def unborn(self, seat: Seat) -> tuple[str, ...]:
        """Instances of the seat that are still to be started for the first time."""
        begun = self.begun(seat)
        return tuple(i.name for i in self.releases[seat.release].instances if i.name not in begun)

    @cached_property
    def offered(self) -> tuple[Attempt, ...]:
        """Attempts of live that new requests are led to: ready, with a slot, and with somebody who answers.

        A router whose engines are all gone answers 503 to everybody; at the front door users can wait for others.
        """
        ready = [a for a in self.seat_attempts(self.live) if a.state is AttemptState.READY]
        engines = {a.port for a in ready if a.role != "router"}
        return tuple(a for a in ready if a.slot is not None and (a.role != "router" or engines & set(a.workers)))

    def is_served(self) -> bool:
        """Whether an instance of live takes requests."""
        return bool(self.offered)

    @cached_property
    def active(self) -> Rollout | None:
        """The one rollout that has begun and not ended."""
        return next((r for r in self.rollouts.values() if r.phase in ACTIVE), None)

    @cached_property
    def queue(self) -> tuple[Rollout, ...]:
        """Waiting rollouts, rollbacks first: production comes before plans, and what it can do before what it might."""
        waiting = [r for r in self.rollouts.values() if r.phase in _WAITING]
        return tuple(sorted(waiting, key=_turn))


def _turn(rollout: Rollout) -> tuple[int, bool, int, int, str]:
    """By night who waits for a person comes last: it keeps the box to itself until one is awake."""
    options = rollout.options
    asleep = bool(options.window) and options.require_approval
    return _TURN.get(rollout.kind, len(_TURN)), asleep, -options.priority, len(rollout.id), rollout.id


_TURN = {Kind.ROLLBACK: 0, Kind.MEASURE: 1}
_WAITING = frozenset({Phase.QUEUED})
ACTIVE = frozenset(
    {
        Phase.PREFLIGHT,
        Phase.LEASING,
        Phase.STARTING,
        Phase.GATING,
        Phase.AWAITING_APPROVAL,
        Phase.CUTTING_OVER,
        Phase.COMPLETING,
        Phase.BAKING,
        Phase.ROLLING_BACK,
    }
)
TERMINAL = frozenset(Phase) - ACTIVE - {Phase.QUEUED}
