"""Hypothesis plays the box beside the seeded histories: what it breaks it shrinks to the few things that matter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sim_histories import HAPPENINGS, OPENINGS, POLICIES, History, opening

from controller.core.table import IllegalMove

EXAMPLES, STEPS = 40, 50
CAMPAIGN = int(os.environ.get("CUTOVER_EXAMPLES", "500"))
LIKELY = [happening for happening, weight in HAPPENINGS.items() for _ in range(weight)]
MOMENTS_S = (0.2, 1.0, 5.0, 20.0, 90.0)


class SimulatedBox(RuleBasedStateMachine):
    """The same happenings and the same oracle as `History`, every choice of Hypothesis's making."""

    @initialize(name=st.sampled_from(OPENINGS), policy=st.sampled_from(POLICIES))
    def evening(self, name, policy):
        self.history = History(0, sim=opening(name).fork())
        self.history.sim.follow(**policy)

    @rule(happening=st.sampled_from(LIKELY), dice=st.randoms(use_true_random=False))
    def happens(self, happening: Callable[[History], None], dice):
        self.history.dice = dice
        with contextlib.suppress(IllegalMove):  # somebody asked for what cannot be had now: nothing was changed
            happening(self.history)
        self.history.world.version += 1

    @rule(points=st.integers(1, 12))
    def daemon_is_killed_soon(self, points):
        self.history.sim.kill_in = points

    @rule(passes=st.integers(1, 8), moment_s=st.sampled_from(MOMENTS_S))
    def time_passes(self, passes, moment_s):
        for _ in range(passes):
            if not self.history.sim.step():
                self.history.world.wait(moment_s)

    @invariant()
    def holds(self):
        if hasattr(self, "history"):
            self.history.sim.judge("after a rule")

    def teardown(self):
        if hasattr(self, "history"):
            self.history.sim.peace()
            self.history.sim.rest()


def play(examples: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        SimulatedBox,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=examples == EXAMPLES,  # the same ones in every run of the suite
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_nothing_breaks_that_could_be_shrunk():
    play(EXAMPLES, (Phase.generate,))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_many_examples_end_well():
    """`CUTOVER_EXAMPLES=5000` plays more of them; what breaks is shrunk."""
    play(CAMPAIGN, (Phase.generate, Phase.shrink))
