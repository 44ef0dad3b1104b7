from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates.endpoint import Endpoint
from gates.errors import GateUsageError
from gates.own_judge import difference, judged, problem
from gates.own_set import MAX_LINE_BYTES, Item, parse, read, series
from gates.patience import RunawayError, computing_limit
from gates.reply import Reply, read_reply
from gates.statistics import B80, B90, FixedPlan
from gates.toolwire import Breach, ToolCall

REFUND = {
    "type": "function",
    "function": {
        "name": "refund",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "string"}, "amount": {"type": "number"}, "notify": {"type": "boolean"}},
            "required": ["order"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
USER = [{"role": "user", "content": "Refund order A7."}]


def line(**keys: Any) -> dict[str, Any]:
    entry = {"id": "one", "messages": USER, "tools": [REFUND, CLOCK], "expect": {"called": "refund"}}
    return {key: value for key, value in (entry | keys).items() if value is not None}


def text(*lines: Any) -> bytes:
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines).encode()


def item(**keys: Any) -> Item:
    return parse(text(line(**keys)), "set.jsonl")[0]


def expecting(**expect: Any) -> Item:
    return item(expect=expect)


def reply(content: str = "", *calls: tuple[str, Any], finish: str | None = None, reasoning: str = "") -> Reply:
    made = tuple(
        ToolCall(f"c{i}", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for i, (name, arguments) in enumerate(calls)
    )
    finish = finish or ("tool_calls" if made else "stop")
    return Reply(streamed=True, content=content, calls=made, finish_reason=finish, reasoning=reasoning)


def refused(data: bytes) -> str:
    with pytest.raises(GateUsageError) as caught:
        parse(data, "set.jsonl")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_set_as_people_write_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf"
        + text(
            line(request={"temperature": 0, "max_tokens": 64}, tool_choice="auto", repeat=3),
            "",
            line(id="two", tools=None, expect={"contains": "A7\u2028", "regex": ["(?i)done"]}),
        )
        + b"\r\n"
    )
    one, two = read(file)
    assert one.body() == {
        "messages": USER,
        "tools": [REFUND, CLOCK],
        "tool_choice": "auto",
        "temperature": 0,
        "max_tokens": 64,
    }
    assert (one.repeat, one.must, two.must) == (3, "always", "always")
    assert two.body() == {"messages": USER}
    assert two.expect.contains == ("A7\u2028",)


