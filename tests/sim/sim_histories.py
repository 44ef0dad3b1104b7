"""Seeded histories: people, processes, cards, clocks and the daemon itself do what they like for sixty steps."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from fake_world import make_release
from sim_world import SimProcess, SimWorld
from simulation import POLICY, Simulation, Violated, new_simulation
from sleepy_world import HEALTHY, TROUBLES

from controller.core import actions as act
from controller.core.night_records import Arm, OnSuccess, Sweep
from controller.core.policy import LAST_KNOWN_GOOD
from controller.core.records import Closed, Freeze, Kind, Options, Release
from controller.core.route import SlotState, Traffic
from controller.core.seen import Life, Users
from controller.core.table import IllegalMove
from controller.core.window import Schedule

STEPS = 60
POLICIES: tuple[dict[str, Any], ...] = (  # of a history, by its seed
    {},
    {"when_live_keeps_dying": LAST_KNOWN_GOOD, "restart_budget": 0},
    {},
    {"when_live_keeps_dying": LAST_KNOWN_GOOD, "restart_budget": 0},
    {"port_last": POLICY.port_first + 10 * 6 - 1},  # as few as there are: each comes again soon
    {"when_live_keeps_dying": LAST_KNOWN_GOOD, "restart_budget": 1},
    {"restart_budget": 2, "restart_window_s": 60.0, "restart_pause_s": 3.0},
    {"when_live_keeps_dying": LAST_KNOWN_GOOD, "restart_budget": 0},
)
OPENINGS = ("empty", "one", "warm", "pair", "whole", "router", "drowsy whole", "drowsy halves")
WITH_A_WAY_BACK = ("warm", "warm", "second pair", "second pair", "second router", "second router", "slept", "slept")


@cache
def release_of(name: str, gpus: int, instances: int, router: bool = False, sleeps: bool = False) -> Release:
    """A release never changes under its name."""
    made = make_release(f"{name}{gpus}x{instances}{'r' * router}{'s' * sleeps}", gpus, instances, router)
    return replace(made, stop_grace_s=10.0, can_sleep=sleeps)


@cache
def opening(name: str) -> Simulation:
    """A box as it stands in the evening; histories begin with a fork of it."""
    sim = new_simulation()
    begun = {
        "empty": (),
        "one": (("a", 1, 1),),
        "warm": (("a", 1, 1), ("b", 1, 1)),
        "pair": (("a", 1, 2),),
        "whole": (("a", 4, 1),),
        "halves": (("a", 2, 2),),
        "router": (("a", 1, 2, True),),
        "second pair": (("b", 1, 1), ("a", 1, 2)),
        "second router": (("b", 1, 1), ("a", 1, 2, True)),
        "slept": (("b", 4, 1, False, True), ("a", 4, 1, False, True)),
        "drowsy whole": (("a", 4, 1, False, True),),
        "drowsy halves": (("a", 2, 2, False, True),),
    }
    for gpus in begun[name]:
        sim.propose(release_of(*gpus), bake_s=0.0, strategy="any")
        sim.run(lambda: sim.is_over)
    sim.peace()
    sim.rest()
    return sim


def is_night(seed: int) -> bool:
    """Whether windows open in the history of this seed."""
    return seed % NIGHTS == NIGHTS - 1


class History:
    """One seed. `play` raises `Violated` with the story when something does not hold."""

    def __init__(self, seed: int, steps: int = STEPS, sim: Simulation | None = None) -> None:
        """`sim`: the box that it befalls; None: the seed chooses one."""
        self.seed = seed
        self.steps = steps
        self.dice = random.Random(seed)  # noqa: S311 - replayed by its seed
        self.sim = sim or opening(self.dice.choice(WITH_A_WAY_BACK if seed % 4 == 1 else OPENINGS)).fork()
        self.restless = self.dice.choice((0.15, 0.35, 0.6))  # how often something happens
        self.deadly = self.dice.choice((0.0, 0.05, 0.15))  # how often the daemon is killed
        by_night = is_night(seed)
        happenings = HAPPENINGS | AT_NIGHT if by_night else HAPPENINGS
        self.happenings, self.weights = zip(*happenings.items(), strict=True)
        self.sim.follow(**POLICIES[seed % len(POLICIES)])
        # In every fifth the journal forgets what it can, at any time; all else in it happens as if it did not.
        self.forgetting = random.Random(-seed) if seed % 5 == 2 else None  # noqa: S311 - replayed by its seed
        self.sim.forgetting = self.forgetting
        if by_night:
            self._open_windows()

    def _open_windows(self) -> None:
        """Short nights that begin in a moment, and come again every day."""
        now_s, dice = self.world.now().wall_s, self.dice
        opens_s = [now_s + dice.choice((-100.0, -100.0, 30.0, 100.0)), now_s + dice.choice((60.0, 300.0))]
        names = ("nightly", "late")[: dice.choice((1, 1, 2))]
        schedules = {
            name: Schedule(name, datetime.fromtimestamp(at_s, UTC).time(), dice.choice((120.0, 900.0, 3600.0)), UTC)
            for name, at_s in zip(names, opens_s, strict=False)
        }
        patience_s = dice.choice((20.0, 300.0))
        self.sim.follow(schedules=schedules, quiet_patience_s=patience_s, approval_recheck_s=20.0, expires_s=3000.0)
        self.sim.observers = ({"name": "throughput", "deadline_s": 30.0},) if dice.random() < 0.6 else ()

    def play(self) -> None:
        try:
            for _ in range(self.steps):
                self._step()
            self.sim.peace()
            self.sim.rest()
        except Violated as broken:
            raise Violated(f"seed {self.seed}\n{broken}") from None

    def _step(self) -> None:
        sim, dice = self.sim, self.dice
        if dice.random() < self.restless:
            happening = dice.choices(self.happenings, self.weights)[0]
            with contextlib.suppress(IllegalMove):  # somebody asked for what cannot be had now: nothing was changed
                happening(self)
            sim.world.version += 1
        if self.forgetting is not None and self.forgetting.random() < 0.2:
            sim.forget()
        if dice.random() < self.deadly:
            sim.kill_in = dice.randrange(1, 12)
        if not sim.step():
            sim.world.wait(dice.choice((0.2, 1.0, 1.0, 5.0, 5.0, 20.0, min(90.0, sim.world.next_event_s() + 0.01))))

    # --- for happenings -----------------------------------------------------------------------------------------------

    @property
    def world(self) -> SimWorld:
        return self.sim.world

    def some_process(self) -> SimProcess | None:
        alive = [p for p in self.world.processes.values() if p.life is Life.RUNNING]
        return self.dice.choice(alive) if alive else None

    def some_open_rollout(self) -> str | None:
        names = [r.id for r in self.sim.state.rollouts.values() if r.ended_wall_s is None]
        return self.dice.choice(names) if names else None


def _propose(history: History) -> None:
    dice = history.dice
    router = dice.random() < 0.15
    gpus, instances = dice.choice((1, 1, 2, 2, 4)), 2 if router else dice.choice((1, 1, 2))
    history.sim.propose(
        release_of(dice.choice("abcd"), gpus, instances, router, dice.random() < 0.4),
        require_approval=dice.random() < 0.1,
        bake_s=dice.choice((0.0, 5.0, 30.0)),
        strategy=dice.choice(("auto", "auto", "any", "rolling", "swap")),
        wait_for_free_s=dice.choice((None, None, 50.0)),
    )


def _rollback(history: History) -> None:
    if history.sim.state.previous is not None:
        history.sim.rollback()


def _restart(history: History) -> None:
    live = history.sim.state.live
    if live is not None:
        history.sim.propose(history.sim.state.releases[live.release], Kind.RESTART, force=True, strategy="any")


def _abort(history: History) -> None:
    if name := history.some_open_rollout():
        history.sim.ask(act.AskAbort(name, "somebody"))


def _approve(history: History) -> None:
    if name := history.some_open_rollout():
        history.sim.ask(act.Approve(name, "boss"))


def _freeze(history: History) -> None:
    history.sim.ask(act.SetFreeze(history.dice.choice((None, None, Freeze("boss", "no", 0.0)))))


def _stand_down(history: History) -> None:
    history.sim.ask(act.StandDown("somebody"))


def _cordon(history: History) -> None:
    history.sim.ask(act.CloseCard(f"gpu-{history.dice.randrange(4)}", Closed("boss", "its fan", 0.0)))


def _uncordon(history: History) -> None:
    history.sim.ask(act.OpenCard(f"gpu-{history.dice.randrange(4)}"))


def _die(history: History) -> None:
    if process := history.some_process():
        process.life = history.dice.choice((Life.EXITED, Life.EXITED, Life.STRAYS))
        process.sentence = "it died"
        process.stopping_until = None
        process.memory_until_s = history.world.clock_s + history.world.late_memory_s


def _fall_silent(history: History) -> None:
    if process := history.some_process():
        process.silent = not process.silent


def _write_garbage(history: History) -> None:
    if process := history.some_process():
        process.garbage = not process.garbage


def _slow_down(history: History) -> None:
    if process := history.some_process():
        process.ttft_s = history.dice.choice((0.1, 5.0))


def _probes_hang(history: History) -> None:
    """Nobody hears of it any more: neither that it is well nor that it is not."""
    names = [name for name, p in history.world.processes.items() if p.life is Life.RUNNING]
    if names:
        history.world.heard_until_s[history.dice.choice(names)] = history.world.clock_s


def _probes_answer(history: History) -> None:
    history.world.heard_until_s.clear()


def _become_unkillable(history: History) -> None:
    if process := history.some_process():
        process.unkillable = True
        if process.stopping_until is not None:
            process.stopping_until = float("inf")


def _end_at_last(history: History) -> None:
    for process in history.world.processes.values():
        process.unkillable = False
        if process.stopping_until is not None:
            process.stopping_until = min(process.stopping_until, history.world.clock_s + 1.0)


def _fail_requests(history: History) -> None:
    names = [a.id for a in history.sim.state.seat_attempts(history.sim.state.live)]
    if names:
        name = history.dice.choice(names)
        failures = history.dice.choice((1, 5, 50))
        history.world.traffic[name] = Traffic(name, requests=100, errors_5xx=failures)


def _verdict(history: History) -> None:
    verdict = history.dice.choice(("fail", "inconclusive", "error", "hang"))
    history.world.verdicts.setdefault("toolcalls", []).append(verdict)


def _door_refuses(history: History) -> None:
    """It takes no route until there is peace, whatever it is told."""
    history.world.failing["SetRoute"] = 300


def _effects_fail(history: History) -> None:
    name = history.dice.choice(("SetRoute", "OpenDoor", "StartAttempt", "StopAttempt", "RunGate", "StopGate"))
    history.world.failing[name] += history.dice.choice((1, 1, 3, 300))  # 300: until there is peace


def _stranger(history: History) -> None:
    history.world.foreign[history.dice.randrange(4)] = "pid 7 (a job)"


def _memory_stays(history: History) -> None:
    history.world.stuck_mib[history.dice.randrange(4)] = history.dice.choice((0, 300, 59_000))


def _streams(history: History) -> None:
    """Users come to whoever the front door shows them; those who stay long are in flight when it drains."""
    for slot in history.world.route.public:
        if slot.state is SlotState.READY:
            history.world.in_flight[slot.number] = history.dice.randrange(3)
    for number in [n for n in history.world.in_flight if history.dice.random() < 0.5]:
        del history.world.in_flight[number]


def _clock_jumps(history: History) -> None:
    history.world.wall_zero_s += history.dice.choice((-3600.0, 3600.0))


def _suspend(history: History) -> None:
    history.world.wait(600.0)


def _door_dies(history: History) -> None:
    history.world.close_door()
    history.world.forgets_route = history.dice.random() < 0.3


def _set(name: str, *values: object) -> Callable[[History], None]:
    def happening(history: History) -> None:
        setattr(history.world, name, history.dice.choice(values))

    return happening


def _reboot(history: History) -> None:
    history.world.reboot()
    history.sim.restart("went with its host")


def _disk_full(history: History) -> None:
    history.sim.journal.disk.full_for = history.dice.choice((1, 1, 4))


def _propose_for_the_night(history: History) -> None:
    dice = history.dice
    wall_s = history.world.now().wall_s
    gpus, instances = dice.choice((1, 1, 2, 4)), dice.choice((1, 1, 2))
    history.sim.propose(
        release_of(dice.choice("abcd"), gpus, instances, False, dice.random() < 0.4),
        window=dice.choice(("nightly",) * 5 + ("late", "")),
        priority=dice.choice((0, 0, 1, 5)),
        require_approval=dice.random() < 0.15,
        trial=dice.random() < 0.3,
        bake_s=dice.choice((0.0, 5.0, 30.0)),
        strategy=dice.choice(("auto", "any", "rolling", "swap")),
        expires_wall_s=dice.choice((None, None, wall_s + 200.0)),
        finish_by_wall_s=dice.choice((None, None, wall_s + 60.0, wall_s + 90.0, wall_s + 150.0)),
    )


def _sweep(history: History) -> None:
    dice = history.dice
    releases = {r.id: r for r in (release_of(name, dice.choice((1, 2)), 1) for name in "cd")}
    arms = tuple(Arm(name, name) for name in releases)
    sweep = Sweep("", "sweep", "tester", 0.0, dice.choice(tuple(OnSuccess)), arms)
    options = Options(window=dice.choice(("nightly", "")), bake_s=0.0)
    profile = ({"name": "health", "deadline_s": 10.0}, *history.sim.observers)
    history.sim.ask(act.FileSweep(sweep, tuple(releases.values()), options, profile))


def _reorder(history: History) -> None:
    if name := history.some_open_rollout():
        history.sim.ask(act.Reorder(name, history.dice.choice((-1, 0, 9))))


def _freeze_for_a_while(history: History) -> None:
    wall_s = history.world.now().wall_s
    history.sim.ask(act.SetFreeze(Freeze("boss", "exam week", wall_s, wall_s + history.dice.choice((20.0, 400.0)))))


def _clock_slips(history: History) -> None:
    """Less than an hour: a night may be over, and then not."""
    history.world.wall_zero_s += history.dice.choice((-1000.0, -200.0, -50.0, 50.0, 200.0, 1000.0))


NIGHTS = 6  # every sixth seed is a night
AT_NIGHT: dict[Callable[[History], None], int] = {
    _propose_for_the_night: 14,
    _sweep: 2,
    _reorder: 2,
    _freeze_for_a_while: 1,
    _clock_slips: 5,
    _set("start_s", 5.0, 30.0, 50.0): 3,  # slower than it was measured
    _set("gate_s", 3.0, 25.0, 50.0): 3,
    _set("users", Users(0, 0.0), Users(0, 0.0), Users(0, 2.0), Users(3, 60.0), None): 4,
}
HAPPENINGS: dict[Callable[[History], None], int] = {
    _propose: 12,
    _rollback: 4,
    _restart: 2,
    _abort: 4,
    _approve: 2,
    _freeze: 1,
    _stand_down: 1,
    _cordon: 1,
    _uncordon: 2,
    _die: 7,
    _fall_silent: 5,
    _write_garbage: 1,
    _slow_down: 1,
    _probes_hang: 1,
    _probes_answer: 1,
    _become_unkillable: 1,
    _end_at_last: 2,
    _fail_requests: 2,
    lambda history: history.world.traffic.clear(): 2,
    _verdict: 4,
    _effects_fail: 3,
    _door_refuses: 1,
    lambda history: history.world.next_start.append(history.dice.choice(("port", "die"))): 2,
    _stranger: 1,
    lambda history: history.world.foreign.clear(): 2,
    _memory_stays: 2,
    lambda history: history.world.untrusted.add(history.dice.randrange(4)): 1,
    lambda history: history.world.untrusted.clear(): 2,
    _set("gpus_why", "", "", "NVML hangs"): 1,
    _streams: 4,
    _set("start_s", 0.5, 5.0, 5.0, 30.0, 1e9): 2,
    _set("trouble", *TROUBLES, *[HEALTHY] * 6): 2,
    _set("sleep_s", 0.5, 2.0, 40.0): 1,
    _set("wake_s", 0.5, 1.0, 40.0): 1,
    _set("stop_s", 0.1, 1.0, 40.0): 2,
    _set("late_memory_s", 0.0, 2.0, 30.0, 90.0): 1,
    _set("gate_s", 0.1, 3.0, 20.0): 1,
    _clock_jumps: 1,
    _suspend: 1,
    _door_dies: 2,
    _reboot: 1,
    _disk_full: 2,
}
assert POLICY.slots >= 8
