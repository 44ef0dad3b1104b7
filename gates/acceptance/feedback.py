"""Group F: what the tools gave is read, told and used."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import lookups
from gates.acceptance.asker import result, user
from gates.acceptance.check import B80, B90, Check, Deterministic, Sample, Tier, needs
from gates.acceptance.tools import CITIES, WEATHER, temperature, tool
from gates.acceptance.turns import (
    STATUS_TOKENS,
    call_ids,
    called,
    calling,
    misattributed,
    said,
    status_problem,
    told_problem,
)

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.reply import Reply
    from gates.trial import Answer

_FAILED: Final = re.compile(
    r"fail|error|time[ds]?[ -]?out|unable|could ?n[o'\u2019]t|could not|can ?not|can['\u2019]t|did ?n[o'\u2019]t|sorry|"
    r"problem|issue|unavailable|not available|wrong|no (?:answer|result|response|data)|try again|unfortunately",
    re.IGNORECASE,
)
_ORDERS: Final = ((0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2))
_REPORT: Final = tool("report_answer", "Hands the final answer over and ends the work.", {"answer": {"type": "string"}})


async def _one_result(asker: Asker, sample: Sample) -> str | None:
    wanted = lookups.lookup(sample.rng())
    messages = await lookups.own_call(asker, sample, wanted)
    if isinstance(messages, str):
        return messages
    return told_problem(await asker.chat(sample, messages, tools=[wanted.tool]), wanted.canary)


def _several(asker: Asker, sample: Sample) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Three calls in one message, their results in some order, and the values by city."""
    rng = sample.rng()
    cities = rng.sample(CITIES, 3)
    values: dict[str, str] = {}
    while len(set(values.values())) < len(cities):
        values = {city: temperature(rng) for city in cities}
    ids = call_ids(asker, rng, ["get_weather"] * 3)
    calls = [
        called(i, "get_weather", json.dumps({"city": city, "unit": "c"}, ensure_ascii=False))
        for i, city in zip(ids, cities, strict=True)
    ]
    order = _ORDERS[sample.variant % len(_ORDERS)]
    results = [result(ids[i], lookups.weather_result(rng, values[cities[i]])) for i in order]
    text = f"What is the weather in {cities[0]}, {cities[1]} and {cities[2]}? One line per city: city, temperature."
    return [user(sample, text), calling(*calls), *results], values


def several_problem(answer: Answer, values: dict[str, str]) -> str | None:
    """What is wrong with an answer that should tell every city's value."""
    return told_problem(answer, *values.values()) or misattributed(answer.reply.content, values)


async def _several_results(asker: Asker, sample: Sample) -> str | None:
    messages, values = _several(asker, sample)
    return several_problem(await asker.chat(sample, messages, tools=[WEATHER]), values)


async def _streamed_follow_up(asker: Asker, sample: Sample) -> str | None:
    """The same greedy request in both modes must come to the same; whether it is right, F04 asks."""
    messages, _ = _several(asker, sample)
    asked = sample.asked(greedy=True)
    streamed, whole = [
        await asker.chat(asked.asked(streamed=mode), messages, tools=[WEATHER]) for mode in (True, False)
    ]
    if streamed.first_problem or whole.first_problem:
        return streamed.first_problem or whole.first_problem
    came, expected = _shape(streamed.reply), _shape(whole.reply)
    return None if came == expected else f"streamed it is {came}; the same request whole is {expected}"


def _shape(reply: Reply) -> str:
    text = "text" if reply.content.strip() else "no text"
    return f"{text}, {len(reply.calls)} calls, finish_reason {reply.finish_reason}"


async def _error_accepted(asker: Asker, sample: Sample) -> str | None:
    wanted = lookups.lookup(sample.rng())
    messages = lookups.history(asker, sample, wanted)
    if sample.variant % 2 == 0:
        messages[-1] = result(messages[-1]["tool_call_id"], json.dumps({"error": "timeout"}))
    if sample.variant >= 2:
        # No assistant message between: people interrupt while a tool is at work.
        messages.append({"role": "user", "content": "Leave that for now. What is 12 + 30?"})
    return status_problem(await asker.chat(sample, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS))


