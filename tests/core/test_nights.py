"""The night by itself: windows, the queue, what has no time any more, who yields, and live's own measurement."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from fake_world import Box, FakeWorld, make_release

from controller.core import actions as act
from controller.core.desired import probe_wishes
from controller.core.night_records import NightState
from controller.core.policy import Policy
from controller.core.queue import why_not_yet
from controller.core.records import AttemptState, Closed, Freeze, Kind, Phase
from controller.core.seen import GateSeen, Users
from controller.core.window import Schedule
from controller.loop import Loop
from controller.store.journal import Journal

ZONE = ZoneInfo("Asia/Taipei")
NIGHTLY = Schedule("nightly", time(2), 4 * 3600.0, ZONE, "Asia/Taipei")
POLICY = Policy(
    bake_s=30.0,
    start_s=60.0,
    drain_s=60.0,
    swap_drain_s=20.0,
    strategies=("blue-green", "rolling", "swap"),
    schedules={"nightly": NIGHTLY},
    quiet_patience_s=600.0,
)
THROUGHPUT = {"name": "throughput", "deadline_s": 120.0}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


def local(wall_s: float) -> str:
    return f"{datetime.fromtimestamp(wall_s, ZONE):%Y-%m-%d %H:%M}"


@pytest.fixture
def box(tmp_path: Path):
    journal = Journal(tmp_path / "journal.sqlite")
    world = FakeWorld()
    box = Box(Loop(journal, world, POLICY), world, journal)
    box.finish(box.propose(make_release("live")))
    world.set_wall(at("2026-11-30T18:00"))
    yield box
    journal.close()


def by_night(box: Box, name: str, gpus: int = 2, **options) -> str:
    return box.propose(make_release(name, gpus), window="nightly", **options)


def sleep_until(box: Box, text: str) -> None:
    """Hours pass: in long steps while nothing runs, or a test would count every half second of them."""
    end_s = at(text)
    while (left_s := end_s - box.world.now().wall_s) > 0:
        if not box.loop.step():
            box.world.clock_s += min(10.0 if box.state.active else 300.0, max(0.5, left_s))


def waits_for(box: Box, rollout: str) -> str:
    state = box.state
    return why_not_yet(state.rollouts[rollout], state, box.world.observe(state), box.loop.policy)


def with_policy(box: Box, **changes) -> None:
    box.loop.policy = replace(box.loop.policy, **changes)


# --- the window -------------------------------------------------------------------------------------------------------


def test_waits_for_its_window_and_is_live_in_the_morning(box):
    rollout = by_night(box, "next")
    box.settle_for(60)
    assert box.phase(rollout) is Phase.QUEUED
    assert waits_for(box, rollout) == "window nightly opens Tue 2026-12-01 02:00 (Asia/Taipei)"
    assert "waits: window nightly opens" in box.loop.why
    sleep_until(box, "2026-12-01T02:00")
    assert box.finish(rollout) is Phase.PROMOTED
    assert box.state.rollouts[rollout].night == "nightly@2026-12-01"
    sleep_until(box, "2026-12-01T07:00")
    night = box.state.nights["nightly@2026-12-01"]
    assert (night.state, local(night.ended_wall_s)[:13]) == (NightState.CLOSED, "2026-12-01 06")
    assert night.why == "1 rollout began, 0 proposals wait"


def test_the_morning_is_told_what_was_in_the_way(box):
    long = by_night(box, "long", bake_s=7200.0)
    sleep_until(box, "2026-12-01T03:59")
    loud = box.propose(make_release("loud", gpus=4), window="nightly", strategy="swap")
    late = by_night(box, "late", bake_s=7200.0)
    box.world.users = Users(5, 50.0)
    sleep_until(box, "2026-12-01T06:05")
    assert box.phase(long) is Phase.PROMOTED
    said = box.state.nights["nightly@2026-12-01"].said
    assert [line.split(" did not begin: ")[0].split()[0] for line in said] == [loud, late]
    assert "5 requests of users in flight" in said[0]
    assert "no time left, it needs about 12" in said[1]


def test_what_asks_for_no_window_does_not_wait(box):
    by_night(box, "next")
    assert box.finish(box.propose(make_release("now"))) is Phase.PROMOTED


def test_in_order_of_priority_and_a_failed_one_blocks_nobody(box):
    first, second, third = by_night(box, "one"), by_night(box, "two"), by_night(box, "three", priority=5)
    box.ask(act.Reorder(second, 9))
    box.world.verdicts["toolcalls"] = ["fail"]
    sleep_until(box, "2026-12-01T02:00")
    assert box.finish(second) is Phase.REJECTED
    assert box.finish(third) is Phase.PROMOTED
    assert box.finish(first) is Phase.PROMOTED
    gates = [(r.gate, r.verdict) for r in box.state.rollouts[first].gates if r.index >= 0]
    assert gates == [("health", "pass"), ("toolcalls", "pass")]


def test_a_newer_revision_takes_the_place_of_an_older_one(box):
    old = by_night(box, "next")
    other = by_night(box, "other")
    new = box.propose(replace(make_release("next"), id="next@11111111"), window="nightly")
    assert box.phase(old) is Phase.SUPERSEDED
    assert box.state.rollouts[old].why == f"{new} (next@11111111) is a newer revision of next"
    assert box.phase(other) is Phase.QUEUED


def test_withdrawn(box):
    rollout = by_night(box, "next")
    box.ask(act.AskAbort(rollout, "tester"))
    box.settle()
    assert box.phase(rollout) is Phase.ABORTED


def test_a_missed_window_is_said_and_nothing_is_run_late(box):
    rollout = by_night(box, "next")
    box.settle()
    box.world.clock_s += 15 * 3600  # the daemon does not run from 18:00 to 09:00
    box.settle_for(600)
    night = box.state.nights["nightly@2026-12-01"]
    assert night.state is NightState.MISSED
    assert "opened at 02:00 (Asia/Taipei) and closed at 06:00" in night.why
    assert box.phase(rollout) is Phase.QUEUED
    sleep_until(box, "2026-12-02T02:00")
    assert box.finish(rollout) is Phase.PROMOTED


def test_a_window_that_nobody_ever_wanted_is_not_missed(box):
    box.world.clock_s += 15 * 3600
    box.settle()
    assert box.state.nights == {}


def test_what_a_reboot_took_is_tried_once_more_and_no_more(box):
    """It may be what took the host down: the second time the night goes on without it."""
    rollout, later = by_night(box, "next"), by_night(box, "later")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.STARTING)
    box.world.reboot()
    box.world.clock_s += 60
    assert box.finish(rollout) is Phase.FAILED
    again = next(r for r in box.state.rollouts.values() if r.again_for == rollout)
    assert box.finish(later) is Phase.PROMOTED
    box.run(lambda: box.phase(again.id) is Phase.STARTING)
    box.world.boot = "boot-3"
    box.world.processes.clear()
    assert box.finish(again.id) is Phase.FAILED
    assert not [r for r in box.state.rollouts.values() if r.again_for == again.id]
    assert list(box.state.nights) == ["nightly@2026-12-01"]


def test_expires(box):
    rollout = by_night(box, "next", expires_wall_s=at("2026-12-01T01:00"))
    sleep_until(box, "2026-12-01T01:01")
    assert box.phase(rollout) is Phase.SKIPPED
    assert "propose again" in box.state.rollouts[rollout].why


def test_what_waits_for_ever_is_skipped_after_a_week(box):
    with_policy(box, schedules={})
    rollout = by_night(box, "next")
    box.settle()
    assert waits_for(box, rollout) == "there is no window nightly in the configuration any more"
    sleep_until(box, "2026-12-07T18:10")
    assert box.phase(rollout) is Phase.SKIPPED


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_clock_set_back_makes_no_second_night_and_no_longer_one(box):
    with_policy(box, schedules={"nightly": replace(NIGHTLY, duration_s=1800.0)})
    sleep_until(box, "2026-12-01T02:10")
    by_night(box, "first")
    box.settle()
    box.world.set_wall(at("2026-12-01T00:30"))
    rollout = by_night(box, "second")
    box.settle_for(1800.0)  # by the clock of the box it is over, by that on the wall it has not begun
    assert box.state.nights["nightly@2026-12-01"].state is NightState.CLOSED
    late = by_night(box, "third")
    sleep_until(box, "2026-12-01T02:20")
    assert box.phase(rollout) in {Phase.QUEUED, Phase.PROMOTED}
    assert box.phase(late) is Phase.QUEUED
    assert waits_for(box, late) == "window nightly opens Wed 2026-12-02 02:00 (Asia/Taipei)"
    assert list(box.state.nights) == ["nightly@2026-12-01"]


def test_a_clock_set_forward_does_not_cut_what_has_begun(box):
    rollout = by_night(box, "next", bake_s=600.0)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.set_wall(at("2026-12-01T09:00"))
    assert box.finish(rollout) is Phase.PROMOTED


def test_two_windows_that_overlap(box):
    late = Schedule("late", time(4), 4 * 3600.0, ZONE, "Asia/Taipei")
    with_policy(box, schedules={"nightly": NIGHTLY, "late": late})
    one = box.propose(make_release("one"), window="late")
    sleep_until(box, "2026-12-01T03:00")
    assert box.phase(one) is Phase.QUEUED
    sleep_until(box, "2026-12-01T04:00")
    assert box.finish(one) is Phase.PROMOTED
    assert box.state.rollouts[one].night == "late@2026-12-01"
    assert {n.id for n in box.state.nights.values()} == {"nightly@2026-12-01", "late@2026-12-01"}


# --- in time ----------------------------------------------------------------------------------------------------------


def test_nothing_begins_that_could_not_be_undone_in_time(box):
    rollout = by_night(box, "next", bake_s=7200.0)
    late = by_night(box, "late", bake_s=7200.0)
    sleep_until(box, "2026-12-01T04:10")
    assert box.phase(rollout) is Phase.PROMOTED
    assert box.phase(late) is Phase.QUEUED
    assert "it needs about 12" in waits_for(box, late)
    assert waits_for(box, late).endswith("min are left")


def test_a_candidate_that_takes_too_long_is_undone_before_the_window_closes(box):
    box.world.verdicts["toolcalls"] = ["hang"]
    with_policy(box, schedules={"nightly": replace(NIGHTLY, duration_s=1200.0)})
    rollout = box.propose(make_release("next", gpus=4), window="nightly", strategy="swap")
    # Its gates were measured to be short here, and now they are not.
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    record = box.state.rollouts[rollout]
    slow = tuple({**step, "deadline_s": 7200.0} for step in record.profile)
    box.journal.state = replace(box.state, rollouts={**box.state.rollouts, rollout: replace(record, profile=slow)})
    assert box.finish(rollout) is Phase.SKIPPED
    assert "live stays" in box.state.rollouts[rollout].why
    box.settle()
    assert box.state.is_served()
    assert box.world.now().wall_s < at("2026-12-01T02:20")
    assert box.state.live.release.startswith("live@")


def test_what_has_no_time_to_bake_is_not_switched_to(box):
    rollout = by_night(box, "next", bake_s=600.0, finish_by_wall_s=at("2026-12-01T02:13"))
    box.world.verdicts["health"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.state.rollouts[rollout].gate is not None)
    box.world.clock_s += 180  # that was all there was to spare
    run = box.state.rollouts[rollout].gate
    assert run is not None
    box.world.gates[run.run] = GateSeen("pass", "late, but it passed")
    assert box.finish(rollout) is Phase.SKIPPED
    assert "has to bake for 10 min" in box.state.rollouts[rollout].why
    assert box.state.live.release.startswith("live@")


def test_a_bake_that_would_not_end_in_time_leads_back(box):
    rollout = by_night(box, "next", bake_s=600.0, finish_by_wall_s=at("2026-12-01T02:30"))
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    box.world.clock_s += 0.5
    for process in box.world.processes.values():  # tokens stop to be asked for: the bake cannot end
        process.prefills_since_s = box.world.clock_s
    box.world.clock_s += 1790 - 60
    box.settle_for(60)
    assert box.phase(rollout) in {Phase.ROLLING_BACK, Phase.ROLLED_BACK, Phase.ROLLBACK_FAILED}


def test_a_swap_waits_for_a_quiet_moment(box):
    rollout = box.propose(make_release("next", gpus=4), window="nightly", strategy="swap")
    box.world.users = Users(in_flight=2, per_min=3.0)
    sleep_until(box, "2026-12-01T02:10")
    assert box.phase(rollout) is Phase.QUEUED
    assert waits_for(box, rollout) == "2 requests of users in flight, quiet is 0 or less"
    box.world.users = Users(in_flight=0, per_min=30.0)
    box.settle_for(10)
    assert waits_for(box, rollout) == "users ask 30 times a minute, quiet is 6 or less"
    box.world.users = None
    box.settle_for(10)
    assert waits_for(box, rollout) == "how much users ask for is not known"
    box.world.users = Users(in_flight=0, per_min=1.0)
    assert box.finish(rollout) is Phase.PROMOTED


def test_who_takes_nothing_from_users_does_not_wait_for_quiet(box):
    rollout = by_night(box, "next")
    box.world.users = Users(in_flight=50, per_min=500.0)
    sleep_until(box, "2026-12-01T02:00")
    assert box.finish(rollout) is Phase.PROMOTED


# --- freezes ----------------------------------------------------------------------------------------------------------


def test_a_freeze_ends_by_itself(box):
    rollout = by_night(box, "next")
    box.ask(act.SetFreeze(Freeze("ada", "exam week", box.world.now().wall_s, at("2026-12-01T03:00"))))
    sleep_until(box, "2026-12-01T02:50")
    assert box.phase(rollout) is Phase.QUEUED
    assert "frozen by ada: exam week" in box.loop.why
    sleep_until(box, "2026-12-01T03:00")
    assert box.finish(rollout) is Phase.PROMOTED
    assert box.state.freeze is None


# --- approval ---------------------------------------------------------------------------------------------------------


def test_what_waits_for_approval_is_asked_again_and_again(box):
    rollout = by_night(box, "next", require_approval=True, approval_s=7200.0)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    box.settle_for(1300)
    rechecks = [e for e in box.world.done if isinstance(e, act.RunGate) and "-again-" in e.run]
    assert [e.gate for e in rechecks] == ["health", "health"]
    box.world.verdicts["health"] = ["inconclusive"]
    box.settle_for(650)
    assert box.phase(rollout) is Phase.AWAITING_APPROVAL  # what it passed, it passed
    box.ask(act.Approve(rollout, "ada"))
    assert box.finish(rollout) is Phase.PROMOTED


def test_what_fails_while_it_waits_for_approval_is_rejected(box):
    rollout = by_night(box, "next", require_approval=True)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    box.world.verdicts["health"] = ["fail"]
    assert box.finish(rollout) is Phase.REJECTED
    assert box.state.rollouts[rollout].why.startswith("gate health, again:")


def test_what_falls_silent_while_it_waits_for_approval_is_rejected(box):
    rollout = by_night(box, "next", require_approval=True)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.AWAITING_APPROVAL)
    attempt = box.state.seat_attempts(box.state.rollouts[rollout].seat)[0]
    box.world.processes[attempt.id].silent = True
    assert box.finish(rollout) is Phase.REJECTED


def test_an_approval_that_does_not_come(box):
    rollout = by_night(box, "next", require_approval=True, approval_s=600.0)
    sleep_until(box, "2026-12-01T02:00")
    assert box.finish(rollout) is Phase.ABORTED


def test_an_approval_may_come_in_the_morning(box):
    """It keeps its cards and nobody's night: the others go first, and the window closes over it."""
    rollout = by_night(box, "next", require_approval=True, priority=9)
    other = by_night(box, "other", trial=True)
    sleep_until(box, "2026-12-01T08:00")
    assert box.phase(other) is Phase.MEASURED
    assert box.phase(rollout) is Phase.AWAITING_APPROVAL
    assert box.state.nights["nightly@2026-12-01"].state is NightState.CLOSED
    box.ask(act.Approve(rollout, "ada"))
    assert box.finish(rollout) is Phase.PROMOTED


