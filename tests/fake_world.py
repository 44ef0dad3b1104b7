"""A small fake world behind the loop's port: processes come up in seconds of a clock that the test turns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from controller.core import actions as act
from controller.core.invariants import violations
from controller.core.records import AttemptState, Instance, Kind, Now, Options, Phase, Release, State
from controller.core.route import DoorSeen, Mode, Route, Slot, SlotSeen, SlotState, Traffic
from controller.core.seen import GateSeen, Gpu, Life, OnCard, PoolSeen, ProbeSeen, ProcessSeen, Seen, SleepSeen, Users
from controller.loop import Loop
from controller.store.journal import Journal


@dataclass
class FakeProcess:
    pid: int
    started_s: float
    ready_s: float
    life: Life = Life.RUNNING
    sentence: str = ""
    silent: bool = False
    garbage: bool = False
    computing: bool = False  # its token counters move although no probe is answered
    prefills_since_s: float | None = None  # it takes probes and answers none, and only its KV pool moves
    stopping_until: float | None = None
    ttft_s: float = 0.1
    port_conflict: bool = False
    gpus: tuple[str, ...] = ()
    memory_mib: int = 8_000  # on each of its cards, while it lives


@dataclass
class FakeWorld:
    """`observe` and `act` of `controller.effects.ports.World`, in memory."""

    gpus: int = 4
    slots: int = 32
    clock_s: float = 1000.0
    wall_zero_s: float = 1_700_000_000.0  # what the clock on the wall showed when that of the box began
    boot: str = "boot-1"
    start_s: float = 5.0
    stop_s: float = 1.0
    processes: dict[str, FakeProcess] = field(default_factory=dict)
    gates: dict[str, GateSeen] = field(default_factory=dict)
    verdicts: dict[str, list[str]] = field(default_factory=dict)  # gate name → verdicts in order, then pass
    route: Route = field(default_factory=lambda: Route(0, mode=Mode.OPEN))
    door_alive: bool = True
    in_flight: dict[int, int] = field(default_factory=dict)
    foreign: dict[int, str] = field(default_factory=dict)
    memory_mib: dict[int, int] | None = None  # used per card besides what processes have; None: nobody can tell
    kv_tokens: int | None = 100_000  # what engines say of their KV pools
    reads_logs: bool = True
    listed: dict[int, tuple[OnCard, ...]] = field(default_factory=dict)  # what NVML names, per card
    untrusted: set[int] = field(default_factory=set)
    gpus_why: str = ""
    releases_gone: frozenset[str] = frozenset()
    traffic: dict[str, Traffic] = field(default_factory=dict)
    users: Users | None = field(default_factory=lambda: Users(0, 0.0))
    cannot_start: dict[str, str] = field(default_factory=dict)  # instance → sentence
    heard_until_s: dict[str, float] = field(default_factory=dict)  # attempt → when its last probe ended; then they hang
    unheard: bool = False  # nobody has asked anything through the public address yet
    door_tried_s: float | None = None
    refuses: dict[str, str] = field(default_factory=dict)  # effects that fail, by name → what they say
    next_pid: int = 100
    done: list[act.Effect] = field(default_factory=list)
    _door_seen: tuple[Any, DoorSeen] | None = None

    def now(self) -> Now:
        return Now(self.boot, self.clock_s, self.wall_zero_s + self.clock_s)

    def set_wall(self, wall_s: float) -> None:
        """Somebody sets the clock on the wall; that of the box goes on."""
        self.wall_zero_s = wall_s - self.clock_s

    def reboot(self) -> None:
        wall_s = self.now().wall_s
        self.boot = "boot-2"
        self.clock_s = 10.0
        self.set_wall(wall_s)
        self.processes.clear()
        self.door_alive = False

    def observe(self, state: State) -> Seen:
        for name, process in self.processes.items():
            if process.stopping_until is not None and self.clock_s >= process.stopping_until:
                self.processes[name] = replace(process, life=Life.EXITED, sentence="stopped", stopping_until=None)
        return Seen(
            now=self.now(),
            door=self.door(),
            door_tried_s=self.door_tried_s,
            processes=self._processes(state),
            probes=self._probes(state),
            traffic=self.traffic,
            users=self.users,
            gates=self._gates(state),
            pids={name: (process.pid,) for name, process in self.processes.items()},
            kv_pools=dict.fromkeys(self.processes if self.reads_logs else (), PoolSeen(self.kv_tokens, "its log")),
            gpus_why=self.gpus_why,
            gpus=self._gpus(),
            releases_gone=self.releases_gone,
            sleeps=self._sleeps(),  # what is heard last counts from the next look on
        )

    def door(self) -> DoorSeen:
        """What the front door says of itself now."""
        if not self.door_alive:
            return DoorSeen(alive=False, mode=self.route.mode)
        key = (self.route, tuple(self.in_flight.items()))
        if self._door_seen is None or self._door_seen[0] != key:
            public, preview = self._slots(self.route.public), self._slots(self.route.preview)
            self._door_seen = (key, DoorSeen(alive=True, public=public, preview=preview, mode=self.route.mode))
        return self._door_seen[1]

    def _processes(self, state: State) -> dict[str, ProcessSeen]:
        return {
            name: ProcessSeen(p.life, p.pid, p.pid * 10, p.sentence, p.port_conflict)
            for name, p in self.processes.items()
        }

    def _gates(self, state: State) -> dict[str, GateSeen]:
        return self.gates

    def _sleeps(self) -> dict[str, SleepSeen]:
        return {}

    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(
                f"gpu-{n}",
                n,
                memory_total_mib=None if self.memory_mib is None else 24_000,
                memory_used_mib=self._used_mib(n),
                foreign=(self.foreign[n],) if n in self.foreign else (),
                trusted=n not in self.untrusted,
                processes=self.listed.get(n),
            )
            for n in range(self.gpus)
        )

    def _used_mib(self, card: int) -> int | None:
        if self.memory_mib is None:
            return None
        loaded = [p for p in self.processes.values() if f"gpu-{card}" in p.gpus and p.life is not Life.EXITED]
        return self.memory_mib.get(card, 0) + sum(process.memory_mib for process in loaded)

    def _slots(self, slots: tuple[Slot, ...]) -> tuple[SlotSeen, ...]:
        named = {slot.number: slot for slot in slots}
        return tuple(
            SlotSeen(
                n,
                named[n].port if n in named else 9,
                named[n].state if n in named else SlotState.MAINT,
                up=True,
                in_flight=self.in_flight.get(n, 0),
            )
            for n in range(1, self.slots + 1)
        )

    def _probe(self, name: str | None) -> ProbeSeen:
        process = self.processes.get(name or "")
        ok = (
            process is not None
            and process.life in {Life.RUNNING, Life.STRAYS}  # without its shim an engine serves on
            and not process.silent
            and not process.garbage
            and process.prefills_since_s is None
            and self.clock_s >= process.ready_s
        )
        now_s = min(self.clock_s, self.heard_until_s.get(name or "", self.clock_s))
        if ok and process is not None:
            ttft_s, total_s = process.ttft_s, process.ttft_s + 0.1
            streak, since_s = self._in_a_row(3, now_s - 3)
            return ProbeSeen(
                True,
                now_s,
                now_s - 0.01,
                ttft_s=ttft_s,
                total_s=total_s,
                typical_ttft_s=ttft_s,
                typical_total_s=total_s,
                streak=streak,
                streak_since_s=since_s,
            )
        if process is not None and process.prefills_since_s is not None:
            since_s = process.prefills_since_s
            last = ProbeSeen(True, since_s, since_s - 0.1, ttft_s=0.1, total_s=0.2, streak=3)
            timed_out = ProbeSeen(False, now_s, now_s - 30.0, "timeout", "no answer", streak_since_s=since_s)
            return replace(last if now_s - since_s < 30.0 else timed_out, pool_at_s=now_s, has_counters=True)
        garbage = process is not None and process.garbage
        streak, since_s = self._in_a_row(5, now_s - 100)
        return ProbeSeen(
            False,
            now_s,
            now_s - 1,
            "output" if garbage else "generation",
            "the engine writes '!' only" if garbage else "no token",
            streak=streak,
            streak_since_s=since_s,
            progress_at_s=now_s if process is not None and process.computing else None,
        )

    def _in_a_row(self, streak: int, since_s: float) -> tuple[int, float]:
        """As much of a streak as the controller can have heard."""
        return streak, since_s

    def _probes(self, state: State) -> dict[str, ProbeSeen]:
        probes = {a.id: self._probe(a.id) for a in state.held if a.pid is not None}
        ready = next((s.attempt for s in self.route.public if s.state is SlotState.READY), None)
        if not self.unheard:
            probes["public"] = probes.get(ready or "") or self._probe(ready)
        shown = next((s.attempt for s in self.route.preview), None)
        probes["preview"] = probes.get(shown or "") or self._probe(shown)
        return probes

    def act(self, action: act.Effect, state: State, seen: Seen) -> act.Outcome:
        self.done.append(action)
        if (why := self.refuses.get(type(action).__name__)) is not None:
            return act.Outcome(False, why)
        return getattr(self, f"_{type(action).__name__}")(action, state)

    def _StartAttempt(self, action: act.StartAttempt, state: State) -> act.Outcome:  # noqa: N802
        attempt = state.attempts[action.attempt]
        if attempt.instance in self.cannot_start:
            return act.Outcome(False, self.cannot_start[attempt.instance])
        if action.attempt not in self.processes:
            self.next_pid += 1
            ready_s = self.clock_s + self.start_s
            self.processes[action.attempt] = FakeProcess(self.next_pid, self.clock_s, ready_s, gpus=attempt.gpus)
        pid = self.processes[action.attempt].pid
        return act.Outcome(True, pid=pid, start_ticks=pid * 10)

    def _StopAttempt(self, action: act.StopAttempt, state: State) -> act.Outcome:  # noqa: N802
        process = self.processes[action.attempt]
        if process.stopping_until is None:
            process.stopping_until = self.clock_s + self.stop_s
        return act.Outcome(True)

    def _ClearStrays(self, action: act.ClearStrays, state: State) -> act.Outcome:  # noqa: N802
        self.processes[action.attempt].life = Life.EXITED
        return act.Outcome(True)

    def _RunGate(self, action: act.RunGate, state: State) -> act.Outcome:  # noqa: N802
        queue = self.verdicts.get(action.gate, [])
        verdict = queue.pop(0) if queue else "pass"
        if verdict != "hang":
            self.gates[action.run] = GateSeen(verdict, f"{action.gate} says {verdict}")
        return act.Outcome(True)

    def _StopGate(self, action: act.StopGate, state: State) -> act.Outcome:  # noqa: N802
        return act.Outcome(True)

    def _SetRoute(self, action: act.SetRoute, state: State) -> act.Outcome:  # noqa: N802
        self.route = action.route
        return act.Outcome(True)

    def _OpenDoor(self, action: act.OpenDoor, state: State) -> act.Outcome:  # noqa: N802
        self.door_alive = True
        return act.Outcome(True)

    def _CutSlot(self, action: act.CutSlot, state: State) -> act.Outcome:  # noqa: N802
        self.in_flight[action.slot] = 0
        return act.Outcome(True)


@dataclass
class Box:
    """Loop, journal and fake world, with verbs for tests."""

    loop: Loop
    world: FakeWorld
    journal: Journal
    observers: tuple[dict[str, Any], ...] = ()  # further gates of every profile

    @property
    def state(self) -> State:
        return self.journal.state

    def propose(self, release: Release, kind: Kind = Kind.PROPOSE, **options) -> str:
        target = self.state.previous if kind is Kind.ROLLBACK else None
        profile = ({"name": "health", "deadline_s": 10.0}, {"name": "toolcalls", "deadline_s": 60.0}, *self.observers)
        action = act.Propose(
            kind, release, "tester", Options(**options), () if kind is Kind.ROLLBACK else profile, target
        )
        return self.file(action)

    def ask(self, action: act.Record) -> None:
        self.file(action)

    def file(self, action: act.Record) -> str:
        """The rollout that it is about."""
        return self.journal.request(None, "tester", "ask", self.world.now(), lambda _: (action, "asked"))

    def rollback(self) -> str:
        assert self.state.previous is not None
        return self.propose(self.state.releases[self.state.previous.release], Kind.ROLLBACK)

    def run(self, until, limit_s: float = 3000.0, tick_s: float = 0.5) -> None:
        """Pass after pass; the clock moves when there is nothing to do. Invariants hold at every boundary."""
        end_s = self.world.clock_s + limit_s
        while not until():
            assert self.world.clock_s < end_s, f"never happened; {self.loop.why}"
            busy = self.loop.step()
            assert violations(self.state, self.world.observe(self.state).door) == []
            if not busy:
                self.world.clock_s += tick_s

    def finish(self, rollout: str, limit_s: float = 5000.0) -> Phase:
        self.run(lambda: self.state.rollouts[rollout].ended_wall_s is not None, limit_s)
        return self.state.rollouts[rollout].phase

    def settle(self) -> None:
        """Let everything that follows from what was decided happen."""
        for _ in range(200):
            if not self.loop.step():
                self.world.clock_s += 0.5

    def settle_for(self, seconds: float) -> None:
        """Let that much time pass."""
        end_s = self.world.clock_s + seconds
        self.run(lambda: self.world.clock_s >= end_s)

    def running(self) -> set[str]:
        return {a.release for a in self.state.attempts.values() if a.state is AttemptState.READY}

    def phase(self, rollout: str) -> Phase:
        return self.state.rollouts[rollout].phase


def make_release(name: str, gpus: int = 2, instances: int = 1, router: bool = False, serves=("m",)) -> Release:
    parts = [Instance(chr(ord("a") + n), "engine", gpus, None, "/health", fronted=not router) for n in range(instances)]
    if router:
        names = tuple(part.name for part in parts)
        parts.append(Instance("router", "router", 0, None, "/readiness", fronted=True, start_after=names))
    return Release(f"{name}@00000000", name, "0" * 64, "emulator", tuple(serves), tuple(parts), "standard")
