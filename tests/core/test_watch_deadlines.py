"""The watch of production ends on every path: what is stuck is given up, another serves, or a person is called."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import Box
from sleepy_world import STAYS_ASLEEP, SleepyWorld

from controller.core.policy import LAST_KNOWN_GOOD, Policy
from controller.core.records import Phase
from controller.core.restarts import given_up
from controller.core.seen import Life
from controller.core.takeover import is_lost
from controller.loop import Loop
from controller.store.journal import Journal

POLICY = Policy(
    bake_s=5.0,
    start_s=60.0,
    drain_s=30.0,
    swap_drain_s=30.0,
    sleep_deadline_s=20.0,
    restart_budget=2,
    when_live_keeps_dying=LAST_KNOWN_GOOD,
)
MARGIN_S = 30.0  # stops, ticks


@pytest.fixture
def box(tmp_path, release):
    """`one` is live on all cards; `zero`, which was live before, sleeps."""
    journal = Journal(tmp_path / "journal.sqlite")
    world = SleepyWorld(memory_mib=dict.fromkeys(range(4), 10))
    made = Box(Loop(journal, world, POLICY), world, journal)
    for name in ("zero", "one"):
        made.finish(made.propose(replace(release(name, gpus=4), can_sleep=True), strategy="any"))
    yield made
    journal.close()


def let_live_die(box) -> None:
    for attempt in box.state.seat_attempts(box.state.live):
        box.world.processes[attempt.id].life = Life.EXITED


def starts_and_pauses_s() -> float:
    pauses_s = sum(POLICY.restart_pause_s * 2**n for n in range(POLICY.restart_budget - 1))
    return POLICY.restart_budget * POLICY.start_s + pauses_s + MARGIN_S


def test_starts_that_never_end_are_given_up(box):
    box.world.start_s = 1e9
    let_live_die(box)
    box.run(lambda: is_lost(box.state), limit_s=starts_and_pauses_s(), tick_s=1.0)
    assert "its start took longer than 60 s" in given_up(box.state, box.state.live)[0].why


def test_who_takes_over_is_woken_or_started_or_given_up_and_a_person_is_called(box):
    """It sleeps on, its start hangs, and nothing else is there: what is live stays, and is down."""
    for engine in box.world.engines.values():
        engine.trouble = STAYS_ASLEEP
    box.world.start_s = 1e9
    let_live_die(box)
    box.run(lambda: len(box.state.rollouts) == 3, limit_s=starts_and_pauses_s() + MARGIN_S, tick_s=1.0)
    back = list(box.state.rollouts)[-1]
    wake_and_start_s = POLICY.sleep_deadline_s + POLICY.start_s
    box.run(lambda: box.state.rollouts[back].ended_wall_s is not None, 2 * wake_and_start_s + 240.0, tick_s=1.0)
    assert box.phase(back) is Phase.ROLLBACK_FAILED
    assert box.state.live.release == "one@00000000"
    box.settle()
    assert "zero@00000000 did not take over" in box.loop.alarms[0]
    assert "live keeps dying" in box.loop.alarms[1]


def test_a_sleeper_that_takes_over_is_woken(box):
    box.world.start_s = 1e9
    let_live_die(box)
    box.run(lambda: box.state.live.release == "zero@00000000", starts_and_pauses_s() + 2 * MARGIN_S, tick_s=1.0)
    assert list(box.state.rollouts.values())[-1].phase is Phase.ROLLED_BACK


def test_live_that_is_silent_is_replaced_within_its_patience(box):
    name = box.state.seat_attempts(box.state.live)[0].id
    box.world.processes[name].silent = True
    box.run(lambda: not box.state.attempts[name].holds, limit_s=POLICY.silent_s + MARGIN_S, tick_s=1.0)


def test_a_process_that_cannot_be_ended_is_an_alarm(box):
    """Nobody gets its cards, and nothing can be started there: only a person can help."""
    name = box.state.seat_attempts(box.state.live)[0].id
    box.world.stop_s = 1e9
    box.world.processes[name].silent = True
    box.run(lambda: any("does not end since" in alarm for alarm in box.loop.alarms), limit_s=200.0, tick_s=1.0)
    assert name in " ".join(box.loop.alarms)
