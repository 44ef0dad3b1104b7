"""After the switch: the bake, the ways back, and what makes them be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import actions as act
from controller.core.bake import baseline, problems
from controller.core.records import AttemptState, Freeze, Phase
from controller.core.route import SlotState, Traffic
from controller.core.rules import decide
from controller.core.seen import Life, ProbeSeen
from controller.core.table import Event


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


def test_that_the_release_to_return_to_is_sick_is_told_with_the_way_back(box, release):
    """Whoever waits for it would see a minute of nothing else."""
    box.finish(box.propose(release("one", gpus=2)))
    box.finish(box.propose(release("two", gpus=2)))
    box.world.processes["one-a-1"].silent = True
    back = box.rollback()
    assert box.finish(back) is Phase.ROLLED_BACK
    told = [entry.why for entry in box.journal.entries(rollout=back)]
    assert "the release to return to is sick: start it again" in told


@pytest.mark.parametrize(("lost", "known"), [(1, (0.1, 0.2)), (2, (0.1, 0.2)), (3, (0.0, 0.0))])
def test_what_live_showed_is_known_although_a_probe_was_lost_and_not_when_it_is_down(box, release, lost, known):
    """Without it, one three times as slow would do; with it, what mends a dead live had to be as good as that was."""
    box.finish(box.propose(release("one")))
    seen = box.world.observe(box.state)
    probe = replace(seen.probes["public"], ok=False, layer="timeout", streak=lost)
    shown = baseline(box.state, replace(seen, probes={**seen.probes, "public": probe}), box.loop.policy)
    assert (shown.baseline_probe_ttft_s, shown.baseline_probe_total_s) == pytest.approx(known)


def test_live_is_heard_before_something_is_begun_that_will_be_compared_with_it(box, release):
    box.finish(box.propose(release("one")))
    box.world.unheard = True  # it has just been woken, or this daemon has just begun
    rollout = box.propose(release("two"))
    box.settle_for(10.0)
    assert box.phase(rollout) is Phase.PREFLIGHT
    box.world.unheard = False
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    assert box.state.rollouts[rollout].bake.baseline_probe_ttft_s == pytest.approx(0.1)


def test_live_that_says_nothing_at_all_keeps_nobody_from_what_mends_it(box, release):
    box.finish(box.propose(release("one")))
    box.world.unheard = True
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.GATING, limit_s=60.0)
    assert box.state.rollouts[rollout].bake.baseline_probe_ttft_s == 0.0


def test_a_daemon_that_has_heard_nobody_yet_takes_no_sample(box, release):
    """Started anew where a sample was due, twice: two bad ones in a row led back from what was well."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.settle_for(box.loop.policy.bake_interval_s + 1.0)
    samples = box.state.rollouts[rollout].bake.samples
    assert samples > 0
    box.world.unheard = True
    box.settle_for(4 * box.loop.policy.bake_interval_s)
    assert box.state.rollouts[rollout].bake.samples == samples
    box.world.unheard = False
    assert box.finish(rollout) is Phase.PROMOTED


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


@pytest.mark.parametrize(("lasts_s", "end"), [(150.0, Phase.PROMOTED), (1e9, Phase.ROLLED_BACK)])
def test_a_long_prefill_in_the_bake_is_waited_for_as_long_as_a_prompt_may_take(box, release, lasts_s, end):
    """It would have held up everybody at the release before, too."""
    box.finish(box.propose(release("one")))
    rollout = box.propose(release("two"))
    box.run(lambda: box.phase(rollout) is Phase.BAKING and box.state.rollouts[rollout].switched_at_s is not None)
    began_s = box.world.processes["two-a-2"].prefills_since_s = box.world.clock_s
    box.run(lambda: box.world.clock_s - began_s > min(lasts_s, 250.0), tick_s=5.0)
    assert box.phase(rollout) is Phase.BAKING
    if lasts_s < 1e9:
        box.world.processes["two-a-2"].prefills_since_s = None
    assert box.finish(rollout) is end
    assert box.world.clock_s - began_s < box.loop.policy.prefill_s + 60.0


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


@pytest.mark.parametrize(("began_s", "counts"), [(-0.01, False), (0.01, True)])
def test_what_the_front_door_refused_before_it_had_the_route_is_not_held_against_a_first_release(
    box, release, began_s, counts
):
    """The first public probe may be under way when nothing is live yet for the front door, which refuses then."""
    rollout = box.propose(release("one"))
    box.run(lambda: box.state.rollouts[rollout].switched_at_s is not None)
    box.world.clock_s += box.loop.policy.bake_interval_s
    record, seen = box.state.rollouts[rollout], box.world.observe(box.state)
    since_s = record.switched_at_s
    refused = ProbeSeen(False, since_s + 0.02, since_s + began_s, "http", "503: no model is live")
    seen = replace(seen, probes={**seen.probes, "public": refused})
    found = problems(box.state, seen, record.bake, since_s, box.loop.policy)
    assert found == (["public fails its probe (http: 503: no model is live)"] if counts else [])
    sampled = decide(box.state, seen, box.loop.policy).action.bake
    assert (sampled.samples, sampled.bad_streak) == (1, int(counts))


def test_freeze_holds_the_queue_and_not_the_rollback(box, release):
    box.finish(box.propose(release("one")))
    box.finish(box.propose(release("two")))
    box.ask(act.SetFreeze(Freeze("boss", "demo day", 0.0)))
    waiting = box.propose(release("three"))
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.phase(waiting) is Phase.QUEUED
    box.ask(act.SetFreeze(None))
    assert box.finish(waiting) is Phase.PROMOTED


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
