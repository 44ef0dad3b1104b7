"""Nights that go wrong: clocks, jobs that come and go, people who change their minds, two windows, no time."""

from __future__ import annotations

from dataclasses import replace
from datetime import time

from fake_world import make_release
from test_nights import (
    NIGHTLY,
    THROUGHPUT,
    ZONE,
    at,
    box,
    by_night,
    measurements,
    sleep_until,
    waits_for,
    with_policy,
)

from controller.core import actions as act
from controller.core.night_records import NightState
from controller.core.records import AttemptState, Freeze, Phase
from controller.core.seen import Life, Users
from controller.core.window import Schedule

__all__ = ["box"]  # the fixture


def test_older_revision_that_yields_is_not_live_in_the_morning(box):
    """The older one runs, a newer one is proposed, the older yields: its new try must not replace the newer one."""
    old = by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(old) is Phase.GATING)
    new = box.propose(replace(make_release("next"), id="next@11111111"), window="nightly", strategy="blue-green")
    box.world.foreign = {2: "train.py (pid 77)"}
    assert box.finish(old) is Phase.SKIPPED
    box.world.foreign = {}
    sleep_until(box, "2026-12-01T06:01")
    assert box.phase(new) is Phase.PROMOTED
    assert box.state.live.release == "next@11111111"


def test_an_abort_that_meets_a_yield_is_not_lost(box):
    """The abort is filed while the loop looks: what it decided on (yield, try again) makes a new try nobody aborts."""
    rollout = by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    look = box.world.observe
    done = []

    def observe(state):
        if not done:
            done.append(1)
            box.world.foreign = {2: "train.py"}
            box.ask(act.AskAbort(rollout, "ada"))
        return look(state)

    box.world.observe = observe
    box.loop.step()
    box.world.observe = look
    box.world.foreign = {}
    sleep_until(box, "2026-12-01T06:01")
    assert box.state.live.release.startswith("live@"), "what ada aborted is live in the morning"


def test_a_freeze_that_meets_an_acceptance(box):
    rollout = by_night(box, "next")
    sleep_until(box, "2026-12-01T01:59")
    look = box.world.observe
    done = []

    def observe(state):
        seen = look(state)
        if not done and "nightly@2026-12-01" in state.nights:
            done.append(1)
            box.ask(act.SetFreeze(Freeze("ada", "exam", seen.now.wall_s, None)))
        return seen

    box.world.observe = observe
    sleep_until(box, "2026-12-01T02:30")
    assert box.phase(rollout) is Phase.QUEUED


def test_a_job_that_comes_and_goes_does_not_start_and_stop_a_candidate_all_night(box):
    """There is no pause after a yield: in one minute of this fake world some 60 starts; each is a loaded model."""
    by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    end_s = box.world.clock_s + 60
    while box.world.clock_s < end_s:
        mine = [a for a in box.state.held if a.release != box.state.live.release and a.state is AttemptState.STARTING]
        box.world.foreign = {2: "scavenger (pid 77)"} if mine else {}
        if not box.loop.step():
            box.world.clock_s += 0.5
    starts = [e for e in box.world.done if isinstance(e, act.StartAttempt)]
    assert len(starts) <= 5, f"{len(starts)} starts and {len(box.state.rollouts)} rollouts in one minute"


def test_a_host_that_goes_down_with_it_is_not_taken_down_a_third_time(box):
    """Reboot, once more, a yield, once more: the next reboot counts as the first again."""
    by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")

    def newest():
        return list(box.state.rollouts)[-1]

    def reboot(number):
        box.run(lambda: box.phase(newest()) is Phase.STARTING)
        box.world.reboot()
        box.world.boot = f"boot-{number}"
        box.world.clock_s += 60
        name = newest()
        box.run(lambda: box.state.rollouts[name].ended_wall_s is not None)

    reboot(2)
    box.run(lambda: box.phase(newest()) is Phase.STARTING)
    box.world.foreign = {2: "job"}
    box.settle_for(5)
    box.world.foreign = {}
    reboot(3)
    box.settle_for(60)
    assert box.phase(newest()) is Phase.FAILED, (newest(), box.phase(newest()))


def test_a_clock_that_was_wrong_for_a_minute_does_not_end_all_nights(box):
    """The clock shows 40 days ahead for a minute (RTC, NTP); it is set right. The next nights have to open."""
    rollout = by_night(box, "next", expires_wall_s=at("2027-06-01T00:00"))
    sleep_until(box, "2026-12-01T01:00")
    right = box.world.now().wall_s
    box.world.set_wall(right + 40 * 86400 + 12 * 3600)
    box.settle_for(60)
    box.world.set_wall(right + 60)
    box.settle_for(60)
    said = waits_for(box, rollout)
    assert said == "window nightly opens Tue 2026-12-01 02:00 (Asia/Taipei)"  # that is what people are told
    sleep_until(box, "2026-12-03T06:01")
    assert box.phase(rollout) is Phase.PROMOTED, waits_for(box, rollout)


