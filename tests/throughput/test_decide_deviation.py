"""How far a shift lies from no change: what somebody who compares several candidates asks of each."""

from __future__ import annotations

import pytest
from ladder_kit import Engine, Noise, flat, seeded

from gates.throughput.decide.noninferiority import decide
from gates.throughput.decide.rule import Rule
from gates.throughput.gate import compared
from gates.throughput.records import DECODE, TTFT

BOUND = 1.992


@pytest.mark.parametrize("metric", [DECODE, TTFT])
@pytest.mark.parametrize("level", [-0.06, -0.03, -0.01, 0.0, 0.02, 0.03, 0.04, 0.05, 0.2])
def test_it_passes_the_rules_bound_where_the_bound_passes_no_change(metric: str, level: float) -> None:
    rule = Rule(metrics=(DECODE,))
    noise = Noise(sd=0.03, starts=0.0)
    sides = [Engine(seeded(seed), [at] * 4, noise).measured(3) for seed, at in ((5, level), (6, 0.0))]
    (family,) = decide(*sides, rule).families
    assert (family.z > BOUND) == (family.low > 1)
    assert (family.z < -BOUND) == (family.high < 1)


def test_its_sign_is_that_of_better_for_a_time_too() -> None:
    faster = decide(flat((1, 2), TTFT, 0.20), flat((1, 2), TTFT, 0.25), Rule(metrics=(TTFT,)))
    (plain,) = compared(faster, Rule(metrics=(TTFT,)))
    assert plain["ratio"] < 1
    assert plain["z"] > BOUND
