"""One model loads at a time; with `settle_s` the next start waits after the last has ended. Power rails."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_world import Box, FakeWorld

from controller.core.policy import Policy
from controller.core.records import Phase
from controller.core.seen import Life
from controller.loop import Loop
from controller.store.journal import Journal


@pytest.fixture
def settling(tmp_path: Path):
    journal = Journal(tmp_path / "settle.sqlite")
    world = FakeWorld()
    yield Box(Loop(journal, world, Policy(bake_s=5.0, settle_s=20.0)), world, journal)
    journal.close()


def pauses(box) -> list[float]:
    """Between the end of each start and the beginning of the next one."""
    started = sorted((a for a in box.state.attempts.values() if a.pid is not None), key=lambda a: a.started_at_s)
    ends = [a.retired_at_s if a.ready_at_s is None else a.ready_at_s for a in started]
    return [b.started_at_s - end_s for end_s, b in zip(ends, started[1:], strict=False)]


def test_by_default_instances_load_one_after_the_other_and_without_a_pause(box, release):
    box.finish(box.propose(release("one", gpus=1, instances=3)))
    assert len(pauses(box)) == 2
    assert all(0 <= pause_s < 2 for pause_s in pauses(box))


def test_the_next_start_waits_and_the_loop_says_so(settling, release):
    rollout = settling.propose(release("one", gpus=1, instances=3))
    settling.run(lambda: "one-b-2 starts in " in settling.loop.why)
    assert settling.loop.why.startswith("r0001 (one@00000000) is starting: one-b-2 starts in ")
    assert settling.finish(rollout) is Phase.PROMOTED
    assert len(pauses(settling)) == 2
    assert all(20 <= pause_s < 22 for pause_s in pauses(settling))


def test_a_start_that_failed_settles_too(settling, release):
    first = settling.propose(release("one", gpus=1))
    settling.run(lambda: "one-a-1" in settling.world.processes)
    settling.world.processes["one-a-1"].life = Life.EXITED
    assert settling.finish(first) is Phase.FAILED
    assert settling.finish(settling.propose(release("two", gpus=1))) is Phase.PROMOTED
    assert pauses(settling)[0] >= 20


def test_a_router_loads_nothing_and_does_not_wait(settling, release):
    settling.finish(settling.propose(release("one", gpus=1, router=True)))
    assert settling.state.attempts["one-router-2"].started_at_s - settling.state.attempts["one-a-1"].ready_at_s < 2


def test_live_that_comes_back_does_not_wait_for_a_candidate(settling, release):
    settling.finish(settling.propose(release("one", gpus=1)))
    settling.propose(release("two", gpus=1), require_approval=True)
    settling.run(lambda: "two-a-2" in settling.state.attempts and settling.state.attempts["two-a-2"].ready_at_s)
    settling.world.processes["one-a-1"].life = Life.EXITED
    settling.run(lambda: "one-a-3" in settling.state.attempts and settling.state.attempts["one-a-3"].started_at_s)
    assert settling.state.attempts["one-a-3"].started_at_s - settling.state.attempts["two-a-2"].ready_at_s < 10
