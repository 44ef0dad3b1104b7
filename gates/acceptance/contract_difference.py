"""P14: what clients see on the wire is as on production: paths, types, ends, ids and names of fields.

Not what is right, what is *the same*: a client that reads `reasoning_content` is broken by an engine that calls it
`reasoning`, although either is fine by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import result, user
from gates.acceptance.check import Check, Overall, Sample, Skip
from gates.acceptance.plain import unthinking
from gates.acceptance.survey import Surveyed, failed, keep, passed
from gates.acceptance.tools import CLOCK, WEATHER
from gates.sse import Event, events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer
    from gates.wire import Exchange

_ID: Final = "P14"
_SHOWN: Final = 8
_CACHE_DEPENDENT: Final = re.compile(r"usage\.prompt_tokens_details|^timings|\.timings")
"""What is there or not as the prefix cache or the clock will have it."""
_PREFIX: Final = re.compile(r"(?:[A-Za-z_]+[-.:_])*")

Shape = Mapping[str, Any]
"""How one answer looks: paths with types, finish_reason, pattern of ids, name of the reasoning field."""


async def _questions(asker: Asker, sample: Sample) -> list[tuple[str, Answer]]:
    """Six questions, each streamed and whole, always the same ones."""
    plain = unthinking(asker, sample)
    weather = [user(sample, "What is the weather in Lisbon right now? Use the tool, unit c.")]
    function = {"name": "get_weather", "arguments": '{"city": "Lisbon", "unit": "c"}'}
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "Wthr4K7Q2", "type": "function", "function": function}],
    }
    hello = [user(sample, "Reply with only the following word: hello")]
    clock = {"type": "function", "function": {"name": "get_server_time"}}
    tools = [WEATHER, CLOCK] if asker.capability.tools else []
    asked: dict[str, tuple[Sample, Any, dict[str, Any]]] = {
        "text": (plain, hello, {}),
        "cut": (plain, [user(sample, "Write a story of 300 words.")], {"max_tokens": 12}),
    }
    if tools:
        asked["call"] = (plain, weather, {"tools": tools})
        asked["result"] = (plain, [*weather, turn, result("Wthr4K7Q2", '{"temp_c": 48.37}')], {"tools": tools})
        forced = {"tool_choice": clock} if asker.capability.named else {}
        asked["time"] = (
            plain,
            [user(sample, "What time does the server have? Use the tool.")],
            {"tools": tools} | forced,
        )
    thinks = asker.capability.thinking in ("always", "switch")
    on = sample.asked(thinking=True if asker.capability.thinking == "switch" else None)
    asked["thought" if thinks else "sum"] = (on if thinks else plain, [user(sample, "What is 17 + 25?")], {})
    answers = []
    for name, (how, messages, keys) in asked.items():
        for streamed in (True, False):
            answer = await asker.chat(how.asked(streamed=streamed), messages, **keys)
            answers.append((f"{name}, {'streamed' if streamed else 'whole'}", answer))
    return answers


def shape(answer: Answer) -> Shape:
    """What `answer` looks like to a client, without what it says."""
    documents = list(_documents(answer.exchange, streamed=answer.reply.streamed))
    paths = {path for document in documents for path in _paths(document, "") if not _CACHE_DEPENDENT.search(path)}
    ids = [document.get("id") for document in documents]
    return {
        "paths": sorted(paths),
        "finish_reason": answer.reply.finish_reason,
        "id": pattern(ids[0]) if ids else None,
        "call_id": pattern(answer.reply.calls[0].id) if answer.reply.calls else None,
        "reasoning_field": answer.reply.reasoning_field,
    }


def pattern(value: object) -> str:
    """The form of an id: what leads it in, and how many signs follow: `chatcmpl-<32>`."""
    if not isinstance(value, str):
        return "none"
    found = _PREFIX.match(value)
    prefix = found.group() if found else ""
    return f"{prefix}<{len(value) - len(prefix)}>"


def _documents(exchange: Exchange, *, streamed: bool) -> Iterator[Mapping[str, Any]]:
    texts = (
        [event.data for event in events(exchange.pieces) if isinstance(event, Event)] if streamed else [exchange.body]
    )
    for text in texts:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            yield document


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{key}" if path else str(key))
        return
    if isinstance(value, list):
        for inner in value or [None]:
            yield from _paths(inner, f"{path}[]") if value else (f"{path}: empty list",)
        return
    names = {bool: "boolean", str: "string", int: "number", float: "number", type(None): "null"}
    yield f"{path}: {names[type(value)]}"


def differences(mine: Mapping[str, Shape], theirs: Mapping[str, Any]) -> list[str]:
    """Every difference between the shapes of the same questions, in words."""
    found = []
    for name, here in mine.items():
        there = theirs.get(name)
        if not isinstance(there, Mapping):
            continue
        found += [
            f"{name}: {key} is {here[key]}, on production {there.get(key)}"
            for key in ("finish_reason", "id", "call_id", "reasoning_field")
            if here[key] != there.get(key)
        ]
        old, new = set(there.get("paths", ())), set(here["paths"])
        found += [f"{name}: {path} is new" for path in sorted(new - old)]
        found += [f"{name}: {path} is gone" for path in sorted(old - new)]
    return found


async def _measure(asker: Asker, seed: str, salt: str = "") -> tuple[dict[str, Shape], list[tuple[str, Answer]]]:
    sample = Sample(_ID, 0, seed, streamed=False, greedy=True, salt=salt)
    answers = await _questions(asker, sample)
    return {name: shape(answer) for name, answer in answers}, answers


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    mine, answers = await _measure(asker, around.seed)
    for name, answer in answers:
        if answer.first_problem:
            return failed(f"{name}: {answer.first_problem}", answer.exchange, shapes=mine)
    theirs = around.before(_ID).get("shapes")
    if not isinstance(theirs, Mapping) and around.live is not None:
        theirs = (await _measure(around.live, around.seed))[0]
    if not isinstance(theirs, Mapping):
        keep(asker, _ID, shapes=mine)
        raise Skip("nothing to compare with; what the wire looks like is recorded for the next run")
    found = differences(mine, theirs)
    if found:
        # A model may answer one question otherwise for once; what the engine does, it does again.
        again, answers = await _measure(asker, around.seed, "again")
        found = [one for one in differences(again, theirs) if one in found]
    if not found:
        return passed(f"{len(mine)} answers look to a client as on production", shapes=mine)
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    names = {one.partition(":")[0] for one in found[:_SHOWN]}
    evidence = [answer.exchange for name, answer in answers if name in names]
    said = f"{len(found)} differences from production: {'; '.join(found[:_SHOWN])}{more}"
    return failed(said, *evidence, shapes=mine, differences=found)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id=_ID,
        name="wire as on production",
        asks="Six questions (text, call, result, forced or second call, cut, thought), each streamed and whole.",
        holds="paths and types of the JSON, finish_reason, form of ids, reasoning field: all as on production",
        catches="a field that clients read and that has another name now; waive what is meant to change",
        rule=Overall("no difference from production that shows twice"),
        survey=_survey,
    ),
)
