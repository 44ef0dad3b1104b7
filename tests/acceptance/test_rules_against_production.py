"""Rules that a model may break: production that breaks them as often excuses, one that does not never does."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.acceptance.every_answer import again_in_words
from gates.acceptance.spoiled import Spoiled, read_spoiled
from gates.contract import Check, Verdict

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--slots", "256", "--thinking", "never")
CAPABILITY = {"thinking": "none"}
QUESTIONS = {"checks": ["O01", "J01"], "seed": "7"}
# Marks of the template at the end of some answers: what a badly trained model does by itself, and a server can do too.
# The shares lie so far apart that chance does not bring them together.
SELDOM = ("--fault", "leak-control@0.06")
OFTEN = ("--fault", "leak-control@0.2")
MOSTLY = ("--fault", "leak-control@0.6")


def judged(judge: Judge, url: str, **fields: Any) -> Verdict:
    return judge("acceptance", url, profile=QUESTIONS, capability=CAPABILITY, **fields)


def found(verdict: Verdict, check: str) -> Check:
    return next(one for one in verdict.checks if one.id == check)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_what_production_does_as_often_is_said_and_does_not_block(engines: Engines, judge: Judge) -> None:
    said = judged(judge, engines(*FAST, *SELDOM), live_endpoint=engines(*FAST, *OFTEN))
    leak = found(said, "P11")
    assert (said.verdict, leak.warn) == ("pass", True), said.sentence
    assert "no less often than here" in leak.sentence
    production = leak.measurements["production"]
    assert 0 < production["right"] < production["n"] <= 300


def test_what_it_does_less_often_blocks(engines: Engines, judge: Judge) -> None:
    said = judged(judge, engines(*FAST, *MOSTLY), live_endpoint=engines(*FAST, *SELDOM))
    leak = found(said, "P11")
    assert (said.verdict, leak.verdict) == ("fail", "fail")
    assert "less often than here" in leak.sentence
    assert len(leak.measurements["reruns"]) == 5
    assert "layer" in leak.measurements


def test_what_it_never_does_is_not_excused_by_it(engines: Engines, judge: Judge) -> None:
    said = judged(judge, engines(*FAST, *OFTEN), live_endpoint=engines(*FAST))
    assert found(said, "P11").verdict == "fail"


@pytest.mark.parametrize(("fault", "verdict"), [(SELDOM, "pass"), (MOSTLY, "fail")])
def test_what_an_earlier_run_showed_of_production_counts_the_same(
    engines: Engines, judge: Judge, fault: tuple[str, ...], verdict: str
) -> None:
    earlier = judged(judge, engines(*FAST, *OFTEN))
    assert earlier.measurements["rules"]["hits"]["P11"] > 0
    said = judged(judge, engines(*FAST, *fault), baseline={"measurements": dict(earlier.measurements)})
    assert said.verdict == verdict, said.sentence


def test_a_run_of_another_tier_says_nothing_about_this_one(engines: Engines, judge: Judge) -> None:
    earlier = {"tier": "extended", "rules": {"answers": 100, "hits": {"P11": 60}}}
    said = judged(judge, engines(*FAST, *OFTEN), baseline={"measurements": earlier})
    assert said.verdict == "fail"


def test_without_production_a_breach_that_comes_again_blocks(engines: Engines, judge: Judge) -> None:
    said = judged(judge, engines(*FAST, *OFTEN))
    assert "production" not in found(said, "P11").sentence
    assert said.verdict == "fail"


def test_production_that_is_gone_excuses_nothing_and_is_no_fault_of_the_candidate(
    engines: Engines, judge: Judge
) -> None:
    said = judged(judge, engines(*FAST, *OFTEN), live_endpoint=closed_port())
    leak = found(said, "P11")
    assert leak.verdict == "fail"
    assert "production" not in leak.sentence
    assert all(check.id != "silent" for check in said.checks)
    ways = {one["name"]: one for one in leak.measurements["reruns"]}
    assert "does not answer" in ways["on production"]["why_not"]


def test_production_is_not_asked_when_nothing_hangs_on_it(engines: Engines, judge: Judge) -> None:
    profile = {"checks": ["J01", "J02"], "seed": "7"}
    said = judge("acceptance", engines(*FAST), profile=profile, capability=CAPABILITY, live_endpoint=closed_port())
    assert said.verdict == "pass", said.sentence


@pytest.mark.parametrize(
    ("fault", "rule", "layer"),
    [("no-done", "P01", "the streaming parser"), ("two-finish", "P03", "the streaming parser")],
)
def test_a_broken_rule_is_asked_again_in_five_ways(
    engines: Engines, judge: Judge, fault: str, rule: str, layer: str
) -> None:
    said = judge(
        "smoke",
        engines(*FAST, "--fault", fault),
        profile={"checks": ["J01"], "seed": "7"},
        capability=CAPABILITY,
        live_endpoint=engines(*FAST),
    )
    broken = found(said, rule)
    ways = {one["name"]: one for one in broken.measurements["reruns"]}
    assert list(ways) == ["the other mode", "thinking off", "alone", "the same once more, warm", "on production"]
    assert ways["thinking off"]["why_not"]
    assert ways["alone"]["problem"]
    assert ways["on production"] == {"name": "on production", "problem": None, "why_not": None}
    assert broken.measurements["layer"].startswith(layer)


@pytest.mark.parametrize(
    "measured",
    [
        None,
        "much",
        {},
        {"answers": 0, "hits": {}},
        {"answers": True, "hits": {}},
        {"answers": 5, "hits": {"P11": 6}},
        {"answers": 5, "hits": {"P11": "two"}},
        {"answers": 5, "hits": {"P11": -1}},
        {"answers": "5", "hits": {}},
    ],
)
def test_figures_that_are_none_are_not_compared_with(measured: Any) -> None:
    assert read_spoiled(measured) is None


def test_figures_come_back_as_they_were_written() -> None:
    shown = Spoiled(200, {"P11": 3})
    assert read_spoiled(shown.as_dict()) == shown
    assert Spoiled(200, {"P11": 20}).worse_than(shown, "P11")
    assert not Spoiled(200, {"P11": 5}).worse_than(shown, "P11")
    assert not shown.worse_than(shown, "O02")


@pytest.mark.parametrize(
    ("asked", "broke", "said"),
    [
        (1, True, "asked again: the 1st of at most 10 broke it too"),
        (3, True, "asked again: the 3rd of at most 10 broke it too"),
        (10, True, "asked again: the 10th of at most 10 broke it too"),
        (1, False, "asked once again: it did not break it"),
        (10, False, "asked 10 times again: none broke it"),
    ],
)
def test_how_often_it_was_asked_again_is_said_as_it_was(asked: int, broke: bool, said: str) -> None:
    assert again_in_words(asked, broke=broke) == said
