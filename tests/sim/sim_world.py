"""The fake world with vices: engines that die, lie and do not end, late memory, strangers, a door that fails.

It knows the truth (which process sits on which card, what a gate really said), and tells where truth and journal part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fake_world import FakeProcess
from sleepy_world import LEFTOVER_MIB, Engine, SleepyWorld

from controller.core import actions as act
from controller.core.records import Attempt, AttemptState, Kind, Phase, Seat, State
from controller.core.route import Mode, Route, SlotState
from controller.core.seen import GateSeen, Gpu, Life, ProbeSeen, ProcessSeen, Seen
from controller.crashpoints import crash_point

ALIVE = frozenset({Life.RUNNING, Life.ENDING, Life.STRAYS})
STRANGER_MIB = 20_000
_TAKES = frozenset({SlotState.READY})
CARD_MIB = 81_920
FIRST_PROBE_S = 0.3  # a daemon that has just begun has asked nobody yet
PROBE_EVERY_S = 1.0


def tells(card: int) -> bool:
    """Whether the driver says how much of a card strangers have: of every other one."""
    return card % 2 == 0


@dataclass
class SimProcess(FakeProcess):
    """A process tree, and what is wrong with it."""

    unkillable: bool = False  # neither TERM nor KILL end it: it waits in the kernel
    dies_s: float = math.inf  # while it loads
    memory_until_s: float = 0.0  # the driver still frees its memory

    @property
    def is_alive(self) -> bool:
        return self.life in ALIVE

    @property
    def is_well(self) -> bool:
        return self.life is Life.RUNNING and not (self.silent or self.garbage) and self.stopping_until is None


@dataclass
class GateTruth:
    ends_s: float
    verdict: str
    stopped: bool = False  # nobody wanted to know any more: it has said nothing


@dataclass
class SimWorld(SleepyWorld):
    """Everything that a `SleepyWorld` is, with time, truth and misfortune of its own."""

    slots: int = 8
    late_memory_s: float = 0.0
    gate_s: float = 3.0
    boots: int = 1
    version: int = 0  # counts changes, so that nothing is judged twice
    asks_since_s: float = -math.inf  # this daemon's first probes were answered then, or will be
    failing: Counter[str] = field(default_factory=Counter)  # effect → how many of the next ones fail
    next_start: list[str] = field(default_factory=list)  # what befalls the next starts: port | die
    unkillable_next: bool = False
    forgets_route: bool = False  # the front door lost its state file: it comes back with nothing
    stuck_mib: dict[int, int] = field(default_factory=dict)  # memory that nobody gives back
    visited: set[str] = field(default_factory=set)  # cards with memory that nobody told of, or in somebody's hands
    running_gates: dict[str, GateTruth] = field(default_factory=dict)
    asked_gates: dict[tuple[str, int], list[GateTruth]] = field(default_factory=dict)  # the same, by rollout and step
    wrong: list[str] = field(default_factory=list)  # what no good controller asks for
    _gpus_seen: tuple[Any, tuple[Gpu, ...]] = (None, ())

    # --- time ---------------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.clock_s += seconds
        self.version += 1

    def reboot(self) -> None:
        self.running_gates = {n: truth for n, truth in self.running_gates.items() if truth.ends_s <= self.clock_s}
        self.asked_gates = {
            step: [truth for truth in truths if truth.ends_s <= self.clock_s]
            for step, truths in self.asked_gates.items()
        }
        for truth in self.running_gates.values():
            truth.ends_s = 0.0
        super().reboot()
        self.boots += 1
        self.boot = f"boot-{self.boots}"
        self.in_flight.clear()
        self.door_tried_s = None
        self.version += 1

    def controller_died(self) -> None:
        """What the controller remembered is gone; the world is not."""
        super().controller_died()
        self.door_tried_s = None
        self.asks_since_s = self.clock_s + FIRST_PROBE_S

    def next_event_s(self) -> float:
        """How long until something happens by itself; infinite when nothing will."""
        times = [t for p in self.processes.values() for t in (p.ready_s, p.stopping_until or 0.0, p.dies_s)]
        times += [self.asks_since_s, *(p.memory_until_s for p in self.processes.values())]
        times += [g.ends_s for g in self.running_gates.values()] + [at_s for _, at_s in self.asked.values()]
        return min((t - self.clock_s for t in times if t > self.clock_s), default=math.inf)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def observe(self, state: State) -> Seen:
        for name, process in tuple(self.processes.items()):
            if process.dies_s <= self.clock_s and process.is_alive:
                self._end(name, "it died while it loaded")
            elif process.stopping_until is not None and process.stopping_until <= self.clock_s:
                self._end(name, "stopped")
            elif not process.is_alive and process.memory_until_s <= self.clock_s and self._is_forgotten(name, state):
                del self.processes[name]
        if self.foreign or self.stuck_mib or state.closed:
            untold = {n for n in self.foreign if not tells(n)}
            self.visited |= {f"gpu-{n}" for n in (*untold, *self.stuck_mib)} | {*state.closed}
        return super().observe(state)

    def _is_forgotten(self, name: str, state: State) -> bool:
        """Whether the journal knows of its end, and nobody waits for an answer of it."""
        return name not in self.asked and (name not in state.attempts or not state.attempts[name].holds)

    def _end(self, name: str, how: str) -> None:
        """Its whole tree is gone; its memory follows."""
        process = self.processes[name]
        process.life, process.sentence, process.stopping_until = Life.EXITED, how, None
        process.dies_s = math.inf
        process.memory_until_s = self.clock_s + self.late_memory_s
        self.version += 1

    def _processes(self, state: State) -> dict[str, ProcessSeen]:
        return {
            name: ProcessSeen(p.life, p.pid, p.pid * 10, p.sentence, p.port_conflict)
            for name, p in self.processes.items()
            if name in state.attempts and state.attempts[name].holds
        }

    def _probes(self, state: State) -> dict[str, ProbeSeen]:
        """What this daemon has heard itself: nothing of its predecessor's probes is known to it."""
        return {} if self.clock_s < self.asks_since_s else super()._probes(state)

    def _in_a_row(self, streak: int, since_s: float) -> tuple[int, float]:
        asked = 1 + int(min(9.0, (self.clock_s - self.asks_since_s) / PROBE_EVERY_S))
        return min(streak, asked), max(since_s, self.asks_since_s)

    def _gates(self, state: State) -> dict[str, GateSeen]:
        """As the gate runner: a run that nobody ever began has left no verdict."""
        run = state.active.gate if state.active else None
        if run is None:
            return {}
        truth = self.running_gates.get(run.run)
        if truth is None:
            return {run.run: GateSeen("error", "the gate left no verdict")}
        return {run.run: GateSeen(truth.verdict, f"says {truth.verdict}")} if truth.ends_s <= self.clock_s else {}

    def _gpus(self) -> tuple[Gpu, ...]:
        used = self.used_mib()
        cards = (*used.values(), *self.foreign.items(), None, *self.untrusted)
        if cards != self._gpus_seen[0]:
            gpus = tuple(
                Gpu(
                    gpu,
                    n,
                    memory_total_mib=CARD_MIB,
                    memory_used_mib=mib,
                    foreign=(self.foreign[n],) if n in self.foreign else (),
                    strangers_mib=STRANGER_MIB * (n in self.foreign) if tells(n) else None,
                    trusted=n not in self.untrusted,
                )
                for n, (gpu, mib) in enumerate(used.items())
            )
            self._gpus_seen = (cards, gpus)
        return self._gpus_seen[1]

    def used_mib(self) -> dict[str, int]:
        used = {
            f"gpu-{n}": self.stuck_mib.get(n, 0) + (STRANGER_MIB if n in self.foreign else 0) for n in range(self.gpus)
        }
        for process in self.processes.values():
            if process.is_alive or process.memory_until_s > self.clock_s:
                for gpu in process.gpus:
                    used[gpu] += process.memory_mib
        return used

    # --- what is done -------------------------------------------------------------------------------------------------

    def act(self, action: act.Effect, state: State, seen: Seen) -> act.Outcome:
        self.version += 1
        name = type(action).__name__
        if self.failing[name] > 0:
            self.failing[name] -= 1
            return act.Outcome(False, f"{name} failed")
        return getattr(self, f"_{name}")(action, state)

    def _StartAttempt(self, action: act.StartAttempt, state: State) -> act.Outcome:  # noqa: N802
        attempt = state.attempts[action.attempt]
        if action.attempt not in self.processes:
            self.wrong += [f"{attempt.id} starts on {gpu}, whose memory is not back" for gpu in self._haunted(attempt)]
            self.wrong += [f"{attempt.id} starts where users are sent to {name}" for name in self._led_to(attempt)]
            fate = self.next_start.pop(0) if self.next_start else ""
            if fate == "port":
                return act.Outcome(False, f"port {attempt.port} is in use", port_conflict=True)
            self.next_pid += 1
            ready_s = self.clock_s + (0.5 if attempt.role == "router" else self.start_s)
            process = SimProcess(self.next_pid, self.clock_s, ready_s, gpus=attempt.gpus)
            if fate == "die":
                process.dies_s = self.clock_s + min(self.start_s / 2, 30.0)
            process.unkillable, self.unkillable_next = self.unkillable_next, False
            self.processes[action.attempt] = process
            self.engines[action.attempt] = Engine(trouble=self.trouble)
        pid = self.processes[action.attempt].pid
        return act.Outcome(True, pid=pid, start_ticks=pid * 10)

    def _led_to(self, attempt: Attempt) -> list[str]:
        """Others whom the front door, which may have refused its route, knows at this one's port."""
        known = (*self.route.public, *self.route.preview) if self.door_alive else ()
        return [s.attempt for s in known if s.port == attempt.port and s.attempt != attempt.id and s.state in _TAKES]

    def _haunted(self, attempt: Attempt) -> list[str]:
        """Cards on which the driver still frees what a dead process had.

        A sleeper gave its cards back before it died, but for its context.
        Where a stranger came or went whose memory is not told, nobody can tell whose is back.
        What a person has closed a person opens.
        """
        dead = [p for p in self.processes.values() if not p.is_alive and p.memory_mib > LEFTOVER_MIB]
        gone = [p for p in dead if p.memory_until_s > self.clock_s]
        return [gpu for gpu in attempt.gpus for p in gone if gpu in p.gpus and gpu not in self.visited]

    def _StopAttempt(self, action: act.StopAttempt, state: State) -> act.Outcome:  # noqa: N802
        process = self.processes.get(action.attempt)
        if process is None:
            return act.Outcome(True)
        if process.is_well:
            self.wrong += _ill_advised(action.attempt, state)
            attempt = state.attempts[action.attempt]
            streams = self.in_flight.get(attempt.slot or 0, 0) if self.door_alive and attempt.exposed else 0
            if streams and not attempt.hurry:
                self.wrong.append(f"{action.attempt} was stopped with {streams} streams in flight")
        if process.stopping_until is None and process.life is Life.RUNNING:
            process.stopping_until = math.inf if process.unkillable else self.clock_s + self.stop_s
        return act.Outcome(True)

    def _ClearStrays(self, action: act.ClearStrays, state: State) -> act.Outcome:  # noqa: N802
        process = self.processes[action.attempt]
        if process.unkillable or not action.force:
            return act.Outcome(False, "signalled")
        self._end(action.attempt, "its strays were ended")
        return act.Outcome(True)

    def _RunGate(self, action: act.RunGate, state: State) -> act.Outcome:  # noqa: N802
        if action.run not in self.running_gates:
            queue = self.verdicts.get(action.gate, [])
            verdict = queue.pop(0) if queue else "pass"
            limit_s = float(state.rollouts[action.rollout].profile[action.index]["deadline_s"])
            ends_s = self.clock_s + (limit_s if verdict == "hang" else self.gate_s)
            truth = GateTruth(ends_s, "error" if verdict == "hang" else verdict)
            self.running_gates[action.run] = truth
            self.asked_gates.setdefault((action.rollout, action.index), []).append(truth)
        return act.Outcome(True)

    def _StopGate(self, action: act.StopGate, state: State) -> act.Outcome:  # noqa: N802
        truth = self.running_gates.get(action.run)
        if truth is not None and truth.ends_s > self.clock_s:
            truth.ends_s, truth.verdict, truth.stopped = self.clock_s, "error", True
        return act.Outcome(True)

    def _SetRoute(self, action: act.SetRoute, state: State) -> act.Outcome:  # noqa: N802
        # Slot by slot, and the daemon can die between two of them.
        self.route = replace(self.route, preview=action.route.preview, mode=action.route.mode)
        crash_point("effect-halfway")
        self.route = action.route
        return act.Outcome(True)

    def _OpenDoor(self, action: act.OpenDoor, state: State) -> act.Outcome:  # noqa: N802
        self.door_tried_s = self.clock_s
        self.door_alive = True
        if self.forgets_route:
            self.route, self.forgets_route = Route(0, mode=Mode.OPEN), False
        return act.Outcome(True)

    def close_door(self) -> None:
        self.door_alive = False
        self.in_flight.clear()
        self.version += 1

    # --- the truth ----------------------------------------------------------------------------------------------------

    def untrue(self, state: State) -> Iterator[str]:
        """Where what is does not fit what the journal says."""
        yield from self.wrong
        sitting: dict[str, str] = {}
        for name, process in self.processes.items():
            if not process.is_alive:
                continue
            attempt = state.attempts.get(name)
            if attempt is None or not attempt.holds:
                yield f"{name} runs, and nobody's cards are leased to it"
            for gpu in process.gpus if process.memory_mib > LEFTOVER_MIB else ():
                if gpu in sitting:
                    yield f"{name} and {sitting[gpu]} run on {gpu} at once"
                sitting[gpu] = name
        yield from self._users(state)

    def unjust(self, before: State, state: State) -> Iterator[str]:
        """Whoever serves well is sent away as if it were dead, with the users that it has."""
        for attempt in state.seat_attempts(state.live):
            was = before.attempts.get(attempt.id)
            if was is None or was.state is not AttemptState.READY or attempt.state is not AttemptState.RETIRING:
                continue
            heard = attempt.id not in self.heard_until_s
            if attempt.hurry and attempt.gave_way_to is None and heard and self._probe(attempt.id).ok:
                yield f"{attempt.id} answers, and was given up as dead"

    def _users(self, state: State) -> Iterator[str]:
        """Nobody is sent to a release of which a gate really said something else than pass in this rollout."""
        if not self.door_alive:
            return
        for slot in self.route.public:
            attempt = state.attempts.get(slot.attempt)
            if slot.state is SlotState.READY and attempt is not None:
                rollout = state.rollouts[attempt.rollout]
                if rollout.kind is not Kind.ROLLBACK and attempt.release == rollout.release:
                    yield from self._unproved(attempt, state)

    def _unproved(self, attempt: Attempt, state: State) -> Iterator[str]:
        rollout = state.rollouts[attempt.rollout]
        for index, step in enumerate(rollout.profile):
            if step.get("observe"):
                continue
            runs = reversed(self.asked_gates.get((rollout.id, index), ()))
            said = next((run.verdict for run in runs if run.ends_s <= self.clock_s and not run.stopped), "nothing")
            if said != "pass":
                yield f"users reach {attempt.id}, and gate {step['name']} said {said}"


def _ill_advised(name: str, state: State) -> Iterator[str]:
    """What serves well is stopped only by a plan or a person; the way back stays while the bake lasts."""
    attempt = state.attempts[name]
    seat = Seat(attempt.release, attempt.rollout)
    if attempt.gave_way_to is not None or attempt.role == "router" or attempt.ready_at_s is None:
        return
    if seat == state.live and not attempt.hurry:
        yield f"{name} is live, is well and was stopped"
    active = state.active
    if active is not None and active.phase is Phase.BAKING and seat == active.before[0] and not attempt.hurry:
        yield f"{name} is what a failed bake would go back to, and it was stopped"
