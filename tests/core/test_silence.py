"""Busy or down: which instance of live counts as dead although its process lives, and after how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.policy import Policy
from controller.core.seen import ProbeSeen
from controller.core.silence import makes_wait, why_dead

POLICY = Policy(silent_s=60.0, prefill_s=300.0, silent_probes=3)
NOW_S = 10_000.0


def failing(since_s: float, layer: str = "timeout", **changes) -> ProbeSeen:
    """Probes that have failed for so long."""
    seen = ProbeSeen(
        False, NOW_S, NOW_S - 30.0, layer, "no token within 30 s", streak=9, streak_since_s=NOW_S - since_s,
        has_counters=True,
    )  # fmt: skip
    return replace(seen, **changes)


@pytest.mark.parametrize(
    ("probe", "dead"),
    [
        (None, False),
        (ProbeSeen(True, NOW_S, NOW_S - 1.0), False),
        # nothing moves
        (failing(59.0), False),
        (failing(60.0), True),
        (failing(900.0, streak=2), False),
        (failing(60.0, "port"), True),
        # tokens or steps are counted: somebody is served
        (failing(900.0, progress_at_s=NOW_S - 59.0), False),
        (failing(900.0, progress_at_s=NOW_S - 60.0), True),
        # only the KV pool fills
        (failing(299.0, pool_at_s=NOW_S - 30.0), False),
        (failing(300.0, pool_at_s=NOW_S - 30.0), True),
        (failing(900.0, pool_at_s=NOW_S - 30.0, progress_at_s=NOW_S - 299.0), False),
        (failing(900.0, pool_at_s=NOW_S - 30.0, progress_at_s=NOW_S - 300.0), True),
        (failing(200.0, pool_at_s=NOW_S - 60.0), True),
        # nobody can tell
        (failing(299.0, has_counters=False), False),
        (failing(300.0, has_counters=False), True),
        (failing(60.0, "port", has_counters=False), True),
        (failing(60.0, "http", has_counters=False), True),
        # garbage is garbage
        (failing(1.0, "output", progress_at_s=NOW_S, pool_at_s=NOW_S), True),
        (failing(1.0, "output", streak=2), False),
    ],
)
def test_who_counts_as_dead(probe, dead):
    assert bool(why_dead(probe, NOW_S, POLICY)) is dead


def test_it_says_at_which_layer_and_for_how_long():
    said = why_dead(failing(120.0), NOW_S, POLICY)
    assert said == "timeout: no token within 30 s; no token for 120 s"


def test_a_patience_with_silence_that_is_longer_than_that_with_prefills_counts():
    """Whoever has an engine that shows nothing while it computes raises `silent_s` alone."""
    patient = replace(POLICY, silent_s=600.0)
    assert not why_dead(failing(599.0, pool_at_s=NOW_S - 30.0), NOW_S, patient)
    assert why_dead(failing(600.0), NOW_S, patient)


@pytest.mark.parametrize(
    ("probe", "waits"),
    [
        (None, False),
        (ProbeSeen(True, NOW_S - 1.0, NOW_S - 2.0, pool_at_s=NOW_S - 1.0), False),
        (ProbeSeen(True, NOW_S - 20.0, NOW_S - 21.0, pool_at_s=NOW_S - 5.0), True),
        (ProbeSeen(True, NOW_S - 20.0, NOW_S - 21.0, progress_at_s=NOW_S - 20.0), False),
        (ProbeSeen(True, NOW_S - 300.0, NOW_S - 301.0, pool_at_s=NOW_S - 5.0), False),
        (failing(100.0, pool_at_s=NOW_S - 5.0), True),
        (failing(100.0, pool_at_s=NOW_S - 15.0), False),
        (failing(100.0), False),
        (failing(300.0, progress_at_s=NOW_S - 5.0), False),
        (failing(100.0, "http", progress_at_s=NOW_S - 5.0), False),
        (failing(100.0, "output", progress_at_s=NOW_S - 5.0), False),
    ],
)
def test_whose_probes_only_wait_their_turn(probe, waits):
    """What a bake asks: with a warm release to go back to, its patience is shorter, its sight is not."""
    assert makes_wait(probe, NOW_S, 15.0, POLICY) is waits
