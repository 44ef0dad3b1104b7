"""Group J: one tool call, and what is wrong with it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gates import callrules, markers
from gates.acceptance.check import B80, B90, Check, Sample, Tier, needs
from gates.acceptance.tools import CITIES, CLOCK, WEATHER, Tool, named, schema_of
from gates.callrules import not_an_object
from gates.text import folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.acceptance.asker import Asker
    from gates.reply import Reply
    from gates.toolwire import ToolCall
    from gates.trial import Answer


def one_call_problem(
    answer: Answer,
    tools: Sequence[Tool],
    called: str,
    expected: Mapping[str, Any],
    *,
    exact: bool = False,
    finishes: Sequence[str] = ("tool_calls",),
) -> str | None:
    """What is wrong with an answer that should be one call of `called`; faults that hide others come first.

    `exact`: values are equal as JSON; else case, diacritics and outer blanks of texts do not count.
    """
    reply = answer.reply
    problem = no_calls_problem(answer)
    if problem is not None:
        return problem
    if len(reply.calls) > 1:
        return f"{len(reply.calls)} calls came ({', '.join(call.name for call in reply.calls)}); expected one"
    problem = call_problem(reply.calls[0], tools, called, expected, exact=exact)
    if problem is None and reply.finish_reason not in finishes:
        return f"finish_reason is {reply.finish_reason}; expected {' or '.join(finishes)}"
    return problem


def no_calls_problem(answer: Answer) -> str | None:
    """What is wrong with an answer that should hold calls, before anybody looks at them; None when there are some."""
    if answer.first_problem or answer.reply.calls:
        return answer.first_problem
    spelled = _spelled_call(answer)
    if spelled is not None:
        return f"no call: the content spells one of {spelled}; is a tool-call parser set?"
    return no_call_reason(answer.reply)


def _spelled_call(answer: Answer) -> str | None:
    """The tool whose call is left in the content by a format without markers: bare JSON, or Python."""
    content = answer.reply.content.strip()
    if not content.startswith(("{", "[")):
        return None
    names = (named(tool) for tool in answer.body.get("tools") or ())
    return next((name for name in names if f'"{name}"' in content or f"{name}(" in content), None)


def call_problem(
    call: ToolCall, tools: Sequence[Tool], called: str, expected: Mapping[str, Any], *, exact: bool = False
) -> str | None:
    """What is wrong with one call: its tool, its arguments as JSON, against their schema, against what was asked."""
    if call.name != called and call.name in {named(tool) for tool in tools}:
        return f"{call.name} was called; expected {called}"
    problem = shape_problem(call, tools)
    if problem is not None:
        return problem
    value = json.loads(call.arguments)
    equal = same if exact else alike
    wrong = next((key for key, asked in expected.items() if key not in value or not equal(value[key], asked)), None)
    if wrong is None:
        return None
    return (
        f"{wrong} is {_short(value[wrong])}; asked was {_short(expected[wrong])}"
        if wrong in value
        else (f"{wrong} is missing; asked was {_short(expected[wrong])}")
    )


def shape_problem(call: ToolCall, tools: Sequence[Tool]) -> str | None:
    """What is wrong with a call whatever was asked: a tool that is not on offer, no JSON, not what the schema wants."""
    offered = next((tool for tool in tools if named(tool) == call.name), None)
    if offered is None:
        return f"the tool {call.name!r} was called, which was not on offer"
    problem = schema_problem(call.arguments, schema_of(offered))
    return None if problem is None else f"{call.name}: {problem}"


def alike(value: object, asked: object) -> bool:
    """Equal to a person: Krakow is Kraków."""
    return folded(value) == folded(asked)


def same(value: object, asked: object) -> bool:
    """Equal as JSON: `true` is not 1, "7" is not 7, 1e5 is 100000; texts after Unicode's composition (NFC)."""
    if isinstance(value, Mapping) and isinstance(asked, Mapping):
        return set(value) == set(asked) and all(same(value[key], asked[key]) for key in asked)
    if isinstance(value, list) and isinstance(asked, list):
        return len(value) == len(asked) and all(map(same, value, asked))
    if isinstance(value, str) and isinstance(asked, str):
        return unicodedata.normalize("NFC", value) == unicodedata.normalize("NFC", asked)
    return isinstance(value, bool) == isinstance(asked, bool) and value == asked


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]} ({len(text)} characters)"


