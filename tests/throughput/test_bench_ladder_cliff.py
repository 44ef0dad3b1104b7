"""The real ladder against an engine with a cliff and one without: what the gate says about it."""

from __future__ import annotations

from typing import Any

from gate_kit import Engines, Judge

LADDER: dict[str, Any] = {
    "workloads": [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}],
    "ladder": [{"concurrency": rung} for rung in (4, 8, 16)],
    "rounds": [3],
    "warmups": 1,
    "requests_per_stream": 1,
    # What is tested here is no timing, and the box may be slow.
    "max_client_error": 1.0,
    "max_core_share": 1.0,
}
# Steps so long that what a slow box adds to them hides nothing and invents nothing.
STEPS = ("--ttft-ms", "5", "--slots", "32", "--lockstep", "--step-base-ms", "25", "--step-per-seq-ms", "0.25")


def ladder_check(judge: Judge, engines: Engines, *flags: str) -> Any:
    verdict = judge("throughput", engines(*STEPS, *flags), profile=LADDER, deadline_s=120.0)
    return next(check for check in verdict.checks if check.id.endswith("chat.ladder"))


def test_a_cliff_beyond_eight_is_named_between_eight_and_sixteen(judge: Judge, engines: Engines) -> None:
    found = ladder_check(judge, engines, "--cliff-at", "9", "--cliff-factor", "4")
    assert found.warn
    assert "chat c8 → c16" in found.sentence
    assert "c4 → c8" not in found.sentence


def test_a_ladder_without_a_cliff_names_none(judge: Judge, engines: Engines) -> None:
    found = ladder_check(judge, engines)
    assert not found.warn
    assert found.sentence.startswith("chat: no cliff on 3 rungs from c4 to c16"), found.sentence
    assert found.sentence.count("chat:") == 1
