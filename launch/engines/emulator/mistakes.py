"""Mistakes of a model, as opposed to faults of a server: the wire is right, the answer is not.

`--right 0.95` or `--right calls=0.8`: with the rest of the probability the model calls with another value, another tool
or none, calls where nothing was to be called, forgets a call of several, answers wrongly. What it writes stays valid
against its schema. The draw depends on the seed, the question and the results since: what the model does not know it
does not know streamed or whole, cold or cached, behind whatever system prompt.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

from .answer import Answer, Call
from .choosing import Wish
from .conversation import Tool
from .reading import read
from .request import Asked
from .skills.calling import calls_of
from .skills.markup import TAG
from .tokens import split_tokens

BEHAVIOURS: Mapping[str, str] = MappingProxyType(
    {
        "calls": "the one right call, with the right values",
        "copies": "text copied into an argument",
        "parallel": "several calls in one answer",
        "no-call": "an answer in words although there are tools",
        "agent": "the same behind the long system prompt of an agent",
        "quoted": "an answer about markup that the question quotes, although there are tools",
        "results": "answers after tool results",
        "structured": "JSON by response_format",
        "answers": "everything else",
    }
)

_AGENT_CHARS = 2000
# Keywords whose meaning is left to those who fill schemas.
_FREE = frozenset({"const", "pattern", "format", "$ref", "anyOf", "oneOf", "allOf", "uniqueItems"})


def read_right(words: Iterable[str]) -> Mapping[str, float]:
    """`0.95` and `calls=0.8` as a table; the behaviour "" stands for all that are not named. Raises `ValueError`."""
    table: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if name and name not in BEHAVIOURS:
            raise ValueError(f"--right {word}: there is no behaviour {name!r}; there are {', '.join(BEHAVIOURS)}")
        try:
            table[name] = float(number)
        except ValueError:
            raise ValueError(f"--right {word}: {number!r} is no number; write 0.95 or calls=0.95") from None
        if not 0 <= table[name] <= 1:
            raise ValueError(f"--right {word}: a share is between 0 and 1")
    return MappingProxyType(table)


def mistaken(answer: Answer, asked: Asked, right: Mapping[str, float], seed: int) -> Answer:
    """The answer, or with the probability that is left a wrong one."""
    behaviour = behaviour_of(answer, asked)
    question = (asked.user_text, *(result.text for result in asked.results))
    rng = Random(f"{seed}/{behaviour}/{'/'.join(question)}")  # noqa: S311 - must be repeatable, guards nothing
    if rng.random() < right.get(behaviour, right.get("", 1.0)):
        return answer
    if answer.calls:
        return _wrong_calls(answer, asked, rng)
    if behaviour in ("no-call", "agent", "quoted") and asked.choice.mode == "auto":
        tool = rng.choice(asked.tools)
        return Answer(calls=(_call(tool, asked),))
    if behaviour == "structured":
        document = _other_value(json.loads("".join(answer.content)), asked.answer_schema or {}, rng)
        return Answer(content=split_tokens(json.dumps(document, ensure_ascii=False)))
    return Answer(content=split_tokens("I am not sure about that, so I would rather not say anything about it."))


def behaviour_of(answer: Answer, asked: Asked) -> str:
    """Which behaviour an answer shows."""
    if answer.calls:
        copied = bool(read(asked.user_text).blocks)
        return "parallel" if len(answer.calls) > 1 else "copies" if copied else "results" if asked.results else "calls"
    if asked.results:
        return "results"
    if asked.answer_schema is not None:
        return "structured"
    if not asked.tools:
        return "answers"
    if TAG.search(asked.user_text):
        return "quoted"
    instructed = sum(len(message.text) for message in asked.messages if message.role in ("system", "developer"))
    return "agent" if instructed >= _AGENT_CHARS else "no-call"


def _wrong_calls(answer: Answer, asked: Asked, rng: Random) -> Answer:
    """One call fewer, another value, another tool, or no call where one is not demanded."""
    if len(answer.calls) > 1 and rng.random() < 0.5:
        left_out = rng.randrange(len(answer.calls))
        return replace(answer, calls=answer.calls[:left_out] + answer.calls[left_out + 1 :])
    schemas = {tool.name: tool.schema for tool in asked.tools}
    number = rng.randrange(len(answer.calls))
    call = answer.calls[number]
    ways: list[Answer] = []
    arguments = json.loads(call.arguments)
    other = _other_arguments(arguments, schemas.get(call.name, {}), rng)
    if other != arguments:
        wrong = Call(call.name, json.dumps(other, ensure_ascii=False))
        ways.append(replace(answer, calls=(*answer.calls[:number], wrong, *answer.calls[number + 1 :])))
    others = [tool for tool in asked.tools if tool.name not in {call.name for call in answer.calls}]
    if others and asked.choice.mode != "named" and len(answer.calls) == 1:
        ways.append(replace(answer, calls=(_call(rng.choice(others), asked),)))
    if not asked.choice.forced:
        ways.append(Answer(content=split_tokens("I can tell you more about that if you give me some time.")))
    return rng.choice(ways) if ways else answer


def _call(tool: Tool, asked: Asked) -> Call:
    return calls_of(Wish(tool, read(asked.user_text).focus, named=False), read(asked.user_text))[0]


def _other_arguments(arguments: dict[str, Any], schema: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The same arguments with one value changed within its schema."""
    properties = schema.get("properties") or {}
    names = list(arguments)
    rng.shuffle(names)
    for name in names:
        member = properties.get(name)
        other = _other_value(arguments[name], member if isinstance(member, dict) else {}, rng)
        if other != arguments[name]:
            return {**arguments, name: other}
    return arguments


def _other_value(value: Any, schema: dict[str, Any], rng: Random) -> Any:
    """Another value that the schema allows, or the same where that takes more than a glance."""
    if not _FREE.isdisjoint(schema):
        return value
    if schema.get("enum"):
        return next((option for option in schema["enum"] if option != value), value)
    match value:
        case bool():
            return not value
        case int() | float():
            high = schema.get("maximum", schema.get("exclusiveMaximum"))
            step = schema.get("multipleOf", 1)
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            down = high is not None and value + step >= high
            return value if down and low is not None and value - step <= low else value - step if down else value + step
        case str():
            return _misspelt(value, schema, rng)
        case dict():
            return _other_arguments(value, schema, rng)
        case list() if value:
            items = schema.get("items")
            return [_other_value(value[0], items if isinstance(items, dict) else {}, rng), *value[1:]]
        case _:
            return value


def _misspelt(text: str, schema: dict[str, Any], rng: Random) -> str:
    """Without one of its letters or digits."""
    places = [n for n, c in enumerate(text) if c.isalnum()]
    if len(places) < 2 or len(text) <= schema.get("minLength", 0):
        return text
    cut = rng.choice(places[1:])
    return text[:cut] + text[cut + 1 :]