def test_an_approval_at_the_edge_of_the_window_is_heard(box):
    """Somebody is awake: the window, which closes in a moment, does not throw it away."""
    rollout = by_night(box, "next", require_approval=True, bake_s=600.0)
    sleep_until(box, "2026-12-01T05:58")
    box.ask(act.Approve(rollout, "ada"))
    assert box.finish(rollout) is Phase.PROMOTED


def test_an_approval_does_not_lift_the_time_that_was_asked_for(box):
    rollout = by_night(box, "next", require_approval=True, bake_s=600.0, finish_by_wall_s=at("2026-12-01T06:00"))
    sleep_until(box, "2026-12-01T05:58")
    box.ask(act.Approve(rollout, "ada"))
    assert box.finish(rollout) is Phase.SKIPPED


def test_an_approval_does_not_outlast_the_window_where_live_made_room(box):
    rollout = box.propose(make_release("next", 2, 2), window="nightly", strategy="rolling", require_approval=True)
    box.finish(box.propose(make_release("wide", 2, 2), strategy="any"))
    sleep_until(box, "2026-12-01T06:00")
    assert box.phase(rollout) is Phase.SKIPPED
    box.settle()
    assert len(box.state.offered) == 2


# --- trials and cards -------------------------------------------------------------------------------------------------


