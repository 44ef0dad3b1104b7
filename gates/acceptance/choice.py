"""Group J: whether a tool is called, which one, and how many: `tool_choice` and the model's own judgement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates import markers
from gates.acceptance.asker import result, user
from gates.acceptance.calls import no_calls_problem, shape_problem
from gates.acceptance.check import Behaviour, Check, Deterministic, Relative, Skip, needs
from gates.acceptance.parallel import several_cities
from gates.acceptance.questions import CHIT_CHAT, GENERAL, tempting
from gates.acceptance.tools import CITIES, CLOCK, RECORD, WEATHER, named, temperature
from gates.acceptance.words import unanswered
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.capability import Capability
    from gates.trial import Answer

OFFERED: Final = (WEATHER, CLOCK, RECORD)


async def _required(asker: Asker, sample: Sample) -> str | None:
    """J11: something must be called, even where nothing needs to be."""
    which, rng = sample.variant % 3, sample.rng()
    text = tempting(rng)[1] if which == 0 else rng.choice(CHIT_CHAT if which == 1 else GENERAL)
    return forced_problem(await asker.chat(sample, text, tools=OFFERED, tool_choice="required"))


def forced_problem(answer: Answer, only: str | None = None) -> str | None:
    """What is wrong with an answer that had to call a tool, or the tool `only`."""
    if answer.reply.finish_reason == "length":
        return "the answer ran to max_tokens instead of ending its call"
    problem = no_calls_problem(answer)
    if problem is not None:
        return problem
    for call in answer.reply.calls:
        if only is not None and call.name != only:
            return f"{call.name} was called; tool_choice named {only}"
        problem = shape_problem(call, OFFERED)
        if problem is not None:
            return problem
    return None


async def _named(asker: Asker, sample: Sample) -> str | None:
    """J12: the tool that is named, where another would be natural."""
    rng = sample.rng()
    natural, text = tempting(rng)
    only = named(rng.choice([offered for offered in OFFERED if named(offered) != natural]))
    choice = {"type": "function", "function": {"name": only}}
    answer = await asker.chat(sample, text, tools=OFFERED, tool_choice=choice)
    problem = forced_problem(answer, only)
    finish, allowed = answer.reply.finish_reason, _finishes(asker.capability)
    if problem is None and finish not in allowed:
        return f"finish_reason is {finish}; expected {' or '.join(allowed)} where a function was named"
    return problem


def _finishes(capability: Capability) -> tuple[str, ...]:
    return ("stop", "tool_calls") if capability.finish_named == "any" else (capability.finish_named,)


async def _none(asker: Asker, sample: Sample) -> str | None:
    """J13: nothing may be called, however much the question begs."""
    return forbidden_problem(await _forbidden(asker, sample))


async def _none_answered(asker: Asker, sample: Sample) -> str | None:
    """J13n: and something is said."""
    answer = asker.recall(sample, "J13") or await _forbidden(asker, sample)
    return forbidden_problem(answer) or spoken_problem(answer)


async def _forbidden(asker: Asker, sample: Sample) -> Answer:
    return await asker.chat(sample, tempting(sample.rng())[1], tools=OFFERED, tool_choice="none")


def forbidden_problem(answer: Answer) -> str | None:
    """A call, or the text of one, where there may be none."""
    reply = answer.reply
    if not reply.answered:
        return answer.first_problem
    if reply.calls:
        return f"{reply.calls[0].name or 'a tool'} was called, and no tool may be"
    if reply.finish_reason == "tool_calls":
        return "finish_reason is tool_calls, and no tool may be called"
    leaked = markers.found(reply.content, markers.TOOLS)
    return f"the content holds the text of a call ({leaked})" if leaked else None


def spoken_problem(answer: Answer) -> str | None:
    """Why an answer that should be words is none, or does not end by itself."""
    finish = answer.reply.finish_reason
    return unanswered(answer) or (None if finish == "stop" else f"finish_reason is {finish}; expected stop")


async def _one_at_most(asker: Asker, sample: Sample) -> str | None:
    """J14: several calls are wanted, one is allowed."""
    _, text = several_cities(sample)
    answer = await asker.chat(sample, text, tools=[WEATHER], parallel_tool_calls=False)
    if not answer.reply.answered:
        return answer.first_problem
    if len(answer.reply.calls) <= 1:
        return None
    if await _owner(asker) == "sglang":
        raise Skip("SGLang keeps parallel_tool_calls=false only where a grammar is built, and here it did not")
    return f"{len(answer.reply.calls)} calls came in one turn, and parallel_tool_calls was false"


async def _owner(asker: Asker) -> str:
    """Who serves, as ``/v1/models`` says."""
    exchange = await asker.raw("GET", "/v1/models", timeout_s=10.0)
    try:
        return str(json.loads(exchange.body)["data"][0]["owned_by"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


async def _needless(asker: Asker, sample: Sample) -> str | None:
    """J15: tools are there and none of them helps."""
    answer = await asker.chat(sample, GENERAL[sample.number % len(GENERAL)], tools=OFFERED)
    return unanswered(answer)


async def _without_tools(asker: Asker, sample: Sample) -> str | None:
    """J16: an agent's conversation, and no tools with it."""
    messages = _conversation(sample)
    keys: dict[str, Any] = {"tool_choice": "none"} if sample.variant % 2 else {}
    answer = await asker.chat(sample, messages, **keys)
    return forbidden_problem(answer) or spoken_problem(answer)


