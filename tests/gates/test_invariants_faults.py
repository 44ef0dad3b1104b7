"""What an answer breaks once it is held against what was asked: each rule, and whose fault it can be."""

from __future__ import annotations

from typing import Any

import pytest
from gate_kit import DONE, FIRST, chunk, event, streamed, whole

from gates import accounting, invariants
from gates.capability import Capability
from gates.reply import Reply, Usage, read_reply
from gates.toolwire import ToolCall

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
STRICT = {"type": "function", "function": {"name": "get_weather", "parameters": CITY, "strict": True}}
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 256,
    "messages": [{"role": "user", "content": "Weather in Oslo?"}],
    "tools": [WEATHER],
    "stream": True,
    "stream_options": {"include_usage": True},
}
NAMED = BODY | {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
REQUIRED = BODY | {"tool_choice": "required"}
OSLO = '{"city": "Oslo"}'


def reply(
    arguments: str | None = None,
    finish: str = "tool_calls",
    *,
    name: str = "get_weather",
    used: int = 30,
    call_id: str = "call_1",
    **more: Any,
) -> Reply:
    calls = (ToolCall(call_id, name, arguments),) if arguments is not None else ()
    return Reply(True, model="m", calls=calls, finish_reason=finish, usage=Usage(20, used, None), **more)


def broken(answer: Reply, body: dict[str, Any] = BODY, **declared: Any) -> set[tuple[str, bool]]:
    """Rules and whether a model alone can break them."""
    return {(b.rule, b.by_model) for b in invariants.breaches(answer, body, Capability(**declared))}


@pytest.mark.parametrize(
    ("answer", "body", "expected"),
    [
        (reply('{"city": 7}'), BODY, {("J20", True)}),
        (reply("{}"), BODY, {("J20", True)}),
        (reply("{}"), REQUIRED, {("J20", False)}),
        (reply("{}"), NAMED, {("J20", False)}),
        (reply("{}"), BODY | {"tools": [STRICT]}, {("J20", False)}),
        (reply('{"city": "Os'), BODY, {("J20", True)}),
        (reply('{"city": "Os', "length"), BODY, set()),
        (reply(OSLO, name="get_water"), BODY, {("J25", True)}),
        (reply(OSLO, name="get_water"), REQUIRED, {("J25", False)}),
        (reply(OSLO), BODY | {"tools": [{"type": "function", "function": {"name": "get_weather"}}]}, set()),
        (
            reply(OSLO),
            BODY | {"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": 3}}]},
            set(),
        ),
    ],
)
def test_calls_against_what_was_offered(answer: Reply, body: dict[str, Any], expected: set[tuple[str, bool]]) -> None:
    assert broken(answer, body) == expected


@pytest.mark.parametrize(
    ("body", "finish", "declared", "expected"),
    [
        (BODY, "tool_calls", {}, set()),
        (BODY, "stop", {}, {("P03", False)}),
        (NAMED, "stop", {}, set()),
        (NAMED, "tool_calls", {}, set()),
        (NAMED, "tool_calls", {"finish_named": "stop"}, {("P03", False)}),
        (NAMED, "stop", {"finish_named": "tool_calls"}, {("P03", False)}),
        (REQUIRED, "stop", {}, set()),
        (REQUIRED, "stop", {"finish_required": "tool_calls"}, {("P03", False)}),
        (REQUIRED, "length", {"finish_required": "tool_calls"}, set()),
    ],
)
def test_how_an_answer_with_a_call_ends(
    body: dict[str, Any], finish: str, declared: dict[str, Any], expected: set[tuple[str, bool]]
) -> None:
    assert broken(reply(OSLO, finish), body, **declared) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply('{"city": "Os', "tool_calls", used=256), {("P03", False), ("J20", True)}),
        (reply(OSLO, "tool_calls", used=256, content="w " * 90), set()),
        (
            reply(None, "stop", used=256, content="and so the story of the old harbour went on until the " * 6),
            {("P03", True)},
        ),
        (reply(None, "length", used=256, content="and so the story of the old harbour went on until the " * 6), set()),
        (reply(None, "stop", used=256, content="and so the story of the old harbour went on. " * 6), set()),
        (reply(None, "tool_calls"), {("P03", False)}),
    ],
)
def test_the_end_of_the_budget(answer: Reply, expected: set[tuple[str, bool]]) -> None:
    found = {one for one in broken(answer) if one[0] not in ("O02", "P07")}
    assert found == expected


