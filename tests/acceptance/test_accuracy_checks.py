from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.acceptance.accuracy import Marks, compare
from gates.contract import Verdict
from gates.statistics import Ruling

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--slots", "256")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def marks(right: int, n: int = 200, *, wrong: frozenset[str] | None = None, items: str = "a") -> Marks:
    return Marks(items, right, n, wrong)


@pytest.mark.parametrize(
    ("here", "there", "least", "ruling"),
    [
        (marks(196), marks(196), 0.0, Ruling.ACCEPT),
        (marks(150), marks(196), 0.0, Ruling.REJECT),
        (marks(185), marks(196), 0.0, Ruling.HOLD),
        (marks(175), marks(195), 0.9, Ruling.REJECT),
        (marks(160), marks(160), 0.9, Ruling.ACCEPT),
        (marks(2), marks(190), 0.9, Ruling.REJECT),
        (marks(2), None, 0.0, Ruling.REJECT),
        (marks(180), None, 0.9, None),
    ],
)
def test_a_share_is_compared_with_production(
    here: Marks, there: Marks | None, least: float, ruling: Ruling | None
) -> None:
    assert compare(here, there, least_share=least)[0] == ruling


def test_the_same_questions_are_compared_one_by_one() -> None:
    wrong = frozenset(str(number) for number in range(14))
    same = marks(186, wrong=wrong), marks(186, wrong=wrong)
    # Two independent samples of this size could not exclude a loss of ten points as surely; the same mistakes do.
    assert compare(*same)[0] is Ruling.ACCEPT
    other = marks(186, wrong=frozenset(str(number) for number in range(100, 114)), items="b")
    assert compare(same[0], other)[1] == "production: 186 of 200"


def run(judge: Judge, url: str, check: str, **fields: Any) -> Verdict:
    settings = {"checks": [check], "seed": "x", "tier": "extended", "concurrency": 16, **fields.pop("settings", {})}
    return judge("acceptance", url, profile=settings, capability={"thinking": "none"}, **fields)


def test_word_problems_next_to_production(judge: Judge, engines: Engines) -> None:
    healthy = engines(*FAST)
    fine = run(judge, healthy, "A03", live_endpoint=healthy)
    assert fine.verdict == "pass", fine.sentence
    assert "right in 200 of 200; production: 200 of 200" in fine.checks[0].sentence
    wrong = run(judge, engines(*FAST, "--fault", "wrong-answers@0.3"), "A03", live_endpoint=healthy)
    assert {check.id for check in wrong.checks if check.verdict == "fail"} == {"A03"}
    known = {"measurements": fine.measurements}
    again = run(judge, engines(*FAST, "--fault", "wrong-answers@0.3"), "A03", baseline=known)
    assert "A03" in {check.id for check in again.checks if check.verdict == "fail"}


def test_empty_answers_are_wrong(judge: Judge, engines: Engines) -> None:
    verdict = run(judge, engines(*FAST, "--fault", "all-empty"), "A03")
    assert "right in 0 of 200; below 20%" in verdict.sentence


def test_your_own_tasks_and_those_that_need_no_tool(judge: Judge, engines: Engines, tmp_path: Path) -> None:
    lines = [
        {
            "id": f"weather-{number}",
            "messages": [{"role": "user", "content": f"What is the weather in {city}? Use the tool."}],
            "tools": [WEATHER],
            "expect": {"called": "get_weather", "arguments": {"city": city}},
        }
        for number, city in enumerate(("Oslo", "Lima", "Porto", "Quito"))
    ]
    lines += [
        {
            "id": "no-tool",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "tools": [WEATHER],
            "expect": {"no_tool": True, "contains": "Paris"},
        }
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    settings = {"accuracy_set": str(path), "checks": ["A01", "A02"]}
    fine = run(judge, engines(*FAST), "A01", settings=settings)
    assert fine.verdict == "pass", fine.sentence
    told = {check.id: check.sentence for check in fine.checks}
    assert told["A01"] == "right in 4 of 4; nothing to compare with"
    assert told["A02"] == "right in 1 of 1; nothing to compare with"
    wrong = run(judge, engines(*FAST, "--fault", "call-lost"), "A01", settings=settings)
    assert "A01" in {check.id for check in wrong.checks if check.verdict == "fail"}


def test_without_data_the_own_checks_are_skipped(judge: Judge, engines: Engines) -> None:
    verdict = run(judge, engines(*FAST), "A01")
    assert [check.id for check in verdict.checks if check.skipped] == ["A01"]
    assert "accuracy_set names no file" in verdict.checks[0].sentence


def test_a_file_that_is_not_there_is_one_sentence(judge: Judge, engines: Engines, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.jsonl"
    verdict = run(judge, engines(*FAST), "A01", settings={"accuracy_set": str(missing)})
    assert verdict.verdict == "error"
    assert verdict.sentence == f"{missing}: there is no such file; expected a JSONL file, one request a line."
