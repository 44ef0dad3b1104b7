"""Evenings with a script, in all three strategies: the daemon is killed at every named point of each, and at each pair.

A scenario is what people and the world do, each when its time has come; who is killed meanwhile does not change that.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim_histories import opening, release_of
from simulation import Simulation

from controller.core import actions as act
from controller.core.policy import LAST_KNOWN_GOOD
from controller.core.records import AttemptState, Kind, Phase, Seat
from controller.core.restarts import given_up
from controller.core.seats import missing_instances
from controller.core.seen import Life
from controller.core.table import IllegalMove
from controller.core.takeover import is_lost

When = Callable[[Simulation], bool]
Do = Callable[[Simulation], object]
_BOXES = {  # opening, what is proposed, and how
    "blue-green": ("one", ("b", 1, 1), "blue-green"),
    "rolling": ("halves", ("b", 2, 2), "rolling"),
    "swap": ("whole", ("b", 4, 1), "swap"),
    "rolling asleep": ("drowsy halves", ("b", 2, 2), "rolling"),
    "swap asleep": ("drowsy whole", ("b", 4, 1), "swap"),
}
STRATEGIES = tuple(_BOXES)


@dataclass(frozen=True)
class Scenario:
    """What happens, in order: each step waits for its moment, and a step whose moment never comes is left out."""

    name: str
    steps: tuple[tuple[When, Do], ...]
    ends: tuple[Phase, ...] = ()  # how the rollout can end; empty: it depends on who is killed when
    policy: Mapping[str, Any] = field(default_factory=dict)  # what is configured otherwise
    patient: bool = False  # what is left to happen is waited for while live comes back


@dataclass
class Play:
    """A scenario in one strategy. `finish` raises `Violated` when something breaks."""

    scenario: Scenario
    strategy: str
    sim: Simulation
    left: list[tuple[When, Do]]
    died: int = 0
    ways: MutableMapping[bytes, int] = field(default_factory=dict)  # moment that was played from → points to the end
    way: list[tuple[bytes, int]] = field(default_factory=list)  # this one's moments, and the points before them
    met: int | None = None  # points to the end of the evening that this one goes on like
    points: int = 0  # from its beginning to its end

    def finish(self) -> None:
        """Until everything has ended and nothing more is to come, then peace."""
        sim, before = self.sim, self.sim.points
        if len(sim.state.rollouts) == 1:
            _, release, strategy = _BOXES[self.strategy]
            sim.propose(release_of(*release), strategy=strategy, bake_s=10.0)
        sim.run(self._is_over, limit_s=3000.0, tick_s=10.0)
        self.points = sim.points - before + (self.met or 0)
        if self.met is None:
            sim.peace()
            sim.rest()
            self._judge_end()
        for moment, at in self.way:
            self.ways[moment] = self.points - (at - before)

    def _judge_end(self) -> None:
        last = list(self.sim.state.rollouts.values())[-1]
        # A gate that is not begun because of two deaths could not tell, twice: nobody is switched, nothing is lost.
        ends = (*self.scenario.ends, Phase.INCONCLUSIVE) if self.died > 1 else self.scenario.ends
        if self.scenario.ends and last.phase not in ends:
            self.sim.fail([f"{last.id} is {last.phase}: {last.why}"])

    def _is_over(self) -> bool:
        """Also when it has come to a moment from which another evening was played to its end: it would be the same."""
        moment = b"%s %s" % (self.key(), self.sim.known())
        if (met := self.ways.get(moment)) is not None:
            self.met = met
            return True
        self.way.append((moment, self.sim.points))
        while self.left and self.left[0][0](self.sim):
            with contextlib.suppress(IllegalMove):  # the moment came too late for that, and nothing was changed
                self.left.pop(0)[1](self.sim)
            self.sim.world.version += 1
        return self.sim.is_over and self.sim.is_idle and not self._waits_for_live()

    def _waits_for_live(self) -> bool:
        seat = self.sim.state.live
        if not self.scenario.patient or not self.left:
            return False
        gone = {a.instance for a in given_up(self.sim.state, seat)} if seat else set()
        return seat is not None and any(name not in gone for name in missing_instances(self.sim.state, seat))

    def killed(self) -> Play:
        """The same evening as it goes on when the daemon is killed at this very moment."""
        return Play(self.scenario, self.strategy, self.sim.fork(), list(self.left), self.died + 1, self.ways)

    def key(self) -> bytes:
        """Two evenings with the same key go on alike when the daemon is killed: nothing else outlives it."""
        return b"%d %s" % (len(self.left), self.sim.fingerprint())


def begin(scenario: Scenario, strategy: str, path: Path | None = None) -> Play:
    """`path`: of the journal, where it is to be a file."""
    sim = opening(_BOXES[strategy][0]).fork(path)
    sim.follow(**scenario.policy)
    return Play(scenario, strategy, sim, list(scenario.steps))


# --- moments ----------------------------------------------------------------------------------------------------------


def at(*phases: Phase) -> When:
    """The newest rollout is in one of these phases, or has left them behind for good."""

    def when(sim: Simulation) -> bool:
        newest = list(sim.state.rollouts.values())[-1]
        return newest.phase in phases

    return when


def at_once(sim: Simulation) -> bool:
    return True


def at_rest(sim: Simulation) -> bool:
    return sim.is_over and sim.is_idle


def live_stands(sim: Simulation) -> bool:
    """It serves, or does no more."""
    ready = [a.id for a in sim.state.seat_attempts(sim.state.live) if a.state is AttemptState.READY]
    serves = sim.is_over and any(sim.world.processes[name].life is Life.RUNNING for name in ready)
    return serves or live_is_given_up(sim)


def live_is_given_up(sim: Simulation) -> bool:
    return at_rest(sim) and is_lost(sim.state)


# --- what happens -----------------------------------------------------------------------------------------------------


def kill_candidate(sim: Simulation) -> None:
    active = sim.state.active
    _kill(sim, active.seat if active else None)


def kill_live(sim: Simulation) -> None:
    _kill(sim, sim.state.live)


def kill_previous(sim: Simulation) -> None:
    _kill(sim, sim.state.previous)


def _kill(sim: Simulation, seat: Seat | None) -> None:
    for attempt in sim.state.seat_attempts(seat):
        process = sim.world.processes.get(attempt.id)
        if process is not None and process.life is Life.RUNNING:
            process.life, process.sentence = Life.EXITED, "it died"
            return


def silence_candidate(sim: Simulation) -> None:
    active = sim.state.active
    for attempt in sim.state.seat_attempts(active.seat if active else None):
        if attempt.id in sim.world.processes:
            sim.world.processes[attempt.id].silent = True


def cannot_be_ended(sim: Simulation) -> None:
    active = sim.state.active
    for attempt in sim.state.seat_attempts(active.seat if active else None):
        if attempt.id in sim.world.processes:
            sim.world.processes[attempt.id].unkillable = True


def kill_sleeper(sim: Simulation) -> None:
    for name, engine in sim.world.engines.items():
        if engine.asleep and name in sim.world.processes:
            sim.world.die(name)
            return


def engines_are(trouble: str) -> Do:
    def do(sim: Simulation) -> None:
        for engine in sim.world.engines.values():
            engine.trouble = trouble

    return do


def abort(sim: Simulation) -> None:
    if sim.state.active is not None:
        sim.ask(act.AskAbort(sim.state.active.id, "somebody"))


def roll_back(sim: Simulation) -> None:
    if sim.state.previous is not None:
        sim.rollback()


def restart(sim: Simulation) -> None:
    if sim.state.live is not None:
        sim.propose(sim.state.releases[sim.state.live.release], Kind.RESTART, force=True, strategy="any", bake_s=5.0)


def reboot(sim: Simulation) -> None:
    sim.world.reboot()
    sim.restart("went with its host")


def stand_down(sim: Simulation) -> None:
    sim.ask(act.StandDown("somebody"))


def close_door(sim: Simulation) -> None:
    sim.world.close_door()


def door_forgets(sim: Simulation) -> None:
    sim.world.close_door()
    sim.world.forgets_route = True


def fill_disk(sim: Simulation) -> None:
    sim.journal.disk.full_for = 3


def says(*verdicts: str) -> Do:
    return lambda sim: sim.world.verdicts.setdefault("toolcalls", []).extend(verdicts)


def fails(effect: str, times: int) -> Do:
    def do(sim: Simulation) -> None:
        sim.world.failing[effect] = times

    return do


def is_so(name: str, value: object) -> Do:
    return lambda sim: setattr(sim.world, name, value)


def fate(*words: str) -> Do:
    return lambda sim: sim.world.next_start.extend(words)


def stranger(sim: Simulation) -> None:
    active = sim.state.active
    for gpus in (active.gpu_map if active else {}).values():
        sim.world.foreign[int(gpus[0].removeprefix("gpu-"))] = "pid 7 (a job)"
        return


DONE = (Phase.PROMOTED,)
DYING: Mapping[str, Any] = {"restart_budget": 1, "restart_window_s": 30.0, "restart_pause_s": 0.5}
TAKEN_OVER: Mapping[str, Any] = {**DYING, "when_live_keeps_dying": LAST_KNOWN_GOOD}
SCENARIOS = (
    Scenario("nothing happens", (), DONE),
    Scenario("a gate fails", ((at_once, says("fail")),), (Phase.REJECTED,)),
    Scenario("a gate cannot tell", ((at_once, says(*["inconclusive"] * 4)),), (Phase.INCONCLUSIVE,)),
    Scenario("a gate hangs", ((at_once, says("hang")),)),
    Scenario("never ready", ((at_once, is_so("start_s", 1e9)),), (Phase.FAILED,)),
    Scenario("dies while it loads", ((at_once, fate("die")),)),
    Scenario("its port is taken", ((at_once, fate("port", "port")),), DONE),
    Scenario("dies at a gate", ((at(Phase.GATING), kill_candidate),), (Phase.REJECTED,)),
    Scenario("dies in the bake", ((at(Phase.BAKING), kill_candidate),)),
    Scenario("falls silent in the bake", ((at(Phase.BAKING), silence_candidate),)),
    Scenario("a stranger comes", ((at(Phase.LEASING), stranger),)),
    Scenario("aborted while it makes room", ((at(Phase.LEASING), abort),)),
    Scenario("aborted while it starts", ((at(Phase.STARTING), abort),)),
    Scenario("aborted at the gates", ((at(Phase.GATING), abort),)),
    Scenario("aborted at the cutover", ((at(Phase.CUTTING_OVER), abort),)),
    Scenario("aborted while it completes", ((at(Phase.COMPLETING), abort),)),
    Scenario("aborted in the bake", ((at(Phase.BAKING), abort),)),
    Scenario("live dies before", ((at_once, kill_live),)),
    Scenario("live dies while it starts", ((at(Phase.STARTING), kill_live),)),
    Scenario("live dies at the gates", ((at(Phase.GATING), kill_live),)),
    Scenario("previous dies in the bake", ((at(Phase.BAKING), kill_previous),)),
    Scenario("both die in the bake", ((at(Phase.BAKING), kill_previous), (at(Phase.BAKING), kill_candidate))),
    Scenario("rolled back by hand", ((at_rest, roll_back),), (Phase.ROLLED_BACK, Phase.PROMOTED)),
    Scenario("rolled back in the bake", ((at(Phase.BAKING), roll_back),)),
    Scenario("restarted", ((at_rest, restart),)),
    Scenario("live dies at rest", ((at_rest, kill_live),)),
    Scenario("live keeps dying", ((live_stands, kill_live),) * 6, policy=DYING, patient=True),
    Scenario("live keeps dying, the host is rebooted", (*((live_stands, kill_live),) * 4, (live_is_given_up, reboot)),
             policy=DYING, patient=True),
    Scenario("live keeps dying, and who takes over too", ((live_stands, kill_live),) * 9, policy=TAKEN_OVER,
             patient=True),
    Scenario("production is taken down", ((at_rest, stand_down),)),
    Scenario("the door dies at the cutover", ((at(Phase.CUTTING_OVER), close_door),)),
    Scenario("the door forgets in the bake", ((at(Phase.BAKING), door_forgets),)),
    Scenario("the switch fails", ((at(Phase.CUTTING_OVER), fails("SetRoute", 2)),)),
    Scenario("the disk is full at the cutover", ((at(Phase.CUTTING_OVER), fill_disk),)),
    Scenario("rebooted while it starts", ((at(Phase.STARTING), reboot),)),
    Scenario("rebooted in the bake", ((at(Phase.BAKING), reboot),)),
    Scenario("memory comes late", ((at_once, is_so("late_memory_s", 5.0)),), DONE),
    Scenario("memory does not come", ((at_once, is_so("late_memory_s", 400.0)), (at(Phase.GATING), abort))),
    Scenario("keeps its memory", ((at(Phase.LEASING), engines_are("keeps memory")),)),
    Scenario("wakes up mad", ((at_once, engines_are("wakes mad")), (at(Phase.GATING), abort))),
    Scenario("dies in its sleep", ((at_once, says("fail")), (at(Phase.GATING), kill_sleeper))),
    Scenario("cannot be ended", ((at_once, says("fail")), (at(Phase.GATING), cannot_be_ended))),
)  # fmt: skip


# --- every point ------------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What was played: kills at points, kills at pairs of points, and how many of them went on differently."""

    points: Counter[str] = field(default_factory=Counter)  # of the scenario itself, by name
    pairs: int = 0  # points that are reached after a kill at one of those
    played: int = 0  # evenings that were played because nothing like them had been

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.points + other.points, self.pairs + other.pairs, self.played + other.played)