async def _error_told(asker: Asker, sample: Sample) -> str | None:
    wanted = lookups.lookup(sample.rng())
    messages = lookups.history(asker, sample, wanted)
    messages[-1] = result(messages[-1]["tool_call_id"], json.dumps({"error": "timeout"}))
    return error_problem(await asker.chat(sample, messages, tools=[wanted.tool]))


def error_problem(answer: Answer) -> str | None:
    """What is wrong with an answer to a tool's error: it should say so, or try again."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if reply.calls or _FAILED.search(reply.content):
        return None
    if not reply.content.strip():
        return "the answer to a tool's error is empty"
    return f"the tool failed and the answer does not say so: {' '.join(reply.content.split())[:120]!r}"


async def _no_loop(asker: Asker, sample: Sample) -> str | None:
    """The third question of a conversation, its result at hand; every second one must end in a call of another tool."""
    forced = asker.capability.required and sample.variant % 2 == 1
    earlier, wanted = lookups.record(sample.rng("earlier")), lookups.lookup(sample.rng())
    messages = [
        {"role": "user", "content": "Hello, I need a few values."},
        said("Of course. Which ones?"),
        *lookups.history(asker, sample, earlier),
        said(f"The code is {earlier.canary}."),
        *lookups.history(asker, sample, wanted),
    ]
    call = messages[-2]["tool_calls"][0]["function"]
    tools = [wanted.tool]
    keys: dict[str, Any] = {}
    if forced:
        messages[-3]["content"] += " When you have it, hand it over with report_answer."
        tools, keys = [wanted.tool, _REPORT], {"tool_choice": "required"}
    answer = await asker.chat(sample, messages, tools=tools, **keys)
    return loop_problem(answer, call["name"], call["arguments"])


def loop_problem(answer: Answer, name: str, arguments: str) -> str | None:
    """Was the call whose result is at hand made again?"""
    if answer.first_problem:
        return answer.first_problem
    if any(call.name == name and _same(call.arguments, arguments) for call in answer.reply.calls):
        return f"{name} was called again with the same arguments although its result is there"
    if not answer.reply.calls and not answer.reply.content.strip():
        return "the answer to the result is empty"
    return None


def _same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one == other


_TOOLS: Final = needs(tools=True)

CHECKS: Final = (
    Check(
        id="F01",
        name="one result",
        asks="Weather or a record; the engine's own call is executed and its result sent back.",
        holds="the answer tells the value of the result, calls nothing more, and ends with stop",
        catches="results that never reach the model, templates that break on the engine's own calls, empty answers",
        rule=B90,
        attempt=_one_result,
        tier=Tier.SMOKE,
        needs=_TOOLS,
    ),
    Check(
        id="F04",
        name="several results",
        asks="Three calls in one message, their results in order, reversed and mixed.",
        holds="every value is told, each with its own city",
        catches="templates that render only one result, or pair results with calls by position instead of id",
        rule=B90,
        attempt=_several_results,
        needs=_TOOLS,
    ),
    Check(
        id="F06",
        name="error result and interruption: accepted",
        asks="A tool's error as result, and a user's message directly behind a tool's.",
        holds="HTTP 200 and an answer",
        catches="templates that insist on alternating roles and refuse what every agent sends",
        rule=Deterministic(4),
        attempt=_error_accepted,
        needs=_TOOLS,
    ),
    Check(
        id="F06c",
        name="error result: told",
        asks="The result of the call is an error.",
        holds="the answer says that it failed, or tries again",
        catches="results that never reach the model, so that it makes values up",
        rule=B80,
        attempt=_error_told,
        needs=_TOOLS,
    ),
    Check(
        id="F07",
        name="no loop",
        asks="The third question of a conversation, its result at hand; every second time with tool_choice required.",
        holds="the same call with the same arguments is not made again",
        catches="agents that call the same tool for ever, because the result or the history is not rendered",
        rule=B90,
        attempt=_no_loop,
        needs=_TOOLS,
    ),
    Check(
        id="F12",
        name="streamed follow-up",
        asks="Three results at once, the answer streamed and once more whole.",
        holds="the same request comes to the same: text, calls, end",
        catches="stream parsers that keep state from the calls in the history",
        rule=Deterministic(10, persists=True),
        attempt=_streamed_follow_up,
        modes=(True,),
        needs=_TOOLS,
    ),
)
