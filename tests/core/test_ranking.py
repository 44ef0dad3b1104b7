"""Arms against live: in which order, how sure, and when none is better."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fake_world import make_release

from controller.core.night_records import Arm, Night, OnSuccess, Sweep
from controller.core.ranking import Ranking, Standing, rank
from controller.core.records import GateResult, Kind, Phase, Rollout, Seat, State

LIVE = make_release("live")
NIGHT = "nightly@2026-12-01"


def compared(gain: float, reach: float = 0.03, metric: str = "decode_tok_per_s") -> dict:
    """As the throughput gate leaves it: `gain` 0.05 is 5 % better."""
    higher = metric != "ttft_s"
    middle = math.log1p(gain) * (1 if higher else -1)
    low, ratio, high = (math.exp(middle + each) for each in (-reach, 0.0, reach))
    name = {"decode_tok_per_s": "decode rate per user", "ttft_s": "time to first token"}[metric]
    return {"metric": metric, "name": name, "higher_is_better": higher, "ratio": ratio, "low": low, "high": high}


def gate(*figures: dict, runs=("b1",), release: str = LIVE.id) -> tuple[GateResult, ...]:
    said = {"compared": list(figures), "baseline": {"release": release, "runs": list(runs)}}
    return (
        GateResult("health", 0, "h", "pass", "ok"),
        GateResult("throughput", 1, "t", "pass", "ok", measurements=said if figures else {"run": {}}),
    )


def tried(*results, night: str = NIGHT) -> State:
    """A state with a sweep `s0001` whose arms ended so: figures, a phase with its why, or both."""
    anchor = GateResult("throughput", 0, "a", "pass", "ok", measurements={"ledger": {"run": "b1"}})
    measure = Rollout("r0001", Kind.MEASURE, LIVE.id, "cutover", 0.0, Phase.MEASURED, gates=(anchor,), night=NIGHT)
    rollouts, arms = {measure.id: measure}, []
    for number, result in enumerate(results, 2):
        phase, why, gates = Phase.MEASURED, "", ()
        if isinstance(result, tuple) and isinstance(result[0], Phase):
            phase, why = result
        else:
            gates = result if isinstance(result, tuple) else gate(compared(result))
        name = f"x={number - 1}"
        arms.append(Arm(name, f"{name}@0", {"x": number - 1}, f"r{number:04d}"))
        rollout = Rollout(f"r{number:04d}", Kind.PROPOSE, arms[-1].release, "ada", 0.0, phase, why=why, gates=gates)
        rollouts[rollout.id] = replace(rollout, night=night if phase is not Phase.QUEUED else "")
    nights = {NIGHT: Night(NIGHT, "nightly", "2026-12-01", 0.0, 1.0, baseline="r0001")}
    sweep = Sweep("s0001", "x", "ada", 0.0, OnSuccess.REPORT, tuple(arms))
    seat = Seat(LIVE.id, "r0000")
    return State(live=seat, releases={LIVE.id: LIVE}, rollouts=rollouts, nights=nights, sweeps={"s0001": sweep})


def ranking(*results, **more) -> Ranking:
    state = tried(*results, **more)
    return rank(state, state.sweeps["s0001"])


def order(found: Ranking) -> list[tuple[int | None, str, str]]:
    return [(arm.rank, arm.arm, arm.standing.value) for arm in found.arms]


def test_the_best_is_first_and_is_the_pick():
    found = ranking(0.0, 0.20, -0.20)
    assert order(found) == [(1, "x=2", "better"), (2, "x=1", "no better"), (3, "x=3", "worse")]
    assert found.pick == "x=2"
    assert found.against == LIVE.id
    assert found.why.startswith("x=2 is better than live: decode rate per user +20.0% (")
    assert found.why.endswith("3 of 3 arms compared (bounds for 3 arms together)")


def test_no_arm_is_better():
    found = ranking(0.01, -0.02)
    assert found.pick == ""
    assert found.why.startswith("no arm is better than live: the first is x=1, decode rate per user +1.0% (-2.")


def test_bounds_hold_for_all_arms_together():
    """What would be better alone is not, as the best of twelve that show nothing."""
    alone = ranking(0.04)
    assert (alone.pick, alone.arms_together) == ("x=1", 1)
    figure = alone.arms[0].figures[0]
    assert (figure.low, figure.high) == pytest.approx((1.04 * math.exp(-0.03), 1.04 * math.exp(0.03)))
    many = ranking(0.04, *[0.0] * 11)
    assert (many.pick, many.arms[0].arm, many.arms_together) == ("", "x=1", 12)
    assert many.arms[0].figures[0].low < 1 < figure.low


def test_arms_that_are_still_to_come_count_too():
    assert ranking(0.04, *[(Phase.QUEUED, "")] * 11).pick == ""
    assert ranking(0.04, *[(Phase.FAILED, "boom")] * 11).pick == "x=1"


def test_of_those_that_cannot_be_told_apart_the_first_in_the_matrix_is_the_pick():
    found = ranking(0.0, 0.15, 0.17, 0.16, 0.60)
    assert found.pick == "x=5"
    assert [arm.arm for arm in found.arms if arm.tied] == []
    found = ranking(0.0, 0.15, 0.17, 0.16)
    assert found.pick == "x=2"
    assert [arm.arm for arm in found.arms] == ["x=3", "x=4", "x=2", "x=1"]
    assert [arm.arm for arm in found.arms if arm.tied] == ["x=3", "x=4", "x=2"]
    assert "it cannot be told from x=3, x=4, and comes first in the matrix" in found.why


def test_a_time_is_better_when_it_is_shorter():
    found = ranking(gate(compared(0.3, metric="ttft_s")), gate(compared(-0.3, metric="ttft_s")))
    assert order(found) == [(1, "x=1", "better"), (2, "x=2", "worse")]
    assert found.arms[0].figures[0].ratio < 1
    assert "time to first token -23.1%" in found.why


def test_the_first_metric_of_the_profile_decides():
    slow_first = gate(compared(0.2), compared(-0.1, metric="ttft_s"))
    found = ranking(gate(compared(0.0), compared(0.3, metric="ttft_s")), slow_first)
    assert found.pick == "x=2"
    assert [figure.standing for figure in found.arms[0].figures] == [Standing.BETTER, Standing.WORSE]


@pytest.mark.parametrize(
    ("phase", "standing"),
    [
        (Phase.REJECTED, "failed"),
        (Phase.INCONCLUSIVE, "failed"),
        (Phase.FAILED, "failed"),
        (Phase.SKIPPED, "not tried"),
        (Phase.ABORTED, "not tried"),
        (Phase.REFUSED, "not tried"),
        (Phase.QUEUED, "waits"),
        (Phase.GATING, "runs"),
    ],
)
def test_who_has_no_figures_comes_last_with_the_reason(phase, standing):
    found = ranking((phase, "gate smoke: it leaks"), 0.2)
    assert order(found) == [(1, "x=2", "better"), (None, "x=1", standing)]
    why = {"waits": "", "runs": "r0002 is gating"}.get(standing, f"{phase.words}: gate smoke: it leaks")
    assert found.arms[1].why == why
    assert found.why.endswith(f", 1 {standing}")
    assert found.left == (standing in {"waits", "runs"})


def test_nothing_of_live_and_another_live_do_not_compare():
    found = ranking(gate(), gate(compared(0.5), release="other@0"), 0.2)
    assert order(found) == [(1, "x=3", "better"), (None, "x=1", "not compared"), (None, "x=2", "not compared")]
    assert found.arms[1].why == "nothing of live was there to compare it with"
    assert found.arms[2].why == "it was compared with other@0, and live@00000000 is live now"
    assert ranking(gate()).why == (
        "no arm is better than live: none could be compared with it; 0 of 1 arms compared, 1 not compared"
    )


def test_a_sweep_that_is_decided_is_told_against_what_was_live_then():
    state = tried(0.2)
    sweep = replace(state.sweeps["s0001"], against=LIVE.id)
    later = replace(state, live=Seat("x=1@0", "r0009"))
    assert rank(later, sweep).pick == "x=1"
    assert rank(later, state.sweeps["s0001"]).pick == ""


def test_an_arm_without_its_nights_anchor_is_ranked_and_that_is_said():
    assert ranking(0.2).arms[0].why == ""
    daytime = ranking(0.2, night="").arms[0]
    assert (daytime.rank, daytime.why) == (
        1,
        "not anchored: it ran outside of a window, and it is compared with what live showed before",
    )
    other = ranking(gate(compared(0.2), runs=("b0",))).arms[0]
    assert other.why == (
        "not anchored: the figures of r0001 from nightly@2026-12-01 were not those that it is compared with"
    )
    state = tried(0.2)
    loud = replace(state.rollouts["r0001"], phase=Phase.SKIPPED, gates=(), why="users came")
    missing = replace(state, rollouts={**state.rollouts, "r0001": loud})
    assert rank(missing, state.sweeps["s0001"]).arms[0].why == (
        "not anchored: live was not measured in nightly@2026-12-01 (users came), and it is compared with what live "
        "showed before"
    )
    forgotten = replace(state, rollouts={"r0002": state.rollouts["r0002"]})
    said = "whether it was anchored in nightly@2026-12-01 is not kept any more"
    assert rank(forgotten, state.sweeps["s0001"]).arms[0].why == said
    assert rank(replace(state, nights={}), state.sweeps["s0001"]).arms[0].why == said
    nobody = replace(state, nights={NIGHT: replace(state.nights[NIGHT], baseline="")})
    assert "live was not measured in nightly@2026-12-01, and it is" in rank(nobody, state.sweeps["s0001"]).arms[0].why


@pytest.mark.parametrize(
    "left",
    [
        {"compared": "much"},
        {"compared": [{"ratio": 1.1}]},
        {"compared": [7]},
        {"compared": [compared(0.1) | {"low": 0.0}]},
        {"compared": [compared(0.1) | {"ratio": math.nan}]},
        {"compared": [compared(0.1) | {"ratio": "fast"}]},
        {"compared": None, "baseline": "live"},
    ],
)
def test_what_a_gate_of_somebody_else_left_breaks_nothing(left):
    odd = (GateResult("throughput", 1, "t", "pass", "ok", measurements=left),)
    assert order(ranking(odd, 0.2)) == [(1, "x=2", "better"), (None, "x=1", "not compared")]


def test_a_baseline_that_nobody_can_read_is_no_anchor():
    for odd in (3, {"runs": 3}, {"runs": None}):
        said = {"compared": [compared(0.2)], "baseline": odd}
        arm = (GateResult("throughput", 1, "t", "pass", "", measurements=said),)
        assert "were not those that it is compared with" in ranking(arm).arms[0].why
