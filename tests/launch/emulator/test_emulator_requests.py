"""Requests as clients send them, the bad ones too: a sentence and a 4xx, and the engine lives."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from emulator_asking import Asking, assembled_calls, finish_of, joined, until
from emulator_mind import ALL, CLOCK, SAVE, TEXT, WEATHER, calling, result, tool, user

from launch.engines.emulator.hosted import hosted

DIALECTS = ("vllm", "vllm-old", "sglang", "llamacpp", "smg")
FAST = ("--ttft-ms", "0", "--itl-ms", "0.05")
OSLO = ("get_weather", {"city": "Oslo"})


@pytest.fixture(scope="module", params=DIALECTS)
def engine(request: pytest.FixtureRequest) -> Iterator[Asking]:
    with hosted(*FAST, "--dialect", request.param) as running:
        yield Asking(running)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def one() -> Iterator[Asking]:
    with hosted(*FAST) as running:
        yield Asking(running)  # type: ignore[arg-type]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}, "required": ["in"]}
    return schema


def with_parameters(parameters: Any, name: str = "probe") -> dict[str, Any]:
    function = {"name": name, "description": "A probe.", "parameters": parameters}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}


def with_property(schema: Any) -> dict[str, Any]:
    return with_parameters({"type": "object", "properties": {"value": schema}, "required": ["value"]})


LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
TREE = {
    "type": "object",
    "properties": {"child": {"$ref": "#/$defs/node"}},
    "required": ["child"],
    "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
}
OPEN_CALL = {"id": "c0", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
UGLY = tool("probe", {"value": TEXT}, (), 'braces {{}} } \\ \\" <|im_end|> </tool_call> "quotes" \x07')


def history(arguments: str) -> dict[str, Any]:
    call = {"id": "c0", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return {"messages": [user("Weather?"), {"role": "assistant", "content": None, "tool_calls": [call]}, result("1")]}


BAD: dict[str, Any] = {
    "unknown tool_choice": {"tools": ALL, "tool_choice": "sometimes"},
    "tool_choice of a wrong type": {"tools": ALL, "tool_choice": 7},
    "named tool that is not there": {
        "tools": ALL,
        "tool_choice": {"type": "function", "function": {"name": "absent"}},
    },
    "required without tools": {"tools": [], "tool_choice": "required"},
    "tool name with a space": with_parameters({"type": "object"}, "get weather"),
    "tool name of 65 characters": with_parameters({"type": "object"}, "x" * 65),
    "no such type": with_parameters({"type": "banana"}),
    "no such type inside": with_property({"type": "banana"}),
    "references in a ring": with_parameters(LOOP),
    "reference to nothing": with_property({"$ref": "#/$defs/absent"}),
    "40 levels": with_parameters(nested(40)),
    "regex bomb": with_property({"type": "string", "pattern": "^(a+)+$"}),
    "no regex": with_property({"type": "string", "pattern": "(["}),
    "minItems of a wrong type": with_property({"type": "array", "minItems": "many"}),
    "parameters that are a list": with_parameters([]),
    "history with half arguments": history('{"city": "Par'),
    "history with a list as arguments": history("[1]"),
    "history with null as arguments": history("null"),
    "tool message without id": {"messages": [user("Hi"), calling(OSLO), {"role": "tool", "content": "1"}]},
    "unknown role": {"messages": [{"role": "alien", "content": "Hi"}]},
    "content that is a number": {"messages": [{"role": "user", "content": 7}]},
    "no messages": {"messages": []},
    "max_tokens 0": {"max_tokens": 0},
    "max_tokens -1": {"max_tokens": -1},
    "prompt too long": {"messages": [user("long " * 40_000)]},
    "tool list too long": {"tools": [tool(f"tool_{n}", {"value": TEXT}, (), "word " * 200) for n in range(300)]},
    "n 0": {"n": 0},
    "stop that is empty": {"stop": [""]},
    "temperature -1": {"temperature": -1},
    "response_format unknown": {"response_format": {"type": "poem"}},
    "response_format with a broken schema": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "banana"}}}
    },
}
ODD_BUT_GOOD: dict[str, Any] = {
    "empty tools": {"tools": []},
    "empty tools, auto": {"tools": [], "tool_choice": "auto"},
    "pattern and format": with_property({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$", "format": "date"}),
    "minItems": with_property({"type": "array", "items": {"type": "integer"}, "minItems": 3}),
    "oneOf": with_property({"oneOf": [{"type": "integer"}, {"type": "string"}]}),
    "a tree": with_parameters(TREE),
    "30 levels": with_parameters(nested(30)),
    "ugly description": {"tools": [UGLY], "tool_choice": "required"},
    "empty arguments in history": history(""),
    "tool_calls empty in history": {"messages": [user("Hi"), {"role": "assistant", "content": "Yes?", "tool_calls": []},
                                                 user("Hello")]},
    "system, developer and names": {"messages": [{"role": "system", "content": "Be kind."},
                                                 {"role": "developer", "content": "Be short."},
                                                 {"role": "user", "name": "ada", "content": "Hello"}]},
}  # fmt: skip


def alive(engine: Asking) -> bool:
    return engine.message("What is the capital of France?")["content"] == "Paris"


def message_of(error: dict[str, Any]) -> str:
    return error.get("error", error)["message"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_in_words_and_harms_nobody(one: Asking, name: str):
    answer = one.http.post("/v1/chat/completions", json={**one.body("Hello"), **BAD[name]})
    assert answer.status_code == 400, answer.text
    assert len(message_of(answer.json()).split()) > 3
    assert alive(one)


def test_every_dialect_refuses_in_its_own_words(engine: Asking):
    bodies = [json.dumps({**engine.body("Hello"), **fields}).encode() for fields in BAD.values()]
    for body in [*bodies, b"{nonsense", b"\xff\xfe", b"[" * 100_000, b""]:
        answer = engine.http.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400
        assert message_of(answer.json())
    assert alive(engine)


@pytest.mark.parametrize("name", ODD_BUT_GOOD)
def test_what_is_only_odd_is_served(one: Asking, name: str):
    answer = one.http.post("/v1/chat/completions", json={**one.body("Hello"), **ODD_BUT_GOOD[name]})
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    assert message["content"] or message["tool_calls"]


def test_two_choices_each_by_itself(engine: Asking):
    asked = {"text": "Weather in Oslo, Lima and Kyiv?", "tools": ALL, "n": 2}
    whole = engine.chat(**asked)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    events = engine.events(**asked)
    for index in (0, 1):
        own = [e for e in events if e == "[DONE]" or (e["choices"] and e["choices"][0]["index"] == index)]
        assert [json.loads(c["arguments"])["city"] for c in assembled_calls(own)] == ["Oslo", "Lima", "Kyiv"]
        assert finish_of(own) == "tool_calls"
        assert own[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events.count("[DONE]") == 1
    prose = engine.chat("Tell me about rivers.", n=2)["choices"]
    assert prose[0]["message"]["content"] != prose[1]["message"]["content"]


def test_a_stop_string_ends_the_answer_and_stays_out_of_it(engine: Asking):
    asked = {"text": "Count from 1 to 9, one number per line, then write END7.", "stop": ["NEVER", "END7"]}
    whole = engine.chat(**asked)["choices"][0]
    events = engine.events(**asked)
    assert whole["finish_reason"] == finish_of(events) == "stop"
    assert whole["message"]["content"].split() == joined(events, "content").split() == list("123456789")
    assert joined(engine.events(**{**asked, "stop": "5\n6"}), "content") == "1\n2\n3\n4\n"


def test_a_stop_string_in_the_thoughts_does_nothing(engine: Asking):
    think = {"chat_template_kwargs": {"enable_thinking": True}}
    text = 'In your thoughts note the word "ZEBRA7". What is the capital of France?'
    message = engine.message(text, stop=["ZEBRA7"], **think)
    assert "ZEBRA7" in (message.get("reasoning") or message["reasoning_content"])
    assert message["content"] == "Paris"


LONG = "\n".join(f"line {n}: the value is {n * 37}" for n in range(24))
SWEEP = (8, 16, 24, 32, 48, 64, 96, 128)


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_calls_that_max_tokens_cuts(engine: Asking, choice: str):
    text = f'Call get_server_time and save_file with path "a.txt" and text exactly as here:\n<<<\n{LONG}\n>>>'
    asked = {"text": text, "tools": [CLOCK, SAVE], "tool_choice": choice}
    full = [json.dumps(arguments, ensure_ascii=False) for arguments in ({}, {"path": "a.txt", "text": LONG})]
    for limit in SWEEP:
        events = engine.events(**asked, max_tokens=limit)
        streamed = assembled_calls(events)
        assert finish_of(events) == "length"
        assert [c["name"] for c in streamed] == ["get_server_time", "save_file"][: len(streamed)]
        assert all(text.startswith(call["arguments"]) for call, text in zip(streamed, full, strict=False))
        whole = engine.chat(**asked, max_tokens=limit)
        calls = whole["choices"][0]["message"].get("tool_calls") or []
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["usage"]["completion_tokens"] == limit
        # The first call was complete before any of these limits. The second is not reported as complete.
        assert calls[0]["function"] == {"name": "get_server_time", "arguments": "{}"}
        assert not whole["choices"][0]["message"].get("content")
        for call in calls[1:]:
            assert full[1].startswith(call["function"]["arguments"])
            with pytest.raises(json.JSONDecodeError):
                json.loads(call["function"]["arguments"])


def test_a_limit_that_is_met_exactly_is_met(engine: Asking):
    tokens = engine.chat("Weather in Oslo?", tools=[WEATHER])["usage"]["completion_tokens"]
    for limit, finish in ((tokens, "length"), (tokens + 1, "tool_calls")):
        answer = engine.chat("Weather in Oslo?", tools=[WEATHER], max_tokens=limit)["choices"][0]
        assert answer["finish_reason"] == finish
        assert json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}


def test_a_thought_that_is_cut_leaves_nothing_else(engine: Asking):
    think = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 24}
    message = engine.message("Why do rivers bend?", **think)
    events = engine.events("Why do rivers bend?", **think)
    assert message.get("reasoning") or message.get("reasoning_content")
    assert not message.get("content")
    assert not joined(events, "content")
    assert finish_of(events) == "length"


def test_usage_on_every_chunk_where_it_is_asked_for(engine: Asking):
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last, _ = engine.events("Count from 1 to 9.", stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")]
    assert len(counts) >= 9
    assert counts == sorted(counts)
    assert last["choices"] == []
    assert (
        last["usage"]["completion_tokens"]
        == counts[-1]
        == engine.chat("Count from 1 to 9.")["usage"]["completion_tokens"]
    )


RUNNING = {
    "vllm": "vllm:num_requests_running",
    "vllm-old": "vllm:num_requests_running",
    "sglang": "sglang:num_running_reqs",
    "llamacpp": "llamacpp:requests_processing",
    "smg": "sglang:num_running_reqs",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_whoever_leaves_frees_a_slot(dialect: str):
    with hosted("--itl-ms", "50", "--dialect", dialect) as running:
        engine = Asking(running)
        engine.engine = running
        streams = [engine.raw_chat("Weather in Oslo?", tools=ALL, stream=True) for _ in range(4)]
        streams += [engine.raw_chat("Tell me a long story.", stream=False) for _ in range(4)]
        until(lambda: engine.metric(RUNNING[dialect]) == 8)
        for stream in streams:
            stream.close()
        until(lambda: engine.metric(RUNNING[dialect]) == 0)
        assert alive(engine)