def test_a_shortened_window_bounds_what_begins_afterwards(box):
    """At 02:10 the operator makes it one hour (restart): what begins then is over by 03:00."""
    sleep_until(box, "2026-12-01T02:10")
    with_policy(box, schedules={"nightly": replace(NIGHTLY, duration_s=3600.0)})
    rollout = by_night(box, "next", bake_s=1800.0)
    box.world.verdicts["toolcalls"] = ["hang"]
    sleep_until(box, "2026-12-01T02:11")
    box.run(lambda: box.phase(rollout) is not Phase.QUEUED)
    left = box.state.rollouts[rollout].until_s - box.world.clock_s
    assert left <= 3600, f"{left / 60:.0f} min are left for it, and the window closes in 49"


def test_patience_for_a_measurement_does_not_cost_a_proposal_every_night(box):
    """Users never stop. The proposal takes nothing from them and fits into the window, yet it never begins."""
    box.observers = (THROUGHPUT,)
    with_policy(box, schedules={"nightly": replace(NIGHTLY, duration_s=3600.0)}, quiet_patience_s=1800.0)
    rollout = by_night(box, "next", bake_s=2000.0, strategy="blue-green")
    box.world.users = Users(in_flight=3, per_min=100.0)
    sleep_until(box, "2026-12-04T06:01")
    assert box.phase(rollout) is Phase.PROMOTED, [n.said for n in box.state.nights.values()]


def test_who_is_not_compared_does_not_wait_for_the_measurement(box):
    box.observers = (THROUGHPUT,)
    by_night(box, "compared")
    box.observers = ()
    other = by_night(box, "other", strategy="blue-green", priority=5)
    box.world.users = Users(in_flight=3, per_min=100.0)
    sleep_until(box, "2026-12-01T02:05")
    assert box.phase(other) is not Phase.QUEUED, waits_for(box, other)


def test_live_is_not_measured_while_users_ask_often_and_briefly(box):
    box.observers = (THROUGHPUT,)
    by_night(box, "one")
    box.world.verdicts["throughput"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: bool(measurements(box)) and box.state.rollouts[measurements(box)[0]].gate is not None)
    box.world.users = Users(in_flight=0, per_min=300.0)
    box.settle_for(30)
    assert box.phase(measurements(box)[0]) is Phase.SKIPPED


def test_live_is_not_measured_when_users_cannot_be_counted_any_more(box):
    box.observers = (THROUGHPUT,)
    by_night(box, "one")
    box.world.verdicts["throughput"] = ["hang"]
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: bool(measurements(box)) and box.state.rollouts[measurements(box)[0]].gate is not None)
    box.world.users = None
    box.settle_for(30)
    assert box.phase(measurements(box)[0]) is Phase.SKIPPED


def test_a_job_that_comes_between_acceptance_and_plan_does_not_make_it_a_swap_under_users(box):
    """Accepted as blue-green; then its cards are gone, the new plan is a swap, and nobody asks again for quiet."""
    rollout = by_night(box, "next")
    box.world.users = Users(in_flight=50, per_min=500.0)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.PREFLIGHT)
    box.world.foreign = {2: "train.py", 3: "train.py"}
    box.settle_for(30)
    assert box.state.rollouts[rollout].strategy != "swap", f"live is taken from 50 users: {box.loop.why}"


def test_a_job_that_comes_before_the_lease_is_waited_for(box):
    rollout = by_night(box, "next", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.LEASING)
    box.world.foreign = {2: "train.py"}
    box.settle_for(5)
    box.world.foreign = {}
    sleep_until(box, "2026-12-01T06:01")
    assert box.state.live.release.startswith("next@"), box.state.rollouts[rollout].why


def test_users_are_not_led_to_a_swap_that_cannot_bake_and_go_back_in_time(box):
    """left >= bake is not enough: on the way back live has to be started, and that is not in it."""
    with_policy(box, bake_s=60.0)
    box.world.start_s = 50.0
    rollout = box.propose(make_release("next", gpus=4), window="nightly", strategy="swap", bake_s=600.0)
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.CUTTING_OVER or box.phase(rollout) is Phase.BAKING)
    record = box.state.rollouts[rollout]
    assert record.phase is Phase.CUTTING_OVER, record.phase
    # 601 s are left: enough to bake, and not to bake and to be taken back (live starts cold)
    box.journal.state = replace(
        box.state, rollouts={**box.state.rollouts, rollout: replace(record, until_s=box.world.clock_s + 605.0)}
    )
    phase = box.finish(rollout)
    assert phase is Phase.SKIPPED, (phase, box.state.rollouts[rollout].why)


