"""A front door that takes no route, processes that nothing ends: no deadline waits for what fails again and again."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core import actions as act
from controller.core.alarms import alarms
from controller.core.records import AttemptState, Phase
from controller.core.route import SlotState
from controller.core.seen import Life


@pytest.fixture(autouse=True)
def brisk(box):
    """Deadlines that are over soon."""
    box.loop.policy = replace(box.loop.policy, start_s=30.0, drain_s=60.0, prefill_s=10.0)


@pytest.fixture
def stubborn(box, release):
    """One is live, two is being started, and from now on the front door takes no route."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.STARTING)
    refuses(box)
    return box, rollout


def refuses(box) -> None:
    box.world.refuses["SetRoute"] = "No such server"


def users_are_with(box) -> set[str]:
    return {slot.release for slot in box.world.route.public if slot.state is SlotState.READY}


def switched(box, release) -> str:
    """Two bakes, and users are with it."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING and box.state.rollouts[rollout].switched_at_s is not None)
    return rollout


def said(box) -> str:
    return " ".join(alarms(box.state, box.loop.seen, box.loop.policy))


def test_a_candidate_that_nobody_can_reach_ends_by_its_deadline_and_live_serves_on(stubborn):
    box, rollout = stubborn
    assert box.finish(rollout) is Phase.FAILED
    assert box.state.live.release == "one@00000000"
    assert users_are_with(box) == {"one@00000000"}


def test_an_abort_is_heard_and_its_processes_are_ended(stubborn):
    box, rollout = stubborn
    box.run(lambda: any(a.rollout == rollout and a.state is AttemptState.READY for a in box.state.attempts.values()))
    box.ask(act.AskAbort(rollout, "ada"))
    assert box.finish(rollout, limit_s=30.0) is Phase.ABORTED
    box.run(lambda: not any(a.rollout == rollout and a.holds for a in box.state.attempts.values()), limit_s=30.0)


def test_a_switch_that_it_does_not_take_is_taken_back(box, release):
    """What was committed and never seen is no switch: users stay where they were, which is live again."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.CUTTING_OVER)
    refuses(box)
    assert box.finish(rollout) is Phase.ROLLED_BACK
    assert box.state.rollouts[rollout].switched_at_s is None
    assert box.state.live.release == "one@00000000"
    assert users_are_with(box) == {"one@00000000"}
    box.settle_for(60.0)
    assert users_are_with(box) == {"one@00000000"}


def test_nothing_new_begins_and_somebody_is_told(box, release):
    """Users are with what was switched to, and the way back is not taken: no experiment on top of that."""
    rollout = switched(box, release)
    refuses(box)
    box.ask(act.AskAbort(rollout, "ada"))
    box.finish(rollout)
    assert users_are_with(box) == {"two@00000000"}
    later = box.propose(release("three"))
    box.settle_for(60.0)
    assert box.phase(later) is Phase.QUEUED
    assert "the front door does not take its route (No such server)" in said(box)
    del box.world.refuses["SetRoute"]
    assert box.finish(later) is Phase.PROMOTED
    assert "front door" not in said(box)


def test_it_is_told_again_every_few_seconds_not_in_every_pass(stubborn):
    box, _ = stubborn
    box.run(lambda: bool(box.loop.seen.door_refuses))
    box.world.done.clear()
    box.settle_for(20.0)
    told = sum(isinstance(action, act.SetRoute) for action in box.world.done)
    assert 3 <= told <= 8


def test_a_route_that_was_taken_although_it_said_no_holds_up_nothing(stubborn, release):
    """Its answer was lost: the route is in force, and nobody asks again."""
    box, rollout = stubborn
    box.run(lambda: bool(box.loop.seen.door_refuses))
    box.world.route = next(a.route for a in reversed(box.world.done) if isinstance(a, act.SetRoute))
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    assert "front door" not in said(box)


def test_a_stream_is_not_cut_where_the_front_door_goes_on_sending_users(box, release):
    rollout = switched(box, release)
    refuses(box)
    slot = next(s.number for s in box.world.route.public if s.release == "two@00000000")
    box.world.in_flight[slot] = 3
    box.ask(act.AskAbort(rollout, "ada"))
    box.settle_for(100.0)
    assert not any(isinstance(action, act.CutSlot) for action in box.world.done)
    del box.world.refuses["SetRoute"]
    box.world.in_flight.clear()
    box.run(lambda: not any(a.rollout == rollout and a.holds for a in box.state.attempts.values()))
    assert users_are_with(box) == {"one@00000000"}


@pytest.fixture
def heard():
    """What is logged, also in a process in which the simulator has silenced it."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with capture_logs() as logs:
        yield logs
    structlog.configure(**before)


def test_processes_that_were_signalled_and_are_not_gone_yet_are_no_failure(box, release, heard):
    """Read after a restart that went well, "effect failed" looked like one that did not."""
    box.finish(box.propose(release("one", gpus=1)))
    box.world.processes["one-a-1"].life = Life.STRAYS
    box.world.refuses["ClearStrays"] = "signalled 7"
    box.ask(act.StandDown("ada"))
    box.settle_for(5.0)
    assert {line["event"] for line in heard if line.get("why") == "signalled 7"} == {"not ended yet"}


@pytest.mark.parametrize("effect", ["ClearStrays", "StopAttempt"])
def test_processes_that_nothing_ends_keep_their_cards_and_hold_up_nobody(box, release, effect):
    """One card is lost to them; the others serve, and take the next proposal."""
    box.finish(box.propose(release("one", gpus=1)))
    rollout = box.propose(release("two", gpus=1))
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    (stuck,) = (a.id for a in box.state.attempts.values() if a.rollout == rollout)
    box.world.refuses[effect] = "still there"
    if effect == "ClearStrays":
        box.world.processes[stuck].life, box.world.stop_s = Life.STRAYS, 1e9
    box.ask(act.AskAbort(rollout, "ada"))
    box.finish(rollout)
    third = box.propose(release("three", gpus=1))
    assert box.finish(third) is Phase.PROMOTED
    assert box.state.attempts[stuck].state is AttemptState.STOPPING
    (new,) = (a for a in box.state.attempts.values() if a.rollout == third)
    assert not set(new.gpus) & set(box.state.attempts[stuck].gpus)