def test_a_trial_is_judged_and_never_switched_to(box):
    rollout = by_night(box, "next", trial=True)
    sleep_until(box, "2026-12-01T02:00")
    assert box.finish(rollout) is Phase.MEASURED
    box.settle()
    assert box.state.live.release.startswith("live@")
    assert {a.release for a in box.state.held} == {box.state.live.release}


def test_by_night_cards_are_waited_for(box):
    rollout = by_night(box, "next", strategy="blue-green")
    box.world.foreign = {2: "train.py (pid 77)", 3: "train.py (pid 77)"}
    sleep_until(box, "2026-12-01T03:00")
    assert box.phase(rollout) is Phase.QUEUED
    assert "its cards are not to be had" in waits_for(box, rollout)
    box.world.foreign = {}
    assert box.finish(rollout) is Phase.PROMOTED


def test_it_yields_to_somebody_elses_job_and_tries_again(box):
    rollout = by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    box.world.foreign = {2: "train.py (pid 77)"}
    assert box.finish(rollout) is Phase.SKIPPED
    assert box.state.rollouts[rollout].why == "it yields GPU 2 to somebody else: train.py (pid 77)"
    again = list(box.state.rollouts)[-1]
    assert again != rollout
    assert box.state.rollouts[again].options == box.state.rollouts[rollout].options
    box.settle_for(60)
    assert box.phase(again) is Phase.QUEUED
    box.world.foreign = {}
    assert box.finish(again) is Phase.PROMOTED


