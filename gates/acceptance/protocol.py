"""Group P: the protocol. What holds for every answer is in `gates.invariants`; here is what has to be asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from gates.acceptance import client_abort, contract_difference, equality, negative, truncation
from gates.acceptance.check import Behaviour, Check, Deterministic, Sample, Skip, Tier, needs
from gates.acceptance.plain import any_problem, judged, refused, unthinking
from gates.acceptance.tools import CITIES, WEATHER
from gates.callrules import not_an_object
from gates.endpoint import model_names
from gates.statistics import FixedPlan
from gates.text import folded

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.trial import Answer

_STOP: Final = "END7"


async def _choices_apart(asker: Asker, sample: Sample) -> str | None:
    """P10: two answers to one question, side by side in one stream."""
    plain = unthinking(asker, sample)
    city = sample.rng().choice(CITIES)
    asked = f"What is the weather in {city} right now? Use the tool, unit c."
    body = asker.body(plain.asked(greedy=False), asked, tools=[WEATHER], n=2)
    exchange = await asker.raw("POST", "/v1/chat/completions", body)
    if refused(exchange):
        raise Skip("the engine gives one answer to a question: it refuses n=2")
    answer = judged(asker, body, exchange)
    problem = any_problem(answer)
    if problem:
        return problem
    choices = (answer.reply, *answer.reply.others)
    if len(choices) != 2:
        return f"{len(choices)} choices came; two were asked"
    for number, choice in enumerate(choices):
        if not (choice.calls or choice.content.strip()):
            return f"choice {number} is empty"
        for call in choice.calls:
            called = json.loads(call.arguments).get("city") if not not_an_object(call.arguments) else None
            if folded(called) != folded(city):
                return f"choice {number} calls with {call.arguments[:80]!r}; asked was {city}"
    return None


async def _stopped(asker: Asker, sample: Sample) -> tuple[Answer, str, str]:
    """An answer with a stop string asked for in its middle, and the words before and after it."""
    before, after = sample.rng().sample(("harbour", "lantern", "meadow", "pebble", "falcon", "willow", "cedar"), 2)
    asked = f"Reply with only the following text: the {before} comes first {_STOP} the {after} comes last"
    return await asker.chat(unthinking(asker, sample), asked, stop=[_STOP]), before, after


async def _stops(asker: Asker, sample: Sample) -> str | None:
    """P16: the content ends before the stop string. Whatever was written, only a server gets this wrong."""
    answer, _, after = await _stopped(asker, sample)
    content = answer.reply.content
    if answer.first_problem:
        return answer.first_problem
    if _STOP in content:
        return f"the content holds the stop string {_STOP}: {content[-80:]!r}"
    if f"the {after}" in content:
        return f"the content goes on after the stop string {_STOP}: {content[-80:]!r}"
    if any(content.rstrip().endswith(_STOP[:length]) for length in (2, 3)):
        return f"the content ends with a part of the stop string {_STOP}: {content[-80:]!r}"
    finish = answer.reply.finish_reason
    return None if finish == "stop" else f"finish_reason is {finish} at the stop string; expected stop"


async def _keeps(asker: Asker, sample: Sample) -> str | None:
    """P16k: what comes before the stop string is there; a model may fail to write it."""
    answer, before, _ = await _stopped(asker, sample)
    if answer.first_problem:
        return answer.first_problem
    content = answer.reply.content
    return (
        None if before in content else f"what comes before the stop string is missing; the content is {content[:80]!r}"
    )


async def _named_as_asked(asker: Asker, sample: Sample) -> str | None:
    """P17: the model is on the list, and the answer carries its name."""
    exchange = await asker.raw("GET", "/v1/models")
    if exchange.failure is not None or exchange.status != 200:
        said = exchange.failure.sentence if exchange.failure is not None else f"HTTP {exchange.status}"
        return f"/v1/models does not answer: {said}"
    served = model_names(exchange.body)
    if asker.model not in served:
        return f"/v1/models lists {', '.join(served[:10]) or 'nothing'}; the model {asker.model!r} is not there"
    answer = await asker.chat(unthinking(asker, sample), "Say hello.", max_tokens=16)
    if answer.first_problem:
        return answer.first_problem
    named = answer.reply.model
    return None if named == asker.model else f"the answer comes from model {named!r}; {asker.model!r} was asked"


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="P17",
        name="served name",
        asks="The list of models, and a short question.",
        holds="the model that is asked for is on the list, and its name is in the answer",
        catches="another model than clients ask for, behind the right address",
        rule=Deterministic(tries=1),
        attempt=_named_as_asked,
        tier=Tier.SMOKE,
        thinking=(None,),
        modes=(False,),
    ),
    *equality.CHECKS,
    *truncation.CHECKS,
    Check(
        id="P10",
        name="two answers at once",
        asks="The weather of a city with n=2, streamed.",
        holds="two choices come, each whole, with its own calls",
        catches="pieces of one choice that land in the other",
        rule=Deterministic(tries=4),
        attempt=_choices_apart,
        needs=needs(tools=True),
        thinking=(None,),
        modes=(True,),
        warns=True,
    ),
    Check(
        id="P16",
        name="stop strings",
        asks="A line to be copied that holds a stop string in its middle.",
        holds="the content ends before the stop string, without any part of it; finish_reason stop",
        catches="stop strings that are ignored, shown, or cut off too early",
        rule=Deterministic(tries=4),
        attempt=_stops,
        thinking=(None,),
    ),
    Check(
        id="P16k",
        name="what comes before a stop string",
        asks="A line to be copied that holds a stop string in its middle.",
        holds="the words before the stop string are in the content",
        catches="stop strings that match too early and take the answer with them",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=_keeps,
        thinking=(None,),
    ),
    *contract_difference.CHECKS,
    *client_abort.CHECKS,
    *negative.CHECKS,
)
