from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import END, FIRST, USAGE, Engines, Judge, RawServer, Script, answer, chunk, failed_checks

from gates.text import holds
from gates.toolcalls.cases import BUILT_IN
from gates.toolcalls.gate import arguments_problem
from launch.engines.emulator.testing import emulator

WHOLE_CALL = {
    "model": "m",
    "usage": USAGE,
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "get_server_time", "arguments": "{}"}}
                ],
            },
        }
    ],
}
FAST = ("--ttft-ms", "2", "--itl-ms", "0.5")
SWITCH = {"thinking": "switch", "required": True}


@pytest.mark.parametrize(
    ("dialect", "habit", "capability"),
    [
        ("vllm", "off", SWITCH),
        ("vllm", "never", {"thinking": "none"}),
        ("sglang", "on", SWITCH),
        ("sglang", "off", {}),
    ],
)
def test_a_healthy_engine_passes(
    judge: Judge, engines: Engines, dialect: str, habit: str, capability: dict[str, Any]
) -> None:
    url = engines(*FAST, "--dialect", dialect, "--thinking", habit)
    verdict = judge("toolcalls", url, capability=capability)
    assert verdict.verdict == "pass", verdict.sentence
    ids = {check.id for check in verdict.checks if not check.skipped}
    modes = ("stream.thinking-on", "whole.thinking-off") if capability == SWITCH else ("stream", "whole")
    assert {f"{name}.{mode}" for name in ("J01", "F01", "J02", "J01.choice", "F01.choice") for mode in modes} <= ids
    assert ("T02" in ids, f"J11.{modes[0]}" in ids) == (capability == SWITCH,) * 2


@pytest.mark.parametrize(
    ("fault", "checks", "said"),
    [
        ("leak-think", {"P11"}, "content holds <think>"),
        ("bad-tool-arguments", {"J01.stream", "J01.whole"}, "arguments are not JSON"),
        ("wrong-schema-arguments", {"J01.stream", "J01.whole"}, "arguments break their schema"),
        ("tool-text-in-content", {"J01.stream", "J01.whole", "P11"}, "is a tool-call parser set?"),
        ("loses-tool-result", {"F01.stream", "F01.whole"}, "does not come back"),
        ("garbage", {"J01.stream", "J01.whole"}, ""),
        ("no-usage", {"P07"}, "usage"),
        ("truncates", {"P08"}, "broke off"),
    ],
)
def test_each_fault_is_caught_by_the_check_that_should_see_it(
    judge: Judge, fault: str, checks: set[str], said: str
) -> None:
    with emulator(*FAST, "--fault", fault, model="emu") as engine:
        verdict = judge("toolcalls", engine.url, profile={"cases": ["weather"]})
    assert verdict.verdict == "fail"
    assert checks <= failed_checks(verdict)
    assert said in " ".join(check.sentence for check in verdict.checks if check.id in checks)


def test_a_fault_in_one_mode_is_named_as_such(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "bad-tool-arguments+stream", model="emu") as engine:
        verdict = judge("toolcalls", engine.url, profile={"cases": ["weather"]})
    # The broken arguments go back as history, which the engine refuses: that fails in the same mode.
    assert failed_checks(verdict) >= {"J01.stream"}
    assert not failed_checks(verdict) & {"J01", "F01"}


@pytest.mark.parametrize(("wrong", "verdict"), [({0}, "pass"), ({0, 1}, "fail"), ({1, 2}, "pass")])
def test_what_a_model_may_get_wrong_is_tried_again(
    judge: Judge, raw_server: Callable[[Script], RawServer], wrong: set[int], verdict: str
) -> None:
    """One mode of two stays right; in the other the majority of three tries decides, and only after a first failure."""
    streams: list[bytes] = []

    def script(connection: socket.socket, request: bytes) -> None:
        if b'"stream": true' not in request:
            connection.sendall(answer("200 OK", "application/json", json.dumps(WHOLE_CALL).encode()))
            return
        streams.append(request)
        arguments = "[]" if len(streams) - 1 in wrong else "{}"
        call = {
            "index": 0,
            "id": "c",
            "type": "function",
            "function": {"name": "get_server_time", "arguments": arguments},
        }
        body = FIRST + chunk({"tool_calls": [call]}) + chunk({}, "tool_calls") + END
        connection.sendall(answer("200 OK", "text/event-stream", body))

    seen = judge("toolcalls", raw_server(script).url, model="m", profile={"cases": ["clock"]})
    assert seen.verdict == verdict, seen.sentence
    assert len(streams) == (3 if 0 in wrong else 1)


def test_silence_fails_before_the_deadline(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "silent", model="emu") as engine:
        verdict = judge("toolcalls", engine.url, profile={"timeout_s": 0.5})
    assert verdict.verdict == "fail"
    assert "no byte of content" in verdict.sentence
    assert verdict.duration_s < 20