def schema_problem(arguments: str, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with `arguments` as JSON and against the declared schema."""
    return not_an_object(arguments) or callrules.schema_problem(json.loads(arguments), schema)


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


async def single(asker: Asker, sample: Sample) -> str | None:
    """J01: the weather of one city."""
    rng = sample.rng()
    city, asked = rng.choice(CITIES), rng.choice(_WEATHER_WORDINGS)
    answer = await asker.chat(sample, asked.format(city=city), tools=[WEATHER])
    return one_call_problem(answer, [WEATHER], "get_weather", {"city": city})


def single_city(sample: Sample) -> str:
    """The city that `single` asks for in this try."""
    return sample.rng().choice(CITIES)


async def _foreign(asker: Asker, sample: Sample) -> str | None:
    city = sample.rng().choice(CITIES)
    asked = _FOREIGN_WORDINGS[sample.variant % len(_FOREIGN_WORDINGS)]
    answer = await asker.chat(sample, asked.format(city=city), tools=[WEATHER])
    return one_call_problem(answer, [WEATHER], "get_weather", {"city": city})


async def clock(asker: Asker, sample: Sample) -> str | None:
    """J02: the time of the server, for which the tool takes nothing."""
    answer = await asker.chat(sample, _CLOCK_WORDINGS[sample.variant % len(_CLOCK_WORDINGS)], tools=[CLOCK])
    problem = one_call_problem(answer, [CLOCK], "get_server_time", {})
    if problem is None:
        return None
    given = answer.reply.calls[0].arguments if len(answer.reply.calls) == 1 else "{}"
    return f"arguments of a tool without parameters are {given!r}; expected {{}}" if not given.strip() else problem


_SHOWN: Final = 160
_WEATHER_WORDINGS: Final = (
    "What is the weather in {city} right now? Use the tool, unit c.",
    "What is the current weather in {city}? Use the tool.",
    "What's the weather like in {city} right now? Use the tool, unit f.",
    "Please look up the weather in {city}. Use the tool, unit c.",
    "Call get_weather for the city {city}.",
)
_FOREIGN_WORDINGS: Final = (
    "Wie ist das Wetter in {city} gerade? Nutze das Werkzeug get_weather.",
    "Quel temps fait-il à {city} en ce moment ? Utilise l'outil get_weather.",
    "¿Qué tiempo hace en {city} ahora? Usa la herramienta get_weather.",
    "Jaka jest teraz pogoda w mieście {city}? Użyj narzędzia get_weather.",
    "「{city}」の今の天気は？get_weather を使ってください。",  # noqa: RUF001 - Japanese
    '"{city}" şehrinde şu an hava nasıl? get_weather aracını kullan.',  # noqa: RUF001 - Turkish
)
_CLOCK_WORDINGS: Final = (
    "What time is it on the server? Use the tool.",
    "What is the server time? Use the tool.",
    "What time is it right now? Use the tool.",
    "Call get_server_time.",
    "Tell me the current time. Use the tool.",
    "What is the time? Use the tool.",
    "Tell me the current server time. Use the tool.",
    "What time is it? Use the tool.",
)

CHECKS: Final = (
    Check(
        id="J01",
        name="single call",
        asks="The weather of a city, another one in every try, with one tool on offer.",
        holds="exactly one call of that tool, the city as asked, finish_reason tool_calls",
        catches="a missing or wrong tool-call parser, calls lost or cut, a model that cannot call",
        rule=B90,
        attempt=single,
        tier=Tier.SMOKE,
        needs=needs(tools=True),
    ),
    Check(
        id="J01l",
        name="single call in other languages",
        asks="The weather of a city in German, French, Spanish, Polish, Japanese and Turkish.",
        holds="exactly one call of the tool, the city as asked, finish_reason tool_calls",
        catches="templates and parsers that were only ever tried in English",
        rule=B80,
        attempt=_foreign,
        needs=needs(tools=True),
    ),
    Check(
        id="J02",
        name="tool without parameters",
        asks="The time of the server, in eight wordings; the tool on offer takes no arguments.",
        holds="exactly one call of that tool, and its arguments are an empty object",
        catches="parsers that lose a call without arguments, or send an empty text or null for them",
        rule=B90,
        attempt=clock,
        tier=Tier.SMOKE,
        needs=needs(tools=True),
    ),
)
