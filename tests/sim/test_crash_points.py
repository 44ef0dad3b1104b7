"""Every named point of every scenario: the daemon is killed there, and again; nothing is lost, doubled or forgotten."""

from __future__ import annotations

import pytest
from sim_scenarios import SCENARIOS, STRATEGIES, Counts, begin, explore, kill_at

from controller.crashpoints import POINTS

PLAIN = SCENARIOS[0]
PAIRS = ("nothing happens", "dies in the bake", "rolled back by hand", "the disk is full at the cutover")
ONCE = ("aborted at the cutover", "live dies while it starts", "rolled back by hand", "rebooted in the bake")


def every(scenarios, strategies=STRATEGIES):
    return [pytest.param(s, how, id=f"{s.name}-{how}") for how in strategies for s in scenarios]


def test_there_are_enough_scenarios_and_every_point_is_reached():
    assert len(SCENARIOS) >= 12
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS)
    counts = sum((explore(PLAIN, how, deaths=0) for how in STRATEGIES), Counts())
    assert set(counts.points) == {*POINTS, "effect-halfway"}


def test_a_daemon_that_is_killed_in_earnest_at_every_point():
    """Also inside transactions: the exception flies through the loop and the store, as nothing in them can catch it."""
    point = 1
    while kill_at(PLAIN, "blue-green", point):
        point += 1
    assert point > 50


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_daemon_that_is_killed_once_at_every_point(strategy):
    for scenario in SCENARIOS:
        if scenario.name in ONCE:
            assert explore(scenario, strategy, deaths=1).played > 10


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.patient], ids=lambda s: s.name)
def test_a_daemon_that_is_killed_while_live_keeps_dying(scenario):
    """It counts on where it died, gives up for good, and nobody takes over twice."""
    assert explore(scenario, "blue-green", deaths=1).played > 50


@pytest.mark.parametrize(("scenario", "strategy"), every([s for s in SCENARIOS if s.name in PAIRS], ("blue-green",)))
def test_a_daemon_that_is_killed_twice(scenario, strategy):
    counts = explore(scenario, strategy)
    assert counts.pairs > counts.played > 50


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_daemon_that_is_killed_at_every_pair_of_points_of_every_scenario(strategy):
    """In earnest at every point of the plain one, and then every pair of every scenario."""
    point = 1
    while kill_at(PLAIN, strategy, point):
        point += 1
    counts = sum((explore(scenario, strategy) for scenario in SCENARIOS), Counts())
    points = sum(counts.points.values())
    print(f"{strategy}: {points} points, {counts.pairs} pairs, {counts.played} evenings that went on differently")
    assert counts.pairs > 50_000


def test_on_a_database_file(tmp_path):
    """The same on a real file that is closed and opened again at each death."""
    for point in (1, 12, 25, 40, 60, 80):
        play = begin(PLAIN, "blue-green", tmp_path / f"{point}.sqlite")
        play.sim.kill_in = point
        play.finish()
        assert play.sim.kills == 1
