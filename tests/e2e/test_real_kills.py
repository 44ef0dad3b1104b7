"""kill -9 of every process that has a part in serving, at every named point and at random instants, under users' load.

A random evening is told again with its seed:

    CUTOVER_KILL_SEED=17 CUTOVER_KILLS=40 python -m pytest tests/e2e/test_real_kills.py -m kills -n 0 -s
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from kill_kit import BOTH_HALVES, DECIDES_S, HALF, SERVES_S, WHOLE, Box
from kill_oracle import STARTED, Excuse, at_rest, unexcused
from nursery import QuickStage

from controller.crashpoints import POINTS
from controller.demo.stage import Stage

SEED = int(os.environ.get("CUTOVER_KILL_SEED", "1"))
AN_EVENING = 40  # kills on one box
GAP_S = 0.6  # the longest pause between two kills
MOST_ROLLOUTS = 8
IMPORT_S = 1.5  # of the daemon, on two cores of 2024 that have nothing else to do

# --- named points -----------------------------------------------------------------------------------------------------

SCENARIOS = {
    "promoted": (HALF, lambda box, _: box.propose(HALF), "promoted"),
    "rejected": (HALF, lambda box, _: box.propose(HALF, "fail"), "rejected"),
    # All cards serve: one goes to sleep for the other, users wait meanwhile; then by hand the way back.
    "swapped": (
        WHOLE,
        lambda box, n: box.rollback() if n % 2 else box.propose(WHOLE, strategy="swap"),
        "promoted rolled_back",
    ),
}
NOT_REACHED: dict[str, dict[str, str]] = {name: {} for name in SCENARIOS}
"""Points that a scenario cannot reach, each with its reason."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_daemon_that_is_killed_at_every_named_point(tmp_path, scenario):
    """One death after another in as few rollouts as there is room for: each daemon is armed for the next point."""
    instances, ask, ends = SCENARIOS[scenario]
    wanted = [name for name in POINTS if name not in NOT_REACHED[scenario]]
    with Box(tmp_path, SEED, instances) as box:
        at_named_points(box, wanted, ask, ends.split())
        box.rest()
    report([box])
    assert box.reached == set(wanted)
    assert {*wanted, *NOT_REACHED[scenario]} == set(POINTS)
    assert (box.tally["failed"], box.tally["truncated"]) == (0, 0), box.tally["first_problem"]


def at_named_points(box, wanted, ask, ends):
    asking = [name for name in wanted if name.startswith("request-")]
    others = [name for name in wanted if name not in asking]
    box.dice.shuffle(others)
    box.arms.extend(asking + [f"{name}:{box.dice.randint(1, 3)}" for name in others])
    box.kill_daemon()
    box.revive()
    for number in range(MOST_ROLLOUTS):
        rollout = ask(box, number)
        while box.state().rollouts[rollout].ended_wall_s is None:
            if box.is_dead():
                box.revive()
            time.sleep(0.01)
        assert box.state().rollouts[rollout].phase.value in ends, "\n".join(box.story)
        if not box.arms and not box.armed:
            return


# --- random instants --------------------------------------------------------------------------------------------------


def an_evening(directory, seed, kills, stage=QuickStage, at_the_end=lambda _: None):
    """Rollouts of all kinds one after the other, and somebody is killed all the while."""
    with Box(directory, seed, stage=stage) as box:
        for _ in range(kills):
            want_something(box)
            time.sleep(box.dice.uniform(0, GAP_S))
            box.strike()
        box.rest()
        at_the_end(box)
    report([box])
    return box


def want_something(box):
    """Somebody asks for the next thing when the last one is over; now and then they think better of it."""
    state = box.state()
    waiting = [r.id for r in state.rollouts.values() if r.ended_wall_s is None]
    if waiting:
        if box.dice.random() < 0.02:
            box.file(f"/v1/rollouts/{waiting[0]}/abort", None)
        return
    kinds = {"better": 4, "bad": 2, "back": 3, "two halves": 1, "whole": 1}
    match box.dice.choices(list(kinds), list(kinds.values()))[0]:
        case "better":
            box.propose(HALF)
        case "bad":
            box.propose(HALF, "fail")
        case "back":
            box.rollback()
        case "two halves":
            box.propose(BOTH_HALVES)
        case "whole":
            box.propose(WHOLE)


