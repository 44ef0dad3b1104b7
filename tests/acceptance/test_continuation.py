"""Conversations that change engines: recorded on one, continued on the other, in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.acceptance import continuation
from gates.contract import VerdictKind
from launch.engines.emulator.hosted import hosted

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "8", "--answer-tokens", "30", "--slots", "256")
VLLM = (*FAST, "--dialect", "vllm", "--thinking", "on")
SGLANG = (*FAST, "--dialect", "sglang", "--thinking", "on")
CAPABILITY = {"thinking": "switch"}
PROFILE = {"checks": ["F15"], "seed": "x"}


def f15(said: Any) -> Any:
    return next(check for check in said.checks if check.id == "F15")


def baseline(*flags: str, judge: Any) -> dict[str, Any]:
    """The report of a run in which production was the candidate."""
    with hosted(*flags) as production:
        said = judge("acceptance", production.url, profile=PROFILE, capability=CAPABILITY)
    assert f15(said).skipped
    assert "no conversations of production are known" in f15(said).sentence
    return json.loads(said.to_json())


def test_conversations_of_another_dialect_go_on_here_without_production_answering(judge):
    before = baseline(*SGLANG, judge=judge)
    conversations = before["measurements"]["checks"]["F15"]["conversations"]
    assert 10 <= len(conversations) <= continuation.CONVERSATIONS
    assert len(json.dumps(conversations)) <= continuation.MAX_BYTES + 4096
    whole = [m for c in conversations for m in c if m["role"] == "assistant" and "reasoning_content" in m]
    assert any(message["content"] is None for message in whole)
    with hosted(*VLLM) as candidate:
        said = judge("acceptance", candidate.url, profile=PROFILE, capability=CAPABILITY, baseline=before)
    assert said.verdict == "pass", said.sentence
    assert not f15(said).skipped
    (here,) = f15(said).measurements["continued"]
    assert (here["on"], here["broken"], here["untold"]) == ("the candidate", 0, 0)
    assert here["n"] == len(conversations)


def test_with_production_there_both_directions_are_tried(judge):
    with hosted(*VLLM) as production, hosted(*SGLANG) as candidate:
        said = judge("acceptance", candidate.url, profile=PROFILE, capability=CAPABILITY, live_endpoint=production.url)
    assert said.verdict == "pass", said.sentence
    assert [one["on"] for one in f15(said).measurements["continued"]] == ["the candidate", "production"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("http500-history", "HTTP 500"),
        ("prompt-drop-tool", "is not in the answer"),
        ("prompt-drop-history", "was called"),
    ],
)
def test_a_candidate_that_cannot_take_them_fails(judge, fault, says):
    before = baseline(*SGLANG, judge=judge)
    with hosted(*VLLM, "--fault", fault) as candidate:
        said = judge("acceptance", candidate.url, profile=PROFILE, capability=CAPABILITY, baseline=before)
    assert f15(said).verdict == "fail"
    assert says in f15(said).sentence
    assert f15(said).evidence


def test_a_rollback_that_production_would_not_take_fails(judge):
    before = baseline(*VLLM, judge=judge)
    broken = (*VLLM, "--fault", "http500-history")
    with hosted(*broken) as production, hosted(*SGLANG) as candidate:
        said = judge(
            "acceptance",
            candidate.url,
            profile=PROFILE,
            capability=CAPABILITY,
            baseline=before,
            live_endpoint=production.url,
        )
    assert f15(said).verdict == "fail"
    assert "continued on production" in f15(said).sentence


# --- judged by hand ---------------------------------------------------------------------------------------------------


def continued(done: int, broken: int = 0, untold: int = 0) -> continuation.Continued:
    return continuation.Continued(
        "the candidate", done, [("HTTP 500", ())] * broken, [("the value 1 is not in the answer", ())] * untold
    )


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([continued(20)], VerdictKind.PASS),
        ([continued(20, untold=2)], VerdictKind.PASS),
        ([continued(20, untold=3)], VerdictKind.FAIL),
        ([continued(20, broken=1)], VerdictKind.FAIL),
        ([continued(20), continued(20, broken=1)], VerdictKind.FAIL),
        ([continued(3)], VerdictKind.INCONCLUSIVE),
        ([], VerdictKind.INCONCLUSIVE),
    ],
)
def test_none_may_break_and_few_may_lack_their_value(outcomes, verdict):
    found = continuation.judged(outcomes, [])
    assert found.verdict is verdict
    assert found.measurements["conversations"] == []


def test_a_production_that_is_down_says_nothing_about_the_candidate(judge):
    with hosted(*VLLM) as production:
        gone = production.url
    with hosted(*SGLANG) as candidate:
        said = judge("acceptance", candidate.url, profile=PROFILE, capability=CAPABILITY, live_endpoint=gone)
    assert f15(said).skipped
    assert said.verdict == "inconclusive"
    assert said.sentence.startswith("nothing was decided: F15 was skipped: ")