def test_a_bare_line_separator_inside_a_text_ends_no_line() -> None:
    raw = json.dumps(line(expect={"contains": "a\u2028b"}), ensure_ascii=False).encode()
    assert parse(raw, "set.jsonl")[0].expect.contains == ("a\u2028b",)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("[1]", "expected a JSON object with id, messages, expect; got [1]"),
        ("# mine", "not JSON at column 1 (Expecting value); each request stands on one line, without comments"),
        ('{"id": "x",', "not JSON at column 12"),
        ('{"id": "x", "id": "y"}', "the key 'id' is given twice in one object"),
        ('{"id": "x", "repeat": NaN}', "NaN is no JSON; expected a number"),
        ('{"id": "\\ud800"}', "half of a surrogate pair"),
        ('{"id": ' + "[" * 5000 + "]" * 5000 + "}", "nests deeper than 100 levels"),
        ('{"id": ' + "[" * 101 + "]" * 101 + "}", "nests deeper than 100 levels"),
        ('{"repeat": ' + "9" * 5000 + "}", "4300 digits"),
        (line(id="a b"), "id: expected 1 to 80 letters, digits, dots"),
        (line(id="../x"), "id: "),
        (line(id=None), "the key 'id' is missing"),
        (line(expect=None), "the key 'expect' is missing"),
        (line(messages=None), "the key 'messages' is missing"),
        (line(message=[]), "unknown key 'message'; did you mean 'messages'?"),
        (line(messages=[]), "messages: "),
        (line(messages=["hi"]), "messages.0: "),
        (line(messages=[{"content": "hi"}]), "messages: message 0 has role None; expected one of system, developer"),
        (line(messages=[{"role": "user", "content": 3}]), "messages: content of message 0 is 3; expected a text"),
        (line(messages=[{"role": "tool", "content": "3"}]), "messages: message 0 is a tool's result without tool_call"),
        (line(tools={}), "tools: should be a valid list"),
        (line(tools=[{"name": "refund"}]), "tools: tool 0 is {'name': 'refund'}; expected type: function"),
        (line(tools=[REFUND, REFUND]), "tools: two tools are called 'refund'"),
        (
            line(tools=[{"type": "function", "function": {"name": "refund", "parameters": {"type": "objekt"}}}]),
            "tools: parameters of refund: is no JSON schema: type: 'objekt' is not valid",
        ),
        (line(tool_choice=3), "tool_choice: expected one of auto, none, required"),
        (line(tool_choice="any"), "tool_choice: 'any' is unknown; expected one of auto, none, required"),
        (line(tool_choice="none"), "expect: called contradicts tool_choice: none"),
        (line(tool_choice={"name": "x"}), "tool_choice: {'name': 'x'} is unknown; expected {\"type\": \"function\""),
        (
            line(tool_choice={"type": "function", "function": {"name": "pay"}}),
            "tool_choice: names 'pay', which is not among the tools",
        ),
        (line(tools=None, tool_choice="auto", expect={"contains": "x"}), "tool_choice: 'auto' needs tools"),
        (line(request={"stream": True}), "request: 'stream' is set by the gate itself"),
        (line(request={"tools": []}), "request: 'tools' belongs beside request"),
        (line(request=[]), "request: "),
        (line(expect={}), "expect: says nothing; expected one or more of contains, not_contains"),
        (line(expect={"contain": "x"}), "unknown key 'expect.contain'; did you mean 'contains'?"),
        (line(expect={"contains": ""}), "expect.contains: expected a text or a list of texts, none of them empty"),
        (line(expect={"contains": []}), "expect.contains: expected a text"),
        (line(expect={"not_contains": ["x", 3]}), "expect.not_contains: expected a text"),
        (line(expect={"regex": "("}), "expect.regex: '(' is no regular expression of Python: missing )"),
        (line(expect={"regex": None}), "expect.regex: expected a text"),
        (line(expect={"json_schema": "object"}), "expect.json_schema: expected a JSON schema, an object; got 'object'"),
        (line(expect={"json_schema": {"type": 3}}), "expect.json_schema: is no JSON schema: type: 3"),
        (line(expect={"json_schema": {"pattern": "("}}), "expect.json_schema: is no JSON schema: pattern: '(' is not"),
        (line(expect={"json_schema": {"$ref": "https://example.org/a.json"}}), "leads out of the file; copy"),
        (line(expect={"json_schema": {"items": {"$ref": "#/$defs/x"}}}), "'#/$defs/x' leads nowhere in this schema"),
        (line(expect={"json_schema": {"$ref": "#"}}), "leads back to itself without end"),
        (line(expect={"called": "pay"}), "expect: called: 'pay' is not among the tools (refund, clock)"),
        (line(tools=None), "expect: called: 'refund' is not among the tools (there are none)"),
        (line(expect={"arguments": {}}), "expect: arguments need the tool they belong to; add called"),
        (line(expect={"no_tool": False}), "expect.no_tool: should be True"),
        (line(expect={"no_tool": True, "called": "clock"}), "expect: no_tool contradicts called"),
        (line(expect={"finish": "done"}), "expect.finish: expected one of stop, length, tool_calls, content_filter"),
        (line(repeat=0), "repeat: should be greater than or equal to 1"),
        (line(repeat=201), "repeat: should be less than or equal to 200"),
        (line(repeat=True), "repeat: "),
        (line(must="B95"), "must: should be 'always', 'B90' or 'B80'"),
    ],
)
def test_mistakes_are_named_with_line_and_key(entry: Any, said: str) -> None:
    sentence = refused(text(line(id="before", tools=[REFUND]), "", entry))
    assert sentence.startswith("set.jsonl:3: ")
    assert said in sentence


