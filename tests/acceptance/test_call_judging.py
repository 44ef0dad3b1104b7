"""What is wrong with an answer, told from the answer alone: hand-made replies, no engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.acceptance import agreement, choice, copying, load, parallel, quoted, structured, tool_lists
from gates.acceptance.calls import call_problem, one_call_problem, same, shape_problem
from gates.acceptance.check import Sample
from gates.acceptance.mixed_load import CALLS, Level
from gates.acceptance.tools import CLOCK, RECORD, SAVE, WEATHER, named
from gates.acceptance.tries import Try
from gates.contract import VerdictKind
from gates.reply import Reply, Usage
from gates.toolwire import Breach, ToolCall
from gates.trial import Answer
from gates.wire import Exchange

EXCHANGE = Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, 200)


def call(arguments: str | dict[str, Any], name: str = "get_weather", call_id: str = "call_1") -> ToolCall:
    return ToolCall(call_id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def replied(
    *calls: ToolCall, body: dict[str, Any] | None = None, breaches: tuple[Breach, ...] = (), **fields: Any
) -> Answer:
    fields.setdefault("finish_reason", "tool_calls" if calls else "stop")
    reply = Reply(streamed=False, calls=calls, **fields)
    return Answer(body or {}, EXCHANGE, reply, breaches)


SAMPLE = Sample("J01", 0, "s", streamed=True, greedy=True)
OSLO = call({"city": "Oslo"})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (replied(call({"city": "krakow "})), None),
        (replied(call({"city": "Kraków", "unit": "c"})), None),
        (replied(OSLO), 'city is "Oslo"; asked was "Kraków"'),
        (replied(call({"town": "Kraków"})), "break their schema"),
        (replied(call('{"city": "Krak')), "not JSON"),
        (replied(call("")), "not JSON"),
        (replied(call("null")), "no object"),
        (replied(call({}, "get_server_time")), "which was not on offer"),
        (replied(OSLO, OSLO), "2 calls came"),
        (replied(call({"city": "Kraków"}), finish_reason="stop"), "finish_reason is stop"),
        (replied(content="Sunny.", finish_reason="stop"), "answered in prose ('Sunny.')"),
        (replied(content="<tool_call>{}", finish_reason="stop"), "is a tool-call parser set?"),
        (replied(reasoning="<tool_call>{}", finish_reason="stop"), "swallowed by the reasoning"),
        (replied(content='{"name": "get_weather"}', body={"tools": [WEATHER]}), "spells one of get_weather"),
        (replied(content="[get_weather(city='Oslo')]", body={"tools": [WEATHER]}), "spells one of get_weather"),
        (replied(content="get_weather(city) would tell.", body={"tools": [WEATHER]}), "answered in prose"),
        (replied(finish_reason="stop"), "the answer is empty"),
        (replied(finish_reason="length", content="The"), "reached max_tokens"),
        (replied(breaches=(Breach("P08", "HTTP 500"),), answered=False), "HTTP 500"),
    ],
)
def test_one_call(answer: Answer, said: str | None) -> None:
    problem = one_call_problem(answer, [WEATHER], "get_weather", {"city": "Kraków"})
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(
    ("value", "asked", "equal"),
    [
        (1e5, 100000, True),
        (3.0, 3, True),
        (True, 1, False),
        (1, True, False),
        ("7", 7, False),
        (None, "null", False),
        ([1, 2], [2, 1], False),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ("cafe\u0301", "café", True),
        ("Krakow", "Kraków", False),
    ],
)
def test_equal_as_json(value: Any, asked: Any, equal: bool) -> None:
    assert same(value, asked) is equal


def test_a_value_may_be_missing_or_long() -> None:
    missing = call_problem(call({"path": "a", "text": "b"}, "save_file"), [SAVE], "save_file", {"path": "a", "mode": 1})
    assert missing == "mode is missing; asked was 1"
    long = call_problem(call({"path": "a", "text": "x" * 9000}, "save_file"), [SAVE], "save_file", {"text": "y"})
    assert long is not None
    assert len(long) < 400
    assert shape_problem(call({"path": "a", "text": "b"}, "save_file"), [SAVE]) is None


# --- parallel ---------------------------------------------------------------------------------------------------------

THREE = (
    call({"city": "Oslo"}, call_id="a"),
    call({}, "get_server_time", "b"),
    call({"record_id": "004711-BX"}, "lookup_record", "c"),
)
WANTED = {"get_weather": {"city": "Oslo"}, "get_server_time": {}, "lookup_record": {"record_id": "004711-BX"}}


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (THREE, None),
        (THREE[::-1], None),
        (THREE[:2], "2 calls came"),
        ((THREE[0], call({}, "get_server_time", "a"), THREE[2]), "share ids"),
        ((THREE[0], THREE[1], call({"record_id": "Oslo"}, "lookup_record", "c")), "record_id is"),
        ((THREE[0], call({"city": "Lima"}, call_id="b"), THREE[2]), "get_weather was called 2 times"),
        ((call('{"city": "Oslo"}{}', call_id="a"), *THREE[1:]), "not JSON"),
    ],
)
def test_different_tools_in_one_turn(calls: tuple[ToolCall, ...], said: str | None) -> None:
    problem = parallel.different_problem(replied(*calls), WANTED)
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["Oslo", "Lima"], None),
        (["lima", "OSLO"], None),
        (["Oslo", "Oslo"], "'Oslo' was asked for twice"),
        (["Oslo", "Rome"], "'Rome' was asked for twice, or never wanted"),
        (["Oslo"], "1 calls came"),
        (["Oslo", "Lima", "Lima"], "3 calls came"),
    ],
)
def test_one_tool_several_times(asked: list[str], said: str | None) -> None:
    calls = [call({"city": city}, call_id=str(number)) for number, city in enumerate(asked)]
    problem = parallel.same_tool_problem(replied(*calls), ["Oslo", "Lima"])
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(
    ("arguments", "mixed"),
    [
        (['{"city": "Oslo"}', '{"city": "Lima"}'], False),
        (['{"city": "Oslo"}{"city": "Lima"}', '{"city": "Lima"}'], True),
        (['{"city": "Oslo"}', '{"city": "Lima", "note": "Oslo"}'], True),
        (['{"city": "Oslo"}', '{"city": "Oslo"}'], False),
        (['{"city": "Oslo and Lima"}'], False),
        (['{"city": "Oslo"}{"city": "Lima"}'], True),
        (['{"city": "Oslo"}', ""], False),
        ([], False),
    ],
)
def test_arguments_keep_apart(arguments: list[str], mixed: bool) -> None:
    calls = [call(text, call_id=str(number)) for number, text in enumerate(arguments)]
    assert (parallel.mixed_up(calls, ["Oslo", "Lima"]) is not None) is mixed


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked", "right"),
    [
        ("cafe\u0301", "café", True),
        (" a b\n", "a b", True),
        ("a b", "a  b", False),
        ("C:\\temp", "C:\temp", False),
        ("", "a", False),
    ],
)
def test_copies(text: str, asked: str, right: bool) -> None:
    assert (copying.copy_problem(text, asked) is None) is right


@pytest.mark.parametrize("asked", copying.ALPHABETS)
def test_letters_that_change_on_the_way(asked: str) -> None:
    assert copying.encoding_problem(asked, asked) is None
    assert copying.encoding_problem("something else entirely", asked) is None
    escaped = json.dumps(asked)[1:-1]
    assert "escapes" in (copying.encoding_problem(escaped, asked) or "")
    assert copying.encoding_problem(f"{asked}\ufffd", asked) is not None


def test_mojibake_is_seen() -> None:
    assert copying.encoding_problem("Ελλάδα".encode().decode("latin-1"), "Ελλάδα") is not None
    assert copying.encoding_problem("d\u00c3\u00a9j\u00c3\u00a0 vu", "déjà vu") is not None


@pytest.mark.parametrize(
    ("text", "right"), [("x" * 90 + "END", True), ("x" * 70 + "END", False), ("x" * 100, False), ("", False)]
)
def test_long_arguments_are_whole(text: str, right: bool) -> None:
    assert (copying.length_problem(text, "x" * 97 + "END", "END") is None) is right


def test_every_kind_of_value_fits_its_own_schema_and_is_written_as_json() -> None:
    for kind in copying.KINDS:
        for seed in range(20):
            value = kind.value(SAMPLE.asked(variant=seed).rng())
            assert same(json.loads(kind.written(value)), value)
            assert structured.content_problem(replied(content=kind.written(value)), dict(kind.schema)) is None, (
                kind.name,
                value,
            )


@pytest.mark.parametrize(("label", "seen"), [(" a  ", False), ("a", True), (" a", True), ("b", False), (7, False)])
def test_blanks_that_are_gone(label: Any, seen: bool) -> None:
    assert (copying.trimmed(replied(call({"label": label}, "set_label")), " a  ") is not None) is seen


# --- choice -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "only", "said"),
    [
        (replied(OSLO), None, None),
        (replied(OSLO, call({}, "get_server_time")), None, None),
        (replied(OSLO, finish_reason="stop"), "get_weather", None),
        (replied(OSLO), "get_server_time", "tool_choice named get_server_time"),
        (replied(content="Hello!"), None, "answered in prose"),
        (replied(call({"city": 7})), None, "break their schema"),
        (replied(OSLO, finish_reason="length"), None, "ran to max_tokens"),
        (replied(call({}, "get_time")), None, "not on offer"),
    ],
)
def test_a_call_that_was_demanded(answer: Answer, only: str | None, said: str | None) -> None:
    problem = choice.forced_problem(answer, only)
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(
    ("answer", "forbidden", "spoken"),
    [
        (replied(content="I cannot look that up."), True, True),
        (replied(content=""), True, False),
        (replied(content="Well", finish_reason="length"), True, False),
        (replied(OSLO), False, False),
        (replied(content="x", finish_reason="tool_calls"), False, False),
        (replied(content="<tool_call>{}</tool_call>"), False, True),
        (replied(breaches=(Breach("P08", "HTTP 500"),), answered=False), False, False),
    ],
)
def test_a_call_that_was_forbidden(answer: Answer, forbidden: bool, spoken: bool) -> None:
    assert (choice.forbidden_problem(answer) is None) is forbidden
    assert (choice.spoken_problem(answer) is None) is spoken


# --- lists, text, quotes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", tool_lists.COUNTS)
@pytest.mark.parametrize("target", ["run", "run_in_terminal", "x" * 64])
def test_lists_of_tools(target: str, count: int) -> None:
    tools = tool_lists.tool_list(SAMPLE.asked(variant=count).rng(target), target, count)
    names = [named(offered) for offered in tools]
    assert names.count(target) == len(set(names)) - len(names) + 1 == 1
    assert len(tools) == count + target.startswith("run")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("I will look that up for number 7 now.", True),
        ("i will look that up for number 7 now.", True),
        ("I will look that up for number 7 now", False),
        ("Let me check the weather:", True),
        ("I will look that", False),
        ("look that up for number 8.", False),
    ],
)
def test_text_beside_a_call(text: str, whole: bool) -> None:
    problem = tool_lists.cut_text(replied(OSLO, content=text), "I will look that up for number 7 now.")
    assert (problem is None) is whole


@pytest.mark.parametrize(
    ("answer", "verbatim", "said"),
    [
        (replied(content="It marks a call. " * 20, usage=Usage(9, 90, None)), None, None),
        (replied(content="It marks a call.", usage=Usage(9, 6, None)), None, None),
        (replied(content="The text `", usage=Usage(9, 136, None)), None, "136 tokens were made"),
        (replied(content="The text `", reasoning="so " * 120, usage=Usage(9, 136, None)), None, None),
        (replied(call({}, "example")), None, "example was called"),
        (replied(content='{"a": 7} is a Python dict.'), '{"a": 7}', None),
        (replied(content=" is a Python dict."), '{"a": 7}', "is missing"),
        (replied(content=""), None, "empty"),
    ],
)
def test_quoted_markup(answer: Answer, verbatim: str | None, said: str | None) -> None:
    problem = quoted.kept_problem(answer, verbatim)
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (replied(content="It marks a call."), False),
        (replied(OSLO, body={"tools": [WEATHER]}), False),
        (replied(OSLO, content="It marks a call. " * 20, body={"tools": [WEATHER]}), True),
        (replied(OSLO), True),
        (replied(call({}, "example"), body={"tools": [WEATHER]}), True),
        (replied(call("..."), body={"tools": [WEATHER]}), True),
    ],
)
def test_calls_made_of_quoted_markup(answer: Answer, seen: bool) -> None:
    assert (quoted.phantom(answer) is not None) is seen


def test_questions_about_markup_come_in_every_kind_with_and_without_tools() -> None:
    asked = [quoted.question(SAMPLE.asked(variant=number)) for number in range(12)]
    assert sum(verbatim is not None for _, verbatim in asked) == 4
    assert len({text.split("text ")[1].split(" ")[0] for text, verbatim in asked if verbatim is None}) == 6


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (replied(content='{"n": 7}'), None),
        (replied(content='```json\n{"n": 7}\n```'), "not JSON"),
        (replied(content='{"n": "7"}'), "breaks the schema: n:"),
        (replied(content='{"n": 7' + " " * 120 + "}"), "120 blanks in a row"),
        (replied(content='{"n": 7}', finish_reason="length"), "finish_reason is length"),
        (replied(reasoning='{"n": 7}'), "empty (there is reasoning)"),
    ],
)
def test_structured_output(answer: Answer, said: str | None) -> None:
    problem = structured.content_problem(answer, SCHEMA)
    assert problem is None if said is None else said in (problem or "")


# --- over the whole run -----------------------------------------------------------------------------------------------


def level(concurrency: int, right: int, wrong: int, kind: str = "call") -> Level:
    tries = [Try(SAMPLE, None)] * right + [Try(SAMPLE, "no call", (replied(content="Hello"),))] * wrong
    return Level(concurrency, tuple((kind, one) for one in tries))


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ([level(1, 48, 0), level(8, 48, 0), level(32, 64, 0)], "pass"),
        ([level(1, 48, 0), level(8, 47, 1), level(32, 63, 1)], "pass"),
        ([level(1, 48, 0), level(8, 48, 0), level(32, 40, 24)], "fail"),
        ([level(1, 48, 0), level(8, 43, 7), level(32, 56, 8), level(128, 200, 30)], "fail"),
        ([level(1, 24, 24), level(8, 24, 24), level(32, 32, 32)], "pass"),
        ([level(1, 48, 0, "prose"), level(8, 0, 48, "prose")], "pass"),
    ],
)
def test_calls_under_load(levels: list[Level], verdict: str) -> None:
    found = load.judge({one.concurrency: one for one in levels})
    assert found.verdict == verdict, found.sentence
    assert bool(found.exchanges) == (verdict == "fail")
    assert levels[0].counts() == (len(levels[0].tries) - len(levels[0].failures()), len(levels[0].tries))
    assert set(CALLS) >= {"call"}


def test_ids_are_new_in_every_answer_unless_they_are_made_of_the_name() -> None:
    assert load.shared_id([replied(OSLO), replied(call({}, call_id="call_2"))]) is None
    assert load.shared_id([replied(OSLO), replied(OSLO)]) == "call_1"
    counted = call({}, call_id="functions.get_weather:0")
    assert load.shared_id([replied(counted), replied(counted)]) is None


@pytest.mark.parametrize(
    ("candidate", "production", "again", "verdict"),
    [
        ([True, False] * 50, [True, False] * 50, [True, False] * 50, "pass"),
        ([True, False] * 48 + [True] * 4, [True, False] * 50, [True, False] * 50, "pass"),
        ([True] * 100, [True, False] * 50, [True, False] * 50, "fail"),
        ([False] * 100, [True, False] * 50, [True, False] * 50, "fail"),
        ([True] * 100, [True, False] * 50, [True] * 100, "pass"),
    ],
)
def test_agreement(candidate: list[bool], production: list[bool], again: list[bool], verdict: str) -> None:
    assert agreement.agreement(candidate, production, again).verdict == verdict


def asked(*calls: ToolCall, **body: Any) -> Answer:
    return replied(*calls, body={"tools": [WEATHER, CLOCK, RECORD], "tool_choice": "auto"} | body)


GOOD, BAD = asked(OSLO), asked(call({"city": 7}))


@pytest.mark.parametrize(
    ("answers", "before", "verdict"),
    [
        ([], {}, "pass"),
        ([GOOD] * 98 + [BAD] * 2, {}, "pass"),
        ([GOOD] * 97 + [BAD] * 3, {}, "fail"),
        ([GOOD] * 95 + [BAD] * 5, {"n": 100, "right": 95}, "pass"),
        ([GOOD] * 93 + [BAD] * 7, {"n": 100, "right": 95}, "fail"),
        ([GOOD, BAD], {}, "pass"),
        ([asked(call("{"))] * 50, {}, "pass"),
        ([asked(call({}, "unknown"))] * 50, {}, "pass"),
        ([replied(call({"city": 7}), finish_reason="length", body=GOOD.body)] * 50, {}, "pass"),
    ],
)
def test_share_of_calls_that_break_their_schema(answers: list[Answer], before: dict[str, int], verdict: str) -> None:
    found = agreement.schema_share(answers, before)
    assert found.verdict == verdict, found.sentence
    assert bool(found.exchanges) == (found.verdict is VerdictKind.FAIL)
