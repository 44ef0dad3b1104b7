"""Group J: output that a grammar should hold in shape: strict tools, JSON schemas, JSON objects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from gates.acceptance.calls import no_calls_problem, shape_problem
from gates.acceptance.check import EXPOSED, Check, Deterministic, needs
from gates.acceptance.tools import CITIES, named, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.acceptance.tools import Tool
    from gates.trial import Answer

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_BLANKS: Final = re.compile(r"\s{100,}")


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def as_format(schema: Schema) -> Mapping[str, Any]:
    """`response_format` for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def content_problem(answer: Answer, schema: Schema) -> str | None:
    """What is wrong with an answer whose content should be JSON of this schema and nothing else."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if not reply.content.strip():
        where = " (there is reasoning)" if reply.reasoning.strip() else ""
        return f"the content is empty{where}; expected JSON"
    blanks = _BLANKS.search(reply.content)
    if blanks is not None:
        return f"the content holds {len(blanks.group())} blanks in a row"
    if reply.finish_reason != "stop":
        return f"finish_reason is {reply.finish_reason}; expected stop"
    try:
        value = json.loads(reply.content)
    except (ValueError, RecursionError) as broken:
        return f"the content is not JSON ({broken}): {reply.content[:120]!r}"
    error = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(value)), None)
    if error is None:
        return None
    return f"the content breaks the schema: {'.'.join(map(str, error.path)) or 'the whole'}: {error.message[:200]}"


async def one_object(asker: Asker, sample: Sample) -> str | None:
    """A small object by schema."""
    question, schema = _plain(sample.rng())
    return content_problem(await asker.chat(sample, question, response_format=as_format(schema)), schema)


# --- J22 --------------------------------------------------------------------------------------------------------------


def _plain(rng: Random) -> tuple[str, Schema]:
    city, people = rng.choice(CITIES), rng.randrange(10, 900) * 1000
    schema = _object(city=_TEXT, people={"type": "integer"})
    return f"Give this as JSON with the keys city and people: {city} has {people} people.", schema


def _nested(rng: Random) -> tuple[str, Schema]:
    first, last = rng.sample(CITIES, 2)
    place = _object(city=_TEXT, platform={"type": "integer"})
    text = f"Give this journey as JSON: from {first}, platform {rng.randrange(1, 20)}, to {last}, platform 4."
    return text, _object(departure=place, arrival=place)


def _enum(rng: Random) -> tuple[str, Schema]:
    verdict: Schema = {"type": "string", "enum": ["positive", "negative", "neutral"]}
    said = rng.choice(("great", "broken", "all right"))
    text = f"Judge this review as JSON: a customer says that the kettle is {said}."
    return text, _object(verdict=verdict, sure={"type": "boolean"})


def _array(rng: Random) -> tuple[str, Schema]:
    numbers = [rng.randrange(2, 99) for _ in range(5)]
    schema = _object(numbers={"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 8})
    return f"Give these numbers as a JSON list under the key numbers: {', '.join(map(str, numbers))}.", schema


def _unicode(rng: Random) -> tuple[str, Schema]:
    word = rng.choice(("天気", "Привет", "ağaç", "שלום", "ζέφυρος"))
    schema = _object(wörd=_TEXT, длина={"type": "integer"})
    return f'Give the word "{word}" and how many letters it has as JSON.', schema


def _other_shape(rng: Random) -> tuple[str, Schema]:
    """Begs for prose; only a grammar makes JSON of it."""
    text = (
        f"Write one plain English sentence about {rng.choice(CITIES)}. No JSON, no braces, no quotes: just the words."
    )
    return text, _object(sentence=_TEXT, words={"type": "integer"})


_SHAPES: Final[tuple[Callable[[Random], tuple[str, Schema]], ...]] = (
    _plain,
    _nested,
    _enum,
    _array,
    _unicode,
    _other_shape,
)


async def _structured(asker: Asker, sample: Sample) -> str | None:
    which = sample.variant % (len(_SHAPES) + 1)
    if which == len(_SHAPES):
        question, _ = _plain(sample.rng())
        answer = await asker.chat(sample, question, response_format={"type": "json_object"})
        return content_problem(answer, {"type": "object"})
    question, schema = _SHAPES[which](sample.rng())
    return content_problem(await asker.chat(sample, question, response_format=as_format(schema)), schema)


# --- J21 --------------------------------------------------------------------------------------------------------------


def _strict(offered: Tool) -> Tool:
    return {"type": "function", "function": {**offered["function"], "strict": True}}


_STRICT: Final[tuple[tuple[Tool, str], ...]] = tuple(
    (_strict(offered), text)
    for offered, text in (
        (tool("restart_counter", "Sets the counter back to zero."), "Restart the counter."),
        (tool("open_page", "Opens a page by its name.", {"name": _TEXT}), 'Open the page with name "Prices".'),
        (
            tool("set_mode", "Sets the mode.", {"mode": {"type": "string", "enum": ["eco", "normal", "turbo"]}}),
            'Set the mode to "turbo".',
        ),
        (
            tool("move_robot", "Moves the robot.", {"target": _object(x={"type": "integer"}, y={"type": "integer"})}),
            'Move the robot: target {"x": 3, "y": -7}.',
        ),
        (
            tool("add_tags", "Adds tags.", {"tags": {"type": "array", "items": _TEXT}}),
            'Add the tags: tags ["red", "small"].',
        ),
        (
            tool("set_level", "Sets the level.", {"level": {"type": "number"}}),
            "Set the level: level 2.75.",
        ),
        (
            tool("write_note", "Writes a note.", {"title": _TEXT, "body": {"type": ["string", "null"]}}),
            'Write a note: title "Milk", body null.',
        ),
        (
            tool("switch_lamp", "Switches a lamp.", {"lamp": {"type": "integer"}, "on": {"type": "boolean"}}),
            "Switch the lamp: lamp 4, on true.",
        ),
    )
)


async def _strict_tools(asker: Asker, sample: Sample) -> str | None:
    offered, text = _STRICT[sample.variant % len(_STRICT)]
    keys = {"tool_choice": "required"} if asker.capability.required else {}
    answer = await asker.chat(sample, f"{text} Use the tool {named(offered)}.", tools=[offered], **keys)
    if answer.reply.finish_reason == "length":
        return f"the call of {named(offered)} ran to max_tokens"
    problem = no_calls_problem(answer)
    if problem is not None:
        return problem
    return next((bad for call in answer.reply.calls if (bad := shape_problem(call, [offered]))), None)


CHECKS: Final = (
    Check(
        id="J21",
        name="strict tools",
        asks="Eight tools with `strict: true`: without parameters, text, enum, nested, list, number, null, boolean.",
        holds="a call that keeps to the schema and ends before max_tokens",
        catches="grammars that never let the model end, or that are not applied",
        rule=Deterministic(8, persists=True),
        attempt=_strict_tools,
        needs=needs(tools=True, json_schema=True),
    ),
    Check(
        id="J22",
        name="structured output",
        asks="JSON by schema: plain, nested, enum, list, other alphabets; against the question's wish; any object.",
        holds="the content is JSON of that schema and nothing else, no run of 100 blanks, finish_reason stop",
        catches="a grammar that is silently left out, JSON that ends up in the reasoning, endless blanks",
        rule=Deterministic(EXPOSED),
        attempt=_structured,
        needs=needs(json_schema=True),
        # Where JSON gets lost between a thought and a grammar, a thought has to be there. T06 asks without one as well.
        thinking=(True,),
    ),
)
