"""The wall clock is shown and never reckoned with."""

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
            play.sim.hear = lambda _, world=play.sim.world: setattr(world, "wall_jump_s", jump_s - world.wall_jump_s)
        play.finish()
        told.append(list(play.sim.tale()))
    assert told[0] == told[1]