def test_it_yields_a_card_that_somebody_wants(box):
    rollout = by_night(box, "next", trial=True)
    box.world.verdicts["toolcalls"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    box.ask(act.CloseCard("gpu-2", Closed("ada", "her paper is due", 0.0)))
    assert box.finish(rollout) is Phase.SKIPPED
    assert "her paper is due" in box.state.rollouts[rollout].why


# --- live's own figures -----------------------------------------------------------------------------------------------


def measurements(box: Box) -> list[str]:
    return [r.id for r in box.state.rollouts.values() if r.kind is Kind.MEASURE]


def test_live_is_measured_once_a_night_before_the_first_candidate(box):
    box.observers = (THROUGHPUT,)
    one, two = by_night(box, "one", gpus=1), by_night(box, "two", gpus=1)
    sleep_until(box, "2026-12-01T02:00")
    box.finish(one)
    box.finish(two)
    (measured,) = measurements(box)
    record = box.state.rollouts[measured]
    assert record.phase is Phase.MEASURED
    assert record.target is not None
    assert record.release.startswith("live@")
    assert [r.gate for r in record.gates] == ["throughput"]
    assert record.ended_wall_s <= box.state.rollouts[one].ended_wall_s
    assert box.state.nights["nightly@2026-12-01"].baseline == measured
    assert all(a.state is not AttemptState.STARTING for a in box.state.held)


def test_live_is_measured_by_the_way_of_candidates(box):
    box.observers = (THROUGHPUT,)
    by_night(box, "one")
    box.world.verdicts["throughput"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: bool(measurements(box)) and box.state.rollouts[measurements(box)[0]].gate is not None)
    box.settle_for(1)
    # The gate forgives what candidates are probed besides, and no more: live is not probed by a third way.
    assert {wish.target for wish in probe_wishes(box.state, POLICY)} == {"live-a-1", "public"}
    assert [s.release for s in box.world.route.preview] == [box.state.live.release]
    assert [s.release for s in box.world.route.public] == [box.state.live.release]


def test_live_is_never_measured_under_users(box):
    box.observers = (THROUGHPUT,)
    rollout = by_night(box, "one")
    box.world.verdicts["throughput"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: bool(measurements(box)) and box.state.rollouts[measurements(box)[0]].gate is not None)
    box.world.users = Users(in_flight=1, per_min=1.0)
    measured = measurements(box)[0]
    assert box.finish(measured) is Phase.SKIPPED
    assert "1 request of users in flight" in box.state.rollouts[measured].why
    assert box.finish(rollout) is Phase.PROMOTED
    assert len(measurements(box)) == 1


def test_no_quiet_moment_for_the_measurement(box):
    box.observers = (THROUGHPUT,)
    rollout = by_night(box, "one")
    box.world.users = Users(in_flight=3, per_min=100.0)
    sleep_until(box, "2026-12-01T02:05")
    measured = measurements(box)[0]
    assert waits_for(box, rollout) == f"{measured} measures live first"
    assert box.finish(measured) is Phase.SKIPPED
    assert "no quiet moment in 10 min" in box.state.rollouts[measured].why
    assert box.finish(rollout) is Phase.PROMOTED
