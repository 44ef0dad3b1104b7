"""Who makes room sleeps: its cards are others' meanwhile, and going back wakes it; whatever goes wrong is a start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import Box
from sleepy_world import (
    HANGS,
    KEEPS_MEMORY,
    REFUSES,
    STAYS_ASLEEP,
    WAKES_EMPTY,
    WAKES_MAD,
    SleepyWorld,
)

from controller.core import actions as act
from controller.core.dark import dark_parts, way_home
from controller.core.invariants import violations
from controller.core.plan import make_plan
from controller.core.policy import Policy
from controller.core.records import AttemptState, Closed, Options, Phase
from controller.core.route import Mode, SlotState
from controller.core.seats import is_recallable
from controller.core.seen import Life
from controller.core.table import IllegalMove
from controller.loop import Loop
from controller.store.journal import Journal

ALL = dict.fromkeys(range(4), 10)


@pytest.fixture
def sleepy(tmp_path, release):
    """TP4 is live on all four cards, and its engine can sleep."""
    journal = Journal(tmp_path / "journal.sqlite")
    box = Box(Loop(journal, SleepyWorld(memory_mib=dict(ALL)), Policy(bake_s=30.0)), SleepyWorld(), journal)
    box.world = box.loop.world
    box.finish(box.propose(can_sleep(release("one", gpus=4))))
    yield box
    box.journal.close()


@pytest.fixture
def rolled(tmp_path, release):
    """TP2×2 was rolled over by TP2×2; both can sleep, and what was live before does."""
    journal = Journal(tmp_path / "journal.sqlite")
    world = SleepyWorld(memory_mib=dict(ALL))
    box = Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    box.finish(box.propose(can_sleep(release("one", gpus=2, instances=2))))
    assert box.finish(box.propose(can_sleep(release("two", gpus=2, instances=2)))) is Phase.PROMOTED
    yield box
    journal.close()


def can_sleep(release):
    return replace(release, can_sleep=True)


def swap(box, release, name="two", **options):
    """Somebody wants the whole box for another release."""
    return box.propose(can_sleep(release(name, gpus=4)), strategy="swap", **options)


def states(box):
    return {a.id: a.state for a in box.state.attempts.values() if a.holds}


def serving(box):
    """Once everything that follows from what was decided has happened."""
    box.settle()
    return {slot.release for slot in box.world.route.public if slot.state is SlotState.READY}


def serves_again(box):
    box.run(lambda: box.state.is_served() and box.state.active is None)


def started(box):
    return [effect.attempt for effect in box.world.done if isinstance(effect, act.StartAttempt)]


def asked(box, kind):
    return [effect.attempt for effect in box.world.done if isinstance(effect, kind)]


# --- asleep and back --------------------------------------------------------------------------------------------------


def test_who_makes_room_sleeps_and_is_woken_by_a_rollback(sleepy, release):
    assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    sleepy.settle()
    assert states(sleepy) == {"one-a-1": AttemptState.ASLEEP, "two-a-2": AttemptState.READY}
    process = sleepy.world.processes["one-a-1"].pid
    back = sleepy.rollback()
    assert sleepy.finish(back) is Phase.ROLLED_BACK
    sleepy.settle()
    assert started(sleepy) == ["one-a-1", "two-a-2"], "nobody was started again"
    assert sleepy.world.processes["one-a-1"].pid == process
    assert serving(sleepy) == {"one@00000000"}
    assert states(sleepy) == {"one-a-1": AttemptState.READY, "two-a-2": AttemptState.ASLEEP}, "live slept in its turn"
    assert "woken" in sleepy.state.rollouts[back].why
    assert sleepy.finish(sleepy.rollback()) is Phase.ROLLED_BACK
    assert serving(sleepy) == {"two@00000000"}
    assert len(started(sleepy)) == 2


def test_cards_are_lent_only_when_their_memory_is_back(sleepy, release):
    sleepy.world.memory_mib = dict.fromkeys(range(4), 3_000)  # something else is slow to leave
    rollout = swap(sleepy, release)
    sleepy.run(lambda: sleepy.state.attempts["one-a-1"].state is AttemptState.DOZING)
    sleepy.settle_for(20)
    assert sleepy.phase(rollout) is Phase.LEASING
    assert sleepy.state.attempts["one-a-1"].holds_cards
    sleepy.world.memory_mib = dict(ALL)
    assert sleepy.finish(rollout) is Phase.PROMOTED
    assert sleepy.state.attempts["one-a-1"].state is AttemptState.ASLEEP


@pytest.mark.parametrize("way", ["swap", "rollback"])
def test_live_is_woken_and_not_stopped_when_its_cards_cannot_be_read_in_the_dark(sleepy, release, way):
    """Stopped, it could not be started again before NVML answers; asleep it has all that it needs."""
    live = "one"
    if way == "rollback":
        live = "two"
        assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    before = dict(states(sleepy))
    rollout = sleepy.rollback() if way == "rollback" else swap(sleepy, release, "three")
    sleepy.run(lambda: AttemptState.DOZING in states(sleepy).values())
    sleepy.world.untrusted = {1}
    assert sleepy.finish(rollout) is (Phase.FAILED if way == "swap" else Phase.ROLLBACK_FAILED)
    assert "gpu-1 cannot be read" in sleepy.state.rollouts[rollout].why
    serves_again(sleepy)
    assert serving(sleepy) == {f"{live}@00000000"}
    assert states(sleepy) == before, "in the processes of before"
    assert sleepy.state.rollouts[rollout].times["dark_s"] < 2 * sleepy.loop.policy.sleep_deadline_s


def test_cards_that_cannot_be_read_any_more_once_live_sleeps_do_not_keep_users_waiting(sleepy, release):
    """Found by hand: proved free, and unreadable a moment later, they were waited for in the dark for 36 minutes."""
    rollout = swap(sleepy, release)
    sleepy.run(lambda: AttemptState.ASLEEP in states(sleepy).values())
    sleepy.world.untrusted = {1}
    assert sleepy.finish(rollout) is Phase.FAILED
    assert "gpu-1 cannot be read" in sleepy.state.rollouts[rollout].why
    serves_again(sleepy)
    assert states(sleepy) == {"one-a-1": AttemptState.READY}
    assert sleepy.state.rollouts[rollout].times["dark_s"] < 2 * sleepy.loop.policy.sleep_deadline_s


@pytest.mark.parametrize("blind_s", [20.0, 1000.0])
def test_nobody_makes_room_for_a_way_back_while_the_cards_cannot_be_read(sleepy, release, blind_s):
    """Live would be dark for as long as it may take to fall asleep, and in vain; it serves on meanwhile."""
    assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    sleepy.world.untrusted = {1}
    back, modes, sees_s = sleepy.rollback(), set(), sleepy.world.clock_s + blind_s

    def is_over():
        if sleepy.world.clock_s >= sees_s:
            sleepy.world.untrusted = set()
        elif sleepy.state.rollouts[back].ended_wall_s is None:
            modes.add(sleepy.world.route.mode)
        return sleepy.state.rollouts[back].ended_wall_s is not None

    sleepy.run(is_over)
    assert modes == {Mode.OPEN}
    if blind_s < sleepy.loop.policy.sleep_deadline_s:
        assert sleepy.phase(back) is Phase.ROLLED_BACK
        assert serving(sleepy) == {"one@00000000"}
    else:
        assert sleepy.phase(back) is Phase.ROLLBACK_FAILED
        assert "gpu-1 cannot be read" in sleepy.state.rollouts[back].why
        assert states(sleepy) == {"one-a-1": AttemptState.ASLEEP, "two-a-2": AttemptState.READY}


def test_live_sleeps_on_while_the_memory_of_a_candidate_that_failed_does_not_come_back(sleepy, release):
    """It has nowhere else to go: stopped, it would have to be started once the memory is back after all."""
    sleepy.world.verdicts["toolcalls"] = ["fail"]
    rollout = swap(sleepy, release)
    sleepy.run(lambda: sleepy.phase(rollout) is Phase.GATING)
    sleepy.world.memory_mib = {**ALL, 1: 9_000}
    assert sleepy.finish(rollout) is Phase.REJECTED
    sleepy.settle_for(sleepy.loop.policy.memory_back_s + 30)
    assert "gpu-1" in sleepy.state.closed
    assert states(sleepy) == {"one-a-1": AttemptState.ASLEEP}
    assert any("live instance a sleeps and is not woken: gpu-1 is quarantined" in alarm for alarm in sleepy.loop.alarms)
    sleepy.world.memory_mib = dict(ALL)
    serves_again(sleepy)
    assert started(sleepy) == ["one-a-1", "two-a-2"]


def test_an_abort_does_not_wait_for_cards_that_cannot_be_read(sleepy, release):
    rollout = swap(sleepy, release)
    sleepy.run(lambda: AttemptState.DOZING in states(sleepy).values())
    sleepy.world.untrusted = {1}
    sleepy.ask(act.AskAbort(rollout, "tester"))
    assert sleepy.finish(rollout) is Phase.ABORTED
    serves_again(sleepy)
    assert states(sleepy) == {"one-a-1": AttemptState.READY}
    assert sleepy.state.rollouts[rollout].times["dark_s"] < sleepy.loop.policy.sleep_deadline_s


@pytest.mark.parametrize("verdict", ["fail", "broken"])
def test_a_candidate_that_fails_in_the_dark_has_the_old_one_woken(sleepy, release, verdict):
    if verdict == "fail":
        sleepy.world.verdicts["toolcalls"] = ["fail"]
    else:
        sleepy.world.start_s = 1e9
    rollout = swap(sleepy, release)
    sleepy.run(lambda: "two-a-2" in started(sleepy))
    if verdict == "broken":
        sleepy.world.die("two-a-2")
    assert sleepy.finish(rollout) in {Phase.REJECTED, Phase.FAILED}
    serves_again(sleepy)
    assert serving(sleepy) == {"one@00000000"}
    assert started(sleepy) == ["one-a-1", "two-a-2"]
    parts = dark_parts(sleepy.state, sleepy.state.rollouts[rollout])
    assert parts["sleep"] >= sleepy.world.sleep_s
    assert parts["wake"] >= sleepy.world.wake_s
    assert parts["stop"] == 0
    assert sum(parts.values()) == pytest.approx(sleepy.state.rollouts[rollout].times["dark_s"], abs=0.01)


def test_a_failed_bake_wakes_the_old_one_and_stops_the_worse_one(sleepy, release):
    rollout = swap(sleepy, release)
    sleepy.run(lambda: sleepy.phase(rollout) is Phase.BAKING)
    sleepy.ask(act.AskAbort(rollout, "tester"))
    assert sleepy.finish(rollout) is Phase.ROLLED_BACK
    sleepy.settle()
    assert states(sleepy) == {"one-a-1": AttemptState.READY}
    assert len(started(sleepy)) == 2


def test_an_abort_while_it_falls_asleep_wakes_it(sleepy, release):
    rollout = swap(sleepy, release)
    sleepy.run(lambda: sleepy.state.attempts["one-a-1"].state is AttemptState.DOZING)
    sleepy.ask(act.AskAbort(rollout, "tester"))
    assert sleepy.finish(rollout) is Phase.ABORTED
    serves_again(sleepy)
    assert serving(sleepy) == {"one@00000000"}
    assert started(sleepy) == ["one-a-1"]


def test_only_the_release_before_live_sleeps(sleepy, release):
    for name in ("two", "three"):
        assert sleepy.finish(swap(sleepy, release, name)) is Phase.PROMOTED
        sleepy.settle()
    assert states(sleepy) == {"two-a-2": AttemptState.ASLEEP, "three-a-3": AttemptState.READY}
    assert "one-a-1" in asked(sleepy, act.StopAttempt)


def test_rolling_sleeps_instance_by_instance_and_is_never_dark_on_the_way_back(rolled):
    box = rolled
    box.settle()
    assert sorted(states(box).values()) == ["asleep", "asleep", "ready", "ready"]
    back, modes, served = box.rollback(), set(), []

    def done():
        modes.add(box.world.route.mode)
        served.append([slot for slot in box.world.route.public if slot.state is SlotState.READY])
        return len([a for a in box.state.seat_attempts(box.state.live) if a.state is AttemptState.READY]) == 2 and (
            box.phase(back) is Phase.ROLLED_BACK
        )

    box.run(done)
    assert modes == {Mode.OPEN}
    assert all(served), "somebody serves at every step"
    assert serving(box) == {"one@00000000"}
    assert len(started(box)) == 4, "both were woken"
    box.settle()
    assert sorted(states(box).values()) == ["asleep", "asleep", "ready", "ready"], "what was left sleeps as a whole"
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert serving(box) == {"two@00000000"}
    box.settle()
    assert len(started(box)) == 4, "and nobody was started on the way forward again"


# --- what can go wrong: always a start --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "said"),
    [(KEEPS_MEMORY, "8010 MiB in use"), (HANGS, "has not answered"), (REFUSES, "answers 500 to sleep")],
)
def test_sleep_that_frees_nothing_hangs_or_fails_is_a_stop(sleepy, release, trouble, said):
    sleepy.world.engines["one-a-1"].trouble = trouble
    before_s = sleepy.world.clock_s
    assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    assert sleepy.world.clock_s - before_s < sleepy.loop.policy.sleep_deadline_s + 60, "bounded"
    assert states(sleepy) == {"two-a-2": AttemptState.READY}
    retired = [e.why for e in sleepy.journal.entries(limit=5000) if "it is stopped" in e.why]
    assert retired
    assert said in retired[0]
    parts = dark_parts(sleepy.state, sleepy.state.rollouts["r0002"])
    assert parts["sleep"] > 0
    assert sum(parts.values()) == pytest.approx(sleepy.state.rollouts["r0002"].times["dark_s"], abs=0.01)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (WAKES_MAD, "the engine writes '!' only"),
        (WAKES_EMPTY, "MiB in use, before its sleep it was 8010"),
        (STAYS_ASLEEP, "answers 500 to wake"),
    ],
)
def test_a_wake_that_is_none_is_a_cold_start_on_the_same_cards(sleepy, release, trouble, said):
    sleepy.finish(swap(sleepy, release))
    sleepy.world.engines["one-a-1"].trouble = trouble
    back = sleepy.rollback()
    assert sleepy.finish(back) is Phase.ROLLED_BACK
    assert serving(sleepy) == {"one@00000000"}
    fresh = sleepy.state.seat_attempts(sleepy.state.live)
    assert [a.gpus for a in fresh] == [("gpu-0", "gpu-1", "gpu-2", "gpu-3")]
    assert fresh[0].id != "one-a-1"
    assert any(said in e.why and "started again" in e.why for e in sleepy.journal.entries(limit=5000))
    assert not sleepy.state.closed


def test_a_wake_that_fails_in_the_dark_is_a_start_of_live(sleepy, release):
    sleepy.world.engines["one-a-1"].trouble = WAKES_MAD
    sleepy.world.verdicts["toolcalls"] = ["fail"]
    assert sleepy.finish(swap(sleepy, release)) is Phase.REJECTED
    serves_again(sleepy)
    assert started(sleepy) == ["one-a-1", "two-a-2", "one-a-3"]


@pytest.mark.parametrize("how", ["killed", "reboot"])
def test_who_dies_asleep_is_buried_and_comes_back_by_a_start(sleepy, release, how):
    sleepy.finish(swap(sleepy, release))
    if how == "killed":
        sleepy.world.die("one-a-1")
    else:
        sleepy.world.reboot()
        serves_again(sleepy)
    sleepy.run(lambda: not sleepy.state.attempts["one-a-1"].holds)
    assert sleepy.finish(sleepy.rollback()) is Phase.ROLLED_BACK
    assert serving(sleepy) == {"one@00000000"}
    assert sleepy.state.seat_attempts(sleepy.state.live)[0].naps == ()


def test_who_dies_asleep_while_its_candidate_is_tried_takes_no_card_back(sleepy, release):
    sleepy.world.verdicts["toolcalls"] = ["hang"]
    rollout = swap(sleepy, release)
    sleepy.run(lambda: sleepy.phase(rollout) is Phase.GATING)
    sleepy.world.die("one-a-1")
    sleepy.settle()
    assert states(sleepy) == {"two-a-2": AttemptState.READY}
    sleepy.ask(act.AskAbort(rollout, "tester"))
    serves_again(sleepy)
    assert serving(sleepy) == {"one@00000000"}


@pytest.mark.parametrize("moment", ["sleep", "wake"])
def test_a_controller_that_died_in_between_asks_again_and_goes_on(sleepy, release, tmp_path, moment):
    rollout = swap(sleepy, release)
    kind = act.SleepAttempt
    if moment == "wake":
        sleepy.finish(rollout)
        rollout, kind = sleepy.rollback(), act.WakeAttempt
    state = AttemptState.DOZING if moment == "sleep" else AttemptState.STARTING
    sleepy.run(lambda: sleepy.state.attempts["one-a-1"].state is state)
    sleepy.world.controller_died()
    known = sleepy.state.attempts["one-a-1"]
    sleepy.journal.close()
    sleepy.journal = sleepy.loop.journal = Journal(tmp_path / "journal.sqlite")
    assert sleepy.state.attempts["one-a-1"] == known
    assert sleepy.finish(rollout) in {Phase.PROMOTED, Phase.ROLLED_BACK}
    again = [effect.again for effect in sleepy.world.done if isinstance(effect, kind) and effect.attempt == "one-a-1"]
    assert again == [False, True]
    assert len(started(sleepy)) == 2


def test_a_sleeper_on_a_card_that_was_closed_is_started_elsewhere(tmp_path, release):
    journal = Journal(tmp_path / "journal.sqlite")
    world = SleepyWorld(memory_mib=dict(ALL))
    box = Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    box.finish(box.propose(can_sleep(release("one", gpus=2))))
    box.finish(box.propose(can_sleep(release("wide", gpus=4)), strategy="swap"))
    assert box.state.attempts["one-a-1"].state is AttemptState.ASLEEP
    box.ask(act.CloseCard("gpu-0", Closed("boss", "its fan", 0.0)))
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert "gpu-0" not in box.state.seat_attempts(box.state.live)[0].gpus
    journal.close()


def test_a_pool_that_is_smaller_beside_a_sleeper_holds_nobody_up(sleepy, release):
    sleepy.finish(swap(sleepy, release))
    sleepy.finish(swap(sleepy, release, "three"))
    sleepy.world.kv_tokens = 90_000
    assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    pool = next(r for r in sleepy.state.rollouts["r0004"].gates if r.gate == "kv-pool")
    assert pool.verdict == "inconclusive"
    assert (
        "10 % less than the 100,000 of an earlier start, beside two-a-2 (asleep), three-a-3 (asleep)" in pool.sentence
    )


# --- who does not sleep -----------------------------------------------------------------------------------------------


def test_nobody_sleeps_who_cannot_or_shall_not(sleepy, release):
    sleepy.loop.policy = replace(sleepy.loop.policy, sleep=False)
    sleepy.finish(swap(sleepy, release))
    sleepy.loop.policy = replace(sleepy.loop.policy, sleep=True)
    sleepy.finish(sleepy.propose(release("three", gpus=4), strategy="swap"))
    assert asked(sleepy, act.SleepAttempt) == ["two-a-2"]
    sleepy.finish(swap(sleepy, release, "four"))
    assert "three-a-3" not in asked(sleepy, act.SleepAttempt), "its engine was not told what it needs"
    assert asked(sleepy, act.SleepAttempt)[-1] == "two-a-2"


def test_a_silent_engine_is_stopped_and_not_put_to_sleep(sleepy, release):
    sleepy.world.processes["one-a-1"].silent = True
    sleepy.finish(swap(sleepy, release))
    assert asked(sleepy, act.SleepAttempt) == []


def test_a_sleeper_is_not_stopped_while_another_one_loads_on_its_cards(sleepy, release):
    sleepy.world.start_s = 200.0
    rollout = swap(sleepy, release)
    sleepy.run(lambda: "two-a-2" in started(sleepy))
    sleepy.ask(act.Retire("one-a-1", gives_way_to=rollout))
    sleepy.settle_for(100)
    assert asked(sleepy, act.StopAttempt) == []
    sleepy.finish(rollout)
    sleepy.settle()
    assert asked(sleepy, act.StopAttempt) == ["one-a-1"]


def test_a_wake_on_somebody_elses_cards_is_illegal_and_a_sleeper_in_the_route_is_a_violation(sleepy, release):
    sleepy.finish(swap(sleepy, release))
    with pytest.raises(IllegalMove, match="two-a-2 holds"):
        sleepy.ask(act.WakeAttempt("one-a-1", "r0002"))
    seen = sleepy.world.observe(sleepy.state)
    slot = replace(sleepy.world.route.public[0], port=sleepy.state.attempts["one-a-1"].port)
    sleepy.world.route = replace(sleepy.world.route, public=(slot,))
    told = violations(sleepy.state, sleepy.world.observe(sleepy.state).door)
    assert violations(sleepy.state, seen.door) == []
    assert told == ["the front door sends users to one-a-1, which sleeps"]
    assert sleepy.world.processes["one-a-1"].life is Life.RUNNING


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_the_price_of_going_back_is_the_wake_that_this_box_has_measured(sleepy, release):
    def home():
        way = way_home(sleepy.state, sleepy.world.observe(sleepy.state).gpus)
        return way.how, way.dark, way.sentence

    gpus = sleepy.world.observe(sleepy.state).gpus
    plan = make_plan(
        sleepy.state, can_sleep(release("two", gpus=4)), gpus, sleepy.loop.policy, options=Options(strategy="swap")
    )
    assert (plan.rollback, plan.rollback_s) == ("asleep", None)
    assert any("put one-a-1 to sleep" in step for step in plan.steps)
    sleepy.finish(swap(sleepy, release))
    how, dark, sentence = home()
    assert (how, dark) == ("asleep", True)
    assert "never timed here" in sentence
    sleepy.finish(sleepy.rollback())
    sleepy.finish(sleepy.rollback())
    how, dark, sentence = home()
    assert (how, dark) == ("asleep", True)
    assert "woken (about 1.5 s), requests wait meanwhile" in sentence
    way = way_home(sleepy.state, sleepy.world.observe(sleepy.state).gpus)
    assert way.seconds == pytest.approx(sleepy.world.sleep_s + sleepy.world.wake_s, abs=1.5)


def test_who_is_stopped_in_its_sleep_is_not_called_back(sleepy, release):
    """Found by killing both halves of a release in a bake: the way back recalled a sleeper onto cards of others."""
    rollout = swap(sleepy, release, bake_s=60.0)
    sleepy.run(lambda: sleepy.phase(rollout) is Phase.BAKING)
    sleeper = next(a for a in sleepy.state.attempts.values() if a.state is AttemptState.ASLEEP)
    sleepy.ask(act.Retire(sleeper.id))
    with pytest.raises(IllegalMove, match="good health"):
        sleepy.ask(act.Recall(sleeper.id))
    assert not is_recallable(sleepy.state.attempts[sleeper.id])
    sleepy.ask(act.AskAbort(rollout, "somebody"))
    assert sleepy.finish(rollout) is Phase.ROLLED_BACK


def test_a_second_rollback_before_the_first_is_through_wakes_and_recalls_once(rolled):
    """Found by hand: live's other half wanted the cards of what was just called back, and for ever in turn."""
    stays = next(a for a in rolled.state.attempts.values() if a.id.startswith("two-b"))
    rolled.world.in_flight = {stays.slot: 1}
    rolled.finish(rolled.rollback())
    rolled.settle()
    begun = rolled.journal.last_seq()
    assert rolled.finish(rolled.rollback(), limit_s=120.0) is Phase.ROLLED_BACK
    rolled.settle()
    assert serving(rolled) == {"two@00000000"}
    assert rolled.journal.last_seq() - begun < 60
    rolled.world.in_flight = {}
    rolled.settle()
    assert len([a for a in rolled.state.seat_attempts(rolled.state.live) if a.state is AttemptState.READY]) == 2
    assert violations(rolled.state) == []


def test_a_sleeper_whose_card_is_cordoned_and_who_has_no_other_sleeps_on(sleepy, release):
    """A rollback that cannot succeed costs nothing: when the card is open again, going back is still a wake."""
    assert sleepy.finish(swap(sleepy, release)) is Phase.PROMOTED
    sleepy.settle()
    sleepy.ask(act.CloseCard("gpu-1", Closed("root", "the fan rattles", 0.0)))
    back = sleepy.rollback()
    assert sleepy.finish(back) is Phase.ROLLBACK_FAILED
    assert "gpu-1 is cordoned by root" in sleepy.state.rollouts[back].why
    sleepy.settle()
    assert states(sleepy) == {"one-a-1": AttemptState.ASLEEP, "two-a-2": AttemptState.READY}
    sleepy.ask(act.OpenCard("gpu-1"))
    assert sleepy.finish(sleepy.rollback()) is Phase.ROLLED_BACK
    assert len(started(sleepy)) == 2, "it was woken"
