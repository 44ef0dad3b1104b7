"""The real loop, core and store in a fake world: the daemon can be killed at any named point, and is judged at each."""

from __future__ import annotations

import contextlib
import logging
import pickle
import random
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from fake_world import Box
from pydantic import TypeAdapter
from sim_world import SimWorld

from controller.core import actions as act
from controller.core.continuity import broken_steps
from controller.core.invariants import unsettled, violations
from controller.core.policy import Policy
from controller.core.progress import deadline_s
from controller.core.records import ACTIVE, AttemptState, Kind, Now, Phase, State
from controller.core.restarts import given_up
from controller.core.route import DoorSeen, SlotState
from controller.core.seats import missing_instances
from controller.core.table import IllegalMove
from controller.crashpoints import listen
from controller.loop import Loop
from controller.store.database import StoreError, open_database
from controller.store.journal import Journal

POLICY = Policy(
    start_s=60.0,
    drain_s=60.0,
    swap_drain_s=20.0,
    bake_s=30.0,
    port_last=18_000 + 10 * 12 - 1,
    slots=8,
)
BREATHLESS = 150  # passes without a breath: by then it goes round in circles
PATIENCE = 20  # passes for which a deadline may have to wait for what is more urgent
KEPT = 60  # lines of the story that a failure tells

_STATE = TypeAdapter(State)
_SETTLED = {AttemptState.READY, AttemptState.ASLEEP}
_OF_NO_CONSEQUENCE = {"version", "done", "_door_seen", "_gpus_seen"}
_OF_THE_DAEMON = {"door_tried_s", "asks_since_s", "asked"}  # what it knows, and what goes with it

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class KilledError(BaseException):
    """kill -9 of the daemon, at a named point. Nothing in the product can catch it."""


class Violated(AssertionError):  # noqa: N818 - it says what it is
    """An invariant does not hold, and the story that led there."""


class Disk(sqlite3.Connection):
    """A database whose disk can be full: then a transaction that is over is not kept, and says so."""

    full_for = 0  # how many of the next commits fail

    def __exit__(self, kind, value, trace):
        if kind is None and self.full_for > 0:
            self.full_for -= 1
            self.rollback()
            raise sqlite3.OperationalError("database or disk is full")
        return super().__exit__(kind, value, trace)


