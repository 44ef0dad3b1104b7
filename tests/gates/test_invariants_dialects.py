"""Healthy traffic of every dialect breaks no rule: written by hand as the engines write it, differences and all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gate_kit import DONE, event, streamed, whole

from gates import invariants
from gates.capability import Capability
from gates.reply import Reply, read_reply

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f", None]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "get_server_time", "parameters": {"type": "object", "properties": {}}}},
]
QUESTION = [{"role": "user", "content": "What is the weather in Oslo, and what time is it?"}]
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 256,
    "messages": QUESTION,
    "tools": TOOLS,
    "stream_options": {"include_usage": True},
}
NAMED = BODY | {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
REQUIRED = BODY | {"tool_choice": "required"}
USAGE = {"prompt_tokens": 90, "completion_tokens": 24, "total_tokens": 114}
VLLM_ID = "chatcmpl-tool-0f2d1c3b4a5968778695a4b3c2d1e0f0"


def part(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk; without `delta` it is the one of the usage, which has no choice."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event(chunk | {"choices": [] if delta is None else [choice]} | more)


def opening(index: int, call_id: str, name: str, arguments: str = "", **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}], **more}


def going_on(index: int, arguments: str, **nulls: Any) -> dict[str, Any]:
    name = {"name": nulls.pop("name")} if "name" in nulls else {}
    return {"tool_calls": [{"index": index, **nulls, "function": {**name, "arguments": arguments}}]}


END = part(None, usage=USAGE) + DONE
FIRST = part({"role": "assistant", "content": ""})

STREAMS: dict[str, tuple[dict[str, Any], list[bytes]]] = {
    "vllm: thought, then a call in pieces": (
        BODY,
        [
            FIRST,
            part({"reasoning": "Oslo, "}),
            part({"reasoning": "then."}),
            part(opening(0, VLLM_ID, "get_weather")),
            part(going_on(0, '{"city": ')),
            part(going_on(0, '"Oslo"}')),
            part({}, "tool_calls", stop_reason=None),
            END,
        ],
    ),
    "vllm: named ends with stop": (
        NAMED,
        [FIRST, part(opening(0, VLLM_ID, "get_weather", '{"city":"Oslo"}')), part({}, "stop"), END],
    ),
    "vllm: both names of the reasoning, the same text": (
        BODY,
        [
            FIRST,
            part({"reasoning": "Hm.", "reasoning_content": "Hm."}),
            part({"content": "Yes."}),
            part({}, "stop"),
            END,
        ],
    ),
    "vllm: usage with every chunk": (
        BODY,
        [
            part({"role": "assistant", "content": ""}, usage=USAGE | {"completion_tokens": 0}),
            part({"content": "It is"}, usage=USAGE | {"completion_tokens": 2}),
            part({"content": " five."}, usage=USAGE | {"completion_tokens": 4}),
            part({"content": ""}, "stop", usage=USAGE | {"completion_tokens": 5}),
            part(None, usage=USAGE | {"completion_tokens": 5}),
            DONE,
        ],
    ),
    "sglang: every key in every delta": (
        BODY,
        [
            part({"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}),
            part({"role": None, "content": None, "reasoning_content": "Two calls.", "tool_calls": None}),
            part(
                {"role": None, "content": None, "reasoning_content": None}
                | opening(0, "call_0123456789abcdef01234567", "get_weather"),
                matched_stop=None,
            ),
            part(
                {"role": None, "content": None} | going_on(0, '{"city": "Oslo"}', id=None, name=None, type="function")
            ),
            part({"role": None, "content": None} | opening(1, "call_76543210fedcba9876543210", "get_server_time")),
            part({"role": None, "content": None} | going_on(1, "{}", id=None, name=None, type="function")),
            part({"role": None, "content": None, "reasoning_content": None}, "tool_calls"),
            part(None, usage=USAGE | {"reasoning_tokens": 3}),
            DONE,
        ],
    ),
    "sglang: named ends with tool_calls": (
        NAMED,
        [FIRST, part(opening(0, "call_1", "get_weather", '{"city": "Oslo"}')), part({}, "tool_calls"), END],
    ),
    "llama.cpp: name and brace in one delta, content null": (
        BODY,
        [
            part({"role": "assistant", "content": None}),
            part(opening(0, "pVmbJT8sVYDmnWHmgHtnvqPLkZUoIsqD", "get_weather", '{"')),
            part(going_on(0, 'city":"Oslo"')),
            part(going_on(0, "}")),
            part({}, "tool_calls"),
            part(None, usage=USAGE, timings={"prompt_n": 1}),
            DONE,
        ],
    ),
    "smg: nulls skipped, role repeated, comments between": (
        BODY,
        [
            b": ping\n\n",
            part({"role": "assistant"}),
            part({"role": "assistant", "reasoning_content": "Hm."}),
            b": ping\n\n",
            part({"role": "assistant", "content": "One moment."}),
            part({"role": "assistant"} | opening(0, "call_9f8e7d6c5b4a39281706f5e4", "get_weather", '{"city":"Oslo"}')),
            part({}, "tool_calls"),
            END,
        ],
    ),
    "whole call and end in one chunk, content empty beside it": (
        REQUIRED,
        [part({"role": "assistant"} | opening(0, "c", "get_server_time", "{}", content=""), "tool_calls"), END],
    ),
    "blanks between thought and call": (
        BODY,
        [
            FIRST,
            part({"reasoning_content": "Hm."}),
            part({"content": "\n\n"}),
            part(opening(0, "c", "get_server_time", "{}")),
            part({}, "tool_calls"),
            END,
        ],
    ),
    "an empty content chunk before the call": (
        BODY,
        [FIRST, part({"content": ""}), part(opening(0, "c", "get_server_time", "{}")), part({}, "tool_calls"), END],
    ),
    "arguments in one chunk at the end, keys in another order, optional null": (
        BODY,
        [
            FIRST,
            part(opening(0, "c", "get_weather")),
            part(going_on(0, '{"unit":null,"city":"Oslo"}\n')),
            part({}, "tool_calls"),
            END,
        ],
    ),
    "kimi: an id made of name and number": (
        BODY,
        [
            FIRST,
            part(opening(0, "functions.get_weather:0", "get_weather", '{"city":"Oslo"}')),
            part({}, "tool_calls"),
            END,
        ],
    ),
    "cut in the middle of a call": (
        BODY | {"max_tokens": 8},
        [
            FIRST,
            part(opening(0, "c", "get_weather")),
            part(going_on(0, '{"city": "Os')),
            part({}, "length"),
            part(None, usage=USAGE | {"completion_tokens": 8}),
            DONE,
        ],
    ),
    "a sentence, no thought": (BODY, [FIRST, part({"content": "It is five o'clock."}), part({}, "stop"), END]),
    "nothing but an end": (BODY, [FIRST, part({}, "stop"), part(None, usage=USAGE | {"completion_tokens": 1}), DONE]),
}


def called(call_id: str, arguments: str = '{"city": "Oslo"}', **more: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


WHOLE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "vllm: nulls written out, no calls as an empty list": (
        BODY,
        {
            "role": "assistant",
            "content": "Five.",
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": None,
        },
        "stop",
    ),
    "vllm: named ends with stop, content empty": (NAMED, called(VLLM_ID, content=""), "stop"),
    "vllm before 0.12: required ends with stop": (REQUIRED, called(VLLM_ID, content=""), "stop"),
    "sglang: reasoning null, calls null": (
        BODY,
        {"role": "assistant", "content": "Five.", "reasoning_content": None, "tool_calls": None},
        "stop",
    ),
    "sglang: call beside a thought": (BODY, called("call_0123", reasoning_content="Oslo."), "tool_calls"),
    "llama.cpp: absent keys": (BODY, {"role": "assistant", "content": "Five."}, "stop"),
    "smg: a thought and a call": (BODY, called("call_1", reasoning_content="Oslo.", content="So:"), "tool_calls"),
    "spaces and order of arguments do not matter": (BODY, called("c", '{"unit" :"c" ,"city":"Oslo"}'), "tool_calls"),
    "cut in the middle of a call": (BODY, called("c", '{"city": "Os'), "length"),
}


def read(parts: list[bytes]) -> Reply:
    return read_reply(streamed(*parts), streamed=True)


@pytest.mark.parametrize("capability", [None, Capability()], ids=["nothing declared", "defaults"])
@pytest.mark.parametrize("shape", STREAMS)
def test_healthy_streams_break_no_rule(shape: str, capability: Capability | None) -> None:
    body, parts = STREAMS[shape]
    assert invariants.breaches(read(parts), body | {"stream": True}, capability) == ()


@pytest.mark.parametrize("shape", WHOLE)
def test_healthy_whole_answers_break_no_rule(shape: str) -> None:
    body, message, finish = WHOLE[shape]
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None, "matched_stop": None}
    document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    reply = read_reply(whole(document), streamed=False)
    assert invariants.breaches(reply, body, Capability()) == ()


def test_two_choices_interleaved_stay_apart() -> None:
    def of(index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return event(chunk | {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})

    parts = [
        of(0, {"role": "assistant", "content": ""}),
        of(1, {"role": "assistant", "content": ""}),
        of(1, opening(0, "call_b", "get_weather")),
        of(0, opening(0, "call_a", "get_weather")),
        of(0, going_on(0, '{"city": "Os')),
        of(1, going_on(0, '{"city": "Ber')),
        of(1, going_on(0, 'gen"}')),
        of(0, going_on(0, 'lo"}')),
        of(1, {}, "tool_calls"),
        of(0, {}, "tool_calls"),
        part(None, usage=USAGE),
        DONE,
    ]
    reply = read(parts)
    assert invariants.breaches(reply, BODY | {"stream": True, "n": 2}) == ()
    cities = [json.loads(choice.calls[0].arguments)["city"] for choice in (reply, *reply.others)]
    assert cities == ["Oslo", "Bergen"]
    unasked = invariants.breaches(reply, BODY | {"stream": True})
    assert [breach.sentence for breach in unasked] == ["2 choices came; one was asked"]