def explore(scenario: Scenario, strategy: str, deaths: int = 2) -> Counts:
    """Kill the daemon at every point, and again at every point after that, up to so many times.

    Points between which nothing was written and nothing was done are one: the daemon that begins anew finds the same.
    For the same reason an evening that goes on like one that was played already is not played again.
    """
    counts = Counts()
    kills: Counter[bytes] = Counter()  # moment of the scenario itself → points at which it is found
    explored: dict[bytes, int] = {}
    last: ChainMap[bytes, int] = ChainMap({}, explored)
    known: set[bytes] = set()
    waiting = [replace(begin(scenario, strategy), ways=explored)]
    while waiting:
        play = waiting.pop()
        if play.died == deaths:
            play.ways = last  # others must not stop at it: nobody is killed on its way
        moment, now = play.key(), (play.sim.journal.state, play.sim.world.version)
        born = moment

        def hear(name: str, play: Play = play) -> None:
            nonlocal moment, now
            then, now = now, (play.sim.journal.state, play.sim.world.version)
            if now[0] is not then[0] or now[1] != then[1]:
                moment = play.key()
            if play.died == 0:
                counts.points[name] += 1
                kills[moment] += 1
            if play.died < deaths and moment not in known:
                known.add(moment)
                waiting.append(play.killed())

        play.sim.hear = hear
        play.finish()
        counts.played += 1
        if play.died == 1:
            counts.pairs += play.points * kills[born]
    return counts


def kill_at(scenario: Scenario, strategy: str, point: int) -> bool:
    """Kill it at that point in earnest, in the middle of the pass; False when there are not so many points."""
    play = begin(scenario, strategy)
    play.sim.kill_in = point
    play.finish()
    return play.sim.kills > 0
