"""Whole rollouts through the real core and the real store, in a fake world."""

from __future__ import annotations

import pytest

from controller.core import actions as act
from controller.core.records import AttemptState, Closed, Phase
from controller.core.route import Mode, SlotState
from controller.core.seen import GateSeen, Life
from controller.core.table import IllegalMove


def test_first_release_becomes_live(box, release):
    rollout = box.propose(release("one"))
    assert box.finish(rollout) is Phase.PROMOTED
    assert box.state.live.release == "one@00000000"
    assert box.world.route.mode is Mode.OPEN
    assert [slot.state for slot in box.world.route.public] == [SlotState.READY]
    assert box.state.rollouts[rollout].times["switch_s"] >= 0


def test_candidate_is_promoted_and_previous_stays_warm(box, release):
    box.finish(box.propose(release("one")))
    assert box.finish(box.propose(release("two"))) is Phase.PROMOTED
    assert (box.state.live.release, box.state.previous.release) == ("two@00000000", "one@00000000")
    assert box.running() == {"one@00000000", "two@00000000"}
    states = {slot.release: slot.state for slot in box.world.route.public}
    assert states == {"two@00000000": SlotState.READY, "one@00000000": SlotState.DRAIN}


@pytest.mark.parametrize(
    ("verdicts", "phase"),
    [
        (["fail"], Phase.REJECTED),
        (["inconclusive", "inconclusive"], Phase.INCONCLUSIVE),
        (["error", "error"], Phase.INCONCLUSIVE),
        (["inconclusive", "pass"], Phase.PROMOTED),
        (["error", "fail"], Phase.REJECTED),
    ],
)
def test_verdict_decides(box, release, verdicts, phase):
    box.finish(box.propose(release("one")))
    box.world.verdicts["toolcalls"] = verdicts
    assert box.finish(box.propose(release("two"))) is phase
    box.settle()
    live = "two" if phase is Phase.PROMOTED else "one"
    assert box.state.live.release.startswith(live)
    if phase is not Phase.PROMOTED:
        assert box.running() == {"one@00000000"}
        assert not box.world.route.preview


@pytest.mark.parametrize(("again", "runs"), [(False, 1), (True, 2), ("no", 2)])
def test_a_gate_that_knows_that_asking_again_cannot_help_is_asked_once(box, release, again, runs):
    box.finish(box.propose(release("one")))
    box.world.verdicts["toolcalls"] = ["hang", "inconclusive"]
    rollout = box.propose(release("two"))
    box.run(lambda: (run := box.state.rollouts[rollout].gate) is not None and run.gate == "toolcalls")
    run = box.state.rollouts[rollout].gate.run
    box.world.gates[run] = GateSeen("inconclusive", "the margin is too small", {"again": again})
    assert box.finish(rollout) is Phase.INCONCLUSIVE
    record = box.state.rollouts[rollout]
    assert sum(result.gate == "toolcalls" for result in record.gates) == runs
    assert ("asking again would not change that: the margin is too small" in record.why) == (runs == 1)


def test_a_gate_that_only_observes_is_not_said_to_have_passed(box, release):
    box.observers = ({"name": "observer", "deadline_s": 10.0, "observe": True},)
    box.world.verdicts["observer"] = ["error"]
    rollout = box.propose(release("one"))
    assert box.finish(rollout) is Phase.PROMOTED
    said = [entry.why for entry in box.journal.entries(rollout=rollout)]
    assert "gate observer (observing): error, observer says error" in said
    assert "passed health, toolcalls; observed: observer (error)" in said


