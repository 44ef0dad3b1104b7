"""Whole rollouts through the real core and the real store, in a fake world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import actions as act
from controller.core.records import AttemptState, Freeze, Kind, Phase
from controller.core.route import Mode, SlotState, Traffic
from controller.core.seen import Life
from controller.core.table import Event, IllegalMove
from controller.loop import Loop
from controller.store.journal import Journal


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


def test_warm_previous_gives_way_and_says_so(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    third = box.propose(release("three"))
    box.finish(third)
    assert box.state.rollouts[third].plan["gives_way"] == ("one-a-1",)
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert box.state.previous.release == "two@00000000"


def test_degrading_candidate_is_rolled_back_onto_the_warm_release(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.run(lambda: box.state.rollouts[rollout].bake.samples >= 2)
    box.world.processes["two-a-2"].silent = True
    assert box.finish(rollout) is Phase.ROLLED_BACK
    assert "rollback_s" not in box.state.rollouts[rollout].times or box.state.rollouts[rollout].times["rollback_s"] >= 0
    box.settle()
    assert box.state.live.release == "one@00000000"
    assert box.state.previous is None
    assert box.running() == {"one@00000000"}
    assert box.state.attempts["one-a-1"].pid == 101  # the very same process


@pytest.mark.parametrize("kind", ["errors_5xx", "truncated"])
def test_bake_judges_failures_that_keep_coming(box, release, kind):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    while box.phase(rollout) is Phase.BAKING:
        samples = box.state.rollouts[rollout].bake.samples
        box.world.traffic["two-a-2"] = Traffic("two-a-2", requests=1000 * (samples + 1), **{kind: samples + 1})

        def moved(samples=samples):
            return box.state.rollouts[rollout].bake.samples > samples or box.phase(rollout) is not Phase.BAKING

        box.run(moved)
    assert box.finish(rollout) is Phase.ROLLED_BACK


def test_bake_judges_a_share_of_failures_that_the_release_before_did_not_have(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.traffic["two-a-2"] = Traffic("two-a-2", requests=100, errors_5xx=5)
    assert box.finish(rollout) is Phase.ROLLED_BACK


def test_one_failed_request_is_an_incident(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.traffic["two-a-2"] = Traffic("two-a-2", requests=100, errors_5xx=1)
    assert box.finish(rollout) is Phase.PROMOTED


def test_bake_judges_the_time_to_first_byte(box, release):
    box.finish(box.propose(release("one")))
    box.world.traffic["one-a-1"] = Traffic("one-a-1", first_byte_s=(0.2,) * 30)
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.traffic["two-a-2"] = Traffic("two-a-2", requests=30, first_byte_s=(2.0,) * 30)
    assert box.finish(rollout) is Phase.ROLLED_BACK


def test_bake_judges_how_long_a_probe_takes(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.state.rollouts[rollout].bake.samples >= 2)
    box.world.processes["two-a-2"].ttft_s = 0.6
    assert box.finish(rollout) is Phase.ROLLED_BACK
    moves = [e.why for e in box.journal.entries(rollout=rollout) if e.action == "Move"]
    assert "probes wait 600 ms for their first token, before it was 100 ms" in moves[-1]


def test_one_slow_probe_is_an_anecdote(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.state.rollouts[rollout].bake.samples >= 2)
    box.world.processes["two-a-2"].ttft_s = 5.0
    box.run(lambda: box.state.rollouts[rollout].bake.samples >= 3)
    box.world.processes["two-a-2"].ttft_s = 0.1
    assert box.finish(rollout) is Phase.PROMOTED


def test_death_in_the_bake_rolls_back_at_once(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.processes["two-a-2"].life = Life.EXITED
    began_s = box.world.clock_s
    assert box.finish(rollout) is Phase.ROLLED_BACK
    assert box.world.clock_s - began_s <= 1.0


def test_rollback_never_onto_a_dead_release(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.processes["one-a-1"].life = Life.EXITED
    box.world.cannot_start["a"] = "the model file is gone"
    box.world.processes["two-a-2"].silent = True
    assert box.finish(rollout) is Phase.ROLLBACK_FAILED
    assert box.state.live.release == "two@00000000", "what serves stays"


def test_dead_previous_is_started_again_when_the_bake_fails(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.processes["one-a-1"].life = Life.EXITED
    box.world.processes["two-a-2"].silent = True
    assert box.finish(rollout) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"
    box.settle()
    assert box.running() == {"one@00000000"}


def test_manual_rollback_warm_and_again_forward(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    began_s = box.world.clock_s
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.world.clock_s - began_s <= 1.0
    assert (box.state.live.release, box.state.previous.release) == ("one@00000000", "two@00000000")
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "two@00000000"


def test_manual_rollback_cold(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    box.world.verdicts["toolcalls"] = ["fail"]
    box.finish(box.propose(release("three")))  # one gave way for it
    box.settle()
    assert box.running() == {"two@00000000"}
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"
    assert box.running() == {"one@00000000", "two@00000000"}


def test_cold_rollback_waits_for_cards_that_are_being_given_back(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    box.world.stop_s = 20.0
    third = box.propose(release("three"))  # one gives way for it
    box.run(lambda: box.phase(third) is Phase.BAKING)
    box.world.processes["three-a-3"].silent = True
    assert box.finish(third) is Phase.ROLLED_BACK
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"


def test_rollback_aborts_a_running_proposal(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    third = box.propose(release("three", gpus=1))
    box.run(lambda: box.phase(third) is Phase.STARTING)
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.phase(third) is Phase.ABORTED


def test_rollback_filed_while_a_proposal_is_being_accepted_does_not_wait_for_it(box, release):
    """The decision to accept was made before the rollback was filed, and journaled after it."""
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    third = box.propose(release("three"))
    rollback = box.rollback()
    box.journal.begin(act.Move(third, Event.ACCEPTED), "its turn", box.world.now())
    assert box.finish(rollback) is Phase.ROLLED_BACK
    assert box.phase(third) is Phase.ABORTED
    assert box.state.live.release == "one@00000000"


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


def test_a_candidate_that_fell_silent_before_the_switch_is_not_switched_to(box, release):
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"), require_approval=True)
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    box.world.heard_until_s["two-a-2"] = box.world.clock_s
    box.ask(act.Approve(rollout, "boss"))
    assert box.finish(rollout) is Phase.FAILED
    assert box.state.live.release == "one@00000000"


def test_a_bake_ends_well_only_with_tokens_seen_since_the_switch(box, release):
    """Probes that hang have not failed yet when a short bake is over."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"), bake_s=5.0)
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.heard_until_s["two-a-2"] = box.world.clock_s
    assert box.finish(rollout) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"


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


