from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.contract import Verdict

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--slots", "64")


def capital(country: str, city: str, **more: Any) -> dict[str, Any]:
    question = f"What is the capital of {country}? Answer with one word."
    return {
        "id": country.lower(),
        "messages": [{"role": "user", "content": question}],
        "expect": {"contains": city},
        **more,
    }


@pytest.fixture
def own(tmp_path: Path, judge: Judge) -> Callable[..., Verdict]:
    """Judges an engine by a file of these requests."""

    def run(url: str, *items: Mapping[str, Any], **settings: Any) -> Verdict:
        path = tmp_path / "own.jsonl"
        path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
        return judge("own-set", url, profile={"file": str(path), "seed": "x", **settings})

    return run


def test_each_request_is_a_check_of_its_own(own: Callable[..., Verdict], engines: Engines) -> None:
    verdict = own(engines(*FAST), capital("France", "Paris"), capital("Poland", "Kraków"))
    assert verdict.verdict == "fail"
    assert {check.id: check.verdict for check in verdict.checks[:2]} == {"france": "pass", "poland": "fail"}
    told = next(check for check in verdict.checks if check.id == "poland")
    assert told.sentence.startswith("poland, streamed: the answer does not contain 'Kraków'; it was ")
    assert told.sentence.endswith("(as expected in 0 of 2)")
    assert told.evidence
    assert Path(told.evidence[0]).exists()


def test_a_known_failure_can_be_waived(own: Callable[..., Verdict], engines: Engines) -> None:
    until = (datetime.now(UTC).date() + timedelta(days=7)).isoformat()
    waiver = {"check": "poland", "reason": "TICKET-7, the old spelling", "expires": until}
    verdict = own(engines(*FAST), capital("Poland", "Kraków"), waivers=[waiver])
    assert verdict.verdict == "pass"
    assert "TICKET-7" in (verdict.checks[0].waived or "")


def test_every_request_is_asked_streamed_and_whole(own: Callable[..., Verdict], engines: Engines) -> None:
    verdict = own(engines(*FAST), capital("France", "Paris", repeat=3))
    assert verdict.verdict == "pass", verdict.sentence
    assert verdict.sentence == "1 requests of own.jsonl are answered as expected"
    assert verdict.checks[0].measurements["n"] == 6
    assert verdict.measurements["requests"] == 6


def test_a_pool_is_judged_by_its_sequential_test(own: Callable[..., Verdict], engines: Engines) -> None:
    names = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo"}
    items = [capital(country, city, must="B80", repeat=6) for country, city in names.items()]
    fine = own(engines(*FAST), *items)
    assert fine.verdict == "pass", fine.sentence
    assert [check.id for check in fine.checks if check.measurements] == ["B80"]
    wrong = own(engines(*FAST, "--fault", "wrong-answers@0.6"), *items)
    assert {check.id for check in wrong.checks if check.verdict == "fail"} == {"B80"}


def test_the_rules_for_every_answer_hold_here_too(own: Callable[..., Verdict], engines: Engines) -> None:
    verdict = own(engines(*FAST, "--fault", "no-finish"), capital("France", "Paris"))
    assert "P03" in {check.id for check in verdict.checks if check.verdict == "fail"}
    model = own(engines(*FAST, "--fault", "mojibake"), capital("France", "Paris"))
    assert any(check.id.startswith("O04") for check in model.checks if check.verdict == "fail")


def test_an_engine_that_falls_silent_ends_the_run(own: Callable[..., Verdict], engines: Engines) -> None:
    items = [capital("France", "Paris", id=f"q{number}") for number in range(40)]
    verdict = own(engines(*FAST, "--fault", "conn-drop"), *items)
    assert verdict.verdict == "fail"
    silent = next(check for check in verdict.checks if check.id == "silent")
    assert silent.verdict == "fail"
    assert silent.evidence
    assert verdict.measurements["requests"] < 80


def test_bad_files_and_settings_are_one_sentence(own: Callable[..., Verdict], judge: Judge, engines: Engines) -> None:
    broken = own(engines(*FAST), {"id": "a", "messages": [{"role": "user", "content": "hi"}], "expects": {}})
    assert broken.verdict == "error"
    assert "own.jsonl:1: unknown key 'expects'" in broken.sentence
    nothing = judge("own-set", engines(*FAST), profile={})
    assert nothing.sentence == "settings of gate own-set: the key 'file' is missing."


def test_an_expectation_that_explodes_costs_its_own_line_alone(own: Callable[..., Verdict], engines: Engines) -> None:
    asked = "Reply with only the following code: QX7B-KD2F-MW9R-TZ4H-PY6C-JN3V"
    evil = {"id": "echo", "messages": [{"role": "user", "content": asked}], "expect": {"regex": r"^(\S?\S+)+#$"}}
    verdict = own(engines(*FAST), evil, capital("France", "Paris"), judging_s=0.05)
    assert verdict.verdict == "error"
    assert verdict.sentence.startswith("echo: echo: the regular expression ")
    assert {check.id: check.verdict for check in verdict.checks[:2]} == {"echo": "error", "france": "pass"}