def test_mistakes_of_the_whole_set() -> None:
    assert "set.jsonl:3: id: 'one' is the id of line 1; give another" in refused(text(line(), line(id="two"), line()))
    assert "set.jsonl: holds no request" in refused(b"")
    assert "set.jsonl: holds no request" in refused(b"\n  \n")
    assert "set.jsonl:2: byte 2 is not UTF-8" in refused(text(line(), "") + b"{\xc3\xff")
    assert "at most 4194304 are read" in refused(b" " * (MAX_LINE_BYTES) + text(line()))
    many = text(*[line(id=f"i{i}") for i in range(10_001)])
    assert "set.jsonl:10001: more than 10000 requests" in refused(many)
    assert "adds up to 50200 tries" in refused(text(*[line(id=f"i{i}", repeat=200) for i in range(251)]))


def test_too_few_requests_for_a_sequential_test_are_refused() -> None:
    entries = [line(id=f"i{i}", must="B80", repeat=2) for i in range(8)]
    assert "must: B80 is judged over all its requests together" in refused(text(*entries))
    assert "right answers at the earliest; these make 16" in refused(text(*entries))
    assert len(parse(text(*entries, line(must="B80", repeat=2)), "set.jsonl")) == 9


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(GateUsageError, match="no such file; expected a JSONL file"):
            read(path)
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(GateUsageError, match="at most 67108864 are read"):
        read(huge)


def test_what_always_must_hold_is_asked_streamed_and_whole() -> None:
    (found,) = series([item(repeat=2)], "seed")
    assert (found.name, found.plan) == ("one", FixedPlan(4))
    assert [(ask.number, ask.streamed) for ask in found.asks] == [(1, True), (2, False), (3, True), (4, False)]


def test_behaviours_are_judged_together_on_a_fair_sample() -> None:
    items = parse(
        text(
            *[line(id=f"a{i}", must="B90", repeat=2) for i in range(40)],
            *[line(id=f"b{i}", must="B80") for i in range(400)],
            line(),
        ),
        "set.jsonl",
    )
    always, b90, b80 = series(items, "seed")
    assert (always.name, b90.name, b90.plan, b80.name, b80.plan) == ("one", "B90", B90, "B80", B80)
    order = [ask.item.id for ask in b90.asks]
    assert set(Counter(order).values()) == {2}
    assert len(set(order[:40])) == 40, "every prompt once, before any comes back"
    assert order[:40] != [f"a{i}" for i in range(40)]
    assert len(b80.asks) == B80.cap
    assert [ask.streamed for ask in b80.asks[:4]] == [True, False, True, False]
    assert [ask.number for ask in b80.asks[:3]] == [1, 2, 3]
    assert series(items, "seed") == (always, b90, b80)
    assert series(items, "other")[1] != b90


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ({"called": "refund"}, reply("", ("refund", {"order": "A7"}))),
        ({"called": "refund"}, reply("", ("clock", {}), ("refund", {"order": "A7"}))),
        ({"called": "refund", "arguments": {"order": "A7"}}, reply("", ("refund", {"order": "A7", "amount": 3}))),
        ({"called": "refund", "arguments": {"amount": 3}}, reply("", ("refund", {"order": "A7", "amount": 3.0}))),
        (
            {"called": "refund", "arguments": {"order": "B8"}},
            reply("", ("refund", {"order": "A7"}), ("refund", {"order": "B8"})),
        ),
        ({"called": "clock"}, reply("Let me see.", ("clock", "{}"))),
        ({"no_tool": True, "finish": "stop"}, reply("No.")),
        ({"contains": ["48.37", "Krako\u0301w"]}, reply("In Krak\u00f3w it is 48.37 degrees.")),
        ({"not_contains": "sorry", "regex": [r"^\d+$"]}, reply("42")),
        ({"json_schema": {"type": "object", "required": ["a"]}}, reply(' {"a": 1}\n')),
        ({"json_schema": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}}, reply("3")),
        ({"finish": "length"}, reply("cut", finish="length")),
        ({"finish": "tool_calls", "called": "clock"}, reply("", ("clock", {}))),
    ],
)
def test_answers_that_are_right(expect: dict[str, Any], answer: Reply) -> None:
    assert problem(expecting(**expect), answer) is None


