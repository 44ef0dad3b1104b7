"""Production that keeps dying: started again ever later, given up, and who serves then."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from controller.core import actions as act
from controller.core.policy import HOLD, LAST_KNOWN_GOOD
from controller.core.records import AttemptState, Freeze, Kind, Phase
from controller.core.seen import Life
from controller.loop import Loop
from controller.store.journal import Journal

LONG_S = 150.0  # by then it is given up: it loads for 5 s, and the pauses are 75 s together


@pytest.fixture
def kills(box):
    """Let time pass, and kill whatever serves of these instances of live as soon as it is ready."""

    def play(seconds: float, instances: str = "ab", after_s: float = 0.0, until=lambda: False) -> None:
        end_s = box.world.clock_s + seconds
        while box.world.clock_s < end_s and not until():
            if not box.loop.step():
                box.world.clock_s += 1.0
            for a in box.state.seat_attempts(box.state.live):
                if a.state is AttemptState.READY and a.instance in instances:
                    served_s = box.world.clock_s - (a.ready_at_s or 0.0)
                    if served_s >= after_s and box.world.processes[a.id].life is Life.RUNNING:
                        box.world.processes[a.id].life = Life.EXITED
                        box.world.processes[a.id].sentence = "it exited with code 1"

    return play


def policy(box, **changes) -> None:
    box.loop.policy = replace(box.loop.policy, **changes)


def starts(box, name: str = "one") -> list:
    return [a for a in box.state.attempts.values() if a.release.startswith(f"{name}@")]


def is_served(box) -> bool:
    return box.state.is_served()


def begin_again(box, tmp_path) -> None:
    """The daemon begins anew on the same journal."""
    box.journal.close()
    box.journal = Journal(tmp_path / "journal.sqlite")
    box.loop = Loop(box.journal, box.world, box.loop.policy)


# --- the budget -------------------------------------------------------------------------------------------------------


def test_it_is_started_again_ever_later_and_then_given_up(box, release, kills):
    box.finish(box.propose(release("one")))
    kills(LONG_S)
    began = starts(box)
    assert len(began) == 1 + box.loop.policy.restart_budget
    pauses = [b.planned_at_s - a.stopped_at_s for a, b in pairwise(began)]
    assert [pytest.approx(least_s, abs=1.5) for least_s in (0, 5, 10, 20, 40)] == pauses
    assert box.state.live.release == "one@00000000"
    assert "it died 6 times" in began[-1].given_up
    box.world.clock_s += 10 * box.loop.policy.restart_window_s
    assert box.loop.step() is False, "it waits, and does not spin, however late it gets"


def test_one_that_dies_every_three_minutes_is_given_up_too(box, release, kills):
    """Five starts in ten minutes it never has."""
    box.finish(box.propose(release("one")))
    kills(1500.0, after_s=180.0)
    assert len(starts(box)) == 1 + box.loop.policy.restart_budget


def test_one_that_served_for_long_begins_a_new_count(box, release, kills):
    box.finish(box.propose(release("one")))
    policy(box, restart_budget=1, restart_window_s=60.0)
    kills(400.0, after_s=60.0)
    began = starts(box)
    assert len(began) > 5
    assert not any(a.given_up for a in began)
    assert all(b.planned_at_s - a.stopped_at_s <= 1.0 for a, b in pairwise(began))


def test_what_is_given_up_stays_so_over_a_restart_of_the_daemon_and_a_reboot(box, release, kills, tmp_path):
    box.finish(box.propose(release("one")))
    kills(LONG_S)
    before = len(starts(box))
    begin_again(box, tmp_path)
    box.world.clock_s += LONG_S
    box.settle()
    box.world.reboot()
    box.settle()
    assert len(starts(box)) == before
    assert "live keeps dying" in " ".join(box.loop.alarms)


def test_the_count_goes_on_in_a_daemon_that_begins_anew(box, release, kills, tmp_path):
    policy(box, restart_budget=2)
    box.finish(box.propose(release("one")))
    kills(8.0)
    assert len(starts(box)) == 2
    begin_again(box, tmp_path)
    kills(LONG_S)
    assert len(starts(box)) == 3


def test_a_restart_by_a_person_works_and_begins_a_new_count(box, release, kills):
    box.finish(box.propose(release("one")))
    kills(LONG_S)
    again = box.propose(release("one"), Kind.RESTART, force=True, strategy="any")
    assert box.finish(again) is Phase.PROMOTED
    assert box.loop.alarms == []
    before = len(starts(box))
    kills(LONG_S)
    assert len(starts(box)) == before + box.loop.policy.restart_budget


def test_what_made_room_has_not_died(box, release):
    """Whoever stops for a candidate again and again is started again every time."""
    policy(box, restart_budget=1)
    box.finish(box.propose(release("one", gpus=4)))
    for _ in range(4):
        box.world.verdicts["toolcalls"] = ["fail"]
        assert box.finish(box.propose(release("two", gpus=4), strategy="swap")) is Phase.REJECTED
        box.run(lambda: is_served(box))
        assert box.running() == {"one@00000000"}


def test_nobody_gets_the_cards_of_an_instance_that_waits_for_its_next_start(box, release, kills):
    policy(box, restart_pause_s=50.0)
    box.finish(box.propose(release("one", gpus=4)))
    kills(10.0)
    box.world.processes["one-a-2"].life = Life.EXITED
    box.run(lambda: not box.state.seat_attempts(box.state.live))
    rollout = box.propose(release("two", gpus=4))
    box.settle_for(20.0)
    assert "instance a is started again in" in box.loop.why
    assert box.loop.alarms == []
    assert box.phase(rollout) is Phase.QUEUED
    box.run(lambda: is_served(box))
    assert box.state.seat_attempts(box.state.live)[0].id == "one-a-3"


# --- parts of a release -----------------------------------------------------------------------------------------------


def test_one_of_two_that_is_given_up_costs_capacity_and_nothing_else(box, release, kills):
    policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD)
    box.finish(box.propose(release("zero", gpus=1)))
    box.finish(box.propose(release("one", gpus=1, instances=2)))
    kills(LONG_S, "b")
    assert box.state.is_served()
    assert box.state.live.release == "one@00000000"
    assert "instance b of one@00000000" in box.loop.alarms[0]
    assert "what is left of live serves on" in box.loop.alarms[0]


def test_a_router_goes_on_with_the_engines_that_are_left(box, release, kills):
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    kills(LONG_S, "b")
    router = next(a for a in box.state.seat_attempts(box.state.live) if a.role == "router")
    box.world.processes[router.id].life = Life.EXITED
    box.run(lambda: any(a.role == "router" and a.id != router.id for a in box.state.seat_attempts(box.state.live)))
    box.run(lambda: is_served(box))
    now = next(a for a in box.state.seat_attempts(box.state.live) if a.role == "router")
    engine = next(a for a in box.state.seat_attempts(box.state.live) if a.role != "router")
    assert now.workers == (engine.port,)


def test_a_router_learns_of_a_loss_once_also_while_what_was_lost_does_not_end(box, release):
    policy(box, restart_budget=0)
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.world.stop_s = 1e9
    box.world.processes["pair-b-2"].silent = True
    box.settle()
    routers = [a for a in box.state.attempts.values() if a.role == "router"]
    assert [a.workers for a in routers[1:]] == [(box.state.attempts["pair-a-1"].port,)]


def test_a_router_without_engines_is_not_waited_for(box, release, kills):
    policy(box, restart_budget=1)
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    kills(LONG_S)
    router = next(a for a in box.state.seat_attempts(box.state.live) if a.role == "router")
    box.world.processes[router.id].life = Life.EXITED
    box.settle()
    assert box.state.seat_attempts(box.state.live) == ()
    assert "nobody is served" in box.loop.alarms[0]
    assert box.finish(box.propose(release("two"))) is Phase.PROMOTED


def test_a_router_that_leads_to_nobody_and_whose_successor_is_given_up_is_told_as_gone(box, release):
    """Found by a seeded history: it stood there in good health, users waited in the dark, and no alarm said so."""
    policy(box, restart_budget=1)
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.world.cannot_start = {"router": "its port is in use"}
    for name in ("pair-a-1", "pair-b-2"):
        box.world.processes[name].life = Life.EXITED
    box.settle_for(LONG_S)
    assert not is_served(box)
    assert any("live keeps dying: instance router" in alarm for alarm in box.loop.alarms), box.loop.alarms


# --- what the person is told ------------------------------------------------------------------------------------------


def test_the_alarm_tells_who_how_often_the_last_words_and_what_to_do(box, release, kills):
    box.finish(box.propose(release("zero")))
    box.finish(box.propose(release("one", gpus=4), strategy="swap"))
    kills(LONG_S)
    alarm = box.loop.alarms[0]
    for text in (
        "instance a of one@00000000",
        "it died 6 times",
        "its last words: it exited with code 1",
        "nobody is served",
        "cutover logs one-a-",
        "cutover restart",
        "cutover rollback",
    ):
        assert text in alarm


# --- the last known good release --------------------------------------------------------------------------------------


def test_by_default_everything_is_held(box, release, kills):
    assert box.loop.policy.when_live_keeps_dying == HOLD
    box.finish(box.propose(release("zero")))
    box.finish(box.propose(release("one")))
    kills(LONG_S)
    assert box.state.live.release == "one@00000000"
    assert len(box.state.rollouts) == 2


@pytest.fixture
def taken_over(box, release, kills):
    """`zero` was live before `one`, which keeps dying; the policy is to let it take over."""

    def play(**changes) -> str:
        policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD, **changes)
        box.finish(box.propose(release("zero")))
        box.finish(box.propose(release("one")))
        kills(LONG_S, until=lambda: len(box.state.rollouts) > 2)
        return list(box.state.rollouts)[-1]

    return play


@pytest.mark.parametrize("warm", [True, False])
def test_the_last_known_good_release_takes_over(box, taken_over, warm):
    rollout = taken_over(keep_previous_warm=warm)
    assert box.finish(rollout) is Phase.ROLLED_BACK
    box.settle()
    assert box.running() == {"zero@00000000"}
    assert box.state.live.release == "zero@00000000"
    assert box.state.previous is None, "what keeps dying is nobody's way back"
    assert box.state.rollouts[rollout].asked_by == "the daemon"
    entry = next(e for e in box.journal.entries(limit=100_000) if e.action == "Propose" and e.rollout == rollout)
    assert "one@00000000 keeps dying and serves nobody" in entry.why
    assert "one@00000000 kept dying and zero@00000000 took over by itself" in box.loop.alarms[0]


def test_a_take_over_leaves_no_way_back_to_what_is_forgotten(box, release):
    """Found by a seeded history: `previous` was a rollout that nobody knew any more."""
    policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD, restart_budget=0)
    for name in ("zero", "one", "two"):
        box.finish(box.propose(release(name, gpus=1)))
        box.settle()
    assert "1 rollout" in box.journal.forget(1e12, box.world.now(), act.KeepOfThePast(0, 0, 1))
    box.world.processes["two-a-3"].life = Life.EXITED
    box.run(lambda: box.state.live.release == "one@00000000")
    assert box.state.previous is None


def test_when_that_one_keeps_dying_too_everything_is_held(box, taken_over, kills, tmp_path):
    box.finish(taken_over())
    kills(LONG_S)
    begin_again(box, tmp_path)
    kills(LONG_S)
    assert box.state.live.release == "zero@00000000"
    assert len(box.state.rollouts) == 3
    told = " ".join(box.loop.alarms)
    assert "nobody takes over" in told
    assert "live keeps dying: instance a of zero@00000000" in told


def test_after_a_person_has_decided_it_may_happen_once_more(box, release, taken_over, kills):
    box.finish(taken_over())
    assert box.finish(box.propose(release("two"))) is Phase.PROMOTED
    assert box.loop.alarms == []
    kills(LONG_S, "a")
    assert box.state.live.release == "zero@00000000"


def test_what_cannot_take_over_is_told_and_what_is_live_stays(box, taken_over):
    rollout = taken_over(keep_previous_warm=False)
    box.world.cannot_start = {"a": "its image is gone"}
    assert box.finish(rollout) is Phase.ROLLBACK_FAILED
    box.settle_for(100.0)
    assert box.state.live.release == "one@00000000"
    assert len(box.state.rollouts) == 3
    assert "did not take over" in box.loop.alarms[0]
    assert "its image is gone" in box.loop.alarms[0]


def test_a_reboot_in_the_middle_of_it_is_no_failure_of_the_release(box, taken_over):
    rollout = taken_over(keep_previous_warm=False)
    box.run(lambda: any(a.rollout == rollout for a in box.state.attempts.values()))
    box.world.reboot()
    box.run(lambda: box.state.live.release == "zero@00000000", tick_s=1.0)
    assert box.phase(rollout) is Phase.ROLLBACK_FAILED
    assert len(box.state.rollouts) == 4


def test_a_person_who_aborts_it_has_the_last_word(box, taken_over, kills):
    rollout = taken_over(keep_previous_warm=False)
    box.ask(act.AskAbort(rollout, "boss"))
    assert box.finish(rollout) is Phase.ABORTED
    kills(100.0)
    assert len(box.state.rollouts) == 3


def test_nobody_takes_over_while_everything_is_frozen(box, release, kills):
    policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD)
    box.finish(box.propose(release("zero")))
    box.finish(box.propose(release("one")))
    box.ask(act.SetFreeze(Freeze("boss", "an audit", 0.0)))
    kills(LONG_S)
    assert box.state.live.release == "one@00000000"
    box.ask(act.SetFreeze(None))
    kills(100.0, "")
    assert box.state.live.release == "zero@00000000"


def test_what_is_being_tried_goes_first_but_not_what_waits_for_an_approval(box, release, kills):
    policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD)
    box.finish(box.propose(release("zero", gpus=1)))
    box.finish(box.propose(release("one", gpus=1)))
    box.world.verdicts["toolcalls"] = ["hang"]
    tried = box.propose(release("two", gpus=1), require_approval=True)
    box.run(lambda: box.phase(tried) is Phase.GATING and box.state.rollouts[tried].gate is not None)
    policy(box, restart_budget=0)
    kills(5.0)
    assert box.state.live.release == "one@00000000", "what is being tried goes first"
    box.run(lambda: box.phase(tried) is Phase.AWAITING_APPROVAL or box.state.rollouts[tried].ended_wall_s is not None)
    kills(5.0, "")
    assert box.state.live.release == "zero@00000000"


def test_only_what_passed_its_bake_serves_the_same_and_has_its_files_can_take_over(box, release, kills):
    policy(box, when_live_keeps_dying=LAST_KNOWN_GOOD, restart_budget=0)
    box.finish(box.propose(release("oldest", gpus=1)))
    box.finish(box.propose(release("other", gpus=1, serves=("n", "m")), force=True))
    box.finish(box.propose(release("left", gpus=1)))
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK, "somebody left it"
    box.finish(box.propose(release("smaller", gpus=1, serves=("k",)), force=True))
    box.finish(box.propose(release("one", gpus=1), force=True))
    assert box.state.live.release == "one@00000000"
    box.world.releases_gone = frozenset({"other@00000000"})
    kills(100.0)
    assert box.state.live.release == "oldest@00000000"
