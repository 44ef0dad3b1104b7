"""Group J: tool calls, and the choice of a tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from gates import markers
from gates.acceptance.check import B90, Check, Sample, Tier, needs
from gates.acceptance.tools import CITIES, WEATHER, Tool, named, schema_of
from gates.invariants import not_an_object
from gates.text import folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.acceptance.asker import Asker
    from gates.reply import Reply
    from gates.toolwire import ToolCall
    from gates.trial import Answer


def one_call_problem(answer: Answer, tools: Sequence[Tool], called: str, expected: Mapping[str, Any]) -> str | None:
    """What is wrong with an answer that should be one call of `called`; faults that hide others come first."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if not reply.calls:
        return no_call_reason(reply)
    if len(reply.calls) > 1:
        return f"{len(reply.calls)} calls came ({', '.join(call.name for call in reply.calls)}); expected one"
    problem = call_problem(reply.calls[0], tools, called, expected)
    if problem is None and reply.finish_reason != "tool_calls":
        return f"finish_reason is {reply.finish_reason}; expected tool_calls"
    return problem


def call_problem(call: ToolCall, tools: Sequence[Tool], called: str, expected: Mapping[str, Any]) -> str | None:
    """What is wrong with one call: its tool, its arguments as JSON, against their schema, against what was asked."""
    offered = next((tool for tool in tools if named(tool) == call.name), None)
    if offered is None:
        return f"the tool {call.name!r} was called, which was not on offer"
    if call.name != called:
        return f"{call.name} was called; expected {called}"
    problem = schema_problem(call.arguments, schema_of(offered))
    if problem is not None:
        return problem
    value = json.loads(call.arguments)
    wrong = [key for key, asked in expected.items() if folded(value.get(key)) != folded(asked)]
    return f"{wrong[0]} is {value.get(wrong[0])!r}; asked was {expected[wrong[0]]!r}" if wrong else None


def schema_problem(arguments: str, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with `arguments` as JSON and against the declared schema."""
    broken = not_an_object(arguments)
    if broken:
        return broken
    error = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))), None)
    if error is None:
        return None
    where = ".".join(str(part) for part in error.path) or "arguments"
    return f"arguments break their schema: {where}: {error.message}"


def no_call_reason(reply: Reply) -> str:
    """Why there is no call, as far as the answer shows."""
    if reply.finish_reason == "length":
        return "no call: the answer reached max_tokens"
    leaked = markers.found(reply.content, markers.TOOLS)
    if leaked:
        return f"no call: it was left in the content as text ({leaked}); is a tool-call parser set?"
    hidden = markers.found(reply.reasoning, markers.TOOLS)
    if hidden:
        return f"no call: it was swallowed by the reasoning ({hidden})"
    if not reply.content.strip():
        return "no call and no content: the answer is empty"
    return f"no call: the model answered in prose ({' '.join(reply.content.split())[:100]!r})"


async def _single(asker: Asker, sample: Sample) -> str | None:
    city = sample.rng().choice(CITIES)
    asked = f"What is the weather in {city} right now? Use the tool, unit c."
    answer = await asker.chat(sample, asked, tools=[WEATHER])
    return one_call_problem(answer, [WEATHER], "get_weather", {"city": city})


CHECKS: Final = (
    Check(
        id="J01",
        name="single call",
        asks="The weather of a city, another one in every try, with one tool on offer.",
        holds="exactly one call of that tool, the city as asked, finish_reason tool_calls",
        catches="a missing or wrong tool-call parser, calls lost or cut, a model that cannot call",
        rule=B90,
        attempt=_single,
        tier=Tier.SMOKE,
        needs=needs(tools=True),
    ),
)
