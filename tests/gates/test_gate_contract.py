from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contract import Check, GateRequest, Verdict, VerdictKind, combined, parse_request, parse_verdict

GOOD = {"contract": 1, "gate": "g", "verdict": "pass", "sentence": "fine"}


def test_a_verdict_survives_the_wire() -> None:
    check = Check(id="J01", verdict=VerdictKind.FAIL, sentence="no", evidence=["/e/1.json"], measurements={"n": 3})
    verdict = Verdict(gate="g", verdict=VerdictKind.FAIL, sentence="no", checks=[check], duration_s=1.5)
    assert parse_verdict(verdict.to_json().encode(), "g") == verdict


def test_a_request_survives_the_wire() -> None:
    request = GateRequest(
        gate="g", endpoint="http://h:1", model="m", deadline_s=5, evidence_dir="/e", profile={"a": [1]}
    )
    assert parse_request(request.to_json()) == request


@pytest.mark.parametrize(("kind", "code"), [("pass", 0), ("fail", 10), ("inconclusive", 11), ("error", 12)])
def test_exit_codes(kind: str, code: int) -> None:
    assert parse_verdict(json.dumps(GOOD | {"verdict": kind}).encode()).exit_code == code


@pytest.mark.parametrize(
    ("kinds", "overall"),
    [
        ([], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "error", "pass"], "error"),
        (["error", "fail", "inconclusive"], "fail"),
    ],
)
def test_the_worst_decides(kinds: list[str], overall: str) -> None:
    assert combined(VerdictKind(kind) for kind in kinds) == overall


def test_the_last_document_counts_and_may_be_pretty() -> None:
    early = json.dumps(GOOD | {"verdict": "fail"})
    late = json.dumps(GOOD | {"checks": [{"id": "a", "verdict": "pass", "sentence": "s"}]}, indent=2)
    verdict = parse_verdict(f"log line\n{early}\n{late}\n\n".encode())
    assert verdict.verdict == "pass"
    assert [check.id for check in verdict.checks] == ["a"]


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        (b"", "does not end in a JSON object"),
        (b"all good!\n", "does not end in a JSON object"),
        (json.dumps(GOOD).encode() + b"\nbye\n", "does not end in a JSON object"),
        (b"[1, 2]\n", "does not end in a JSON object"),
        (json.dumps(GOOD).encode()[:-3], "does not end in a JSON object"),
        (b'{"verdict": "pass", "sentence": "s"}', "is not a verdict"),
        (json.dumps(GOOD | {"verdict": "maybe"}).encode(), "is not a verdict"),
        (json.dumps(GOOD | {"contract": 2}).encode(), "contract 2"),
        (json.dumps(GOOD | {"gate": "other"}).encode(), "signed by gate 'other'"),
        (b'{"a":' * 5000, "does not end in a JSON object"),
    ],
)
def test_no_or_broken_json_is_an_error_that_says_so(stdout: bytes, said: str) -> None:
    verdict = parse_verdict(stdout, "g")
    assert verdict.verdict == "error"
    assert said in verdict.sentence


def test_a_verdict_cut_off_in_a_check_is_no_verdict() -> None:
    check = {"id": "a", "verdict": "pass", "sentence": "s"}
    text = json.dumps(GOOD | {"verdict": "fail", "checks": [check]}, indent=1)
    cut = text[: text.rindex("}", 0, text.rindex("]")) + 1]
    assert parse_verdict(cut.encode(), "g").verdict == "error"


def test_half_characters_of_an_engine_do_not_break_the_wire() -> None:
    said = json.dumps(GOOD | {"sentence": "HTTP 500: \ud800", "measurements": {"\ud801": ["\ud802"]}})
    verdict = parse_verdict(said.encode(), "g")
    assert verdict.sentence == "HTTP 500: ?"
    assert parse_verdict(verdict.to_json().encode(), "g") == verdict
    assert Verdict(gate="g", verdict=VerdictKind.FAIL, sentence="\ud800").to_json()
    assert Check(id="a", verdict=VerdictKind.FAIL, sentence="\ud800").model_dump_json()


@given(st.binary(max_size=400))
def test_any_bytes_give_a_verdict(stdout: bytes) -> None:
    assert parse_verdict(stdout).verdict in VerdictKind


def test_a_request_of_another_contract_is_refused() -> None:
    body = {"contract": 9, "gate": "g", "endpoint": "http://h", "model": "m", "deadline_s": 1, "evidence_dir": "/e"}
    with pytest.raises(ValueError, match="contract 9"):
        parse_request(json.dumps(body))
    with pytest.raises(ValueError, match="deadline_s"):
        parse_request(json.dumps(body | {"contract": 1, "deadline_s": "soon"}))