def test_a_trial_does_not_take_the_place_of_a_proposal(box):
    real = by_night(box, "next")
    by_night(box, "next", trial=True)
    assert box.phase(real) is Phase.QUEUED, box.state.rollouts[real].why


def test_who_waits_for_an_approval_does_not_keep_the_night_from_the_others(box):
    """Nobody is awake: it holds the one place until the window closes, and is thrown away then."""
    by_night(box, "ask", require_approval=True)
    other = by_night(box, "other", gpus=1)
    sleep_until(box, "2026-12-01T06:05")
    assert box.phase(other) is not Phase.QUEUED, waits_for(box, other)


def test_a_passed_candidate_can_be_approved_in_the_morning(box):
    """docs/nights.md says that it ends with its window; so `ask` can never be answered by people who sleep at night."""
    rollout = by_night(box, "ask", require_approval=True)
    sleep_until(box, "2026-12-01T08:00")
    assert box.phase(rollout) in {Phase.AWAITING_APPROVAL, Phase.QUEUED}, box.state.rollouts[rollout].why


def test_live_is_measured_once_although_two_windows_overlap(box):
    late = Schedule("late", time(2, 30), 4 * 3600.0, ZONE, "Asia/Taipei")
    with_policy(box, schedules={"nightly": NIGHTLY, "late": late})
    box.observers = (THROUGHPUT,)
    box.propose(make_release("one", 1), window="nightly", trial=True)
    box.propose(make_release("two", 1), window="late", trial=True)
    sleep_until(box, "2026-12-01T07:00")
    assert len(measurements(box)) == 1, [box.state.rollouts[m].night for m in measurements(box)]


def test_a_window_does_not_wait_for_the_measurement_of_another(box):
    late = Schedule("late", time(2, 0), 4 * 3600.0, ZONE, "Asia/Taipei")
    with_policy(box, schedules={"nightly": NIGHTLY, "late": late})
    box.observers = (THROUGHPUT,)
    by_night(box, "one")
    box.observers = ()
    other = box.propose(make_release("two"), window="late", priority=3)
    box.world.users = Users(5, 100.0)
    sleep_until(box, "2026-12-01T02:05")
    assert box.phase(other) is not Phase.QUEUED, waits_for(box, other)


def test_what_became_live_meanwhile_is_not_tried_again_by_night(box):
    """Proposed for the night, then proposed for now and promoted: by night the same release comes beside itself."""
    rollout = by_night(box, "next")
    now = box.propose(make_release("next"))
    assert box.finish(now) is Phase.PROMOTED
    seat = box.state.live
    sleep_until(box, "2026-12-01T03:00")
    assert box.state.live == seat, (box.phase(rollout), box.state.live)


def test_a_night_that_a_wrong_clock_missed_can_still_happen(box):
    rollout = by_night(box, "next")
    sleep_until(box, "2026-12-01T01:00")
    box.world.set_wall(at("2026-12-01T07:00"))
    box.settle_for(10)
    box.world.set_wall(at("2026-12-01T01:01"))
    sleep_until(box, "2026-12-01T05:00")
    assert box.phase(rollout) is Phase.PROMOTED, waits_for(box, rollout)


def test_a_queue_is_not_thrown_away_by_a_wrong_clock(box):
    """Two weeks ahead for one pass, and everything that waits is skipped for good."""
    rollout = by_night(box, "next")
    right = box.world.now().wall_s
    box.world.set_wall(right + 14 * 86400)
    box.settle_for(2)
    box.world.set_wall(right + 2)
    box.settle_for(2)
    assert box.phase(rollout) is Phase.QUEUED, box.state.rollouts[rollout].why


def test_a_reboot_with_a_clock_that_is_behind_makes_no_longer_night(box):
    """A box without a battery: after the reboot at 05:50 the clock shows 02:10 for a while."""
    sleep_until(box, "2026-12-01T05:50")
    rollout = by_night(box, "next", bake_s=1800.0)
    box.settle_for(5)
    assert box.phase(rollout) is Phase.QUEUED
    box.world.reboot()
    box.world.set_wall(at("2026-12-01T02:10"))
    box.settle_for(900)
    assert box.phase(rollout) is Phase.QUEUED, box.phase(rollout)


