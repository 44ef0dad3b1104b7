"""Wire shapes: what a healthy engine may send, and what none may."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gate_kit import DONE, END, FIRST, USAGE, chunk, event, rules_broken, streamed, whole
from hypothesis import given
from hypothesis import strategies as st

from gates import invariants
from gates.reply import Reply, read_reply
from gates.wire import Exchange

BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": name}} for name in ("get_weather", "f")],
    "stream": True,
    "stream_options": {"include_usage": True},
}


def tool(index: int = 0, **fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"tool_calls": [{"index": index, **fields, **({"function": function} if function else {})}]}


CALLED = tool(id="call_1", type="function", name="get_weather", arguments="")
ARGUMENTS = chunk(tool(arguments='{"city": ')) + chunk(tool(arguments='"Oslo"}'))


def read(*parts: bytes, piece_bytes: int | None = None) -> Reply:
    return read_reply(streamed(*parts, piece_bytes=piece_bytes), streamed=True)


HEALTHY = {
    "text": [FIRST, chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), END],
    "finish in the last text": [FIRST, chunk({"content": "Hello"}, "stop"), END],
    "comments between": [b": ping\n\n", FIRST, b": ping\n\n", chunk({"content": "Hello"}), chunk({}, "stop"), END],
    "crlf": [part.replace(b"\n", b"\r\n") for part in (FIRST, chunk({"content": "Hello"}), chunk({}, "stop"), END)],
    "usage on every chunk": [
        chunk({"role": "assistant", "content": ""}, usage=USAGE),
        chunk({"content": "Hello"}, usage=USAGE),
        chunk({}, "stop", usage=USAGE),
        END,
    ],
    "usage in the finish chunk": [FIRST, chunk({"content": "Hello"}), chunk({}, "stop", usage=USAGE), DONE],
    "role repeated": [FIRST, chunk({"role": "assistant", "content": "Hello"}), chunk({}, "stop"), END],
    "reasoning field of old": [FIRST, chunk({"reasoning_content": "Hm"}), chunk({"content": "Hello"}, "stop"), END],
    "nulls everywhere": [
        chunk({"role": "assistant", "content": None, "tool_calls": None, "reasoning_content": None}),
        chunk({"role": None, "content": "Hello", "tool_calls": None}),
        chunk({"content": None}, "stop"),
        END,
    ],
}
HEALTHY_CALLS = {
    "vllm": [FIRST, chunk(CALLED), ARGUMENTS, chunk({}, "tool_calls"), END],
    "sglang: explicit nulls later": [
        FIRST,
        chunk(CALLED),
        chunk(tool(id=None, type="function", name=None, arguments='{"city": "Oslo"}')),
        chunk({}, "tool_calls"),
        END,
    ],
    "name and brace together": [
        FIRST,
        chunk(tool(id="c", type="function", name="get_weather", arguments="{")),
        chunk(tool(arguments='"city": "Oslo"}')),
        chunk({}, "tool_calls"),
        END,
    ],
    "whole call in one delta": [
        FIRST,
        chunk(tool(id="c", type="function", name="get_weather", arguments='{"city":"Oslo"}'), "tool_calls"),
        END,
    ],
}


@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy_text_breaks_no_rule(shape: str) -> None:
    reply = read(*HEALTHY[shape])
    assert invariants.breaches(reply, BODY) == ()
    assert reply.content == "Hello"
    assert (reply.finish_reason, reply.usage and reply.usage.completion_tokens) == ("stop", 3)


@pytest.mark.parametrize("shape", HEALTHY_CALLS)
def test_healthy_calls_break_no_rule(shape: str) -> None:
    reply = read(*HEALTHY_CALLS[shape])
    assert invariants.breaches(reply, BODY) == ()
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [("get_weather", {"city": "Oslo"})]


@given(st.integers(1, 40), st.sampled_from(sorted(HEALTHY_CALLS)))
def test_where_the_bytes_are_cut_changes_nothing(piece_bytes: int, shape: str) -> None:
    cut, uncut = read(*HEALTHY_CALLS[shape], piece_bytes=piece_bytes), read(*HEALTHY_CALLS[shape])
    assert (cut.calls, cut.breaches, cut.finish_reason) == (uncut.calls, uncut.breaches, uncut.finish_reason)


DRIFT = "慢慢地改变了新的道路 图书馆里的人总是记得旧日的故事 清晨的河流静静地守着那扇窗 远处的山常常需要一盏灯 "
SECOND = tool(1, id="call_2", type="function", name="get_weather", arguments='{"city": "Rome"}')
BROKEN = {
    "no done": ("P01", [FIRST, chunk({"content": "Hi"}, "stop"), chunk(usage=USAGE)]),
    "after done": ("P01", [FIRST, chunk({"content": "Hi"}, "stop"), END, chunk({"content": "!"})]),
    "not json": ("P01", [FIRST, event(b"{oops"), chunk({"content": "Hi"}, "stop"), END]),
    "no event": ("P01", [FIRST, b"Internal error\n\n", chunk({"content": "Hi"}, "stop"), END]),
    "no number": ("P01", [FIRST, chunk({"content": "Hi"}, "stop", took=float("nan")), END]),
    "no id of an answer": ("P01", [FIRST, chunk({"content": "Hi"}, "stop", id=None), END]),
    "no time": ("P01", [FIRST, chunk({"content": "Hi"}, "stop", created=None), END]),
    "two ids": ("P01", [FIRST, chunk({"content": "Hi"}, "stop", id="c2"), END]),
    "role": ("P02", [chunk({"role": "user", "content": "Hi"}, "stop"), END]),
    "no finish": ("P03", [FIRST, chunk({"content": "Hi"}), END]),
    "two finishes": ("P03", [FIRST, chunk({"content": "Hi"}, "stop"), chunk({}, "stop"), END]),
    "text after finish": ("P03", [FIRST, chunk({}, "stop"), chunk({"content": "Hi"}), END]),
    "odd finish": ("P03", [FIRST, chunk({"content": "Hi"}, "abort"), END]),
    "calls without a call": ("P03", [FIRST, chunk({"content": "Hi"}, "tool_calls"), END]),
    "stop with a call": ("P03", [FIRST, chunk(CALLED), ARGUMENTS, chunk({}, "stop"), END]),
    "no id": ("P04", [FIRST, chunk(tool(name="f", arguments="{}")), chunk({}, "tool_calls"), END]),
    "no name": ("P04", [FIRST, chunk(tool(id="c", arguments="{}")), chunk({}, "tool_calls"), END]),
    "first index is 1": ("P04", [FIRST, chunk(SECOND), chunk({}, "tool_calls"), END]),
    "arguments as object": (
        "P04",
        [FIRST, chunk(tool(id="c", name="f", arguments={"a": 1})), chunk({}, "tool_calls"), END],
    ),
    "one id for two": (
        "P04",
        [
            FIRST,
            chunk(CALLED),
            ARGUMENTS,
            chunk({"tool_calls": [SECOND["tool_calls"][0] | {"id": "call_1"}]}),
            chunk({}, "tool_calls"),
            END,
        ],
    ),
    "name repeated": (
        "P05",
        [
            FIRST,
            chunk(CALLED),
            chunk(tool(name="get_weather", arguments='{"city": "Oslo"}')),
            chunk({}, "tool_calls"),
            END,
        ],
    ),
    "complete too early": (
        "P05",
        [
            FIRST,
            chunk(CALLED),
            chunk(tool(arguments="{}")),
            chunk(tool(arguments='{"city": "Oslo"}')),
            chunk({}, "tool_calls"),
            END,
        ],
    ),
    "no usage": ("P07", [FIRST, chunk({"content": "Hi"}, "stop"), DONE]),
    "over budget": (
        "P07",
        [FIRST, chunk({"content": "Hi"}, "stop"), chunk(usage=USAGE | {"completion_tokens": 65}), DONE],
    ),
    "negative total": (
        "P07",
        [FIRST, chunk({"content": "Hi"}, "stop"), chunk(usage=USAGE | {"total_tokens": -1}), DONE],
    ),
    "total below its parts": (
        "P07",
        [FIRST, chunk({"content": "Hi"}, "stop"), chunk(usage=USAGE | {"total_tokens": 9}), DONE],
    ),
    "error inside": ("P08", [FIRST, event({"error": {"message": "CUDA error"}}), DONE]),
    "nothing": ("P08", [DONE]),
    "think tag": ("P11", [FIRST, chunk({"content": "</think>Hi"}, "stop"), END]),
    "end token": ("P11", [FIRST, chunk({"content": "Hi<|im_end|>"}, "stop"), END]),
    "end of sentence": ("P11", [FIRST, chunk({"content": "Hi</s>"}, "stop"), END]),
    "padding in front": ("P11", [FIRST, chunk({"content": "<pad>Hi"}, "stop"), END]),
    "a token of no table": ("P11", [FIRST, chunk({"content": "Hi<|eot|>\n"}, "stop"), END]),
    "tag in arguments": (
        "P11",
        [FIRST, chunk(tool(id="c", name="f", arguments='{"a": "x</tool_call>"}')), chunk({}, "tool_calls"), END],
    ),
    "another model": ("P17", [chunk({"role": "assistant", "content": "Hi"}, "stop", model="other"), END]),
    "another model later on": ("P17", [FIRST, chunk({"content": "Hi"}, "stop", model="other"), END]),
    "unknown tool": (
        "J25",
        [
            FIRST,
            chunk(tool(id="c", type="function", name="sail", arguments="{}")),
            chunk({}, "tool_calls"),
            END,
        ],
    ),
    "thinks after talking": (
        "T07",
        [FIRST, chunk({"content": "Hi"}), chunk({"reasoning": "Hm"}), chunk({}, "stop"), END],
    ),
    "call in the thoughts": (
        "T14",
        [FIRST, chunk({"reasoning": 'Hm <tool_call>{"name": "f"}'}), chunk({"content": "Hi"}, "stop"), END],
    ),
    "loop": ("O02", [FIRST, chunk({"content": "the cat sat. " * 60}, "stop"), END]),
    "replacement character": ("O04", [FIRST, chunk({"content": "caf\ufffd"}, "stop"), END]),
    "NUL": ("O04", [FIRST, chunk({"content": "Hi\x00 you"}, "stop"), END]),
    "ANSI colours in a thought": (
        "O04",
        [FIRST, chunk({"reasoning": "\x1b[31mHm"}), chunk({"content": "Hi"}, "stop"), END],
    ),
    "no width at the end": ("O04", [FIRST, chunk({"content": "Hi\u200b "}, "stop"), END]),
    "drift into another script": ("O17", [FIRST, chunk({"content": "The river " + DRIFT}, "stop"), END]),
    "invalid utf-8": ("O04", [FIRST, chunk({"content": "X"}, "stop").replace(b'"X"', b'"\xff\xfe"'), END]),
    "a name twice": (
        "J20",
        [FIRST, chunk(CALLED), chunk(tool(arguments='{"city": "Oslo", "city": "Rome"}')), chunk({}, "tool_calls"), END],
    ),
    "arguments cut": (
        "J20",
        [FIRST, chunk(CALLED), chunk(tool(arguments='{"city": "Os')), chunk({}, "tool_calls"), END],
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_each_fault_breaks_its_rule(fault: str) -> None:
    rule, parts = BROKEN[fault]
    assert rule in rules_broken(invariants.breaches(read(*parts), BODY))


def test_every_rule_has_a_fault_that_breaks_it() -> None:
    in_whole_answers_only, between_answers_only = {"P06"}, {"O06"}
    assert {rule for rule, _ in BROKEN.values()} | in_whole_answers_only | between_answers_only == set(invariants.RULES)


MESSAGE = {"role": "assistant", "content": "Hello"}


def completion(message: Any = None, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": MESSAGE if message is None else message, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": USAGE, **more}


def whole_call(**function: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"} | function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_a_healthy_whole_answer_breaks_no_rule() -> None:
    for document in (completion(), completion(whole_call(), "tool_calls"), completion(MESSAGE | {"tool_calls": []})):
        assert invariants.breaches(read_reply(whole(document), streamed=False), BODY) == ()


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ({"choices": []}, "P06"),
        ([], "P06"),
        (b"hello", "P06"),
        (completion(MESSAGE | {"role": "bot"}), "P06"),
        (completion(MESSAGE | {"content": ["a"]}), "P06"),
        (completion(finish=None), "P06"),
        (completion(whole_call(arguments={"a": 1}), "tool_calls"), "P06"),
        (completion(whole_call(), "stop"), "P06"),
        (completion(usage=None), "P07"),
        (completion(took=float("-inf")), "P06"),
        (completion(object="list"), "P06"),
        (completion(id=""), "P06"),
        (completion(created="now"), "P06"),
        (completion(usage=USAGE | {"total_tokens": -10}), "P07"),
        ({"error": {"message": "boom"}}, "P08"),
        (completion(MESSAGE | {"content": "<think>Hm</think>Hello"}), "P11"),
    ],
)
def test_broken_whole_answers(document: Any, rule: str) -> None:
    assert rule in rules_broken(invariants.breaches(read_reply(whole(document), streamed=False), BODY))


@pytest.mark.parametrize("kind", ["text/plain", ""])
def test_a_whole_answer_that_does_not_say_it_is_json(kind: str) -> None:
    exchange = replace(whole(completion()), headers=(("Content-Type", kind),) if kind else ())
    assert rules_broken(invariants.breaches(read_reply(exchange, streamed=False), BODY)) == {"P06"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("Answer in Chinese: write about rivers.", DRIFT),
        ("How is 慢慢 used?", DRIFT),
        ("How do I strike out a word?", "<s>gone</s>"),
        ("What ends a text for Llama 2?", "It ends at </s>, and that is all."),
        ("Send back </s>", "</s>"),
        ("Send back a\x00b", "a\x00b"),
        ("Write some Persian.", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("Which family emoji is it?", "👨\u200d👩\u200d👧"),
        ("A table, please", "a\tb\r\nc\td"),
        ("How does F# pipe?", "x <| f |> g"),
        ("Name a river.", "The Huang He (黄河) is the second longest of China."),
    ],
)
def test_signs_and_scripts_that_have_their_reason(asked: str, said: str) -> None:
    body = BODY | {"messages": [{"role": "user", "content": asked}]}
    reply = read(FIRST, chunk({"content": said}, "stop"), END)
    assert invariants.breaches(reply, body) == ()


def test_a_marker_that_was_asked_about_may_come_back() -> None:
    body = BODY | {"messages": [{"role": "user", "content": "What does <think> mean?"}]}
    reply = read(FIRST, chunk({"content": "<think> opens a thought"}, "stop"), END)
    assert invariants.breaches(reply, body) == ()


def test_the_message_goes_back_into_the_history_as_it_came() -> None:
    reply = read(FIRST, chunk({"reasoning": "Hm"}), chunk(CALLED), ARGUMENTS, chunk({}, "tool_calls"), END)
    assert reply.message() == {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        ],
    }


def test_only_text_and_calls_advance_the_clock() -> None:
    reply = read(
        FIRST, chunk({"content": ""}), chunk({"reasoning": "a"}), chunk({"content": "b"}), chunk({}, "stop"), END
    )
    assert reply.token_times_s == (0.002, 0.003)


@given(st.binary(max_size=300), st.booleans())
def test_any_body_is_read_without_an_exception(body: bytes, as_stream: bool) -> None:
    exchange: Exchange = streamed(b"data: " + body) if as_stream else whole(body)
    invariants.breaches(read_reply(exchange, streamed=as_stream), BODY)