def test_live_that_dies_is_started_again_within_the_budget(box, release):
    box.finish(box.propose(release("one")))
    end_s = box.world.clock_s + box.loop.policy.restart_window_s / 2
    while box.world.clock_s < end_s:
        if not box.loop.step():
            box.world.clock_s += 0.5
        for name, process in box.world.processes.items():
            if box.state.attempts[name].state is AttemptState.READY:
                process.life = Life.EXITED
    starts = [a for a in box.state.attempts.values() if a.release == "one@00000000"]
    assert len(starts) == 1 + box.loop.policy.restart_budget
    assert box.state.live.release == "one@00000000"


def test_live_that_is_started_again_and_hangs_is_given_up_and_does_not_block_its_successor(box, release):
    box.finish(box.propose(release("one")))
    box.world.start_s = 1e9
    box.world.processes["one-a-1"].life = Life.EXITED
    box.run(lambda: "one-a-2" in box.world.processes)
    box.world.start_s = 5.0
    box.run(lambda: "one-a-3" in box.world.processes)
    assert "its start took longer than 1200 s" in box.state.attempts["one-a-2"].why
    assert box.finish(box.propose(release("two"))) is Phase.PROMOTED


def test_live_is_not_started_again_on_cards_that_somebody_holds_by_now(box, release):
    box.loop.policy = replace(box.loop.policy, restart_budget=0)
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].life = Life.EXITED
    box.settle()
    rollout = box.propose(release("two"), require_approval=True)
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    box.world.clock_s += box.loop.policy.restart_window_s
    assert box.loop.step() is False, "it waits, and does not spin"
    box.ask(act.Approve(rollout, "boss"))
    assert box.finish(rollout) is Phase.PROMOTED


def test_reboot_brings_live_back(box, release):
    box.finish(box.propose(release("one")))
    box.world.reboot()
    box.settle()
    assert box.running() == {"one@00000000"}
    assert [slot.state for slot in box.world.route.public] == [SlotState.READY]