@pytest.mark.parametrize(
    ("expect", "answer", "said"),
    [
        ({"called": "refund"}, reply("I cannot."), "refund was not called; the answer was 'I cannot.'"),
        ({"called": "refund"}, reply(), "refund was not called; the answer is empty"),
        (
            {"called": "refund"},
            reply('<tool_call>{"name": "refund"}</tool_call>'),
            "refund was not called: a call was left in the content as text (<tool_call>)",
        ),
        ({"called": "refund"}, reply("", reasoning="<function=refund>"), "a call was left in the reasoning as text"),
        ({"called": "refund"}, reply("", ("clock", {})), "clock was called; expected refund"),
        ({"called": "refund"}, reply("", ("refnd", {})), "the tool 'refnd' was called, which was not on offer"),
        ({"called": "refund"}, reply("", ("refund", '{"order": "A7"')), "refund: arguments are not JSON"),
        ({"called": "refund"}, reply("", ("refund", "[]")), "refund: arguments are JSON but no object"),
        (
            {"called": "refund"},
            reply("", ("refund", {})),
            "refund: arguments break their schema: 'order' is a required property",
        ),
        (
            {"called": "refund"},
            reply("", ("refund", {"order": "A7", "amount": "3"})),
            "refund: arguments break their schema: amount: '3' is not of type 'number'",
        ),
        (
            {"called": "refund", "arguments": {"order": "A7"}},
            reply("", ("refund", {"order": "A8"})),
            "refund was called with other arguments: order is 'A8'; expected 'A7'",
        ),
        (
            {"called": "refund", "arguments": {"notify": True}},
            reply("", ("refund", {"order": "A7"})),
            "refund was called with other arguments: notify is missing; expected True",
        ),
        ({"called": "refund"}, reply("", ("refund", '{"ord'), finish="length"), "(the answer reached max_tokens)"),
        ({"no_tool": True}, reply("", ("clock", {})), "clock was called; expected no call"),
        (
            {"contains": ["a", "48.37"]},
            reply("a, and 48 degrees"),
            "the answer does not contain '48.37'; it was 'a, and 48 degrees'",
        ),
        ({"contains": "48.37"}, reply("", reasoning="48.37"), "(it is in the reasoning); it was ''"),
        ({"not_contains": "sorry"}, reply("I am sorry."), "the answer contains 'sorry': 'I am sorry.'"),
        ({"regex": "^A"}, reply("B" * 200), f"the answer does not match '^A'; it was '{'B' * 160}' …"),
        ({"json_schema": {}}, reply('```json\n{"a": 1}\n```'), "it stands in a code fence; it was"),
        ({"json_schema": {}}, reply('{"a": NaN}'), "the answer is not JSON (NaN is no JSON)"),
        ({"json_schema": {}}, reply(""), "the answer is not JSON"),
        ({"json_schema": {}}, reply("[" * 100_000), "the answer is not JSON"),
        (
            {"json_schema": {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}},
            reply('{"a": [1, "x"]}'),
            "the answer breaks its JSON schema: a.1: 'x' is not of type 'integer'",
        ),
        ({"contains": "long"}, reply("cu", finish="length"), "it was 'cu' (the answer reached max_tokens)"),
        ({"finish": "stop"}, reply("cut", finish="length"), "finish_reason is length; expected stop"),
        (
            {"contains": "x"},
            Reply(streamed=False, answered=False, breaches=(Breach("P08", "HTTP 500: boom"),)),
            "HTTP 500: boom",
        ),
        ({"contains": "x"}, Reply(streamed=False, answered=False), "there is no answer"),
        (
            {"contains": "x"},
            Reply(streamed=True, content="x", breaches=(Breach("P08", "the connection broke"),)),
            "the connection broke",
        ),
    ],
)
def test_answers_that_are_wrong_are_wrong_in_words(expect: dict[str, Any], answer: Reply, said: str) -> None:
    found = problem(expecting(**expect), answer)
    assert found is not None
    assert said in found


