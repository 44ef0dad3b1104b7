"""Group J: several calls in one turn, each with its own arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.calls import call_problem, no_calls_problem, shape_problem
from gates.acceptance.check import B80, Check, Overall, needs
from gates.acceptance.survey import Surveyed, failed, passed
from gates.acceptance.tools import CITIES, CLOCK, RECORD, WEATHER, record_id
from gates.callrules import not_an_object
from gates.text import folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.acceptance.survey import Surroundings
    from gates.toolwire import ToolCall
    from gates.trial import Answer

DIFFERENT: Final = (WEATHER, CLOCK, RECORD)


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def several_cities(sample: Sample) -> tuple[list[str], str]:
    """Two, three or five cities, and the question for the weather of each (J09, J14)."""
    cities = sample.rng().sample(CITIES, (2, 3, 5)[sample.variant % 3])
    return cities, (
        f"What is the weather in {listed(cities)} right now? "
        "Call get_weather once for each city, all calls at once in one turn."
    )


async def different(asker: Asker, sample: Sample) -> str | None:
    """J08: weather, time and a record, in one turn."""
    city, record = _city_and_record(sample.rng())
    text = (
        f"What is the weather in {city}, what is the server time, and what is in the record {record}? "
        "Call all three tools at once, in one turn."
    )
    answer = await asker.chat(sample, text, tools=DIFFERENT)
    wanted = {"get_weather": {"city": city}, "get_server_time": {}, "lookup_record": {"record_id": record}}
    return different_problem(answer, wanted)


def different_problem(answer: Answer, wanted: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What is wrong with an answer that should call each tool of `wanted` once, with these arguments."""
    problem = no_calls_problem(answer) or _number_problem(answer.reply.calls, len(wanted))
    if problem is not None:
        return problem
    calls = answer.reply.calls
    for name, expected in wanted.items():
        mine = [call for call in calls if call.name == name]
        if len(mine) != 1:
            return f"{name} was called {len(mine)} times; expected once ({_names(calls)} came)"
        problem = call_problem(mine[0], DIFFERENT, name, expected)
        if problem is not None:
            return problem
    return _end_problem(answer)


async def same_tool(asker: Asker, sample: Sample) -> str | None:
    """J09: the weather of several cities, in one turn."""
    cities, text = several_cities(sample)
    return same_tool_problem(await asker.chat(sample, text, tools=[WEATHER]), cities)


def same_tool_problem(answer: Answer, cities: Sequence[str]) -> str | None:
    """What is wrong with an answer that should ask for the weather once for each of these cities."""
    problem = no_calls_problem(answer) or _number_problem(answer.reply.calls, len(cities))
    if problem is not None:
        return problem
    left = {folded(city): city for city in cities}
    for call in answer.reply.calls:
        problem = call_problem(call, [WEATHER], "get_weather", {})
        if problem is not None:
            return problem
        asked = _city(call)
        if left.pop(folded(asked), None) is None:
            return f"the city {asked!r} was asked for twice, or never wanted; wanted were {listed(cities)}"
    return _end_problem(answer)


def mixed_up(calls: Sequence[ToolCall], values: Sequence[str]) -> str | None:
    """A call whose arguments hold several of these values, which belong to a call each; None when there is none."""
    if len(calls) == 1 and not not_an_object(calls[0].arguments):
        # A single call that is well formed may be a model's way to ask for everything.
        return None
    for number, call in enumerate(calls):
        held = [value for value in values if str(folded(value)) in str(folded(call.arguments))]
        if len(held) > 1:
            return f"the arguments of call {number} ({call.arguments[:120]}) hold {listed(held)}; one is another call's"
    return None


async def _isolation(asker: Asker, surroundings: Surroundings) -> Surveyed:
    """J10, over what J08 and J09 received."""
    checks = {check.id: check for check in CHECKS}
    looked_at = 0
    for (check_id, number), answers in asker.by_sample.items():
        if check_id not in ("J08", "J09"):
            continue
        sample = checks[check_id].sample(number, surroundings.seed, asker.capability)
        values = several_cities(sample)[0] if check_id == "J09" else _city_and_record(sample.rng())
        for answer in answers:
            looked_at += bool(answer.reply.calls)
            problem = mixed_up(answer.reply.calls, values)
            if problem is not None:
                return failed(f"{check_id}: {problem}", answer.exchange, n=looked_at)
    return passed(f"no call held the value of another in {looked_at} answers", n=looked_at)


def _city_and_record(rng: Random) -> tuple[str, str]:
    return rng.choice(CITIES), record_id(rng)


def _number_problem(calls: Sequence[ToolCall], wanted: int) -> str | None:
    for call in calls:
        problem = shape_problem(call, DIFFERENT)
        if problem is not None:
            return problem
    if len(calls) != wanted:
        return f"{len(calls)} calls came ({_names(calls)}); expected {wanted} in one turn"
    shared = len({call.id for call in calls}) < len(calls)
    return f"{len(calls)} calls share ids: {', '.join(call.id for call in calls)}" if shared else None


def _end_problem(answer: Answer) -> str | None:
    finish = answer.reply.finish_reason
    return None if finish == "tool_calls" else f"finish_reason is {finish}; expected tool_calls"


def _city(call: ToolCall) -> object:
    return json.loads(call.arguments).get("city")


def _names(calls: Sequence[ToolCall]) -> str:
    return ", ".join(call.name for call in calls)


_PARALLEL: Final = needs(tools=True, parallel_calls=True)

CHECKS: Final = (
    Check(
        id="J08",
        name="different tools in one turn",
        asks="A city's weather, the server's time and a record, all at once.",
        holds="three calls with ids of their own, each tool once, the right arguments for each",
        catches="a second or third call that is lost, or runs into the one before it",
        rule=B80,
        attempt=different,
        needs=_PARALLEL,
    ),
    Check(
        id="J09",
        name="one tool several times",
        asks="The weather of two, three or five cities, all at once.",
        holds="as many calls as cities, and the same set of cities",
        catches="calls of one function that are merged, lost or doubled",
        rule=B80,
        attempt=same_tool,
        needs=_PARALLEL,
    ),
    Check(
        id="J10",
        name="arguments keep apart",
        asks="Nothing: looks at the answers to J08 and J09.",
        holds="no call of several holds the value that another call was made for",
        catches="arguments of two calls under one index, state of a parser that outlives a call",
        rule=Overall("no failure in any answer"),
        survey=_isolation,
        needs=_PARALLEL,
        looks_back=True,
    ),
)