def test_ids_of_the_history_are_taken() -> None:
    def having(call_id: str) -> dict[str, Any]:
        call = {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": OSLO}}
        return BODY | {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}

    assert broken(reply(OSLO), having("call_0")) == set()
    assert broken(reply(OSLO), having("call_1")) == {("P04", False)}
    made_by_model = "functions.get_weather:0"
    assert broken(reply(OSLO, call_id=made_by_model), having(made_by_model)) == {("P04", True)}


@pytest.mark.parametrize(
    ("answer", "body", "swallowed"),
    [
        (reply(None, "stop", used=136, content="The literal marker"), BODY, True),
        (reply(None, "stop", used=60), BODY, True),
        (reply(None, "stop", used=20), BODY, False),
        (reply(None, "length", used=256), BODY, False),
        (reply(None, "length", used=256), {k: v for k, v in BODY.items() if k != "tools"}, True),
        (reply(OSLO, used=60), BODY, False),
        (reply(OSLO, used=200), BODY, True),
        (reply(None, "stop", used=200, content="word " * 160), BODY, False),
        (reply(None, "stop", used=200, content="天気" * 60), BODY, False),
        (reply(None, "stop", used=200, content="👩🏽‍🚀" * 15), BODY, False),
        (reply(None, "stop", used=120, content="5.", reasoning="word " * 60), BODY, False),
    ],
)
def test_tokens_that_nobody_saw(answer: Reply, body: dict[str, Any], swallowed: bool) -> None:
    found = [one for one in accounting.breaches(answer, body) if one.by_model]
    assert bool(found) is swallowed
    assert not swallowed or "the rest was swallowed" in found[0].sentence


def test_thoughts_kept_back_and_said_so_are_not_swallowed() -> None:
    answer = Reply(True, content="42.", finish_reason="stop", usage=Usage(9, 300, None, reasoning_tokens=290))
    assert accounting.breaches(answer, BODY | {"max_tokens": 512}) == []


@pytest.mark.parametrize(
    ("usages", "said"),
    [
        ([{"prompt_tokens": 7, "completion_tokens": 5}, {"prompt_tokens": 7, "completion_tokens": 3}], "shrink"),
        ([{"prompt_tokens": 7, "completion_tokens": 1}, {"prompt_tokens": 8, "completion_tokens": 3}], "change"),
        ([{"prompt_tokens": 7}], "lacks"),
        ([{"prompt_tokens": 7, "completion_tokens": 0}], "0 completion tokens"),
        ([None], "never came"),
        ([{"prompt_tokens": 7, "completion_tokens": 3}], None),
        ([{"prompt_tokens": 7, "completion_tokens": 1}, {"prompt_tokens": 7, "completion_tokens": 3}], None),
    ],
)
def test_usage_in_a_stream(usages: list[Any], said: str | None) -> None:
    chunks = [chunk({"content": "Hi"}, usage=usage) for usage in usages]
    answer = read_reply(streamed(FIRST, *chunks, chunk({}, "stop"), DONE), streamed=True)
    found = [breach.sentence for breach in invariants.breaches(answer, BODY) if breach.rule == "P07"]
    assert bool(found) is (said is not None), found
    assert said is None or said in found[0]


def test_usage_that_nobody_asked_for_may_be_missing() -> None:
    answer = read_reply(streamed(FIRST, chunk({"content": "Hi"}, "stop"), DONE), streamed=True)
    assert invariants.breaches(answer, {k: v for k, v in BODY.items() if k != "stream_options"}) == ()


def test_a_broken_stream_is_one_finding() -> None:
    broken_off = streamed(FIRST, chunk({"content": "Hi"}), event({"error": {"message": "boom"}}), DONE)
    answer = read_reply(broken_off, streamed=True)
    assert [breach.rule for breach in invariants.breaches(answer, BODY)] == ["P08"]


@pytest.mark.parametrize(
    ("answer", "declared", "expected"),
    [
        (reply(None, "stop", content="Yes.", reasoning='<tool_call>{"name": "x"}'), {}, {("T14", True)}),
        (reply(OSLO, reasoning="I could write <tool_call> here."), {}, set()),
        (reply(None, "stop", content="a </think> b"), {}, {("P11", True)}),
        (reply(OSLO, call_id="call_<|im_end|>"), {}, {("P11", True)}),
        (reply('{"city": "caf\ufffd"}'), {}, {("O04", True)}),
        (reply('{"city": "Krak\u00c3\u00b3w"}'), {}, {("O04", True)}),
    ],
)
def test_what_a_model_may_do_by_itself(
    answer: Reply, declared: dict[str, Any], expected: set[tuple[str, bool]]
) -> None:
    assert broken(answer, BODY, **declared) == expected


def late_thought() -> Reply:
    parts = [FIRST, chunk({"content": "Hello"}), chunk({"reasoning": "Hm"}), chunk({}, "stop")]
    return read_reply(streamed(*parts, chunk(usage={"prompt_tokens": 7, "completion_tokens": 3}), DONE), streamed=True)


def test_thinking_in_between_is_allowed_where_it_is_declared() -> None:
    assert broken(late_thought()) == {("T07", False)}
    assert broken(late_thought(), interleaved_reasoning=True) == set()


def test_the_rest_of_a_thought_in_the_last_chunk() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "get_weather", "arguments": OSLO}}
    parts = [FIRST, chunk({"reasoning": "Now I will"}), chunk({"tool_calls": [call]})]
    parts += [
        chunk({"content": " call it."}, "tool_calls"),
        chunk(usage={"prompt_tokens": 7, "completion_tokens": 30}),
        DONE,
    ]
    assert broken(read_reply(streamed(*parts), streamed=True)) == {("T07", False)}


@pytest.mark.parametrize(
    ("function", "more", "rules"),
    [
        ({"name": "get_weather", "arguments": None}, {"type": "function"}, {"P04", "J20"}),
        ({"name": "get_weather", "arguments": ""}, {"type": "function"}, {"J20"}),
        ({"name": "get_weather", "arguments": OSLO}, {}, {"P04"}),
        ({"name": "get_weather", "arguments": OSLO}, {"type": "function"}, set()),
    ],
)
def test_the_first_delta_of_a_call(function: dict[str, Any], more: dict[str, Any], rules: set[str]) -> None:
    parts = [FIRST, chunk({"tool_calls": [{"index": 0, "id": "c", **more, "function": function}]})]
    parts += [chunk({}, "tool_calls"), chunk(usage={"prompt_tokens": 7, "completion_tokens": 30}), DONE]
    found = {rule for rule, by_model in broken(read_reply(streamed(*parts), streamed=True)) if not by_model}
    assert found == rules


def test_a_whole_call_without_its_type() -> None:
    call = {"id": "c", "function": {"name": "get_weather", "arguments": OSLO}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 7, "completion_tokens": 30}
    document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    assert broken(read_reply(whole(document), streamed=False), BODY | {"stream": False}) == {("P06", False)}
