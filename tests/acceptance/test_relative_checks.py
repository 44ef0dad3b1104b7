"""Checks that compare with production: the same questions pair, what is undecided is asked on, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.acceptance import register
from gates.acceptance.check import Sample, Tier
from gates.acceptance.decide import decide
from gates.acceptance.tries import Tries, Try
from gates.contract import Check, VerdictKind

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--slots", "256", "--thinking", "never")
COPYING = register.find("J06")


def copying(judge: Judge, url: str, **fields: Any) -> Check:
    profile = {"checks": ["J06"], "seed": "7"}
    said = judge("acceptance", url, profile=profile, capability={"thinking": "none"}, **fields)
    return next(check for check in said.checks if check.id == "J06")


def tried(outcomes: list[bool]) -> Tries:
    sample = Sample("J06", 0, "s", streamed=True, greedy=True)
    return Tries(COPYING, [Try(sample, None if right else "wrong") for right in outcomes])


def test_a_weak_model_that_errs_on_the_same_questions_is_no_worse() -> None:
    outcomes = [True, False, True] * 16
    paired = {"n": 48, "right": 32, "outcomes": outcomes}
    assert decide(tried(outcomes), Tier.STANDARD, paired).verdict is VerdictKind.PASS
    unpaired = {"n": 48, "right": 32}
    assert decide(tried(outcomes), Tier.STANDARD, unpaired).verdict is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize("before", [{"n": 0, "right": 0}, {"n": 4, "right": 5}, {"n": "4", "right": 3}, {}])
def test_figures_that_are_none_compare_nothing(before: dict[str, Any]) -> None:
    assert decide(tried([True] * 48), Tier.STANDARD, before).verdict is VerdictKind.PASS


def test_the_same_questions_decide_at_the_first_look(engines: Engines, judge: Judge) -> None:
    weak = engines(*FAST, "--right", "copies=0.8", "--seed", "1")
    said = copying(judge, weak, live_endpoint=weak)
    assert (said.verdict, said.measurements["n"]) == ("pass", 48)
    assert "of the same 48" in said.sentence


def test_what_is_undecided_is_asked_on_here_and_there_and_not_for_ever(engines: Engines, judge: Judge) -> None:
    candidate = engines(*FAST, "--right", "copies=0.7", "--seed", "1")
    production = engines(*FAST, "--right", "copies=0.85", "--seed", "2")
    said = copying(judge, candidate, live_endpoint=production)
    assert 48 < said.measurements["n"] <= 4 * 48
    assert said.measurements["production"]["n"] == said.measurements["n"]


def test_with_an_earlier_run_only_the_candidate_is_asked_on(engines: Engines, judge: Judge) -> None:
    candidate = engines(*FAST, "--right", "copies=0.7", "--seed", "1")
    earlier = {"checks": {"J06": {"n": 48, "right": 43}}}
    said = copying(judge, candidate, baseline={"measurements": earlier})
    assert 48 < said.measurements["n"] <= 4 * 48
    assert said.measurements["production"] == {"n": 48, "right": 43}


def test_what_is_much_worse_is_blocked(engines: Engines, judge: Judge) -> None:
    candidate = engines(*FAST, "--right", "copies=0.45", "--seed", "1")
    said = copying(judge, candidate, live_endpoint=engines(*FAST))
    assert said.verdict == "fail"
    assert "production" in said.sentence or "floor" in said.sentence