def test_restart_of_the_daemon_adopts(box, release, tmp_path):
    box.finish(box.propose(release("one")))
    box.journal.close()
    box.journal = Journal(tmp_path / "journal.sqlite")
    box.loop = Loop(box.journal, box.world, box.loop.policy)
    before = len(box.world.done)
    box.settle()
    assert box.world.done[before:] == []
    assert box.state.attempts["one-a-1"].pid == 101


def test_restart_kind_brings_fresh_processes_and_keeps_previous(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    again = box.propose(release("two", gpus=1), Kind.RESTART)
    assert box.finish(again) is Phase.PROMOTED
    box.settle()
    assert box.state.live.rollout == again
    assert box.state.previous.release == "one@00000000"
    assert box.state.attempts["two-a-2"].state is AttemptState.STOPPED


def test_a_restart_that_waited_is_refused_when_something_else_is_live_by_then(box, release):
    """It was judged by `health` only, and would put back a release that nobody asked for."""
    box.finish(box.propose(release("one")))
    second = box.propose(release("two"))
    restart = box.propose(release("one"), Kind.RESTART)
    assert box.finish(second) is Phase.PROMOTED
    assert box.finish(restart) is Phase.REFUSED
    assert box.state.live.release == "two@00000000"


def test_more_instances_than_places_at_the_front_door_are_refused(box, release):
    box.loop.policy = replace(box.loop.policy, slots=4)
    box.finish(box.propose(release("one", gpus=0, instances=2)))
    rollout = box.propose(release("two", gpus=0, instances=3))
    assert box.finish(rollout) is Phase.REFUSED
    assert "3 places at the front door are needed and 2 of 4 can be had" in box.state.rollouts[rollout].why


def test_more_instances_than_port_blocks_are_refused(box, release):
    box.loop.policy = replace(box.loop.policy, port_first=20000, port_last=20029)
    box.finish(box.propose(release("one", gpus=0, instances=2)))
    rollout = box.propose(release("two", gpus=0, instances=2))
    assert box.finish(rollout) is Phase.REFUSED
    assert "2 blocks of ports are needed and 1 of 3 can be had" in box.state.rollouts[rollout].why


def test_places_of_what_gives_way_are_waited_for(box, release):
    box.loop.policy = replace(box.loop.policy, slots=3)
    box.finish(box.propose(release("one", gpus=1, instances=2)))
    box.finish(box.propose(release("two", gpus=2)))
    assert box.finish(box.propose(release("three", gpus=1, instances=2))) is Phase.PROMOTED


def test_too_large_is_refused(box, release):
    rollout = box.propose(release("big", gpus=8))
    assert box.finish(rollout) is Phase.REFUSED
    assert "needs 8 GPUs and this box has 4" in box.state.rollouts[rollout].why


def test_candidate_must_serve_what_live_serves(box, release):
    box.finish(box.propose(release("one", serves=("m", "n"))))
    rollout = box.propose(release("two"))
    assert box.finish(rollout) is Phase.REFUSED
    assert box.finish(box.propose(release("two"), force=True)) is Phase.PROMOTED


def test_live_gives_way_to_nobody(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    rollout = box.propose(release("two"))
    assert box.finish(rollout) is Phase.REFUSED
    assert "serve users" in box.state.rollouts[rollout].why


def test_foreign_process_is_named(box, release):
    box.world.foreign = {n: f"pid {n} (somebody's job)" for n in range(4)}
    rollout = box.propose(release("one"))
    assert box.finish(rollout) is Phase.REFUSED
    assert "somebody's job" in box.state.rollouts[rollout].why


def test_freeze_holds_the_queue_and_not_the_rollback(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    box.ask(act.SetFreeze(Freeze("boss", "demo day", 0.0)))
    waiting = box.propose(release("three"))
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.phase(waiting) is Phase.QUEUED
    box.ask(act.SetFreeze(None))
    assert box.finish(waiting) is Phase.PROMOTED


def test_router_starts_after_its_engines_and_learns_a_revived_one(box, release):
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    starts = [e.attempt for e in box.world.done if isinstance(e, act.StartAttempt)]
    assert starts == ["pair-a-1", "pair-b-2", "pair-router-3"]
    router = box.state.attempts["pair-router-3"]
    assert router.workers == (box.state.attempts["pair-a-1"].port, box.state.attempts["pair-b-2"].port)
    assert [slot.attempt for slot in box.world.route.public] == ["pair-router-3"]
    box.world.processes["pair-b-2"].life = Life.EXITED
    box.settle()
    ready = {a.instance: a for a in box.state.attempts.values() if a.state is AttemptState.READY}
    assert set(ready) == {"a", "b", "router"}
    assert set(ready["router"].workers) == {ready["a"].port, ready["b"].port}


def test_a_router_that_learns_a_revived_engine_leaves_no_gap(box, release):
    """Its streams may run for an hour: until they are through, somebody has to take new requests."""
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.world.in_flight[box.state.attempts["pair-router-3"].slot] = 1
    box.world.processes["pair-b-2"].life = Life.EXITED

    def successor_serves():
        assert SlotState.READY in {slot.state for slot in box.world.route.public}
        return box.state.attempts["pair-router-3"].state is AttemptState.RETIRING

    box.run(successor_serves)
    box.settle()
    states = {slot.attempt: slot.state for slot in box.world.route.public}
    assert states == {"pair-router-3": SlotState.DRAIN, "pair-router-5": SlotState.READY}


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


def test_a_rollback_takes_back_what_still_drains_after_a_stop(box, release):
    """Waiting for the last stream first would be dark for half an hour, and then fail at the deadline."""
    box.finish(box.propose(release("one")))
    slot = box.state.attempts["one-a-1"].slot
    box.world.in_flight[slot] = 1
    box.ask(act.StandDown("boss"))
    box.run(lambda: box.state.attempts["one-a-1"].state is AttemptState.RETIRING)
    began_s = box.world.clock_s
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.world.clock_s - began_s < 10
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    assert {s.attempt: s.state for s in box.world.route.public} == {"one-a-1": SlotState.READY}


def test_stop_takes_production_down_and_keeps_the_way_back(box, release):
    box.finish(box.propose(release("one")))
    box.ask(act.StandDown("tester"))
    box.settle()
    assert box.state.live is None
    assert box.world.route.mode is Mode.REFUSE
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"


def test_a_start_that_dies_of_a_port_twice_is_broken(box, release):
    rollout = box.propose(release("one"))
    for number in (1, 2):
        name = f"one-a-{number}"
        box.run(lambda name=name: name in box.world.processes)
        box.world.processes[name].life = Life.EXITED
        box.world.processes[name].port_conflict = True
    assert box.finish(rollout) is Phase.FAILED


def test_live_that_is_healthy_and_silent_is_replaced(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].silent = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert "no token for" in box.state.attempts["one-a-1"].why
    assert box.running() == {"one@00000000"}


def test_live_that_computes_and_does_not_answer_is_busy_not_down(box, release):
    """A prefill of 100,000 tokens holds the first token of everybody for minutes (field notes §1)."""
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].silent = True
    box.world.processes["one-a-1"].computing = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    box.world.processes["one-a-1"].computing = False
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED


def test_the_live_release_proposed_again_does_not_become_its_own_previous(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    assert box.finish(box.propose(release("two", gpus=1), force=True)) is Phase.PROMOTED
    box.settle()
    assert (box.state.live.release, box.state.previous.release) == ("two@00000000", "one@00000000")
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"


def test_an_engine_whose_shim_was_killed_serves_on_and_somebody_is_told(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].life = Life.STRAYS
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    assert "the shim of one-a-1 is dead" in box.loop.alarms[0]
    box.world.processes["one-a-1"].silent = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED


def test_live_that_is_down_for_good_is_an_alarm(box, release):
    box.finish(box.propose(release("one")))
    for _ in range(400):
        if not box.loop.step():
            box.world.clock_s += 0.5
        for name, process in box.world.processes.items():
            if box.state.attempts[name].state is AttemptState.READY:
                process.life = Life.EXITED
    assert "live instance a is down and is not started again" in box.loop.alarms[0]


def test_a_stop_that_does_not_end_is_an_alarm(box, release):
    box.world.stop_s = 1e9
    box.finish(box.propose(release("one")))
    box.ask(act.StandDown("tester"))
    box.settle()
    assert "one-a-1 does not end since" in box.loop.alarms[0]
