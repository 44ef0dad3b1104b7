"""The pseudo model has enough sense: tools when asked for, values from the message, results in the answer."""

import json
from typing import Any

import jsonschema
import pytest
from emulator_asking import WEATHER, Asking
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.engines.emulator.filler import fill


def tool(name: str, properties: dict[str, Any], required: list[str], description: str = "") -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TEXT = {"type": "string"}
TIME = tool("get_server_time", {}, [], "The server's clock.")
RECORD = tool("lookup_record", {"record_id": TEXT}, ["record_id"], "Look up a record by its id.")
SAVE = tool("save_file", {"path": TEXT, "text": TEXT}, ["path", "text"], "Save text to a file.")
PRICE = tool(
    "set_price",
    {"sku": TEXT, "price": {"type": "number"}, "qty": {"type": "integer"}},
    ["sku", "price", "qty"],
    "Set the price of an article.",
)
PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "email": TEXT},
    "required": ["name", "email"],
    "additionalProperties": False,
}
EVENT = tool(
    "create_event",
    {
        "title": TEXT,
        "start": TEXT,
        "attendees": {"type": "array", "items": PERSON, "minItems": 1},
        "location": {"type": "object", "properties": {"city": TEXT, "room": TEXT}, "required": ["city", "room"]},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "notify": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
    ["title", "start", "attendees", "location", "priority", "notify"],
    "Create an event in the calendar.",
)
ALL = [WEATHER, TIME, RECORD, SAVE, PRICE, EVENT]
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in ALL}


def called(engine: Asking, text: str, tools: list[dict[str, Any]] = ALL, **fields: Any) -> list[tuple[str, Any]]:
    calls = engine.message(text, tools=tools, **fields).get("tool_calls") or []
    named = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    for name, arguments in named:
        jsonschema.validate(arguments, SCHEMAS[name])
    return named


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ref 7Q4-KD2] What is the weather in Kraków right now? Use the tool, unit c.",
         ("get_weather", {"city": "Kraków", "unit": "c"})),
        ("How is the weather in New York?", ("get_weather", {"city": "New York"})),
        ("Please check the weather for Rio de Janeiro", ("get_weather", None)),
        ("what's the weather in osaka", ("get_weather", {"city": "osaka"})),
        ("Use get_weather for the city 'San José'.", ("get_weather", {"city": "San José"})),
        ("What time is it on the server?", ("get_server_time", {})),
        ("Look up record R-4711, please.", ("lookup_record", {"record_id": "R-4711"})),
        ('Please fetch the record with id "zx-81-k".', ("lookup_record", {"record_id": "zx-81-k"})),
        ("Set the price of sku A-77 to 19.95, qty 3.", ("set_price", {"sku": "A-77", "price": 19.95, "qty": 3})),
        ('Save the text "good morning" to the file /tmp/hello.txt',
         ("save_file", {"path": "/tmp/hello.txt", "text": "good morning"})),
    ],
)  # fmt: skip
def test_a_request_for_a_tool_becomes_the_right_call(vllm: Asking, text: str, expected: tuple[str, Any]):
    ((name, arguments),) = called(vllm, text)
    assert name == expected[0]
    if expected[1] is not None:
        assert arguments == expected[1]


def test_nested_arguments_are_filled(vllm: Asking):
    ((name, arguments),) = called(
        vllm,
        'Create an event with title "Launch review", start 2026-12-01T10:00, attendee Ada Byron ada@example.org, '
        "city Turin, room B12, priority 4, do not notify.",
    )
    assert name == "create_event"
    assert arguments["title"] == "Launch review"
    assert arguments["start"] == "2026-12-01T10:00"
    assert arguments["attendees"][0]["email"] == "ada@example.org"
    assert arguments["location"]["room"] == "B12"
    assert arguments["priority"] == 4
    assert arguments["notify"] is False


@pytest.mark.parametrize(
    "text",
    ["Hello there!", "What is the capital of France?", "Write a poem about autumn leaves.", "Thanks, that is all."],
)
def test_without_need_no_tool_is_called(vllm: Asking, text: str):
    message = vllm.message(text, tools=ALL)
    assert not message.get("tool_calls")
    assert message["content"]


def test_several_tools_and_several_cities(vllm: Asking):
    text = "Tell me the weather in Oslo, the server time, and look up record R-17."
    assert [name for name, _ in called(vllm, text)] == ["get_weather", "get_server_time", "lookup_record"]
    cities = [arguments["city"] for _, arguments in called(vllm, "Weather in Lima, Quito and La Paz?")]
    assert cities == ["Lima", "Quito", "La Paz"]
    assert len(called(vllm, "Weather in Lima, Quito and La Paz?", parallel_tool_calls=False)) == 1


def test_tool_choice_is_obeyed(vllm: Asking, sglang: Asking):
    named = {"type": "function", "function": {"name": "lookup_record"}}
    assert len(called(vllm, "Hi", tool_choice="required")) == 1
    assert called(vllm, "The weather in Oslo?", tool_choice=named)[0][0] == "lookup_record"
    answer = vllm.message("What is the weather in Oslo?", tools=ALL, tool_choice="none")
    assert answer["content"]
    assert not answer.get("tool_calls")
    body = {"tools": ALL, "tool_choice": named}
    assert vllm.chat("Hi", **body)["choices"][0]["finish_reason"] == "stop"
    assert sglang.chat("Hi", **body)["choices"][0]["finish_reason"] == "tool_calls"


