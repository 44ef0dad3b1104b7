"""Thought and answer: a healthy engine passes, a wrong one is named; judges are shown hand-made answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.acceptance import problems, thinking, thinking_edges
from gates.acceptance.answers import right
from gates.acceptance.check import Sample
from gates.acceptance.register import find
from gates.capability import Capability
from gates.reply import Reply, Usage
from gates.toolwire import Breach, ToolCall
from gates.trial import Answer
from gates.wire import Exchange, Piece
from launch.engines.emulator.hosted import hosted

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--slots", "256")
CAPABILITY = {"thinking": "switch", "required": True, "named": True, "json_schema": True}
SAMPLE = Sample("T01", 0, "x", streamed=True, greedy=True)
CHECKS = ("T01", "T01w", "T02", "T02a", "T03", "T03r", "T04", "T04r", "T05", "T06", "T08", "T09", "T10", "T12", "T13")


def answered(content: str = "", reasoning: str = "", *calls: ToolCall, **fields: Any) -> Answer:
    fields.setdefault("finish_reason", "tool_calls" if calls else "stop")
    breaches = tuple(fields.pop("breaches", ()))
    body = fields.pop("body", {})
    data = json.dumps(fields.pop("document", {})).encode()
    reply = Reply(False, content=content, reasoning=reasoning, calls=calls, breaches=breaches, **fields)
    exchange = Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, 200, pieces=(Piece(0.1, data),))
    return Answer(body, exchange, reply, breaches)


def verdicts(said: Any) -> dict[str, str]:
    return {
        check.id: "skip" if check.skipped else "warn" if check.warn else str(check.verdict) for check in said.checks
    }


def sentence_of(said: Any, check_id: str) -> str:
    return next(check.sentence for check in said.checks if check.id == check_id)


@pytest.mark.parametrize(("dialect", "habit"), [("vllm", "on"), ("sglang", "off")])
def test_a_healthy_engine_passes_every_check(judge, dialect, habit):
    with hosted(*FAST, "--dialect", dialect, "--thinking", habit) as engine:
        said = judge("acceptance", engine.url, profile={"checks": CHECKS, "seed": "x"}, capability=CAPABILITY)
    assert said.verdict == "pass", said.sentence
    assert {check_id: verdicts(said)[check_id] for check_id in CHECKS} == dict.fromkeys(CHECKS, "pass")


@pytest.mark.parametrize(
    ("fault", "seen_by", "says"),
    [
        ("think-in-content", ("T01", "T02", "T10"), "the content holds <think>"),
        ("think-untagged", ("T01", "T10"), "there is no reasoning"),
        ("answer-in-reasoning", ("T01", "T02", "T02a", "T08"), "no content"),
        ("answer-dup", ("T01",), "is a copy of what stands in the reasoning"),
        ("tool-in-reasoning", ("T03", "T04"), "swallowed by the reasoning"),
        ("json-in-reasoning", ("T06",), "reasoning"),
        ("stop-in-reasoning", ("T09",), "the rest of a delimiter"),
        ("reasoning-lost", ("T03r",), "below the floor"),
        ("toggle-ignored", ("T02", "T05", "T06", "T12"), "thinking is off and there is reasoning"),
    ],
)
def test_a_wrong_engine_is_named(judge, fault, seen_by, says):
    with hosted(*FAST, "--thinking", "on", "--fault", fault) as engine:
        said = judge("acceptance", engine.url, profile={"checks": seen_by, "seed": "x"}, capability=CAPABILITY)
    assert said.verdict == "fail"
    assert {check_id: verdicts(said)[check_id] for check_id in seen_by} == dict.fromkeys(seen_by, "fail")
    assert says in sentence_of(said, seen_by[0])


def test_a_first_look_finds_a_missing_parser_in_a_handful_of_requests(judge):
    with hosted(*FAST, "--thinking", "on", "--fault", "think-untagged") as engine:
        said = judge("acceptance", engine.url, profile={"tier": "smoke", "checks": ["T01"]}, capability=CAPABILITY)
    assert said.verdict == "fail"
    assert said.measurements["requests"] < 30


def test_a_model_that_always_thinks_is_not_asked_to_stop(judge):
    with hosted(*FAST, "--thinking", "always") as engine:
        said = judge(
            "acceptance",
            engine.url,
            profile={"checks": ["T01", "T02", "T05", "T12"]},
            capability={"thinking": "always"},
        )
    assert verdicts(said)["T01"] == "pass"
    assert {verdicts(said)[check_id] for check_id in ("T02", "T05", "T12")} == {"skip"}


def test_a_model_that_never_thinks_answers_without_thought(judge):
    with hosted(*FAST, "--thinking", "never") as engine:
        said = judge(
            "acceptance", engine.url, profile={"checks": ["T01", "T02", "T02a"]}, capability={"thinking": "none"}
        )
    assert [verdicts(said)[check_id] for check_id in ("T01", "T02", "T02a")] == ["skip", "pass", "pass"]


def test_reasoning_tokens_are_looked_at_where_usage_tells_them(judge):
    with hosted(*FAST, "--thinking", "on", "--dialect", "sglang") as engine:
        said = judge("acceptance", engine.url, profile={"checks": ["T01", "T02", "T11"]}, capability=CAPABILITY)
    assert verdicts(said)["T11"] == "pass"
    assert "answers, always where there is reasoning" in sentence_of(said, "T11")


# --- judged by hand ---------------------------------------------------------------------------------------------------

LONG = "Short light is scattered more by the air than long light, so that blue comes to us from everywhere."


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered("It is 42.", "Six times seven. So 42."), None),
        (answered("42", "So it is 42"), None),
        (answered("42", "42"), "the same text"),
        (answered(LONG, f"I say: {LONG} Done."), "is a copy"),
        (answered(LONG, f"I say: {LONG[:70]} or so"), "is a copy"),
        (answered(LONG, f"I say: {LONG[:50]} or so"), None),
        (answered("42", " \n"), "is a reasoning parser set?"),
        (answered("", "So 42"), "no content"),
        (answered("", "So", finish_reason="length"), "only thinking"),
        (answered("<think>hm</think>42", "So"), "the content holds <think>"),
        (answered("42", "So</think>"), "the reasoning holds </think>"),
        (answered("</think> ends it", "It is asked what ends it", body={"messages": "what is </think>"}), None),
        (answered(breaches=[Breach("P08", "HTTP 500")], answered=False), "HTTP 500"),
    ],
)
def test_a_thought_and_an_answer_apart(answer, says):
    problem = thinking.apart_problem(answer)
    assert problem is None if says is None else says in (problem or "")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered("42"), None),
        (answered("", "", ToolCall("c", "w", "{}")), None),
        (answered("42", "Six times"), "there is reasoning: 'Six times'"),
        (answered("", "42"), "and the content is empty"),
        (answered("</think>\n42"), "the content holds </think>"),
    ],
)
def test_no_thought_when_thinking_is_off(answer, says):
    problem = thinking.silent_problem(answer)
    assert problem is None if says is None else says in (problem or "")


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("answer", "on", "says"),
    [
        (answered('{"a": 1}', "They want a."), True, None),
        (answered('{"a": 1}'), False, None),
        (answered('{"a": 1}', "They want a."), False, "thinking is off"),
        (answered("", '{"a": 1}'), True, "the JSON is in the reasoning"),
        (answered('{"a": 1}', '{"a": 1}'), True, "is the JSON itself"),
        (answered('{"a": "1"}', "Hm."), True, "breaks the schema"),
        (answered('{"a": 1', "Hm."), True, "not JSON"),
    ],
)
def test_json_beside_a_thought(answer, on, says):
    problem = thinking.json_problem(answer, SCHEMA, thinking=on)
    assert problem is None if says is None else says in (problem or "")


NAMED = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
REQUIRED = {"tool_choice": "required"}
OSLO, RECORDED = ToolCall("c", "get_weather", '{"city": "Oslo"}'), ToolCall("c", "lookup_record", '{"record_id": "1"}')


@pytest.mark.parametrize(
    ("answer", "right_one"),
    [
        (answered("", "", OSLO, body=NAMED, finish_reason="stop"), True),
        (answered("", "", RECORDED, body=REQUIRED), True),
        (answered("", "", RECORDED, body=NAMED), False),
        (answered("It is cold.", body=REQUIRED), False),
        (answered("", "", ToolCall("c", "get_weather", '{"town": "Oslo"}'), body=REQUIRED), False),
        (answered("", "", ToolCall("c", "rm_rf", "{}"), body=REQUIRED), False),
    ],
)
def test_a_forced_call_is_valid(answer, right_one):
    assert (thinking.forced_problem(answer) is None) == right_one


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered("It is 42.", "Six times seven END7 done"), None),
        (answered("", "Six times seven "), "ended the thought"),
        (answered("", "Six times seven is 42. END7"), None),  # the model began its answer with the stop string
        (answered("", "Six times seven", finish_reason="length"), "before max_tokens"),
        (answered("/think>", "Six times"), "the rest of a delimiter"),
        (answered("42 END7", "Six"), "stands in the content"),
        (answered("42"), "there is no reasoning"),
    ],
)
def test_a_stop_string_in_the_thought_ends_nothing(answer, says):
    problem = thinking_edges.stop_problem(answer, "END7")
    assert problem is None if says is None else says in (problem or "")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered("", "Step by step", finish_reason="length"), None),
        (answered("The", "Short", finish_reason="length"), None),
        (answered("Step by step", finish_reason="length"), "it stands in the content"),
        (answered("", finish_reason="length"), "it is lost"),
        (answered("", "Step"), "expected length"),
        (answered("<think>Step", finish_reason="length"), "the content holds <think>"),
    ],
)
def test_a_thought_that_max_tokens_cuts(answer, says):
    problem = thinking_edges.cut_problem(answer)
    assert problem is None if says is None else says in (problem or "")


def usage(reasoning: int | None, completion: int = 20) -> dict[str, Any]:
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return {"document": {"usage": {"completion_tokens": completion} | details}, "usage": Usage(5, completion, None)}


@pytest.mark.parametrize(
    ("answer", "count", "says"),
    [
        (answered("42", "Six", **usage(9)), 9, None),
        (answered("42", **usage(0)), 0, None),
        (answered("42", "Six", **usage(None)), None, None),
        (answered("42", "Six", **usage(0)), 0, "there is reasoning"),
        (answered("42", **usage(9)), 9, "there is no reasoning"),
        (answered("42", "Six", **usage(30)), 30, "30 reasoning tokens of 20"),
    ],
)
def test_reasoning_tokens_fit_what_came(answer, count, says):
    assert thinking_edges.reasoning_tokens(answer) == count
    problem = thinking_edges.count_problem(answer, count) if count is not None else None
    assert problem is None if says is None else says in (problem or "")


@pytest.mark.parametrize(
    ("content", "inside"),
    [
        ("Okay, the user wants the weather. I should call", True),
        ("Hmm, so the user is asking for a sum.", True),
        ("The user asks what a tide is, so", True),
        ("Okay! Here is your sum: 42.", False),
        ("The user manual says 42.", False),
        ("42", False),
    ],
)
def test_answers_that_begin_inside_a_thought(content, inside):
    assert thinking_edges.begins_mid_thought(content) == inside


def test_the_answer_of_a_problem_is_not_in_its_question():
    asked = [problems.problem(SAMPLE.asked(variant=number).rng()) for number in range(300)]
    assert len({question.text for question in asked}) > 250
    for question in asked:
        if "older" not in question.text:
            assert not right(question.answer, question.text), question


def test_forced_calls_need_one_of_the_two_choices():
    needs = find("T04").needs
    assert "neither required nor named" in (needs(Capability(thinking="switch")) or "")
    assert needs(Capability(thinking="switch", named=True)) is None
    assert "context" in (find("T08").needs(Capability(thinking="always", max_context_tokens=2048)) or "")
