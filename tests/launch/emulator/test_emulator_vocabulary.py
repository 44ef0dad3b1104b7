"""Every word of the vocabulary: one request that provokes it, what must be on the wire, and not without it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from emulator_asking import WEATHER
from fault_seeing import CALL, CALLS, RESULT, SAVE_FILE, SCHEMA, SET_PRICE, THINK, Seen, parsed, see

from launch.engines.emulator.faults import vocabulary
from launch.engines.emulator.hosted import hosted

FAST = ("--ttft-ms", "0", "--itl-ms", "0.01")
BOTH, STREAM = (True, False), (True,)
PROSE: dict[str, Any] = {"text": "Tell me about rivers."}
LONG = {"text": 'Use save_file: "the quick brown fox jumps over the lazy dog", notes.txt', "tools": [SAVE_FILE]}
SHAPE = {"text": "Ada Lovelace lives in Oslo.", "response_format": SCHEMA}
NONE = {**CALL, "tool_choice": "none"}
ADD_ITEM = {
    "type": "function",
    "function": {
        "name": "add_item",
        "parameters": {"type": "object", "properties": {"serial": {"type": "integer"}}, "required": ["serial"]},
    },
}


@dataclass(frozen=True)
class Row:
    """`shown` must be true of every answer with the fault, and false of every one without it."""

    asks: dict[str, Any]
    shown: Callable[[Seen], Any]
    modes: tuple[bool, ...] = BOTH


def looped(seen: Seen) -> bool:
    return seen.finishes == ["length"] and len(seen.content) > 300 and len(set(seen.content[-200:].split(" "))) < 6


def first_call(seen: Seen) -> dict[str, Any]:
    return seen.openings[0]


ROWS: dict[str, Row] = {
    # args
    "args-tail-cut": Row(CALL, lambda s: s.parsed == ["broken"] and s.arguments[0].startswith('{"city": ')),
    "args-head-cut": Row(CALL, lambda s: s.parsed[0] == "broken" and s.arguments[0].endswith("}")),
    "args-extra-tail": Row(CALL, lambda s: s.arguments[0].endswith("}}") and s.parsed[0] == "broken"),
    "args-doubled": Row(CALL, lambda s: s.arguments[0].count('{"city"') == 2),
    "args-overlap": Row(CALL, lambda s: s.arguments == ['{"city": "Os"Oslo"}'], STREAM),
    "args-merged": Row(CALLS, lambda s: len(s.openings) == 1 and s.arguments[0].count('"city"') == 2),
    "args-empty-str": Row(CALL, lambda s: s.arguments == [""]),
    "args-empty-obj": Row(CALL, lambda s: s.arguments == ["{}"]),
    "args-null": Row(CALL, lambda s: s.arguments == [None]),
    "args-value-cut": Row(CALL, lambda s: s.parsed == [{"city": "Os"}]),
    "args-markup-in-key": Row(CALL, lambda s: "</" in next(iter(s.parsed[0]))),
    "leak-in-args": Row(CALL, lambda s: s.parsed[0]["city"] != "Oslo" and "Oslo" in s.parsed[0]["city"]),
    "type-coerce": Row(
        {"text": "Set the price of article X17 to 12.5", "tools": [SET_PRICE]}, lambda s: s.parsed[0]["price"] == "12.5"
    ),
    "value-trim": Row(
        {"text": 'Use save_file: "  padded  ", notes.txt', "tools": [SAVE_FILE]},
        lambda s: s.parsed[0]["text"] == "padded",
    ),
    "escape-u": Row(
        {"text": "What is the weather in Kraków?", "tools": [WEATHER]}, lambda s: "\\u00f3" in s.parsed[0]["city"]
    ),
    "html-escaped": Row(
        {"text": 'Use save_file: "a < b & c", notes.txt', "tools": [SAVE_FILE]},
        lambda s: s.parsed[0]["text"] == "a &lt; b &amp; c",
    ),
    "html-unescaped": Row(
        {"text": 'Use save_file: "a &lt; b &amp; c", notes.txt', "tools": [SAVE_FILE]},
        lambda s: s.parsed[0]["text"] == "a < b & c",
    ),
    "int-rounded": Row(
        {"text": "Call add_item with serial 9007199254740993.", "tools": [ADD_ITEM]},
        lambda s: s.parsed[0]["serial"] in (9007199254740992, 9.007e15),
    ),
    "args-one-chunk": Row(LONG, lambda s: len(s.deltas) == 2 and s.parsed[0]["path"] == "notes.txt", STREAM),
    "first-args-lost": Row(CALLS, lambda s: s.arguments[0] == "" and s.parsed[1]["city"] == "Paris"),
    "second-args-lost": Row(CALLS, lambda s: s.arguments[1] == "" and s.parsed[0]["city"] == "Oslo"),
    "wrong-schema-arguments": Row(CALL, lambda s: s.parsed == [{"city": {"value": "Oslo"}}]),
    # name/id/index
    "name-repeat": Row(CALL, lambda s: len(s.openings) == len(s.deltas) > 2, STREAM),
    "name-truncated": Row(CALL, lambda s: first_call(s)["function"]["name"] == "get"),
    "name-garbage": Row(CALL, lambda s: len(first_call(s)["function"]["name"]) > len("get_weather")),
    "name-empty": Row(CALL, lambda s: first_call(s)["function"]["name"] == ""),
    "id-missing": Row(CALL, lambda s: s.deltas and not any("id" in call for call in s.deltas)),
    "id-null-cont": Row(
        CALL, lambda s: all(c["id"] is None and c["function"]["name"] is None for c in s.deltas[1:]), STREAM
    ),
    "id-bad-format": Row(CALL, lambda s: len(first_call(s)["id"]) > 50),
    "id-duplicate": Row(CALLS, lambda s: len({call["id"] for call in s.openings}) == 1),
    "type-missing": Row(CALL, lambda s: s.deltas and not any("type" in call for call in s.deltas)),
    "index-all-zero": Row(
        CALLS, lambda s: len(s.openings) == 2 and {call["index"] for call in s.deltas} == {0}, STREAM
    ),
    "index-by-tool": Row(
        {**CALL, "tools": [SAVE_FILE, SET_PRICE, WEATHER]}, lambda s: {c["index"] for c in s.deltas} == {2}, STREAM
    ),
    "choice-mix": Row({**CALL, "n": 2}, lambda s: s.arguments[0].count("city") == 2, STREAM),
    "unknown-name": Row(CALL, lambda s: first_call(s)["function"]["name"] == "search_web"),
    # calls
    "call-lost-fin-toolcalls": Row(
        CALL, lambda s: not s.deltas and s.finishes == ["tool_calls"] and s.usage["completion_tokens"] > 3
    ),
    "call-lost": Row(CALL, lambda s: not s.deltas and s.finishes == ["stop"] and s.usage["completion_tokens"] > 3),
    "second-call-lost": Row(CALLS, lambda s: len(s.openings) == 1 and s.parsed == [{"city": "Oslo"}]),
    "phantom-call": Row(
        {"text": "Hello!"},
        lambda s: first_call(s)["function"]["name"] == "example_function_name" if s.deltas else False,
    ),
    "leak-markup": Row(CALL, lambda s: "<tool_call>" in s.content and not s.deltas and s.finishes == ["stop"]),
    "leak-json": Row(CALL, lambda s: '"parameters"' in s.content and not s.deltas),
    "leak-control": Row(PROSE, lambda s: s.content.rstrip().endswith(">")),
    "content-lost": Row(PROSE, lambda s: len(s.content) == 19 and s.usage["completion_tokens"] > 50),
    "content-gap": Row(PROSE, lambda s: len(s.content.split()) < 0.85 * s.usage["completion_tokens"] * 0.9, STREAM),
    "content-ws": Row(CALL, lambda s: s.content == "\n\n" and s.deltas),
    "content-empty-chunk": Row(CALL, lambda s: {"content": ""} in [c["delta"] for c in s.choices[1:-1]], STREAM),
    "all-empty": Row(PROSE, lambda s: not s.content and s.finishes == ["stop"] and s.usage["completion_tokens"] > 50),
    # choice/finish
    "required-prose": Row({**CALL, "tool_choice": "required"}, lambda s: not s.deltas and len(s.content) > 20),
    "none-calls": Row(NONE, lambda s: s.deltas),
    "none-swallow": Row(NONE, lambda s: not s.content and s.finishes == ["stop"] and s.usage["completion_tokens"] > 3),
    "parallel-ignored": Row({**CALLS, "parallel_tool_calls": False}, lambda s: len(s.openings) == 2),
    "fin-toolcalls-on-length": Row(
        {**LONG, "max_tokens": 12},
        lambda s: s.finishes == ["tool_calls"] and s.deltas and s.usage["completion_tokens"] == 12,
    ),
    "fin-stop-on-calls": Row(CALL, lambda s: s.deltas and s.finishes == ["stop"]),
    "no-finish": Row(PROSE, lambda s: not s.finishes and s.content),
    "two-finish": Row(PROSE, lambda s: s.finishes == ["stop", "stop"], STREAM),
    "schema-not-enforced": Row(SHAPE, lambda s: set(s_keys(s)) != {"name", "city"}),
    # transport
    "err-in-stream": Row(
        PROSE, lambda s: "error" in s.chunks[-1] and s.status == 200 and 3 <= len(s.chunks) < 9, STREAM
    ),
    "stream-cut": Row(PROSE, lambda s: s.broken),
    "done-only": Row(PROSE, lambda s: s.events == ["[DONE]"], STREAM),
    "no-done": Row(PROSE, lambda s: "[DONE]" not in s.events and s.finishes, STREAM),
    "http500": Row(PROSE, lambda s: s.status == 500),
    "http500-history": Row(RESULT, lambda s: s.status == 500),
    "http400": Row(PROSE, lambda s: s.status == 400),
    "conn-drop": Row(PROSE, lambda s: s.broken and not s.status),
    "engine-death": Row(PROSE, lambda s: s.status == 500),
    "hang": Row(PROSE, lambda s: s.broken and not s.finishes),
    "abort": Row(PROSE, lambda s: s.finishes == ["abort"] and s.usage["completion_tokens"] == 5),
    "abort-as-length": Row(PROSE, lambda s: s.finishes == ["length"] and not s.content),
    "usage-wrong": Row(PROSE, lambda s: s.usage["completion_tokens"] == 0),
    "no-usage": Row(PROSE, lambda s: not s.usage),
    "nan-in-json": Row(PROSE, lambda s: s.usage["tokens_per_second"] != s.usage["tokens_per_second"]),
    "model-renamed": Row(PROSE, lambda s: s.chunks[0]["model"] != s.chunks[1]["model"] == "another-model", STREAM),
    "headless": Row(PROSE, lambda s: all(c["object"] == "list" and "id" not in c for c in [s.body, *s.chunks] if c)),
    # prompt
    "prompt-drop-tool": Row(RESULT, lambda s: s.content and "48.37" not in s.content and not s.deltas),
    "prompt-drop-history": Row(RESULT, lambda s: s.parsed == [{"city": "Oslo"}]),
    "loop-same-call": Row(RESULT, lambda s: s.parsed == [{"city": "Oslo"}]),
    "loses-tool-result": Row(RESULT, lambda s: s.content and "48.37" not in s.content),
    "toggle-ignored": Row({**PROSE, **THINK}, lambda s: not s.reasoning),
    # thinking
    "think-in-content": Row({**PROSE, **THINK}, lambda s: s.content.startswith("<think>") and not s.reasoning),
    "think-untagged": Row({**PROSE, **THINK}, lambda s: not s.reasoning and "think>" not in s.content),
    "answer-in-reasoning": Row({"text": "Hello!"}, lambda s: not s.content and "ready to help" in s.reasoning),
    "answer-dup": Row(
        {"text": "Hello!", **THINK}, lambda s: "ready to help" in s.content and "ready to help" in s.reasoning
    ),
    "think-tail-in-final": Row(
        {**CALL, **THINK}, lambda s: s.choices[-1]["said"].get("content") and s.reasoning.endswith(s.content), STREAM
    ),
    "tool-in-reasoning": Row({**CALL, **THINK}, lambda s: "<tool_call>" in s.reasoning and not s.deltas),
    "json-in-reasoning": Row({**SHAPE, **THINK}, lambda s: not s.content and '"city"' in s.reasoning),
    "stop-in-reasoning": Row({**PROSE, **THINK, "stop": ["zebra"]}, lambda s: s.content == "/think>"),
    "reasoning-lost": Row({**CALL, **THINK}, lambda s: not s.reasoning and s.deltas),
    "reasoning-gap": Row(
        {**CALL, **THINK}, lambda s: len(s.reasoning.split()) < s.usage["completion_tokens"] - 30, STREAM
    ),
    # text
    "garbage": Row(PROSE, lambda s: len(set(s.content.split())) < 12),
    "bang": Row(PROSE, lambda s: s.content == "!" * 512 and s.finishes == ["length"]),
    "salad": Row(PROSE, lambda s: sum(not c.isascii() for c in s.content) > 40),
    "token-loop": Row(PROSE, lambda s: looped(s) or (s.finishes == ["length"] and len(set(s.content)) < 9)),
    "ngram-loop": Row(PROSE, looped),
    "count-loop": Row(PROSE, lambda s: s.content.startswith("1. 2. 3. ") and s.finishes == ["length"]),
    "ws-loop": Row(
        SHAPE, lambda s: (s.content.startswith("{") and s.content.endswith(" " * 9)) or s.content.endswith("\n" * 9)
    ),
    "lang-drift": Row(PROSE, lambda s: sum("\u4e00" <= c <= "\u9fff" for c in s.content) > 40),
    "mojibake": Row({"text": "用中文谈谈河流"}, lambda s: "\ufffd" in s.content or "Ã" in s.content),
    "invisible": Row(PROSE, lambda s: s.content.endswith(("\x00", "\x1b[0m", "\b", "\u200b", "\ufeff"))),
    "wrong-answers": Row({"text": "What is the capital of France?"}, lambda s: s.content and "Paris" not in s.content),
    "splice": Row(SHAPE, lambda s: set(s_keys(s)) != {"name", "city"}),
    "bad-on-cache-hit": Row({"text": "Say " + "river " * 60}, lambda s: len(set(s.content)) < 2),
    "sampled-only": Row(PROSE, lambda s: s.finishes == ["length"]),
    "wrong-kv": Row({"text": "What is the capital of France?"}, lambda s: len(s.content) > 60),
    # healthy variants
    "whole-call": Row(
        CALLS, lambda s: len(s.deltas) == 2 and s.parsed == [{"city": "Oslo"}, {"city": "Paris"}], STREAM
    ),
    "name-with-brace": Row(CALL, lambda s: s.deltas[0]["function"]["arguments"] and len(s.deltas) > 1, STREAM),
    "content-beside-calls": Row(
        CALL, lambda s: beside(s) in ({"", None}, {None}, {""}) and (s.events or beside(s) == {""})
    ),
    "role-repeated": Row(PROSE, lambda s: all(c["said"]["role"] == "assistant" for c in s.choices), STREAM),
    "ping-comments": Row(PROSE, lambda s: s.comments > 3, STREAM),
    "usage-everywhere": Row(PROSE, lambda s: all(chunk["usage"] for chunk in s.chunks[1:]), STREAM),
    "args-without-spaces": Row(CALL, lambda s: s.arguments == ['{"city":"Oslo"}']),
    "args-reordered": Row(LONG, lambda s: list(s.parsed[0]) == ["text", "path"]),
}
ELSEWHERE = {
    "bang-after-wake", "state-bleed", "swap-requests",
    "prompt-null-literal", "prompt-args-coerced", "prompt-drop-reasoning",
    "prompt-last-system",
}  # fmt: skip
"""Faults that one request cannot show: in `test_emulator_faults_apart.py`."""
OTHER_DIALECTS = ("vllm-old", "sglang", "llamacpp", "smg")
NATURAL = {("id-null-cont", "sglang"), ("name-with-brace", "llamacpp"), ("content-beside-calls", "sglang")}
"""What is a fault elsewhere, this dialect does by nature."""
WIRE_FAULTS = tuple(fault.name for fault in vocabulary() if fault.edits is not None and fault.name in ROWS)


def beside(seen: Seen) -> set[str | None]:
    """What stands in `content` beside calls; "absent" where nothing does."""
    return {choice["said"].get("content", "absent") for choice in seen.choices if choice["said"].get("tool_calls")}


def s_keys(seen: Seen) -> list[str]:
    value = parsed(seen.content)
    return list(value) if isinstance(value, dict) else []


def engine(*faults: str, flags: tuple[str, ...] = ()) -> Any:
    return hosted(*FAST, *flags, *(word for fault in faults for word in ("--fault", fault)))


def holds(row: Row, seen: Seen) -> bool:
    try:
        return bool(row.shown(seen))
    except (LookupError, TypeError, AttributeError):  # there is nothing to look at
        return False


def test_every_word_has_its_row():
    assert {fault.name for fault in vocabulary()} == ROWS.keys() | ELSEWHERE


@pytest.fixture(scope="module")
def healthy() -> Iterator[dict[str, str]]:
    """A healthy engine of each dialect, by its name."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(engine(flags=("--dialect", name))).url for name in ("vllm", *OTHER_DIALECTS)}


def check(name: str, dialect: str, good: str) -> None:
    row = ROWS[name]
    with engine(name, flags=("--dialect", dialect)) as struck:
        if name == "bad-on-cache-hit":
            see(struck.url, stream=False, **row.asks)
        timeout_s = 0.3 if name == "hang" else 20.0
        for stream in row.modes:
            seen = see(struck.url, stream=stream, timeout_s=timeout_s, **row.asks)
            assert holds(row, seen), seen
            without = see(good, stream=stream, **row.asks)
            assert not holds(row, without), without


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_shows_on_the_wire_and_nothing_does_without_it(name: str, healthy: dict[str, str]):
    check(name, "vllm", healthy["vllm"])


@pytest.mark.parametrize(
    ("name", "dialect"), [each for each in product(WIRE_FAULTS, OTHER_DIALECTS) if each not in NATURAL]
)
def test_a_fault_of_the_wire_shows_in_every_dialect(name: str, dialect: str, healthy: dict[str, str]):
    check(name, dialect, healthy[dialect])