def test_an_unknown_named_tool_is_refused(vllm: Asking):
    body = vllm.body(tools=ALL, tool_choice={"type": "function", "function": {"name": "absent"}})
    assert vllm.http.post("/v1/chat/completions", json=body).status_code == 400


@pytest.mark.parametrize("thinking", [False, True])
def test_the_value_of_a_result_comes_back(either: Asking, thinking: bool):
    question = {"role": "user", "content": "What is the weather in Kraków?"}
    switch = {"chat_template_kwargs": {"enable_thinking": thinking}}
    call = either.message(question["content"], tools=ALL, **switch)
    result = {
        "role": "tool",
        "tool_call_id": call["tool_calls"][0]["id"],
        "content": '{"temp_c": 48.37, "by": "Qx-7Zu"}',
    }
    fields = {"messages": [question, call, result], "tools": ALL, **switch}
    answer = either.message(**fields)
    assert not answer.get("tool_calls")
    for value in ("48.37", "Qx-7Zu", "Kraków"):
        assert value in answer["content"]


@pytest.mark.parametrize(
    "content", ["plain words 716204", [{"type": "text", "text": "716204"}], '["a", {"b": 716204}]']
)
def test_results_come_in_every_form(vllm: Asking, content: Any):
    function = {"name": "lookup_record", "arguments": '{"record_id": "R-1"}'}
    history = [
        {"role": "user", "content": "Look up record R-1."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    assert "716204" in vllm.message(messages=history)["content"]


def test_an_error_result_is_told(vllm: Asking):
    function = {"name": "lookup_record", "arguments": '{"record_id": "R-1"}'}
    history = [
        {"role": "user", "content": "Look up record R-1."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": '{"error": "timeout"}'},
    ]
    content = vllm.message(messages=history)["content"]
    assert "could not" in content
    assert "timeout" in content


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("What is the capital of France? One word.", "Paris"),
        ("What is 17 * 23?", "391"),
        ("Compute 12 + 30.", "42"),
        ("What comes next: 2, 4, 8, 16?", "32"),
        ('Spell "stream" backwards.', "maerts"),
        ("Continue: the quick brown fox", "jumps over the lazy dog"),
        ("Repeat exactly: 7f3a-QQ81-zz", "7f3a-QQ81-zz"),
        ('Say "pineapple" and nothing else.', "pineapple"),
    ],
)
def test_simple_questions_have_their_answers(vllm: Asking, text: str, answer: str):
    assert vllm.message(text)["content"] == answer


def test_a_reference_comes_back_and_stays_with_its_request(vllm: Asking):
    first, second = (vllm.message(f"[ref {ref}] Tell me about rivers.")["content"] for ref in ("AA-1", "BB-2"))
    assert first.startswith("[ref AA-1]")
    assert "AA-1" not in second


def test_prose_code_and_chinese_look_like_themselves(vllm: Asking):
    code = vllm.message("Write a Python function that sorts a list.")["content"]
    assert "def " in code
    assert "```" in code
    chinese = vllm.message("请写一段关于秋天的文字。")["content"]
    assert sum("\u4e00" <= c <= "\u9fff" for c in chinese) > len(chinese) / 2
    prose = vllm.message("Describe a journey in 400 words.")["content"].split()
    assert len(prose) > 250
    fivegrams = [tuple(prose[i : i + 5]) for i in range(len(prose) - 4)]
    assert len(set(fivegrams)) > 0.9 * len(fivegrams), "not the same words over and over"


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.one_of(
        st.just({"type": "string"}),
        st.just({"type": "string", "maxLength": 5}),
        st.just({"type": "string", "minLength": 3}),
        st.just({"type": "boolean"}),
        st.just({"type": "number"}),
        st.just({"type": ["integer", "null"]}),
        st.just({"type": "integer", "minimum": 3, "maximum": 9}),
        st.just({"anyOf": [{"type": "null"}, {"type": "string"}]}),
        st.just({"const": 4}),
        st.lists(st.sampled_from(["red", "green", 3]), min_size=1, max_size=3, unique=True).map(lambda v: {"enum": v}),
    )
    names = st.sampled_from(["city", "record_id", "text", "count", "notify", "email", "start", "path", "colour"])

    def grown(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        arrays = st.builds(lambda i, n: {"type": "array", "items": i, "minItems": n}, inner, st.integers(0, 2))
        return st.one_of(arrays, st.dictionaries(names, inner, max_size=4).map(strict))

    return st.dictionaries(names, st.recursive(plain, grown, max_leaves=6), max_size=5).map(strict)


def strict(properties: dict[str, Any]) -> dict[str, Any]:
    required = sorted(properties)[::2]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@settings(max_examples=100, deadline=None)
@given(
    schema=schemas(), text=st.sampled_from(["", "Hi", 'Paint "the door" red in Oslo, 3 times: city Rome 2.5', "Ж 7"])
)
def test_arguments_are_always_valid_against_their_schema(schema: dict[str, Any], text: str):
    value = json.loads(json.dumps(fill(schema, text)))
    jsonschema.validate(value, schema)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": True}, "required": ["a", "absent"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}},
        {"type": "object", "properties": {"a": {}, "b": {"anyOf": [True]}}, "required": ["a", "b"]},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}]},
    ],
)
def test_odd_schemas_still_get_a_call(vllm: Asking, parameters: dict[str, Any]):
    odd = {"type": "function", "function": {"name": "odd", "parameters": parameters}}
    (call,) = vllm.message("Use odd with a 7.", tools=[odd], tool_choice="required")["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), {"type": "object"})