def test_the_way_back_that_died_counts_as_cold(box):
    """It bakes with the release before still warm, and that dies: the way back is a start now, and not a switch."""
    with_policy(box, start_s=600.0)
    rollout = by_night(box, "next", strategy="blue-green", bake_s=600.0, finish_by_wall_s=at("2026-12-01T03:00"))
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.phase(rollout) is Phase.BAKING)
    old = box.state.rollouts[rollout].before[0]
    for attempt in box.state.seat_attempts(old):
        box.world.processes[attempt.id].life = Life.EXITED
    for attempt in box.state.seat_attempts(box.state.rollouts[rollout].seat):
        box.world.processes[attempt.id].prefills_since_s = box.world.clock_s
    record = replace(box.state.rollouts[rollout], until_s=box.world.clock_s + 300.0)
    box.journal.state = replace(box.state, rollouts={**box.state.rollouts, rollout: record})
    until = box.world.clock_s + 300.0
    box.finish(rollout)
    assert box.world.clock_s <= until, f"{box.world.clock_s - until:.0f} s after it was to be over"


def test_every_missed_night_is_said(box):
    """The daemon is down from Monday evening to Thursday morning: three windows passed, and one is said."""
    by_night(box, "next")
    box.settle()
    box.world.clock_s += 3 * 86400 - 10 * 3600
    box.settle_for(60)
    missed = sorted(n.id for n in box.state.nights.values() if n.state is NightState.MISSED)
    assert missed == ["nightly@2026-12-01", "nightly@2026-12-02", "nightly@2026-12-03"], missed


def test_a_missed_night_is_said_by_a_daemon_that_comes_back_in_the_next_one(box):
    by_night(box, "next")
    box.settle()
    box.world.clock_s += 32.5 * 3600  # until 02:30 of the second night
    box.settle_for(60)
    night = box.state.nights.get("nightly@2026-12-01")
    assert night is not None, list(box.state.nights)
    assert night.state is NightState.MISSED


def test_a_job_that_comes_and_goes_does_not_keep_users_in_the_dark(box):
    """Worst case of the pass: the job is there whenever the candidate is. 300 of 300 s dark, 42 times."""
    box.propose(make_release("next", gpus=4), window="nightly", strategy="swap")
    sleep_until(box, "2026-12-01T02:00")
    dark_s, times, served, end_s = 0.0, 0, True, box.world.clock_s + 300
    while box.world.clock_s < end_s:
        mine = [a for a in box.state.held if a.release.startswith("next@") and a.state is AttemptState.STARTING]
        box.world.foreign = {3: "scavenger (pid 77)"} if mine else {}
        if not box.loop.step():
            box.world.clock_s += 0.5
            dark_s += 0.0 if box.state.is_served() else 0.5
        times += served and not box.state.is_served()
        served = box.state.is_served()
    assert times <= 2, f"{times} times, {dark_s:.0f} of 300 s dark"


def test_a_cron_job_every_ten_minutes_does_not_keep_users_in_the_dark(box):
    """A minute on a card that live does not use, engines that start in five minutes: an ordinary box."""
    box.world.start_s = 300.0
    with_policy(box, start_s=900.0, bake_s=600.0)
    box.propose(make_release("next", gpus=4), window="nightly", strategy="swap")
    sleep_until(box, "2026-12-01T02:00")
    dark_s, times, served, begin_s = 0.0, 0, True, box.world.clock_s
    while box.world.clock_s < begin_s + 3 * 3600:
        since_s = (box.world.clock_s - begin_s) % 600
        box.world.foreign = {3: "nvidia-report (cron)"} if 240 <= since_s < 300 else {}
        if not box.loop.step():
            box.world.clock_s += 2.0
            dark_s += 0.0 if box.state.is_served() else 2.0
        times += served and not box.state.is_served()
        served = box.state.is_served()
    assert times <= 2, f"{times} times, {dark_s / 60:.0f} of 180 min dark, {len(box.state.rollouts)} rollouts"


def test_one_that_yields_again_and_again_does_not_keep_the_others_waiting(box):
    """With a higher priority it is always next: who needs other cards never has its turn."""
    box.propose(make_release("next", 2), window="nightly", strategy="blue-green", priority=5)
    other = box.propose(make_release("other", 1), window="nightly", strategy="blue-green")
    sleep_until(box, "2026-12-01T02:00")
    end_s = box.world.clock_s + 300
    while box.world.clock_s < end_s:
        mine = [a for a in box.state.held if a.release.startswith("next@") and a.state is AttemptState.STARTING]
        box.world.foreign = {2: "scavenger (pid 77)"} if mine else {}
        if not box.loop.step():
            box.world.clock_s += 0.5
    assert box.phase(other).value != "queued", f"{len(box.state.rollouts)} rollouts, and {other} waits"


def test_a_newer_revision_is_the_newer_one_whatever_the_clock_says(box):
    old = by_night(box, "next")
    box.world.set_wall(at("2026-11-30T17:00"))
    new = box.propose(replace(make_release("next"), id="next@11111111"), window="nightly")
    assert (box.phase(old), box.phase(new)) == (Phase.SUPERSEDED, Phase.QUEUED)
