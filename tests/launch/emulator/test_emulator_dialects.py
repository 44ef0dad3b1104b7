"""What tells the engines apart on the wire, one row each."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from emulator_asking import Asking, assembled_calls, finish_of, joined
from emulator_mind import ALL, WEATHER

from launch.engines.emulator.hosted import hosted

THINK = {"chat_template_kwargs": {"enable_thinking": True}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASKED = "What is the weather in Oslo and Lima?"


@dataclass(frozen=True)
class Row:
    """`named` and `required`: finish reasons of whole and of streamed answers."""

    reasoning: str
    call_id: str
    first_delta: dict[str, Any]
    opening_arguments: str
    continuation: set[str]
    empty_content: Any
    required: tuple[str, str] = ("tool_calls", "tool_calls")
    named: tuple[str, str] = ("tool_calls", "tool_calls")
    extra: str = ""
    error: str = "error"


ABSENT = object()
ROWS = {
    "vllm": Row("reasoning", r"chatcmpl-tool-[0-9a-f]{16}", {"role": "assistant", "content": ""}, "",
                {"index", "function"}, None, named=("stop", "stop"), extra="kv_transfer_params"),
    "vllm-old": Row("reasoning_content", r"chatcmpl-tool-[0-9a-f]{32}", {"role": "assistant", "content": ""}, "",
                    {"index", "function"}, None, ("stop", "tool_calls"), ("stop", "tool_calls"), "kv_transfer_params"),
    "sglang": Row("reasoning_content", r"call_[0-9a-f]{24}",
                  {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}, "",
                  {"id", "index", "type", "function"}, None, extra="metadata", error="message"),
    "llamacpp": Row("reasoning_content", r"[A-Za-z0-9]{32}", {"role": "assistant", "content": None}, "{",
                    {"index", "function"}, None, extra="timings"),
    "smg": Row("reasoning_content", r"call_[A-Za-z0-9]{24}", {"role": "assistant"}, "",
               {"index", "function"}, ABSENT),
}  # fmt: skip


@pytest.fixture(scope="module", params=ROWS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(dialect: str) -> Iterator[Asking]:
    with hosted("--ttft-ms", "0", "--itl-ms", "0.05", "--dialect", dialect) as running:
        yield Asking(running)  # type: ignore[arg-type]


def test_the_reasoning_field(dialect: str, engine: Asking):
    row = ROWS[dialect]
    message = engine.message("Why do rivers bend?", **THINK)
    events = engine.events("Why do rivers bend?", **THINK)
    assert message[row.reasoning] == joined(events, row.reasoning)
    assert {"reasoning", "reasoning_content"} & set(message) == {row.reasoning}
    silent = engine.message("Hi")
    assert silent.get(row.reasoning) is None
    assert (row.reasoning in silent) == (dialect in ("vllm", "vllm-old", "sglang"))


def test_the_deltas_of_a_stream(dialect: str, engine: Asking):
    row = ROWS[dialect]
    events = engine.events(ASKED, tools=ALL)
    deltas = [e["choices"][0]["delta"] for e in events if e != "[DONE]" and e["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or []]
    assert deltas[0] == row.first_delta
    assert calls[0]["function"]["arguments"] == row.opening_arguments
    assert calls[0]["type"] == "function"
    assert set(calls[1]) == row.continuation
    if dialect == "sglang":
        assert calls[1]["id"] is None
        assert calls[1]["function"]["name"] is None
    assert [call["index"] for call in calls if call.get("id")] == [0, 1]
    assert [json.loads(c["arguments"])["city"] for c in assembled_calls(events)] == ["Oslo", "Lima"]
    assert all(re.fullmatch(row.call_id, call["id"]) for call in calls if call.get("id"))


def test_the_whole_message(dialect: str, engine: Asking):
    row = ROWS[dialect]
    document = engine.chat(ASKED, tools=ALL)
    message = document["choices"][0]["message"]
    assert message.get("content", ABSENT) == row.empty_content
    ids = [call["id"] for call in message["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(row.call_id, call_id) for call_id in ids)
    assert not row.extra or row.extra in document
    plain = engine.message("Hi")
    assert ("tool_calls" in plain) == (dialect in ("vllm-old", "sglang"))
    assert not plain.get("tool_calls")
    forced = engine.message(ASKED, tools=ALL, tool_choice="required")
    assert forced.get("content", ABSENT) == ("" if dialect.startswith("vllm") else row.empty_content)


@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_the_finish_reason_of_calls(dialect: str, engine: Asking, choice: str):
    row = ROWS[dialect]
    expected = {"auto": ("tool_calls", "tool_calls"), "required": row.required, "named": row.named}[choice]
    asked = {"tools": ALL, "tool_choice": NAMED if choice == "named" else choice}
    whole = engine.chat(ASKED, **asked)["choices"][0]["finish_reason"]
    assert (whole, finish_of(engine.events(ASKED, **asked))) == expected


def test_usage_and_what_ended_the_answer(dialect: str, engine: Asking):
    text = "Count from 1 to 9, then write END7."
    *chunks, usage, _ = engine.events(text, stop="END7", stream_options={"include_usage": True})
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert ("timings" in usage) == (dialect == "llamacpp")
    assert ("reasoning_tokens" in usage["usage"]) == (dialect == "sglang")
    final = chunks[-1]["choices"][0]
    field = {"vllm": "stop_reason", "vllm-old": "stop_reason", "sglang": "matched_stop", "smg": "matched_stop"}
    assert dialect == "llamacpp" or final[field[dialect]] == "END7"
    assert any("usage" in chunk for chunk in chunks) == (dialect == "sglang")


def test_the_error_body(dialect: str, engine: Asking):
    error = engine.http.post("/v1/chat/completions", json=engine.body("Hi", max_tokens=0)).json()
    assert ROWS[dialect].error in error
    missing = engine.http.post("/v1/chat/completions", json={**engine.body("Hi"), "model": "other"})
    assert missing.status_code == 404
    with pytest.raises(openai.BadRequestError):
        engine.openai.chat.completions.create(model="emu", messages=[])


def test_the_openai_client_understands_calls_and_sends_them_back(engine: Asking):
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    asked: dict[str, Any] = {"model": "emu", "tools": [WEATHER]}
    message = engine.openai.chat.completions.create(messages=[question], **asked).choices[0].message
    (call,) = message.tool_calls
    answer = {"role": "tool", "tool_call_id": call.id, "content": '{"temp_c": 48.37}'}
    told = engine.openai.chat.completions.create(messages=[question, message, answer], **asked).choices[0]
    assert "48.37" in told.message.content
    assert told.finish_reason == "stop"


def test_counters_and_health(dialect: str, engine: Asking):
    assert engine.http.get("/health").status_code == 200
    assert engine.http.get("/v1/models").json()["data"][0]["id"] == "emu"
    names = {
        "llamacpp": ("llamacpp:tokens_predicted_total", "llamacpp:requests_deferred"),
        "sglang": ("sglang:num_requests_total", "sglang:num_queue_reqs"),
        "smg": ("sglang:num_requests_total", "sglang:num_queue_reqs"),
    }.get(dialect, ("vllm:generation_tokens_total", "vllm:num_requests_waiting"))
    before = engine.metric(names[0])
    engine.chat("Hi")
    assert engine.metric(names[0]) > before
    assert engine.metric(names[1]) == 0