class SimJournal(Journal):
    """The real store; its database outlives it as a file does, also where it is in memory."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(Path(":memory:"))

    def begin(self, action: act.Action, why: str, now: Now) -> int:
        before = self.state
        try:
            return super().begin(action, why, now)
        except IllegalMove as error:
            if self.state is before:  # nobody came between the look and the intent: it was decided on this very state
                raise Violated(f"what cannot be was decided, {type(action).__name__} ({why}): {error}") from None
            raise

    def _open(self, path: Path) -> sqlite3.Connection:
        self.disk.rollback()  # a killed daemon's transaction: SQLite does the same when the file is opened again
        return self.disk


def new_disk(path: Path | None = None) -> Disk:
    """An empty journal, in memory or on a file, with the real schema."""
    template = open_database(Path(":memory:") if path is None else path)
    disk = _in_memory() if path is None else _on(path)
    if path is None:
        template.backup(disk)
    template.close()
    return disk


def _on(path: Path) -> Disk:
    return sqlite3.connect(path, check_same_thread=False, isolation_level="IMMEDIATE", factory=Disk)


def _in_memory() -> Disk:
    return _on(Path(":memory:"))


@dataclass
class Simulation(Box):
    """One box: its world, its journal and the daemon that is alive just now."""

    policy: Policy = POLICY
    path: Path | None = None  # of the database, when it is a real file
    kill_in: int | None = None  # points from now at which the daemon is killed
    points: int = 0  # reached since the beginning
    kills: int = 0
    keys: int = 0
    acknowledged: dict[str, str] = field(default_factory=dict)  # key → rollout
    forgotten: set[str] = field(default_factory=set)
    forgetting: random.Random | None = None  # whether, and when, the past is forgotten in the middle of a pass
    story: deque[tuple[float, str | int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    hear: Callable[[str], None] | None = None  # of every point, for whoever counts them
    _judged: tuple[State | None, int] = (None, -1)
    _door: DoorSeen | None = None
    _alarmed: State | None = None
    _told: int = 0
    _hurried: int = 0
    _late: int = 0
    lull_s: float = 0.0

    # --- life and death of the daemon ---------------------------------------------------------------------------------

    def reached(self, point: str) -> None:
        """A named point: everything must hold here, and here the daemon can be killed."""
        self.points += 1
        self.judge(point)
        if self.hear is not None:
            self.hear(point)
        if point == "begin-before" and self.forgetting is not None and self.forgetting.random() < 0.05:
            self._forget()  # between a decision and its intent: another thread does it
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in <= 0:
                self.kill_in = None
                raise KilledError(point)

    def restart(self, how: str) -> None:
        """The daemon is gone; the service manager starts another, on the same database and in the same world."""
        self.kills += 1
        self.tell(f"the daemon {how}; another begins")
        disk = self.journal.disk
        if self.path is not None:
            full_for = disk.full_for
            disk.close()
            disk = new_disk(self.path)
            disk.full_for = full_for
        self.journal = self._read_again(disk)
        self.world.controller_died()
        self.loop = Loop(self.journal, self.world, self.policy)

    def _read_again(self, disk: Disk) -> SimJournal:
        """The next daemon's journal: what the last one committed, all of it and nothing else."""
        journal = SimJournal(disk)
        was, is_now = _as_kept(self.journal.state), _as_kept(journal.state)
        if was != is_now:
            self.fail([f"what was committed is not what the next daemon reads: {_first_difference(was, is_now)}"])
        return journal

    def file(self, action: act.Record) -> str:
        """Somebody asks, and asks again with the same key until there is an answer, as the command line does."""
        self.keys += 1
        key = f"key-{self.keys}"
        answer = self._answered(key, action)
        if answer is None:
            return ""  # the disk is full: it was told so, and nothing was filed
        self.acknowledged[key] = answer
        if (again := self._answered(key, action)) not in {answer, None}:
            self.fail([f"the same request ({key}) was answered {answer}, then {again}"])
        self.tell(f"somebody asked for {type(action).__name__} ({answer})")
        return answer

    def _answered(self, key: str, action: act.Record) -> str | None:
        for _ in range(4):
            try:
                return self._request(key, action)
            except KilledError as death:
                self.restart(f"was killed at {death}")
            except StoreError:
                continue
        return None

    def _request(self, key: str, action: act.Record) -> str:
        listen(self.reached)
        try:
            return self.journal.request(key, "tester", "ask", self.world.now(), lambda _: (action, "asked"))
        finally:
            listen(None)

    def forget(self) -> None:
        """As if everything that has ended had ended long ago: what nobody needs leaves the journal."""
        listen(self.reached)
        try:
            self._forget()
        except KilledError as death:
            self.restart(f"was killed at {death}")
        finally:
            listen(None)

    def _forget(self) -> None:
        known = {*self.state.rollouts, *self.state.sweeps}
        self.story = deque(self._resolved(), maxlen=KEPT)  # lines are forgotten too
        try:
            with contextlib.suppress(sqlite3.OperationalError):  # the disk is full: next time
                if told := self.journal.forget(1e12, self.world.now(), act.KeepOfThePast(0, 0, 1)):
                    self.tell(f"the past is forgotten: {told}")
        finally:
            self.forgotten |= known - {*self.state.rollouts, *self.state.sweeps}

    # --- passes -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One pass of the daemon. False when there was nothing to do: then time may pass."""
        seq = self.journal.seq
        listen(self.reached)
        try:
            busy = self.loop.step()
        except KilledError as death:
            self.restart(f"was killed at {death}")
            return True
        except sqlite3.OperationalError as error:
            self.restart(f"ended ({error})")
            return False
        finally:
            listen(None)
        idle = not busy and self.journal.seq == seq
        self.judge("pass", idle=idle)
        if busy:
            self.lull_s = 0.0
        self._hurried = self._hurried + 1 if busy else 0
        if self._hurried > BREATHLESS:
            self.fail([f"{BREATHLESS} passes without a breath: {self.loop.why}"])
        self._watch_deadline()
        return busy

    def _watch_deadline(self) -> None:
        """A phase ends by its deadline, whatever else there is to do all the time."""
        active, now = self.state.active, self.world.now()
        late = (
            active is not None
            and active.phase_boot_id == now.boot_id
            and now.boot_s - active.phase_since_s > deadline_s(active, self.state, self.policy)
        )
        self._late = self._late + 1 if late else 0
        if self._late > PATIENCE and active is not None:
            self.fail([f"{PATIENCE} passes after its deadline {active.id} is {active.phase} still: {self.loop.why}"])

    def judge(self, point: str, *, idle: bool = False) -> None:
        """The oracle. A boundary at which nothing is new since the last one is not judged again."""
        state, before = self.journal.state, self._judged[0]
        if (state is before and self._judged[1] == self.world.version) and not idle:
            return
        seen, door = self.loop.seen, self.world.door()
        found: list[str] = []
        if state is not before or door is not self._door:
            found += violations(state, door)
            self._door = door
        if before is not None and state is not before:
            asked = point == "request-after" or seen is None
            found += broken_steps(before, state, None if asked else seen, self.policy)
            found += self.world.unjust(before, state)
        found += self.world.untrue(state)
        if idle and seen is not None:
            found += unsettled(state, seen, self.policy)
            if state is not self._alarmed:
                self._alarmed = state
                found += [alarm for alarm in self.loop.alarms if not alarm.strip()]
        self._judged = (state, self.world.version)
        if self.journal.seq != self._told:
            self._told = self.journal.seq
            self.tell(self._told)
        if found:
            self.fail(found)

    def tell(self, line: str | int) -> None:
        """One line of the story; a number is that of a decision in the journal, which tells its `why`."""
        self.story.append((self.world.clock_s, line))

    def fail(self, found: list[str]) -> None:
        raise Violated("\n".join([*self.tale(), "", "broken: " + "\n        ".join(dict.fromkeys(found))]))

    def tale(self) -> Iterator[str]:
        """The last decisions with their `why`, and what happened besides."""
        return (f"{clock_s:10.1f} s  {line}" for clock_s, line in self._resolved())

    def _resolved(self) -> Iterator[tuple[float, str]]:
        first = min((line for _, line in self.story if isinstance(line, int)), default=0)
        entries = {e.seq: e for e in self.journal.entries(first - 1, limit=1_000_000)} if first else {}
        for clock_s, line in self.story:
            entry = entries.get(line) if isinstance(line, int) else None
            yield clock_s, f"{entry.action} {entry.subject}: {entry.why}" if entry else str(line)

    def breathe(self, longest_s: float = 30.0) -> None:
        """Time passes until something happens, and longer the longer nothing does."""
        self.lull_s = min(max(0.5, self.lull_s * 2), longest_s)
        self.world.wait(min(self.world.next_event_s() + 0.01, self.lull_s))

    def follow(self, **changes: Any) -> None:
        """From now on another policy, as if the daemon had read another configuration."""
        self.policy = self.loop.policy = replace(self.policy, **changes)

    def run(self, until: Callable[[], bool], limit_s: float = 6000.0, tick_s: float = 30.0) -> None:
        """Pass after pass; time moves when there is nothing to do."""
        boot, end_s = self.world.boot, self.world.clock_s + limit_s
        while not until():
            if self.world.boot != boot:
                boot, end_s = self.world.boot, self.world.clock_s + limit_s
            if self.world.clock_s > end_s:
                self.fail([f"it never came to that in {limit_s:.0f} s: {self.loop.why}"])
            if not self.step():
                self.breathe(tick_s)

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return not any(r.phase in ACTIVE or r.phase is Phase.QUEUED for r in self.state.rollouts.values())

    def peace(self) -> None:
        """Nothing bad happens any more, and what only a person can settle is settled."""
        world = self.world
        world.start_s, world.stop_s, world.late_memory_s, world.gate_s = 1.0, 1.0, 0.0, 1.0
        world.sleep_s, world.wake_s, world.trouble = 1.0, 1.0, ""
        for engine in world.engines.values():
            engine.trouble = ""
        world.asked = {name: (wanted, min(at_s, world.clock_s + 1.0)) for name, (wanted, at_s) in world.asked.items()}
        for thing in (world.foreign, world.stuck_mib, world.untrusted, world.in_flight, world.verdicts, world.failing):
            thing.clear()
        world.next_start.clear()
        world.heard_until_s.clear()
        world.traffic.clear()
        world.unkillable_next, world.gpus_why = False, ""
        for process in world.processes.values():
            process.silent = process.garbage = process.unkillable = False
            process.ready_s = min(process.ready_s, world.clock_s + 1.0)
            if process.stopping_until is not None:
                process.stopping_until = min(process.stopping_until, world.clock_s + 1.0)
        self.kill_in, self.journal.disk.full_for = None, 0
        world.version += 1
        for gpu, closed in self.state.closed.items():
            if closed.by:
                self.ask(act.OpenCard(gpu))
        if self.state.freeze is not None:
            self.ask(act.SetFreeze(None))

    def rest(self) -> None:
        """In peace everything ends, what nobody wants is gone, and all of live serves."""
        for rollout in self.state.queue:
            self.ask(act.AskAbort(rollout.id, "tester"))
        self.run(self._is_at_rest)
        held = [a for a in self.state.attempts.values() if a.holds]
        wanted = {(seat.release, seat.rollout) for seat in (self.state.live, self.state.previous) if seat}
        found = [f"{a.id} is kept, and nobody wants it" for a in held if (a.release, a.rollout) not in wanted]
        served = {s.attempt for s in self.world.route.public if s.state is SlotState.READY}
        fronted = {a.id for a in self.state.seat_attempts(self.state.live) if a.slot is not None}
        if served != fronted or (self.state.live is not None and not fronted):
            found.append(f"live is {sorted(fronted)} and users reach {sorted(served)}")
        found += [f"{name} was acknowledged and is gone" for name in self._lost()]
        if found:
            self.fail(found)

    def _lost(self) -> set[str]:
        known = {*self.state.rollouts, *self.state.sweeps, *self.forgotten}
        return {name for name in self.acknowledged.values() if name and name not in known}

    def _is_at_rest(self) -> bool:
        active = self.state.active
        if active is not None and active.phase is Phase.AWAITING_APPROVAL and active.abort_by is None:
            self.ask(act.AskAbort(active.id, "tester"))
        state = self.state
        if not self.is_idle or not self.is_over:
            return False
        if state.live is not None and given_up(state, state.live):  # a person is called, and comes
            self.propose(state.releases[state.live.release], Kind.RESTART, force=True, strategy="any", bake_s=0.0)
            return False
        if any(a.holds and a.state not in _SETTLED for a in state.attempts.values()):
            return False
        if state.live is None:
            return not self.world.route.public
        # A router that leads to nobody waits for a successor, whose next try may be a while off.
        return not missing_instances(state, state.live) and not state.unborn(state.live) and state.is_served()

    @property
    def is_idle(self) -> bool:
        """Nothing was to be done for more than a moment, and nothing waits for another try."""
        seen = self.loop.seen
        rests = seen is not None and any(vain.rests(seen.now.boot_s) for vain in seen.vain.values())
        return self.lull_s > 1.0 and not rests

    def fingerprint(self) -> bytes:
        """All that outlives the daemon: the journal's state and the world."""
        left_out = _OF_NO_CONSEQUENCE | _OF_THE_DAEMON
        world = {name: value for name, value in vars(self.world).items() if name not in left_out}
        return b"%s %s" % (_as_kept(self.state), repr(world).encode())

    def known(self) -> bytes:
        """What goes with the daemon: two that know the same, of the same, go on alike."""
        knows = [getattr(self.world, name) for name in sorted(_OF_THE_DAEMON)]
        return repr((self.lull_s, knows)).encode()

    def fork(self, path: Path | None = None) -> Simulation:
        """Another box that is like this one now, and lives on by itself. The daemon in it has just been started."""
        disk = new_disk(path) if path is not None else _in_memory()
        self.journal.disk.backup(disk)
        world: SimWorld = pickle.loads(pickle.dumps(self.world))  # noqa: S301 - our own, and four times as fast as deepcopy
        world.controller_died()
        journal = SimJournal(disk)
        other = Simulation(Loop(journal, world, self.policy), world, journal, policy=self.policy, path=path)
        other.points, other.keys = self.points, self.keys
        other.acknowledged = dict(self.acknowledged)
        other.story = self.story.copy()
        other._judged = (journal.state, world.version)
        other._told = journal.seq
        return other


def new_simulation(world: SimWorld | None = None, policy: Policy = POLICY, path: Path | None = None) -> Simulation:
    world = world or SimWorld(slots=policy.slots)
    journal = SimJournal(new_disk(path))
    return Simulation(Loop(journal, world, policy), world, journal, policy=policy, path=path)


def _as_kept(state: State) -> bytes:
    """Releases are read in the order of their names, and their order means nothing."""
    return _STATE.dump_json(replace(state, releases=dict(sorted(state.releases.items()))))


def _first_difference(one: bytes, other: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"{one[max(0, at - 60) : at + 60]!r} became {other[max(0, at - 60) : at + 60]!r}"
