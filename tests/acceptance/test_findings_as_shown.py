"""Every finding of a run can be judged by a person: request, answer, rule, sentence, re-runs, layer; also as a page."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.command import command
from gates.contract import Check

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--slots", "64", "--thinking", "on")
CAPABILITY = {"thinking": "switch", "required": True, "named": True, "parallel_calls": True, "json_schema": True}
WAYS = ["the other mode", "thinking off", "alone", "the same once more, warm", "on production"]


def what_is_missing(check: Check) -> list[str]:
    """What a person would look for in vain."""
    files = [json.loads(Path(path).read_text()) for path in check.evidence]
    exchanges: list[dict[str, Any]] = [exchange for file in files for exchange in file["exchanges"]]
    ways = check.measurements.get("reruns", ())
    there = {
        "the request": exchanges and all(one["request"]["body"] for one in exchanges),
        "the answer as received": all(one["response"]["pieces"] or one["response"]["failure"] for one in exchanges),
        "the rule": check.rule,
        "a sentence": check.sentence and "\n" not in check.sentence,
        "the re-runs": [way["name"] for way in ways] == WAYS,
        "the layer": check.measurements.get("layer"),
    }
    return [name for name, found in there.items() if not found]


@pytest.mark.parametrize(
    ("fault", "asked", "finds", "layer"),
    [
        ("args-tail-cut+stream", "J01", {"J01", "J20"}, "the streaming parser"),
        ("no-done", "J01", {"P01"}, "the streaming parser"),
        ("call-lost", "J02", {"J02"}, "below the parsers"),
        ("prompt-drop-tool", "F08b", {"F08b"}, "below the parsers"),
        ("loses-tool-result", "F01", {"F01"}, "below the parsers"),
        ("think-in-content", "T01", {"T01", "P11"}, "the parser"),
        ("usage-wrong", "J01", {"P07"}, "the server"),
        ("schema-not-enforced", "J22", {"J22"}, "below the parsers"),
        ("http500-history+tool-turns", "F02", {"F02", "P08"}, "the server"),
        ("garbage", "O01", {"O01", "O02"}, "below the parsers"),
    ],
)
def test_a_finding_shows_everything(
    engines: Engines, judge: Judge, fault: str, asked: str, finds: set[str], layer: str
) -> None:
    said = judge(
        "acceptance",
        engines(*FAST, "--fault", fault),
        profile={"checks": [asked], "seed": "5"},
        capability=CAPABILITY,
        live_endpoint=engines(*FAST),
    )
    failed = {check.id.removesuffix(".model"): check for check in said.checks if check.verdict == "fail"}
    assert finds <= set(failed), said.sentence
    assert {name: what_is_missing(check) for name, check in failed.items()} == {name: [] for name in failed}
    assert any(check.measurements["layer"].startswith(layer) for name, check in failed.items() if name in finds)


def test_an_engine_that_fails_at_one_kind_of_question_is_not_silent(engines: Engines, judge: Judge) -> None:
    said = judge(
        "acceptance",
        engines(*FAST, "--fault", "http500-history+tool-turns"),
        profile={"checks": ["F02", "O05"], "seed": "5"},
        capability=CAPABILITY,
    )
    verdicts = {check.id: str(check.verdict) for check in said.checks}
    assert "silent" not in verdicts
    assert (verdicts["F02"], verdicts["P08"], verdicts["O05"]) == ("fail", "fail", "pass")


def test_the_page_shows_it_too(engines: Engines, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = engines(*FAST)
    words = ["run", "--endpoint", engines(*FAST, "--fault", "args-tail-cut+stream"), "--model", "emu"]
    words += ["--gate", "acceptance", "--check", "J01", "--capability", "thinking=switch", "--live", live]
    page = tmp_path / "page.html"
    assert command([*words, "--html", str(page), "--evidence", str(tmp_path / "ev"), "--json"]) == 10
    capsys.readouterr()
    text = html.unescape(page.read_text())
    for shown in (
        "get_weather",
        '"object":"chat.completion.chunk"',
        "at fault",
        "the streaming parser",
        *WAYS,
        "sequential test",
    ):
        assert shown in text, shown