def test_an_answer_that_nests_without_end_is_a_finding() -> None:
    deep: dict[str, Any] = {"json_schema": {"items": {"$ref": "#"}}}
    found = problem(expecting(**deep), reply("[" * 800 + "]" * 800))
    assert found is not None
    assert "nests too deep" in found


EXPLODES = {"regex": r"^(a+)+$"}
UNLUCKY = "a" * 40 + "!"


def test_an_expression_that_explodes_is_named_with_its_item() -> None:
    with pytest.raises(RunawayError) as runaway:
        judged(item(id="refund-1", expect=EXPLODES), reply(UNLUCKY), 0.02)
    said = str(runaway.value)
    assert said.startswith(r"refund-1: the regular expression '^(a+)+$' could not be judged within 0.02 s of computing")
    assert "repetitions within repetitions explode" in said
    schema = {"json_schema": {"type": "string", "pattern": "^(a+)+$"}}
    with pytest.raises(RunawayError, match="one: what it expects could not be judged"):
        judged(item(expect=schema), reply(json.dumps(UNLUCKY)), 0.02)
    # Nothing of it is left behind.
    assert judged(item(expect=EXPLODES), reply("aaa"), 0.02) is None
    assert sum(range(100_000)) > 0


def test_only_the_main_thread_can_be_limited() -> None:
    done: list[bool] = []

    def compute() -> None:
        with computing_limit(0.001):
            done.append(sum(range(200_000)) > 0)

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize(
    ("expected", "given", "said"),
    [
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 2, "d": 3}], "e": 4}}, None),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, "a.b[1].c is 3; expected 2"),
        ([1, 2], [1, 2, 3], "value is [1, 2, 3]; expected [1, 2]"),
        ({"a": True}, {"a": 1}, "a is 1; expected True"),
        ({"a": 1}, {"a": True}, "a is True; expected 1"),
        ({"a": False}, {"a": False}, None),
        ({"a": None}, {}, "a is missing; expected None"),
        ({"a": "1"}, {"a": 1}, "a is 1; expected '1'"),
        ({"a": {}}, {"a": []}, "a is []; expected {}"),
        ({}, {"a": 1}, None),
    ],
)
def test_arguments_may_hold_more_and_nothing_else(expected: Any, given: Any, said: str | None) -> None:
    assert difference(expected, given) == said


def test_a_set_against_an_engine(engines: Callable[..., str]) -> None:
    weather = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    asked = {"messages": [{"role": "user", "content": "What is the weather in Osaka right now? Use the tool."}]}
    items = parse(
        text(
            line(**asked, id="call", tools=[weather], expect={"called": "get_weather", "arguments": {"city": "Osaka"}}),
            line(**asked, id="wrong", tools=[weather], expect={"no_tool": True}),
            line(id="talk", tools=None, request={"max_tokens": 24, "temperature": 0}, expect={"not_contains": "<"}),
        ),
        "set.jsonl",
    )
    endpoint = Endpoint.at(engines())
    found = {}
    for each in series(items, "seed"):
        for ask in each.asks:
            body = ask.item.body() | {"model": "emu"}
            if ask.streamed:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            answer = read_reply(endpoint.chat(body, timeout_s=20), streamed=ask.streamed)
            found[each.name, ask.streamed] = problem(ask.item, answer)
    wrong = "get_weather was called; expected no call"
    both = (True, False)
    assert found == (
        {("call", streamed): None for streamed in both}
        | {("wrong", streamed): wrong for streamed in both}
        | {("talk", streamed): None for streamed in both}
    )
