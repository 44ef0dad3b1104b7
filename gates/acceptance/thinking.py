"""Group T: thought and answer are kept apart, and the switch does what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from gates import markers
from gates.acceptance import answers, lookups
from gates.acceptance.asker import user
from gates.acceptance.calls import call_problem, one_call_problem, single_city
from gates.acceptance.check import B90, Check, Deterministic, Relative, Sample, Tier, needs
from gates.acceptance.problems import explanation, problem
from gates.acceptance.structured import as_format, content_problem
from gates.acceptance.tools import CITIES, RECORD, WEATHER, named
from gates.acceptance.turns import call_missing, said
from gates.acceptance.words import unanswered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.acceptance.asker import Asker
    from gates.capability import Capability
    from gates.reply import Reply
    from gates.trial import Answer

COPY_SHARE: Final = 0.6
_COPY_CHARS: Final = 60
"""Shorter answers may well stand in a thought word for word: 42 is 42."""
_PRESENCE: Final = 0.30
"""Whether a model thinks before it calls is its own choice: only a clear loss against production counts."""


# --- what is wrong ----------------------------------------------------------------------------------------------------


def apart_problem(answer: Answer) -> str | None:
    """What is wrong with an answer that should hold a thought, and beside it an answer that is not the thought."""
    reply = answer.reply
    delimiter = delimiter_problem(answer)
    if answer.first_problem or delimiter:
        return answer.first_problem or delimiter
    if not reply.reasoning.strip():
        return "thinking is on and there is no reasoning; is a reasoning parser set?"
    if not reply.content.strip() and reply.finish_reason != "length":
        return "there is reasoning and no content: the answer is in the reasoning, or lost"
    return unanswered(answer) or copy_problem(reply)


def silent_problem(answer: Answer) -> str | None:
    """What is wrong with an answer that should come without a thought."""
    broken = next((breach.sentence for breach in answer.breaches if breach.rule == "P08"), None)
    if broken:
        return broken
    if answer.reply.reasoning.strip():
        empty = "" if answer.reply.content.strip() or answer.reply.calls else ", and the content is empty"
        return f"thinking is off and there is reasoning{empty}: {' '.join(answer.reply.reasoning.split())[:100]!r}"
    return delimiter_problem(answer)


def delimiter_problem(answer: Answer) -> str | None:
    """A delimiter of thoughts in what is read, unless the question holds it itself."""
    asked = json.dumps(answer.body, ensure_ascii=False)
    table = tuple(marker for marker in markers.THINKING if marker not in asked)
    for where, text in (("content", answer.reply.content), ("reasoning", answer.reply.reasoning)):
        marker = markers.found(text, table)
        if marker:
            return f"the {where} holds {marker}"
    return None


def copy_problem(reply: Reply) -> str | None:
    """Does most of the content stand in the reasoning, word for word?"""
    content, reasoning = " ".join(reply.content.split()), " ".join(reply.reasoning.split())
    if content == reasoning:
        return "content and reasoning are the same text"
    window = int(len(content) * COPY_SHARE)
    if len(content) < _COPY_CHARS:
        return None
    if any(content[at : at + window] in reasoning for at in range(len(content) - window + 1)):
        return f"the content is a copy of what stands in the reasoning: {content[:100]!r}"
    return None


def no_thought_problem(answer: Answer) -> str | None:
    """Only whether there is a thought; what follows it is judged by another check."""
    broken = next((breach.sentence for breach in answer.breaches if breach.rule == "P08"), None)
    return broken or (None if answer.reply.reasoning.strip() else "thinking is on and there is no reasoning")


# --- questions --------------------------------------------------------------------------------------------------------


async def _on(asker: Asker, sample: Sample) -> str | None:
    """Three of four questions want sentences: in a short answer a copy of the thought could not be told."""
    text = problem(sample.rng()).text if sample.number % 4 == 1 else explanation(sample.rng())
    return apart_problem(await asker.chat(sample, text))


async def _off(asker: Asker, sample: Sample) -> str | None:
    text = problem(sample.rng()).text if sample.variant % 2 else explanation(sample.rng())
    return silent_problem(await asker.chat(sample, text))


async def _off_answered(asker: Asker, sample: Sample) -> str | None:
    asked = problem(sample.rng())
    return answers.problem(await asker.chat(sample, asked.text), asked)


async def _weather(asker: Asker, sample: Sample) -> tuple[Answer, str]:
    city = sample.rng().choice(CITIES)
    asked = f"What is the weather in {city} right now? Use the tool, unit c."
    return await asker.chat(sample, asked, tools=[WEATHER]), city


async def _weather_once(asker: Asker, sample: Sample) -> tuple[Answer, str]:
    """J01 has asked the same with the switch in both positions: its answers first, then new ones."""
    if asker.capability.thinking != "switch":
        return await _weather(asker, sample)
    # Two tries with thinking on, two with thinking off, as `Check.sample` counts them.
    number = sample.number // 2 * 4 + sample.number % 2 + (0 if sample.thinking else 2)
    known = asker.recall(sample, "J01", number)
    return (known, single_city(sample.asked(check="J01", variant=number))) if known else await _weather(asker, sample)


async def _tools_on(asker: Asker, sample: Sample) -> str | None:
    answer, city = await _weather_once(asker, sample)
    return one_call_problem(answer, [WEATHER], "get_weather", {"city": city}) or delimiter_problem(answer)


async def _tools_thought(asker: Asker, sample: Sample) -> str | None:
    return no_thought_problem(asker.recall(sample, "T03") or (await _weather(asker, sample))[0])


async def _tools_off(asker: Asker, sample: Sample) -> str | None:
    answer, city = await _weather_once(asker, sample)
    return silent_problem(answer) or one_call_problem(answer, [WEATHER], "get_weather", {"city": city})


# --- forced calls -----------------------------------------------------------------------------------------------------


def _choices(capability: Capability) -> Sequence[str]:
    return [word for word, able in (("required", capability.required), ("named", capability.named)) if able]


def _forced_needs(capability: Capability) -> str | None:
    return needs(tools=True, thinking=("always", "switch"))(capability) or (
        None if _choices(capability) else "the capability of this topology says neither required nor named"
    )


async def _forced(asker: Asker, sample: Sample) -> Answer:
    """In the first turn and in the third, by turns of the choices that this engine knows."""
    choices = _choices(asker.capability)
    choice = choices[sample.variant % len(choices)]
    rng = sample.rng()
    messages: list[Mapping[str, Any]] = []
    if sample.variant // len(choices) % 2:
        for earlier in (lookups.record(rng), lookups.weather(rng)):
            messages += [*lookups.history(asker, sample, earlier), said(f"It is {earlier.canary}.")]
    city = rng.choice(CITIES)
    messages.append(user(sample, f"What is the weather in {city} right now? Use the tool, unit c."))
    forced = "required" if choice == "required" else {"type": "function", "function": {"name": "get_weather"}}
    return await asker.chat(sample, messages, tools=[RECORD, WEATHER], tool_choice=forced)


def forced_problem(answer: Answer) -> str | None:
    """A grammar holds a forced call in shape: whatever the model thinks, one comes, and it is valid."""
    missing = call_missing(answer, [named(RECORD), named(WEATHER)])
    if missing:
        return missing
    call = answer.reply.calls[0]
    named_tool = answer.body["tool_choice"] != "required"
    return call_problem(call, [RECORD, WEATHER], named(WEATHER) if named_tool else call.name, {})


async def _forced_call(asker: Asker, sample: Sample) -> str | None:
    answer = await _forced(asker, sample)
    return forced_problem(answer) or delimiter_problem(answer)


async def _forced_thought(asker: Asker, sample: Sample) -> str | None:
    return no_thought_problem(asker.recall(sample, "T04") or await _forced(asker, sample))


# --- JSON by schema ---------------------------------------------------------------------------------------------------


_CITY_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "country": {"type": "string"},
        "inhabitants": {"type": "integer"},
        "coastal": {"type": "boolean"},
    },
    "required": ["city", "country", "inhabitants", "coastal"],
    "additionalProperties": False,
}


async def _json(asker: Asker, sample: Sample) -> str | None:
    city = sample.rng().choice(CITIES)
    text = f"Describe the city {city} as JSON with the keys city, country, inhabitants and coastal."
    answer = await asker.chat(sample, text, response_format=as_format(_CITY_SCHEMA))
    return json_problem(answer, _CITY_SCHEMA, thinking=sample.thinking)


def json_problem(answer: Answer, schema: dict[str, Any], *, thinking: bool | None) -> str | None:
    """What is wrong with JSON by schema beside a thought."""
    reasoning = answer.reply.reasoning
    if not answer.reply.content.strip() and _is_valid(reasoning, schema):
        return "the JSON is in the reasoning and the content is empty"
    broken = content_problem(answer, schema) or delimiter_problem(answer)
    if broken is None and thinking is False:
        broken = silent_problem(answer)
    if broken is None and _is_valid(reasoning, schema):
        broken = "the reasoning is the JSON itself"
    return broken


def _is_valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    except (ValueError, RecursionError):
        return False


_THINKS: Final = needs(thinking=("always", "switch"))
_THINKS_AND_CALLS: Final = needs(thinking=("always", "switch"), tools=True)

CHECKS: Final = (
    Check(
        id="T01",
        name="thinking on",
        asks="Small problems and questions for three sentences, thinking on.",
        holds="reasoning and content are both there, without delimiters, and the content is no copy of the reasoning",
        catches="a missing or wrong reasoning parser, thoughts in the answer, answers in the thought",
        rule=B90,
        attempt=_on,
        tier=Tier.SMOKE,
        needs=_THINKS,
        thinking=(True,),
    ),
    Check(
        id="T02",
        name="thinking off: no thought",
        asks="The same questions, thinking off.",
        holds="there is no reasoning, and no delimiter of thoughts in the content",
        catches="a switch that is not passed to the template, whole answers that land in the reasoning field",
        rule=Deterministic(8),
        attempt=_off,
        tier=Tier.SMOKE,
        needs=needs(thinking=("none", "switch")),
        thinking=(False,),
    ),
    Check(
        id="T02a",
        name="thinking off: answered",
        asks="Small problems with known answers, thinking off.",
        holds="the content holds the right answer",
        catches="answers that are empty or cut when the template closes the thought by itself",
        rule=B90,
        attempt=_off_answered,
        tier=Tier.SMOKE,
        needs=needs(thinking=("none", "switch")),
        thinking=(False,),
    ),
    Check(
        id="T03",
        name="thinking on, tools",
        asks="The weather of a city, one tool on offer, thinking on: J01's answers first, then more.",
        holds="exactly one call of that tool, the city as asked",
        catches="calls that stay in the reasoning or in the content because of the thought before them",
        rule=B90,
        attempt=_tools_on,
        needs=_THINKS_AND_CALLS,
        thinking=(True,),
    ),
    Check(
        id="T03r",
        name="thinking on, tools: still thinks",
        asks="Nothing where T03 has asked: looks at its answers.",
        holds="there is reasoning as often as on production",
        catches="reasoning that is lost as soon as tools are declared",
        rule=Relative(24, _PRESENCE, floor=0.10),
        attempt=_tools_thought,
        needs=_THINKS_AND_CALLS,
        thinking=(True,),
        looks_back=True,
    ),
    Check(
        id="T04",
        name="thinking on, forced call",
        asks="tool_choice required and a named function, thinking on, in the first turn and in the third.",
        holds="a call comes, of a tool on offer (the named one), its arguments valid",
        catches="a grammar that is applied to the thought, engines that break on forced calls when a model thinks",
        rule=Deterministic(12),
        attempt=_forced_call,
        needs=_forced_needs,
        thinking=(True,),
    ),
    Check(
        id="T04r",
        name="thinking on, forced call: still thinks",
        asks="Nothing where T04 has asked: looks at its answers.",
        holds="there is reasoning as often as on production",
        catches="reasoning that is dropped when a call is forced",
        rule=Relative(24, _PRESENCE),
        attempt=_forced_thought,
        needs=_forced_needs,
        thinking=(True,),
        looks_back=True,
    ),
    Check(
        id="T05",
        name="thinking off, tools",
        asks="The weather of a city, one tool on offer, thinking off: J01's answers first, then more.",
        holds="exactly one call of that tool, the city as asked, and no reasoning",
        catches="parsers that look for a thought first, and lose the call where there is none",
        rule=B90,
        attempt=_tools_off,
        needs=needs(tools=True, thinking="switch"),
        thinking=(False,),
    ),
    Check(
        id="T06",
        name="JSON by schema, thinking on and off",
        asks="A city as JSON by schema, three times of four with thinking on.",
        holds="the content is valid JSON, and the reasoning is not that JSON",
        catches="a grammar that begins in the thought, so that the JSON lands there; schemas that are not enforced",
        rule=Deterministic(20),
        attempt=_json,
        needs=needs(json_schema=True, thinking=("always", "switch")),
        thinking=(True, True, True, False),
    ),
)
