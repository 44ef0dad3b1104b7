"""P07t: what the wire loses or doubles in some answers does not fit the tokens that were counted for them."""

from __future__ import annotations

import pytest
from mutation import judge

TRAFFIC = ("J01", "J02", "J03", "J08", "J09", "J18", "T01", "T03", "O01")


def test_the_count_of_a_healthy_engine_fits() -> None:
    outcome = judge("standard", 1, dialect="llamacpp", checks=[*TRAFFIC, "P07t"])
    assert outcome.verdict == "pass", outcome


@pytest.mark.parametrize("fault", ["second-call-lost", "reasoning-lost", "answer-dup"])
def test_what_is_lost_or_doubled_in_some_answers_does_not(fault: str) -> None:
    outcome = judge("standard", 1, f"{fault}@0.2", checks=[*TRAFFIC, "P07t"])
    assert "P07t" in outcome.blocking, outcome


def test_few_answers_teach_nothing() -> None:
    outcome = judge("standard", 1, "second-call-lost@0.2", checks=["J02", "P07t"])
    assert outcome.verdict == "pass", outcome
