"""The gate is tested by mutation: a slice of every measure of `benchmarks/gate_sensitivity.py`, one seed each."""

from __future__ import annotations

import pytest
from mutation import DIALECTS, Mutant, judge, mutants, targets

MUTANTS = mutants()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.harmless], ids=lambda m: m.fault)
def test_a_harmful_fault_is_blocked(mutant: Mutant) -> None:
    assert mutant.seen_by, "no check is named that should see it"
    outcome = judge("standard", 1, mutant.spelled(), checks=list(targets(mutant)), stop_early=True)
    assert outcome.blocked, outcome


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.harmless], ids=lambda m: m.fault)
def test_what_is_harmless_is_not_blocked(mutant: Mutant) -> None:
    outcome = judge("smoke", 1, mutant.spelled())
    assert outcome.verdict == "pass", outcome


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_healthy_engine_passes_in_every_dialect(dialect: str) -> None:
    for seed in (1, 2, 3):
        outcome = judge("smoke", seed, dialect=dialect)
        assert outcome.verdict == "pass", outcome


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_healthy_engine_passes_the_whole_standard_tier() -> None:
    outcome = judge("standard", 1)
    assert outcome.verdict == "pass", outcome


@pytest.mark.parametrize("fault", ["args-tail-cut", "leak-markup", "name-repeat", "think-in-content", "no-done"])
def test_a_fault_in_one_of_twenty_answers_is_blocked(fault: str) -> None:
    mutant = next(m for m in MUTANTS if m.fault == fault)
    outcome = judge("standard", 1, mutant.spelled(0.05), checks=["J", "T"], stop_early=True)
    assert outcome.blocked, outcome


def test_a_model_that_is_right_often_enough_passes_and_one_that_is_not_is_blocked() -> None:
    good = judge("standard", 3, flags=("--right", "calls=0.99"), checks=["J01"])
    assert good.verdict == "pass", good
    bad = judge("standard", 3, flags=("--right", "calls=0.8"), checks=["J01"])
    assert bad.blocked_by(frozenset({"J01"})), bad
