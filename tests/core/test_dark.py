"""What a swap costs and where the time went; what going back would cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import Box

from controller.core import actions as act
from controller.core import history
from controller.core.dark import dark_parts, dark_windows, way_home
from controller.core.plan import hold_warning, live_already, make_plan
from controller.core.records import Options, Phase
from controller.core.seen import Life


def home(box: Box) -> tuple[str, bool]:
    way = way_home(box.state, box.world.observe(box.state).gpus)
    return way.how, way.dark


def die(box: Box, attempt: str) -> None:
    process = box.world.processes[attempt]
    process.life, process.sentence = Life.EXITED, "exit code 1"


def test_the_dark_time_is_told_in_parts_that_add_up(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.world.stop_s = 3.0
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    assert box.finish(rollout) is Phase.PROMOTED
    record = box.state.rollouts[rollout]
    parts = dark_parts(box.state, record)
    assert sum(parts.values()) == pytest.approx(record.times["dark_s"], abs=0.01)
    assert parts["stop"] >= 3.0
    assert parts["start"] >= box.world.start_s
    assert parts["rest"] <= 2.0


def test_a_second_in_which_one_drains_and_another_stops_counts_once(box, release):
    box.finish(box.propose(release("one", gpus=2, instances=2)))
    box.world.stop_s = 3.0
    slot = next(a.slot for a in box.state.seat_attempts(box.state.live))
    box.world.in_flight[slot] = 1
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.settle_for(6.0)
    del box.world.in_flight[slot]
    assert box.finish(rollout) is Phase.PROMOTED
    record = box.state.rollouts[rollout]
    parts = dark_parts(box.state, record)
    assert sum(parts.values()) == pytest.approx(record.times["dark_s"], abs=0.01)
    assert parts["drain"] >= 5.0, "the second instance has long stopped when the first may"
    assert 3.0 <= parts["stop"] < 5.0
    assert parts["start"] == pytest.approx(box.world.start_s, abs=1.0)


def test_a_candidate_that_dies_in_the_dark_has_loaded(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.world.start_s = 1e9
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: "two-a-2" in box.world.processes)
    box.settle_for(7.0)
    box.world.start_s = 5.0
    die(box, "two-a-2")
    assert box.finish(rollout) is Phase.FAILED
    box.run(lambda: "dark_s" in box.state.rollouts[rollout].times)
    record = box.state.rollouts[rollout]
    parts = dark_parts(box.state, record)
    assert 6.0 <= parts["start"] <= 9.0
    assert sum(parts.values()) == pytest.approx(record.times["dark_s"], abs=0.01)


def test_what_starts_again_after_the_dark_is_none_of_it(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.finish(rollout)
    before = dark_parts(box.state, box.state.rollouts[rollout])
    die(box, "two-a-2")
    box.run(lambda: len(box.world.processes) > 2 and box.state.is_served())
    assert dark_parts(box.state, box.state.rollouts[rollout]) == before


def test_the_dark_ends_when_somebody_else_serves(box, release):
    """A rollback that was asked for in the dark of a swap: from its switch on nobody waits any more."""
    box.finish(box.propose(release("one", gpus=4)))
    box.finish(box.propose(release("two", gpus=4), strategy="swap"))
    swap = box.propose(release("three", gpus=4), strategy="swap")
    box.run(lambda: box.phase(swap) is Phase.GATING)
    back = box.rollback()
    assert box.finish(back) is Phase.ROLLED_BACK
    box.run(lambda: box.state.rollouts[back].switched_at_s is not None)
    assert box.state.rollouts[swap].dark_since_s is None
    assert box.state.rollouts[swap].times["dark_s"] > 0


def test_a_swap_that_is_undone_was_dark_twice_and_both_times_count(box, release):
    """There, with its gates, and on the way back, which no gate had a part in."""
    box.finish(box.propose(release("one", gpus=4)))
    box.world.stop_s = 3.0
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.settle_for(10.0)
    there = box.state.rollouts[rollout]
    there_parts = dark_parts(box.state, there)
    box.world.processes["two-a-2"].ttft_s = 9.0
    assert box.finish(rollout) is Phase.ROLLED_BACK
    box.run(lambda: box.state.rollouts[rollout].dark_since_s is None)
    record = box.state.rollouts[rollout]
    first, second = dark_windows(box.state, record)
    assert (first,) == dark_windows(box.state, there)
    assert first[1] + 10.0 <= second[0]
    whole_s = sum(end - begin for begin, end in (first, second))
    assert record.times["dark_s"] == pytest.approx(whole_s, abs=0.01)
    parts = dark_parts(box.state, record)
    assert sum(parts.values()) == pytest.approx(whole_s, abs=0.01)
    assert parts["stop"] >= 6.0
    assert parts["start"] >= 2 * box.world.start_s
    back_parts = dark_parts(box.state, record, second)
    assert dark_parts(box.state, record, first) == there_parts
    assert sum(back_parts.values()) == pytest.approx(second[1] - second[0], abs=0.01)
    assert back_parts["gates"] == 0
    for name in parts:
        assert parts[name] == pytest.approx(there_parts[name] + back_parts[name], abs=0.01), name


def test_the_dark_after_the_death_of_what_is_watched_counts(box, release):
    """Nobody made room then; users waited all the same, and for this rollout."""
    box.finish(box.propose(release("one", gpus=4)))
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.settle_for(10.0)
    there_s = box.state.rollouts[rollout].times["dark_s"]
    die(box, "two-a-2")
    assert box.finish(rollout) is Phase.ROLLED_BACK
    box.run(lambda: box.state.rollouts[rollout].dark_since_s is None)
    record = box.state.rollouts[rollout]
    assert record.times["dark_s"] >= there_s + box.world.start_s
    assert len(dark_windows(box.state, record)) == 2
    assert sum(dark_parts(box.state, record).values()) == pytest.approx(record.times["dark_s"], abs=0.01)


def test_live_that_dies_while_another_is_tried_is_nobodys_dark(box, release):
    box.finish(box.propose(release("one", gpus=2)))
    rollout = box.propose(release("two", gpus=2))
    box.run(lambda: box.phase(rollout) is Phase.STARTING)
    die(box, "one-a-1")
    assert box.finish(rollout) is Phase.PROMOTED
    assert "dark_s" not in box.state.rollouts[rollout].times


def test_an_earlier_version_kept_how_long_the_last_dark_was_and_not_when(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.finish(rollout)
    record = box.state.rollouts[rollout]
    older = replace(record, darks=())
    (known,) = dark_windows(box.state, record)
    assert dark_windows(box.state, older) == (pytest.approx(known, abs=0.01),)
    assert dark_parts(box.state, older) == pytest.approx(dark_parts(box.state, record), abs=0.01)


def test_what_was_never_dark_has_no_parts(box, release):
    rollout = box.propose(release("one", gpus=2))
    box.finish(rollout)
    assert dark_parts(box.state, box.state.rollouts[rollout]) == {}
    assert dark_windows(box.state, box.state.rollouts[rollout]) == ()


def test_the_way_home_is_known_at_every_moment(box, release):
    box.finish(box.propose(release("one", gpus=2)))
    assert home(box) == ("none", False)
    box.finish(box.propose(release("two", gpus=2)))
    assert home(box) == ("running", False)
    box.finish(box.propose(release("four", gpus=4), strategy="swap"))
    assert home(box) == ("swap", True)
    way = way_home(box.state, box.world.observe(box.state).gpus)
    assert way.seconds == pytest.approx(box.world.start_s + box.world.stop_s, abs=2)
    assert "live drains (up to 300 s) and stops for it" in way.sentence


def test_the_way_home_after_a_stop_starts_beside_nobody(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.ask(act.StandDown("tester"))
    box.settle_for(20)
    way = way_home(box.state, box.world.observe(box.state).gpus)
    assert (way.how, way.dark) == ("starts", True)
    assert "nothing is live" in way.sentence


def test_going_back_counts_the_drain_that_this_box_has_measured(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.finish(box.propose(release("two", gpus=4), strategy="swap"))
    slot = next(a.slot for a in box.state.seat_attempts(box.state.live))
    box.world.in_flight[slot] = 1
    back = box.rollback()
    box.settle_for(12.0)
    del box.world.in_flight[slot]
    box.finish(back)
    box.settle_for(60)
    drained_s = history.drain_s(box.state, "two@00000000")
    assert drained_s >= 11.0
    returns_s = history.return_s(box.state, "one@00000000", ("two@00000000",), box.loop.policy, asleep=False)
    assert returns_s >= drained_s + box.world.start_s


def test_a_start_is_the_sum_of_the_instances_own_and_not_what_they_waited_for(box, release):
    box.finish(box.propose(release("one", gpus=1, instances=2)))
    at_once, serial = replace(box.loop.policy, max_concurrent_starts=2), box.loop.policy
    own_s = history.start_s(box.state, "one@00000000", at_once)
    assert own_s == pytest.approx(box.world.start_s, abs=1.0)
    assert history.start_s(box.state, "one@00000000", serial) == pytest.approx(2 * own_s, abs=0.2)
    rests = replace(serial, settle_s=30.0)
    assert history.start_s(box.state, "one@00000000", rests) == pytest.approx(2 * own_s + 30, abs=0.2)
    waited = {
        name: replace(a, started_at_s=a.started_at_s + 500, ready_at_s=a.ready_at_s + 500) if name == "one-b-2" else a
        for name, a in box.state.attempts.items()
    }
    state = replace(box.state, attempts=waited)
    assert history.start_s(state, "one@00000000", at_once) == own_s
    assert history.start_s(state, "never@00000000", serial) is None


def test_the_way_back_from_a_swap_is_said_to_be_dark(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    gpus = box.world.observe(box.state).gpus
    swap = make_plan(box.state, release("two", gpus=4), gpus, box.loop.policy, options=Options(strategy="swap"))
    assert swap.rollback_dark
    assert any(note.startswith("the way back is dark too") for note in swap.notes)
    halves = make_plan(
        box.state, release("two", gpus=2, instances=2), gpus, box.loop.policy, options=Options(strategy="swap")
    )
    assert halves.rollback_dark, "the one instance of live needs the cards of both"


def test_a_way_home_that_foreign_processes_block_is_said_to_be_impossible(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.finish(box.propose(release("two", gpus=4), strategy="swap"))
    box.world.foreign[2] = "pid 7 (a job) holds 100 MiB"
    assert home(box) == ("impossible", False)


def test_a_plan_knows_what_this_box_has_measured(box, release):
    one, two = release("one", gpus=4), release("two", gpus=4)
    box.finish(box.propose(one))
    gpus = box.world.observe(box.state).gpus
    profile = box.state.rollouts["r0001"].profile
    first = make_plan(box.state, two, gpus, box.loop.policy, options=Options(strategy="swap"), profile=profile)
    assert (first.strategy, first.blackout_s) == ("swap", None)
    assert any("blue-green" in text for text in first.why_not) is False, "only what was tried is said not to fit"
    box.finish(box.propose(two, strategy="swap"))
    back = make_plan(box.state, one, gpus, box.loop.policy, options=Options(strategy="any"), profile=profile)
    assert back.blackout_s >= box.world.start_s
    assert back.rollback_s >= box.world.start_s
    assert [text.split()[0] for text in back.why_not] == ["blue-green", "rolling"]
    assert any(step.startswith("hold new requests") for step in back.steps)


@pytest.mark.parametrize(("blackout_s", "hold_s", "said"), [(29.0, 10.0, "29 s"), (None, 10.0, "never measured")])
def test_a_swap_that_outlasts_the_hold_says_who_gets_503(blackout_s, hold_s, said):
    warning = hold_warning("swap", blackout_s, hold_s)
    assert "10 s (hold_s)" in warning
    assert said in warning
    assert "503" in warning


def test_a_swap_shorter_than_the_hold_and_what_is_never_dark_warn_of_nothing():
    assert hold_warning("swap", 29.0, 60.0) is None
    assert hold_warning("rolling", 0.0, 10.0) is None


def test_a_plan_points_to_what_is_meant(box, release):
    one, two = release("one", gpus=2), release("two", gpus=2)
    box.finish(box.propose(one))
    box.finish(box.propose(two))
    assert "cutover restart" in live_already(box.state, two, force=False).sentence
    assert live_already(box.state, two, force=True) is None
    assert live_already(box.state, one, force=False) is None
    plan = make_plan(box.state, one, box.world.observe(box.state).gpus, box.loop.policy)
    assert any("cutover rollback" in note for note in plan.notes)
