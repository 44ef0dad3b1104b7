"""Where no window is waited for, the clock on the wall is shown and never reckoned with."""

from __future__ import annotations

import pytest
from sim_scenarios import SCENARIOS, STRATEGIES, begin


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_jumps_changes_nothing(strategy, jump_s):
    """The same decisions at the same times, whenever it jumps."""
    told = []
    for jumps in (False, True):
        play = begin(SCENARIOS[0], strategy)
        if jumps:
            world = play.sim.world
            there = (world.wall_zero_s + jump_s, world.wall_zero_s)
            play.sim.hear = lambda _, w=world, t=there: setattr(w, "wall_zero_s", t[w.wall_zero_s == t[0]])
        play.finish()
        told.append(list(play.sim.tale()))
    assert told[0] == told[1]
