"""Seeded histories: whatever people and processes do, the invariants hold at every boundary and everything ends.

A failing seed is replayed by its number: `pytest tests/core/test_histories.py -k 'seed17]'`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import Box, FakeWorld
from sleepy_world import HEALTHY, TROUBLES, SleepyWorld

from controller.core import actions as act
from controller.core.invariants import violations
from controller.core.policy import Policy
from controller.core.records import ACTIVE, AttemptState, Closed, Freeze, Kind, Phase
from controller.core.route import SlotState
from controller.core.seen import Life
from controller.core.table import IllegalMove
from controller.loop import Loop
from controller.store.journal import Journal

STEPS = 60
SEEDS = 20
SLEEPY_SEEDS = 4  # each has its clock turned further
CAMPAIGN = 400


@pytest.fixture
def box(tmp_path):
    """As in conftest, with the journal in memory: histories are many."""
    journal = Journal(Path(":memory:"))
    world = FakeWorld(memory_mib=dict.fromkeys(range(4), 0))
    yield Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    journal.close()


@pytest.fixture
def sleepy(tmp_path):
    """The same with engines that can sleep, and that have all the troubles with it."""
    journal = Journal(Path(":memory:"))
    world = SleepyWorld(memory_mib=dict.fromkeys(range(4), 0))
    yield Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    journal.close()


def lullaby(box, dice: random.Random) -> None:
    """Something happens to engines that can sleep, more often to those that do; and people go back and forth."""
    world = box.world
    beds = [a.id for a in box.state.attempts.values() if a.is_in_bed or a.is_waking]
    name = dice.choice(beds or list(world.engines) or [""])
    happening = dice.randrange(12)
    if happening == 0:
        world.trouble = dice.choice((HEALTHY, *TROUBLES))
    elif happening == 1 and name:
        world.engines[name].trouble = dice.choice((HEALTHY, *TROUBLES))
    elif happening == 2 and beds and world.processes.get(name, None) is not None:
        world.die(name)
    elif happening == 3:
        world.sleep_s, world.wake_s = dice.choice(((2.0, 1.0), (0.0, 0.0), (90.0, 1.0), (5.0, 90.0)))
    elif happening == 4:
        world.controller_died()
    elif happening == 5:
        box.loop.policy = replace(box.loop.policy, sleep=dice.random() < 0.8)
    else:
        peace(box)
        passes(box, 150)
        if box.state.previous is not None and box.state.active is None:
            box.rollback()


def chaos(box, release, dice: random.Random) -> None:
    """One thing happens."""
    if isinstance(box.world, SleepyWorld) and dice.random() < 0.6:
        lullaby(box, dice)
        return
    alive = [name for name, p in box.world.processes.items() if p.life is Life.RUNNING]
    open_ones = [r.id for r in box.state.rollouts.values() if r.ended_wall_s is None]

    def propose():
        router = dice.random() < 0.2
        drowsy = isinstance(box.world, SleepyWorld)
        gpus, instances = dice.choice((2, 2, 4) if drowsy else (1, 1, 2, 2, 4)), 2 if router else dice.choice((1, 1, 2))
        name = (
            f"{dice.choice('abcd')}{gpus}x{instances}{'r' if router else ''}"  # a release never changes under its name
        )
        made = release(name, gpus=gpus, instances=instances, router=router)
        if isinstance(box.world, SleepyWorld):
            made = replace(made, can_sleep=not router)
        box.propose(
            made,
            require_approval=dice.random() < 0.1,
            bake_s=dice.choice((0.0, 5.0, 30.0)),
            strategy=dice.choice(
                ("any", "any", "rolling", "swap") if drowsy else ("auto", "auto", "any", "rolling", "swap")
            ),
            wait_for_free_s=dice.choice((None, None, 50.0)),
        )

    def rollback():
        if box.state.previous is not None:
            box.rollback()

    def restart():
        if box.state.live is not None:
            box.propose(box.state.releases[box.state.live.release], Kind.RESTART, force=True)

    def with_process(change):
        if alive:
            change(box.world.processes[dice.choice(alive)])

    def die(process):
        process.life = dice.choice((Life.EXITED, Life.STRAYS))
        process.sentence = "it died"

    happenings = {
        propose: 6,
        rollback: 2,
        restart: 1,
        lambda: box.ask(act.AskAbort(dice.choice(open_ones), "somebody")) if open_ones else None: 2,
        lambda: box.ask(act.Approve(dice.choice(open_ones), "boss")) if open_ones else None: 1,
        lambda: box.ask(act.SetFreeze(dice.choice((None, None, Freeze("boss", "no", 0.0))))): 1,
        lambda: box.ask(act.StandDown("somebody")): 1,
        lambda: with_process(die): 4,
        lambda: with_process(lambda p: setattr(p, "silent", not p.silent)): 3,
        lambda: with_process(lambda p: setattr(p, "ttft_s", dice.choice((0.1, 5.0)))): 1,
        lambda: setattr(box.world, "door_alive", False): 1,
        lambda: box.world.verdicts.setdefault("toolcalls", []).append(
            dice.choice(("fail", "inconclusive", "error"))
        ): 2,
        lambda: setattr(box.world, "start_s", dice.choice((0.5, 5.0, 5.0, 1e9))): 1,
        lambda: setattr(box.world, "stop_s", dice.choice((0.1, 1.0, 40.0))): 1,
        lambda: box.world.foreign.update({dice.randrange(4): "pid 7 (a job)"}): 1,
        box.world.foreign.clear: 1,
        lambda: box.world.memory_mib.update({dice.randrange(4): dice.choice((0, 300, 59_000))}): 2,
        lambda: box.world.untrusted.add(dice.randrange(4)): 1,
        box.world.untrusted.clear: 1,
        lambda: box.ask(act.CloseCard(f"gpu-{dice.randrange(4)}", Closed("boss", "its fan", 0.0))): 1,
        lambda: box.ask(act.OpenCard(f"gpu-{dice.randrange(4)}")): 2,
        lambda: box.world.in_flight.update({dice.randrange(1, 33): dice.randrange(3)}): 1,
        box.world.reboot: 1,
    }
    happening = dice.choices(list(happenings), list(happenings.values()))[0]
    try:
        happening()
    except IllegalMove:
        return  # somebody asked for what cannot be had now, and nothing was changed


def passes(box, count: int, tick_s: float = 0.5) -> None:
    for _ in range(count):
        busy = box.loop.step()
        assert violations(box.state, box.world.observe(box.state), box.loop.policy) == []
        if not busy:
            box.world.clock_s += tick_s


def peace(box) -> None:
    """Nothing bad happens any more."""
    box.world.start_s, box.world.stop_s = 1.0, 1.0
    box.world.foreign.clear()
    box.world.memory_mib = dict.fromkeys(range(4), 0)
    box.world.untrusted.clear()
    for gpu, closed in box.state.closed.items():
        if closed.by:
            box.ask(act.OpenCard(gpu))
    box.world.in_flight.clear()
    box.world.verdicts.clear()
    box.world.door_alive = True
    if isinstance(box.world, SleepyWorld):
        box.world.sleep_s, box.world.wake_s, box.world.trouble = 2.0, 1.0, HEALTHY
    for process in box.world.processes.values():
        process.silent = False
        process.ready_s = min(process.ready_s, box.world.clock_s + 1.0)
    box.ask(act.SetFreeze(None))
    for rollout in list(box.state.rollouts.values()):
        if rollout.phase is Phase.AWAITING_APPROVAL:
            box.ask(act.AskAbort(rollout.id, "tester"))


@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda n: f"seed{n}")
def test_a_random_evening_ends_well(box, release, seed):
    evening(box, release, seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEEDS, CAMPAIGN), ids=lambda n: f"seed{n}")
def test_many_random_evenings_end_well(box, release, seed):
    evening(box, release, seed)


@pytest.mark.parametrize("seed", range(SLEEPY_SEEDS), ids=lambda n: f"seed{n}")
def test_a_random_evening_of_sleepers_ends_well(sleepy, release, seed):
    evening(sleepy, release, seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SLEEPY_SEEDS, CAMPAIGN), ids=lambda n: f"seed{n}")
def test_many_random_evenings_of_sleepers_end_well(sleepy, release, seed):
    evening(sleepy, release, seed)


def evening(box, release, seed: int) -> None:
    """Chaos, then peace: whatever was begun ends, what is not wanted is gone, and live serves."""
    dice = random.Random(seed)  # noqa: S311 - replayed by its seed
    for _ in range(STEPS):
        chaos(box, release, dice)
        passes(box, dice.choice((1, 3, 10, 40)))
    peace(box)
    for _ in range(40):
        passes(box, 100)
        for rollout in list(box.state.rollouts.values()):
            if rollout.phase is Phase.AWAITING_APPROVAL:
                box.ask(act.AskAbort(rollout.id, "tester"))
        if not box.state.queue and box.state.active is None:
            break
    passes(box, 400, tick_s=2.0)  # drains, restart budgets and stops run out
    assert not box.state.queue, box.loop.why
    assert not [r.id for r in box.state.rollouts.values() if r.phase in ACTIVE], box.loop.why
    held = [a for a in box.state.attempts.values() if a.holds]
    assert all(a.state in {AttemptState.READY, AttemptState.ASLEEP} for a in held), box.loop.why
    asleep = {(a.release, a.rollout) for a in held if a.state is AttemptState.ASLEEP}
    assert not box.state.live or (box.state.live.release, box.state.live.rollout) not in asleep
    wanted = {(seat.release, seat.rollout) for seat in (box.state.live, box.state.previous) if seat}
    assert {(a.release, a.rollout) for a in held} <= wanted
    if box.state.live is not None:
        served = {s.attempt for s in box.world.route.public if s.state is SlotState.READY}
        fronted = {a.id for a in box.state.seat_attempts(box.state.live) if a.slot is not None}
        assert served == fronted
        assert fronted, "live serves again"