def _conversation(sample: Sample) -> list[dict[str, Any]]:
    """Two calls and their results; the question can be answered from them."""
    rng = sample.rng()
    cities = rng.sample(CITIES, 2)
    calls = [
        {
            "id": f"call_{rng.randrange(16**8):08x}{number}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city}, ensure_ascii=False)},
        }
        for number, city in enumerate(cities)
    ]
    results = [result(str(call["id"]), json.dumps({"temp_c": float(temperature(rng))})) for call in calls]
    return [
        {
            "role": "system",
            "content": "You are an agent. You work step by step and report in plain words. "
            "There are no tools in this step: answer from what is known already.",
        },
        user(sample, f"What is the weather in {cities[0]} and in {cities[1]}?"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
        {"role": "assistant", "content": "I have the temperatures of both cities."},
        {"role": "user", "content": f"Which one is warmer, {cities[0]} or {cities[1]}? One sentence, please."},
    ]


CHECKS: Final = (
    Check(
        id="J11",
        name="a call is required",
        asks="Questions with and without need of a tool, and small talk, with `tool_choice: required`.",
        holds="one call at least, each of them valid, and an end before max_tokens",
        catches="`required` that is silently ignored, grammars that crash, hang or never end",
        rule=Deterministic(15),
        attempt=_required,
        needs=needs(tools=True, required=True),
    ),
    Check(
        id="J12",
        name="a function is named",
        asks="Questions that suit one tool, while `tool_choice` names another.",
        holds="that function and no other, valid arguments, the finish_reason of the capability",
        catches="a named choice that is ignored, calls that arrive as text in the content",
        rule=Deterministic(12),
        attempt=_named,
        needs=needs(tools=True, named=True),
    ),
    Check(
        id="J13",
        name="calls are forbidden",
        asks="Questions that beg for a tool, with `tool_choice: none`.",
        holds="no call, no text of a call in the content, no finish_reason tool_calls",
        catches="`none` that is ignored, tool text that nobody parses",
        rule=Deterministic(12),
        attempt=_none,
        needs=needs(tools=True),
    ),
    Check(
        id="J13n",
        name="an answer where calls are forbidden",
        asks="Nothing where J13 has asked: looks at its answers.",
        holds="something is said, and it ends with stop",
        catches="tool-shaped text that is parsed and thrown away, so that nothing is left",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=_none_answered,
        needs=needs(tools=True),
        looks_back=True,
    ),
    Check(
        id="J14",
        name="one call at most",
        asks="The weather of several cities, with `parallel_tool_calls: false`.",
        holds="one call at most (SGLang, which may leave it out: shown as skipped)",
        catches="`parallel_tool_calls` that is ignored",
        rule=Deterministic(12),
        attempt=_one_at_most,
        needs=needs(tools=True, parallel_calls=True),
    ),
    Check(
        id="J15",
        name="no call is needed",
        asks=f"{len(GENERAL)} general questions, twice each, with tools on offer that do not help.",
        holds="no call, and an answer in words",
        catches="models that call whatever is there, which templates and quantisation bring about",
        # Fewer than 56 of 64: so do .6 % of models that are right in 95 %, and 92 % of those that are right in 80 %.
        rule=Relative(2 * len(GENERAL), margin=0.15, floor=0.87),
        attempt=_needless,
        needs=needs(tools=True),
    ),
    Check(
        id="J16",
        name="no tools are sent",
        asks="A conversation of an agent, with calls and results in its history, and no tools in the request.",
        holds="an answer in words that ends with stop, no call, no text of a call",
        catches="parsers that work where no tools are, and leave nothing or a wrong finish_reason",
        rule=Deterministic(8),
        attempt=_without_tools,
        needs=needs(tools=True),
    ),
)