def test_thinking_that_cannot_be_switched_off_fails(judge: Judge) -> None:
    # The engine knows the switch by another name than the profile claims, so that it never hears of it.
    with emulator(*FAST, "--thinking", "on", "--thinking-switch", "enable_thinking", model="emu") as engine:
        capability = {"thinking": "switch", "thinking_switch": "reasoning_effort"}
        verdict = judge("toolcalls", engine.url, capability=capability, profile={"cases": ["weather"]})
    assert "T02" in failed_checks(verdict)


def test_no_tools_are_nothing_to_judge(judge: Judge) -> None:
    verdict = judge("toolcalls", "http://127.0.0.1:1", capability={"tools": False})
    assert (verdict.verdict, verdict.checks[0].skipped) == ("pass", True)


def test_a_users_own_case(judge: Judge, engines: Engines) -> None:
    tool = {
        "name": "get_invoice",
        "description": "Fetches an invoice by its number.",
        "parameters": {"type": "object", "properties": {"invoice_id": {"type": "string"}}, "required": ["invoice_id"]},
    }
    case = {"ask": "Get invoice INV-7781 with the tool.", "tool": tool, "expect": {"invoice_id": "INV-7781"}}
    profile = {"cases": [], "own_cases": [case | {"result": '{"total": {canary}}'}]}
    verdict = judge("toolcalls", engines(*FAST), profile=profile)
    assert verdict.verdict == "pass", verdict.sentence
    assert {"own.1.stream", "F01.own.1.whole"} <= {check.id for check in verdict.checks}
    wrong = profile | {"own_cases": [case | {"expect": {"invoice_id": "INV-0000"}}]}
    assert failed_checks(judge("toolcalls", engines(*FAST), profile=wrong)) == {"own.1.stream", "own.1.whole"}


def test_failing_evidence_shows_request_answer_rule_and_times_but_no_key(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTOVER_TEST_KEY", "sk-very-secret-17")
    with emulator(*FAST, "--fault", "bad-tool-arguments", model="emu") as engine:
        verdict = judge("toolcalls", engine.url, api_key_env="CUTOVER_TEST_KEY", profile={"cases": ["weather"]})
    check = next(check for check in verdict.checks if check.id == "J01.stream")
    text = Path(check.evidence[0]).read_text()
    evidence = json.loads(text)
    exchange = evidence["exchanges"][0]
    assert evidence["sentence"] == check.sentence
    assert evidence["rule"]
    assert exchange["request"]["body"]["tools"][0]["function"]["name"] == "get_weather"
    assert exchange["request"]["authorization"] == "Bearer (from $CUTOVER_TEST_KEY)"
    times = [piece["at_s"] for piece in exchange["response"]["pieces"]]
    assert times == sorted(times)
    assert "data: [DONE]" in exchange["response"]["pieces"][-1]["text"]
    everything = verdict.to_json() + "".join(p.read_text() for p in Path(check.evidence[0]).parent.iterdir())
    assert "sk-very-secret-17" not in everything


def test_a_server_that_echoes_the_key_is_blacked_out(
    judge: Judge, raw_server: Callable[[Script], RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTOVER_TEST_KEY", "sk-very-secret-18")

    def script(connection: socket.socket, request: bytes) -> None:
        key = request.split(b"Bearer ")[1].split(b"\r\n")[0]
        head = b"HTTP/1.1 500 Oops\r\nX-Key: " + key + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        halves = (b'{"error": {"message": "bad ' + key[:9], key[9:] + b'"}}')
        connection.sendall(head + b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in halves) + b"0\r\n\r\n")

    verdict = judge("toolcalls", raw_server(script).url, api_key_env="CUTOVER_TEST_KEY")
    files = [Path(path) for check in verdict.checks for path in check.evidence]
    assert files
    assert "bad [api key]" in verdict.sentence
    assert not any("very-secret" in text for text in [verdict.to_json(), *[file.read_text() for file in files]])


def test_cases_are_new_every_time() -> None:
    assert len({make().prompt for make in BUILT_IN.values() for _ in range(5)}) == 15


@pytest.mark.parametrize(
    ("text", "canary", "there"),
    [
        ("It is 48.37 °C.", "48.37", True),
        ("Es sind 48,37 Grad.", "48.37", True),
        ("The code is 716,204.", "716204", True),
        ("The code is 716 204.", "716204", True),
        ("الرمز هو ٧١٦٢٠٤", "716204", True),
        ("It is about 48 degrees.", "48.37", False),
        ("", "48.37", False),
    ],
)
def test_how_a_value_may_come_back(text: str, canary: str, there: bool) -> None:
    assert holds(text, canary) is there


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"city": "Krakow"}', None),
        ('{"city": "KRAKÓW "}', None),
        ('{"city": "Oslo"}', "city is 'Oslo'"),
        ('{"city": 7}', "break their schema"),
        ("{}", "break their schema"),
        ('["Kraków"]', "no object"),
        ("", "not JSON"),
        ("null", "no object"),
    ],
)
def test_arguments(arguments: str, said: str | None) -> None:
    problem = arguments_problem(arguments, SCHEMA, {"city": "Kraków"})
    assert problem is None if said is None else said in (problem or "")