def evenings(directory, kills):
    """So many kills in all, each box with a seed of its own: in the first the daemon starts as it does in earnest."""
    each = [min(AN_EVENING, kills - n) for n in range(0, kills, AN_EVENING)]
    before_s = import_s()
    played = [an_evening(directory / "timed", SEED, each[0], Stage)]
    keeps_its_bounds(played[0], max(1.0, (before_s + import_s()) / 2 / IMPORT_S))
    played += [an_evening(directory / str(n), SEED + n, count) for n, count in enumerate(each[1:], 1)]
    report(played)


def import_s():
    """What a start of the daemon costs at least, here and now: most of it is imports."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import controller.daemon"], check=True, timeout=300)
    return time.monotonic() - began_s


def keeps_its_bounds(box, slowness):
    """By the median, for anything can be late once; and a box that is slow for its own reasons may be as much later."""
    print(f"  the box is slower than it might be by a factor of {slowness:.1f}")
    assert statistics.median(box.times["serves"]) <= SERVES_S * slowness
    assert statistics.median(box.times["decides"]) <= DECIDES_S * slowness


@pytest.mark.timeout(300)
def test_kills_at_random_instants(tmp_path):
    an_evening(tmp_path, SEED, 30, at_the_end=the_oracle_is_not_blind)


def the_oracle_is_not_blind(box):
    """What must not be is put there, and each of it is named."""
    state, runs = box.state(), box.stage.config.runs_dir
    live = state.seat_attempts(state.live)[0]
    stray_home = runs / "nobody-a-99"
    stray_home.mkdir()
    stray = subprocess.Popen(["sleep", "60"], cwd=stray_home, start_new_session=True)
    with (runs / live.id / "engine.log").open("a") as log:
        log.write(f"another one {STARTED} emu\n")
    lost = replace(state, live=None, attempts={live.id: replace(live, rollout="r9999")})
    memory = box.stage.config.door_dir / "haproxy.state"
    memory.rename(f"{memory}.away")
    found = " / ".join([*at_rest(box.stage, state, ["r9998"]), *at_rest(box.stage, lost, [])])
    memory.with_name(f"{memory.name}.away").rename(memory)
    stray.kill()
    stray.wait()
    stray_home.rmdir()
    for words in (
        f"nobody-a-99 holds nothing, and [{stray.pid}] live in it",
        f"{live.id} is one attempt, and 2 engines were started for it",
        "r9998 was acknowledged and is gone",
        "nothing is live",
        "and would come back with []",
        f"{live.id} holds {', '.join(live.gpus)} and is neither live nor previous",
    ):
        assert words in found
    request = {"problem": "cut", "status": 200, "sent_s": 10.0, "ended_s": 12.0}
    assert unexcused([request], [Excuse("before", 8.0, 9.9), Excuse("after", 12.1, 13.0)])
    assert not unexcused([request], [Excuse("then", 11.0, 11.1)])


@pytest.mark.kills
@pytest.mark.timeout(1800)
def test_many_kills_at_random_instants(tmp_path):
    evenings(tmp_path, int(os.environ.get("CUTOVER_KILLS", "200")))


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
def test_thousands_of_kills_at_random_instants(tmp_path):
    evenings(tmp_path, int(os.environ.get("CUTOVER_KILLS", "2000")))


def report(played):
    """Figures for whoever looks (-s)."""
    kills = sum((box.kills for box in played), Counter())
    phases = sum((box.phases for box in played), Counter())
    sums = Counter()
    for box in played:
        sums.update({name: box.tally[name] for name in ("sent", "failed", "truncated")})
    print(f"\nseeds {[box.seed for box in played]}: {kills.total()} kills {dict(kills)}")
    print(f"  rollouts {dict(phases)}; requests {dict(sums)}")
    for name in ("rate", "serves", "decides"):
        values = sorted(t for box in played for t in box.times[name])
        if values:
            print(f"  {name}: median {statistics.median(values):.2f}, largest {values[-1]:.2f}, {len(values)} times")