def test_warm_previous_gives_way_and_says_so(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    third = box.propose(release("three"))
    box.finish(third)
    assert box.state.rollouts[third].plan["gives_way"] == ("one-a-1",)
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert box.state.previous.release == "two@00000000"


@pytest.mark.parametrize(
    "phase", [Phase.QUEUED, Phase.LEASING, Phase.STARTING, Phase.GATING, Phase.AWAITING_APPROVAL, Phase.BAKING]
)
def test_abort_in_every_phase(box, release, phase):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    if phase is Phase.GATING:
        box.world.verdicts["toolcalls"] = ["hang"]
    rollout = box.propose(release("three"), require_approval=phase is Phase.AWAITING_APPROVAL)
    box.run(lambda: box.phase(rollout) is phase)
    box.ask(act.AskAbort(rollout, "tester"))
    expected = Phase.ROLLED_BACK if phase is Phase.BAKING else Phase.ABORTED
    assert box.finish(rollout) is expected
    box.settle()
    assert box.state.live.release == "two@00000000"
    assert "three@00000000" not in box.running()


def test_approval(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"), require_approval=True)
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    box.ask(act.Approve(rollout, "boss"))
    assert box.finish(rollout) is Phase.PROMOTED
    with pytest.raises(IllegalMove):
        box.ask(act.Approve(rollout, "boss"))


def test_never_ready_ends_at_its_deadline(box, release):
    box.finish(box.propose(release("one")))
    box.world.start_s = 1e9
    rollout = box.propose(release("two"))
    assert box.finish(rollout) is Phase.FAILED
    assert "took longer than" in box.state.rollouts[rollout].why
    box.settle()
    assert box.running() == {"one@00000000"}


def test_candidate_that_dies_while_loading_fails(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: "two-a-2" in box.world.processes)
    box.world.processes["two-a-2"].life = Life.EXITED
    box.world.processes["two-a-2"].sentence = "exited with code 1"
    assert box.finish(rollout) is Phase.FAILED
    assert "exited with code 1" in box.state.rollouts[rollout].why


def test_port_conflict_is_tried_once_more_on_other_ports(box, release):
    rollout = box.propose(release("one"))
    box.run(lambda: "one-a-1" in box.world.processes)
    box.world.processes["one-a-1"].life = Life.EXITED
    box.world.processes["one-a-1"].port_conflict = True
    assert box.finish(rollout) is Phase.PROMOTED
    assert box.state.attempts["one-a-2"].port != box.state.attempts["one-a-1"].port


def test_a_port_conflict_on_a_card_that_was_cordoned_meanwhile_ends_the_rollout(box, release):
    """Found by a seeded history: another try was decided again and again, and could not be."""
    rollout = box.propose(release("one"))
    box.run(lambda: "one-a-1" in box.world.processes)
    box.ask(act.CloseCard("gpu-0", Closed("boss", "its fan", 0.0)))
    box.world.processes["one-a-1"].life = Life.EXITED
    box.world.processes["one-a-1"].port_conflict = True
    assert box.finish(rollout) is Phase.FAILED
    assert "gpu-0 is cordoned by boss: its fan" in box.state.rollouts[rollout].why


def test_a_port_conflict_on_a_card_that_live_has_by_now_ends_the_rollout(box, release):
    """Found by a seeded history: live comes first, and the candidate was decided to start on its card for ever."""
    box.finish(box.propose(release("one", gpus=1)))
    rollout = box.propose(release("two", gpus=3))
    box.run(lambda: "two-a-2" in box.world.processes)
    box.ask(act.CloseCard("gpu-0", Closed("boss", "its fan", 0.0)))
    box.world.processes["one-a-1"].life = Life.EXITED
    box.world.processes["two-a-2"].life = Life.EXITED
    box.world.processes["two-a-2"].port_conflict = True
    assert box.finish(rollout) is Phase.FAILED
    assert "one-a-3 is on gpu-1 by now" in box.state.rollouts[rollout].why


def test_streams_in_flight_are_waited_for_then_cut_at_the_deadline(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    slot = box.state.attempts["one-a-1"].slot
    box.world.in_flight[slot] = 3
    third = box.propose(release("three", gpus=4 - 1))
    box.run(lambda: box.phase(third) is Phase.LEASING)
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.RETIRING
    box.world.clock_s += box.loop.policy.drain_s
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert any(isinstance(e, act.CutSlot) for e in box.world.done)


def test_a_start_that_dies_of_a_port_twice_is_broken(box, release):
    rollout = box.propose(release("one"))
    for number in (1, 2):
        name = f"one-a-{number}"
        box.run(lambda name=name: name in box.world.processes)
        box.world.processes[name].life = Life.EXITED
        box.world.processes[name].port_conflict = True
    assert box.finish(rollout) is Phase.FAILED


def test_the_live_release_proposed_again_does_not_become_its_own_previous(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    assert box.finish(box.propose(release("two", gpus=1), force=True)) is Phase.PROMOTED
    box.settle()
    assert (box.state.live.release, box.state.previous.release) == ("two@00000000", "one@00000000")
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"
