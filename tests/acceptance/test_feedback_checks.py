"""Results, histories and chains: a healthy engine passes, a wrong one is named; judges are shown hand-made answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gates.acceptance import feedback, turns
from gates.acceptance.check import Sample
from gates.acceptance.continuation import bounded, known
from gates.reply import Reply
from gates.toolwire import Breach, ToolCall
from gates.trial import Answer
from gates.wire import Exchange
from launch.engines.emulator.hosted import hosted

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--keeps-reasoning", "--slots", "256")
CAPABILITY = {
    "thinking": "switch",
    "required": True,
    "named": True,
    "parallel_calls": True,
    "keeps_reasoning": True,
}
CHECKS = (
    *("F01", "F02", "F02c", "F03", "F03c", "F04", "F05", "F06", "F06c", "F07", "F09", "F09c", "F10", "F10c", "F11"),
    *("F12", "F13", "F13c", "F14", "F14c"),
)
SAMPLE = Sample("F04", 0, "x", streamed=True, greedy=True)


def answered(content: str = "", *calls: ToolCall, status: int = 200, **fields: Any) -> Answer:
    fields.setdefault("finish_reason", "tool_calls" if calls else "stop")
    breaches = tuple(fields.pop("breaches", ()))
    reply = Reply(False, content=content, calls=calls, breaches=breaches, **fields)
    exchange = Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, status)
    return Answer({}, exchange, reply, breaches)


REFUSED = {"breaches": [Breach("P08", "HTTP 400: no such role")], "answered": False, "status": 400}
BROKEN = {"breaches": [Breach("P08", "HTTP 500: no mapping")], "answered": False, "status": 500}


def verdicts(said: Any) -> dict[str, str]:
    return {
        check.id: "skip" if check.skipped else "warn" if check.warn else str(check.verdict) for check in said.checks
    }


def sentence_of(said: Any, check_id: str) -> str:
    return next(check.sentence for check in said.checks if check.id == check_id)


def test_a_healthy_engine_passes_every_check(judge):
    with hosted(*FAST, "--thinking", "on") as engine:
        said = judge("acceptance", engine.url, profile={"checks": CHECKS, "seed": "x"}, capability=CAPABILITY)
    assert said.verdict == "pass", said.sentence
    assert {check_id: verdicts(said)[check_id] for check_id in CHECKS} == dict.fromkeys(CHECKS, "pass")


@pytest.mark.parametrize(
    ("fault", "seen_by", "says"),
    [
        ("prompt-drop-tool", ("F01", "F02c", "F03c", "F04", "F09c"), "came back empty"),
        ("prompt-drop-history", ("F01", "F07"), "was called"),
        ("prompt-args-coerced", ("F04",), "does not stand with"),
        ("prompt-drop-reasoning", ("F14c",), "of the result is not in the answer"),
        ("loop-same-call", ("F01", "F07"), "was called"),
        ("loses-tool-result", ("F01",), "tool"),
        ("all-empty+after-tool-result", ("F01", "F06c"), "is empty"),
        ("all-empty+stream", ("F12",), "streamed it is no text"),
    ],
)
def test_a_wrong_engine_is_named(judge, fault, seen_by, says):
    with hosted(*FAST, "--thinking", "on", "--fault", fault) as engine:
        said = judge("acceptance", engine.url, profile={"checks": seen_by, "seed": "x"}, capability=CAPABILITY)
    assert said.verdict == "fail"
    assert {check_id: verdicts(said)[check_id] for check_id in seen_by} == dict.fromkeys(seen_by, "fail")
    assert says in sentence_of(said, seen_by[0])


@pytest.mark.parametrize("check", ["F02", "F03", "F06", "F09", "F10", "F14"])
def test_an_engine_that_breaks_on_histories_fails_each_status_check(judge, check):
    with hosted(*FAST, "--thinking", "on", "--fault", "http500-history+tool-turns") as engine:
        said = judge("acceptance", engine.url, profile={"checks": [check], "seed": "x"}, capability=CAPABILITY)
    assert said.verdict == "fail"
    assert "HTTP 500" in said.sentence


def test_own_ids_that_the_template_refuses_are_seen(judge):
    with hosted(*FAST, "--fault", "id-bad-format+stream") as engine:
        said = judge(
            "acceptance", engine.url, profile={"checks": ["F10"], "seed": "x"}, capability={"thinking": "none"}
        )
    assert verdicts(said)["F10"] == "fail"


def test_checks_that_do_not_apply_are_skipped(judge):
    with hosted(*FAST) as engine:
        said = judge(
            "acceptance", engine.url, profile={"checks": ["F14", "F14c", "F01"]}, capability={"thinking": "none"}
        )
    assert (verdicts(said)["F14"], verdicts(said)["F14c"], verdicts(said)["F01"]) == ("skip", "skip", "pass")


# --- judged by hand ---------------------------------------------------------------------------------------------------

CALL = ToolCall("call_1", "get_weather", '{"city": "Osaka", "unit": "c"}')


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered("It is 48.37 °C."), None),
        (answered("Es sind 48,37 Grad."), None),
        (answered("It is 48 degrees."), "the value 48.37 of the result is not in the answer"),
        (answered("I do not have access to live data."), "has no access"),
        (answered("", CALL), "get_weather was called"),
        (answered("It is 48.37", finish_reason="length"), "reached max_tokens"),
        (answered(" \n"), "the answer to the result is empty"),
        (answered("", reasoning="So 48.37."), "it is in the reasoning"),
        (answered("48.37", finish_reason="content_filter"), "expected stop"),
        (answered(**BROKEN), "HTTP 500"),
    ],
)
def test_what_is_wrong_with_an_answer_to_a_result(answer, says):
    problem = turns.told_problem(answer, "48.37")
    assert problem is None if says is None else says in (problem or "")


VALUES = {"Kraków": "48.37", "Osaka": "51.42", "Porto": "44.18"}


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("Krakow: 48.37, Osaka: 51.42, Porto: 44.18", True),
        ("| Porto | 44,18 |\n| Kraków | 48,37 |\n| Osaka | 51,42 |", True),
        ("48.37 in Kraków, 51.42 in Osaka and 44.18 in Porto", True),
        ("In Kraków it is 48.37, and 51.42 in Osaka; Porto has 44.18", False),
        ("Kraków: 51.42, Osaka: 48.37, Porto: 44.18", False),
        ("44.18 in Kraków, 51.42 in Osaka and 48.37 in Porto", False),
    ],
)
def test_values_stand_with_their_own_city(content, right):
    assert (turns.misattributed(content, VALUES) is None) == right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (answered("The tool failed with a timeout."), True),
        (answered("I couldn’t reach the weather service."), True),
        (answered("", CALL), True),
        (answered("It is 21 °C and sunny."), False),
        (answered(""), False),
        (answered(**BROKEN), False),
    ],
)
def test_an_error_is_told_or_tried_again(answer, right):
    assert (feedback.error_problem(answer) is None) == right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (answered("It is 48.37."), True),
        (answered("", ToolCall("c", "get_weather", '{"city": "Porto"}')), True),
        (answered("", ToolCall("c", "get_weather", '{"unit":"c","city":"Osaka"}')), False),
        (answered(""), False),
    ],
)
def test_the_same_call_again_is_a_loop_however_it_is_written(answer, right):
    assert (feedback.loop_problem(answer, "get_weather", CALL.arguments) is None) == right


@pytest.mark.parametrize(
    ("answer", "broken", "refused"),
    [
        (answered("Fine."), False, False),
        (answered(**REFUSED), False, True),
        (answered(**BROKEN), True, False),
        (answered(breaches=[Breach("P08", "the connection was closed")], answered=False), True, False),
    ],
)
def test_a_refusal_is_no_breakdown(answer, broken, refused):
    assert (turns.breakdown(answer) is not None, turns.refusal(answer) is not None) == (broken, refused)


@pytest.mark.parametrize(
    ("pattern", "number", "fits"),
    [
        ("call_8f3a1c2b4d5e6f708192a3b4", 1, r"call_[0-9a-f]{24}"),
        ("chatcmpl-tool-590444a030c1bd00", 0, r"chatcmpl-tool-[0-9a-f]{16}"),
        ("Xk3f9ZqT7", 0, r"[A-Za-z0-9]{9}"),
        ("functions.get_weather:0", 2, r"functions\.lookup_record:2"),
        ("get_weather_0", 1, r"lookup_record_1"),
    ],
)
def test_ids_of_made_up_histories_look_as_the_engines_own(pattern, number, fits):
    made = turns.styled(pattern, "get_weather", "lookup_record", number, SAMPLE.rng())
    assert re.fullmatch(fits, made), made
    assert made != pattern


def test_the_same_sample_makes_the_same_ids_and_another_seed_makes_others():
    one, again = (turns.styled("call_8f3a1c", "w", "w", 0, SAMPLE.rng()) for _ in range(2))
    other = turns.styled("call_8f3a1c", "w", "w", 0, SAMPLE.asked(seed="y").rng())
    assert one == again != other


def test_recorded_conversations_are_bounded_and_read_with_care():
    asked = {"role": "user", "content": "x" * 9000}
    conversation = [asked, {"role": "assistant", "content": "Yes."}]
    kept = bounded([conversation] * 30)
    assert len(kept) == 7
    assert len(json.dumps(kept)) <= 64 * 1024
    assert known(kept) == kept
    waiting = [asked, {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {}}]}]
    assert known([waiting, [asked], [], "x", None, [{"content": "no role"}], conversation]) == [conversation]
    assert known({"not": "a list"}) == []
