"""Sweeps from their filing to their decision, over nights and restarts, in a fake world."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from fake_world import Box, FakeWorld, make_release

from controller.core import actions as act
from controller.core.night_records import Arm, OnSuccess, Sweep
from controller.core.policy import Policy
from controller.core.ranking import Standing, rank
from controller.core.records import Options, Phase
from controller.core.seen import GateSeen
from controller.core.table import IllegalMove
from controller.core.window import Schedule
from controller.loop import Loop
from controller.store.journal import Journal

ZONE = ZoneInfo("Asia/Taipei")
POLICY = Policy(
    bake_s=10.0,
    start_s=60.0,
    drain_s=60.0,
    schedules={"nightly": Schedule("nightly", time(2), 450.0, ZONE, "Asia/Taipei")},
)
PROFILE = ({"name": "health", "deadline_s": 30.0}, {"name": "throughput", "deadline_s": 120.0})


@dataclass
class Fast(FakeWorld):
    """A world whose throughput gate says by how much a release is better than live."""

    gains: dict[str, float] = field(default_factory=dict)  # name of the release → 0.2 is 20 % faster
    measured: int = 0

    def _RunGate(self, action: act.RunGate, state) -> act.Outcome:  # noqa: N802
        outcome = super()._RunGate(action, state)
        if action.gate == "throughput" and action.run in self.gates:
            name = state.rollouts[action.rollout].release.partition("@")[0]
            self.measured += 1
            ratio = 1 + self.gains.get(name, 0.0)
            figure = {"metric": "decode_tok_per_s", "name": "decode rate per user", "higher_is_better": True}
            figure |= {"ratio": ratio, "low": ratio * 0.97, "high": ratio * 1.03}
            anchors = [f"of-{night.baseline}" for night in state.nights.values() if night.baseline]
            said = {
                "compared": [figure],
                "ledger": {"run": f"of-{action.rollout}"},
                "baseline": {"release": state.live.release, "runs": anchors[-1:]},
            }
            self.gates[action.run] = replace(self.gates[action.run], measurements=said)
        return outcome


def night_time(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


@pytest.fixture
def box(tmp_path: Path):
    journal = Journal(tmp_path / "journal.sqlite")
    world = Fast()
    made = Box(Loop(journal, world, POLICY), world, journal)
    made.finish(made.propose(make_release("live")))
    world.set_wall(night_time("2026-11-30T18:00"))
    yield made
    made.journal.close()


def sweep(box: Box, *names: str, on_success: OnSuccess = OnSuccess.REPORT, **options) -> str:
    releases = tuple(make_release(name) for name in names)
    arms = tuple(Arm(f"x={release.name}", release.id, {"x": release.name}) for release in releases)
    record = Sweep("", "x", "ada", 0.0, on_success, arms)
    action = act.FileSweep(record, releases, Options(**options), PROFILE)
    return box.journal.request(None, "ada", "sweep", box.world.now(), lambda _: (action, "ada sweeps x"))


def decided(box: Box, sweep_id: str, limit_s: float = 5000.0) -> Sweep:
    box.run(lambda: box.state.sweeps[sweep_id].decided_wall_s is not None, limit_s)
    return box.state.sweeps[sweep_id]


def sleep_until(box: Box, text: str) -> None:
    end_s = night_time(text)
    while (left_s := end_s - box.world.now().wall_s) > 0:
        if not box.loop.step():
            box.world.clock_s += min(5.0 if box.state.active else 60.0, max(0.5, left_s))


def phases(box: Box, sweep_id: str) -> list[str]:
    return [box.phase(arm.rollout).value for arm in box.state.sweeps[sweep_id].arms]


def test_the_best_arm_is_the_pick_and_production_stays(box):
    box.world.gains = {"one": 0.0, "two": 0.3}
    done = decided(box, sweep(box, "one", "two"))
    assert (done.pick, done.followed_by, done.against) == ("x=two", "", "live@00000000")
    assert done.why.startswith("x=two is better than live: decode rate per user +30.0%")
    assert phases(box, done.id) == ["measured", "measured"]
    box.settle()
    assert box.state.live.release == "live@00000000"
    assert box.running() == {"live@00000000"}
    assert [r.release for r in box.state.rollouts.values()][1:] == ["one@00000000", "two@00000000"]


def test_no_arm_is_better(box):
    done = decided(box, sweep(box, "one", "two", on_success=OnSuccess.SWITCH))
    assert (done.pick, done.followed_by) == ("", "")
    assert done.why.startswith("no arm is better than live: the first is x=one, decode rate per user +0.0%")
    box.settle()
    assert box.state.live.release == "live@00000000"


def test_switch_proposes_the_pick_with_gates_of_its_own(box):
    box.world.gains = {"two": 0.3}
    done = decided(box, sweep(box, "one", "two", on_success=OnSuccess.SWITCH))
    assert box.finish(done.followed_by) is Phase.PROMOTED
    assert box.state.live.release == "two@00000000"
    follower = box.state.rollouts[done.followed_by]
    assert (follower.options.trial, follower.options.note) == (False, f"the pick of sweep {done.id}")
    assert [result.gate for result in follower.gates if result.index >= 0] == ["health", "throughput"]
    assert rank(box.state, done).pick == "x=two"  # what it was decided against is kept


def test_ask_waits_for_approval(box):
    box.world.gains = {"one": 0.3}
    done = decided(box, sweep(box, "one", on_success=OnSuccess.ASK))
    box.run(lambda: box.phase(done.followed_by) is Phase.AWAITING_APPROVAL)
    assert box.state.live.release == "live@00000000"
    box.ask(act.Approve(done.followed_by, "boss"))
    assert box.finish(done.followed_by) is Phase.PROMOTED


def test_failed_arms_block_nobody_and_untried_ones_are_said(box):
    box.world.gains = {"three": 0.3}
    box.world.verdicts["health"] = ["fail"]
    sweep_id = sweep(box, "one", "two", "three")
    box.ask(act.AskAbort(box.state.sweeps[sweep_id].arms[1].rollout, "bob"))
    done = decided(box, sweep_id)
    assert done.pick == "x=three"
    assert done.why.endswith("1 of 3 arms compared, 1 failed, 1 not tried")
    arms = {arm.arm: arm for arm in rank(box.state, done).arms}
    assert arms["x=one"].why == "rejected: gate health: health says fail"
    assert arms["x=two"].why == "aborted: aborted by bob"


def test_every_arm_expires(box):
    sweep_id = sweep(box, "one", "two", window="nightly", expires_wall_s=box.world.now().wall_s + 3600)
    sleep_until(box, "2026-11-30T19:30")
    done = box.state.sweeps[sweep_id]
    assert done.why == ("no arm is better than live: none could be compared with it; 0 of 2 arms compared, 2 not tried")


def test_over_two_nights_with_the_daemon_restarted_in_the_middle(box, tmp_path):
    """Arms are rollouts in the queue: what is left goes on by itself, each night with an anchor of its own."""
    box.world.gains = {"one": 0.1, "six": 0.3}
    box.world.start_s = 50.0
    sweep_id = sweep(box, "one", "two", "three", "four", "five", "six", window="nightly")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: phases(box, sweep_id).count("measured") == 1)
    box.run(lambda: box.state.active is not None and box.state.active.phase is Phase.STARTING)
    # The daemon dies while the second arm loads, and another one takes over what the journal and the box have.
    box.journal.close()
    box.journal = Journal(tmp_path / "journal.sqlite")
    box.loop = Loop(box.journal, box.world, POLICY)
    sleep_until(box, "2026-12-01T12:00")
    first = phases(box, sweep_id)
    assert 2 <= first.count("measured") < 6, first
    assert set(first) == {"measured", "queued"}
    waiting = rank(box.state, box.state.sweeps[sweep_id])
    assert (waiting.left, box.state.sweeps[sweep_id].decided_wall_s) == (first.count("queued"), None)
    sleep_until(box, "2026-12-02T12:00")
    assert set(phases(box, sweep_id)) == {"measured"}
    done = box.state.sweeps[sweep_id]
    assert done.pick == "x=six"
    ranking = rank(box.state, done)
    assert {arm.night for arm in ranking.arms} == {"nightly@2026-12-01", "nightly@2026-12-02"}
    assert [arm.why for arm in ranking.arms] == [""] * 6, "each is anchored in its own night"
    assert box.world.measured == 6 + 2, "six arms, and live once a night"
    assert len([r for r in box.state.rollouts.values() if r.options.sweep]) == 6


def test_withdrawn_with_all_that_is_left(box):
    sweep_id = sweep(box, "one", "two", "three")
    box.run(lambda: phases(box, sweep_id)[0] == "measured")
    box.ask(act.WithdrawSweep(sweep_id, "bob"))
    record = box.state.sweeps[sweep_id]
    assert (record.pick, record.why, record.decided_wall_s is not None) == ("", "asked", True)
    box.settle()
    assert phases(box, sweep_id) == ["measured", "aborted", "aborted"]
    assert box.running() == {"live@00000000"}
    assert {arm.standing for arm in rank(box.state, record).arms} == {Standing.NO_BETTER, Standing.NOT_TRIED}
    with pytest.raises(IllegalMove, match="sweep s0001 is decided already: asked"):
        box.ask(act.WithdrawSweep(sweep_id, "bob"))


def test_an_arm_that_yields_is_tried_again_and_the_sweep_waits_for_it(box):
    box.world.gains = {"one": 0.3}
    sweep_id = sweep(box, "one", window="nightly")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.state.active is not None and box.state.active.phase is Phase.STARTING)
    rollout = box.state.active.id
    card = int(box.state.active.gpu_map["a"][0].removeprefix("gpu-"))
    box.world.foreign[card] = "pid 1 (somebody's job)"
    box.run(lambda: box.phase(rollout) is Phase.SKIPPED)
    assert box.state.sweeps[sweep_id].decided_wall_s is None
    box.world.foreign.clear()
    sleep_until(box, "2026-12-02T02:00")  # after a pause, which takes it into the next night
    assert box.state.sweeps[sweep_id].decided_wall_s is None
    assert decided(box, sweep_id).pick == "x=one"


def test_an_arm_that_a_reboot_ended_is_tried_again(box):
    box.world.gains = {"two": 0.3}
    sweep_id = sweep(box, "one", "two", window="nightly")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.state.active is not None and box.state.active.phase is Phase.STARTING)
    ended = box.state.active.id
    box.world.reboot()
    box.world.set_wall(night_time("2026-12-01T02:01"))
    box.run(lambda: box.state.rollouts[ended].ended_wall_s is not None)
    assert "rebooted" in box.state.rollouts[ended].why
    done = decided(box, sweep_id)
    assert done.pick == "x=two"
    assert phases(box, sweep_id) == ["measured", "measured"]
    assert len([r for r in box.state.rollouts.values() if r.options.sweep]) == 3


def test_a_sweep_of_swaps_gives_live_its_place_back_between_arms(box):
    """No card is free: users are held while an arm is tried, and live serves before the next one is."""
    box.world.gains = {"two": 0.3}
    box.world.gpus = 2
    done = decided(box, sweep(box, "one", "two", strategy="swap"))
    assert done.pick == "x=two"
    assert phases(box, done.id) == ["measured", "measured"]
    box.settle()
    assert box.running() == {"live@00000000"}
    assert box.state.is_served()
    assert all("dark_s" in box.state.rollouts[arm.rollout].times for arm in done.arms)


def test_two_sweeps_do_not_disturb_each_other(box):
    box.world.gains = {"one": 0.3, "uno": 0.2}
    first, second = sweep(box, "one", "two"), sweep(box, "uno", "two")
    assert (decided(box, first).pick, decided(box, second).pick) == ("x=one", "x=uno")


def test_a_figure_that_no_gate_left_is_not_invented(box):
    sweep_id = sweep(box, "one")
    box.run(lambda: box.state.active is not None and box.state.active.gate is not None)
    box.world.verdicts["throughput"] = ["hang"]
    box.run(lambda: box.state.active.gate is not None and box.state.active.gate.gate == "throughput")
    box.world.gates[box.state.active.gate.run] = GateSeen("pass", "measured", {"run": {}})
    assert decided(box, sweep_id).why.startswith("no arm is better than live: none could be compared with it")


def test_the_pick_does_not_inherit_the_time_by_which_its_arm_had_to_be_over(box):
    box.world.gains = {"b": 0.4}
    made = sweep(
        box, "a", "b", on_success=OnSuccess.SWITCH, window="nightly", finish_by_wall_s=night_time("2026-12-01T02:05:20")
    )
    sleep_until(box, "2026-12-01T02:00")
    found = decided(box, made)
    assert found.pick == "x=b", found.why
    follow = box.state.rollouts[found.followed_by]  # proposed at 02:05 it would wait for nothing and be skipped
    assert follow.options.finish_by_wall_s is None


def test_the_pick_takes_no_newer_proposal_of_a_person_away(box):
    """Somebody proposes a newer revision of the picked name for the same window; the sweep's pick supersedes it."""
    box.world.gains = {"b": 0.4}
    made = sweep(box, "a", "b", on_success=OnSuccess.SWITCH, window="nightly")
    sleep_until(box, "2026-12-01T02:00")
    newer = box.propose(replace(make_release("b"), id="b@11111111"), window="nightly", priority=-5)
    found = decided(box, made, 40_000)
    assert found.followed_by
    assert box.phase(newer) is not Phase.SUPERSEDED, box.state.rollouts[newer].why


def test_withdrawing_a_sweep_while_its_arm_yields(box):
    made = sweep(box, "a", "b", window="nightly")
    sleep_until(box, "2026-12-01T02:00")
    box.run(lambda: box.state.active is not None and box.state.active.phase is Phase.STARTING)
    look, done = box.world.observe, []

    def observe(state):
        if not done:
            done.append(1)
            box.world.foreign = {2: "train.py"}
            box.ask(act.WithdrawSweep(made, "ada"))
        return look(state)

    box.world.observe = observe
    box.loop.step()
    box.world.observe = look
    box.world.foreign = {}
    box.settle()
    left = [r.id for r in box.state.rollouts.values() if r.options.sweep and r.phase is not Phase.ABORTED]
    assert not left, "arms of a sweep that is withdrawn still run: " + ", ".join(left)
