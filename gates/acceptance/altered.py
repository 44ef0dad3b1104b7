"""Group J: what was to be copied came back as another spelling of itself, which no model writes."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.check import Check, Overall, Sample
from gates.acceptance.survey import Surveyed, failed, passed, warned
from gates.callrules import not_an_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer

CONFIRMED: Final = 2
"""A model that writes for web pages may escape a word once; two such answers of a run are the server's."""
MORE: Final = 30
"""Where only one is found, its request is asked so often again, up to the second."""
_ENTITY: Final = re.compile(r"&(?:lt|gt|amp|quot|apos|#x?[0-9a-fA-F]{2,4});")
_LARGE: Final = 10**15
_LONG: Final = re.compile(r"(?<![\w.-])-?\d{16,}(?!\w|\.\d)")


def entity_problem(answer: Answer) -> str | None:
    """A word of the question that came back escaped as HTML or read as HTML, in content or arguments."""
    asked = "\n".join(_texts(answer.body.get("messages")))
    written = {html.unescape(word): word for word in asked.split() if _ENTITY.search(word)}
    raw = (answer.reply.content, *(call.arguments for call in answer.reply.calls))
    if not written and not any(_ENTITY.search(text) for text in raw):
        return None
    for text in (answer.reply.content, *(text for value in _arguments(answer) for text in _texts(value))):
        for word in text.split():
            if word in asked:
                continue
            if word in written:
                return f"{word[:60]!r} came where {written[word][:60]!r} was to be copied: read as HTML"
            if _ENTITY.search(word) and html.unescape(word) in asked:
                return f"{word[:60]!r} came where {html.unescape(word)[:60]!r} was to be copied: escaped as HTML"
    return None


def rounding_problem(answer: Answer) -> str | None:
    """An integer of the question that came back as its neighbour among the floats, whole or shortened."""
    values = [value for arguments in _arguments(answer) for value in _numbers(arguments) if abs(value) >= _LARGE]
    if not values:
        return None
    for asked in map(int, _LONG.findall("\n".join(_texts(answer.body.get("messages"))))):
        if asked in (value for value in values if isinstance(value, int)):
            continue
        for value in values:
            # `9.007e15` has its own four digits only: compared as precisely as it was written.
            if value != asked and (value == float(asked) or value in (float(f"{asked:.{n}e}") for n in range(3, 16))):
                return f"{json.dumps(value)} came where {asked} was asked: an integer that went through a float"
    return None


async def _entities(asker: Asker, surroundings: Surroundings) -> Surveyed:
    answers = list(asker.trial.answers)
    found = [(answer, problem) for answer in answers if (problem := entity_problem(answer))]
    figures = {"answers": len(answers), "odd": len(found)}
    if not found:
        return passed(f"no text came back escaped or unescaped in {len(answers)} answers", **figures)
    first, problem = found[0]
    said = f"{problem} ({len(found)} of {len(answers)} answers)"
    if len(found) < CONFIRMED and not await _again(asker, surroundings, first):
        return warned(said, **figures)
    return failed(said, *(answer.exchange for answer, _ in found[:3]), **figures)


async def _again(asker: Asker, surroundings: Surroundings, answer: Answer) -> bool:
    """Does it come a second time, when the very same request is asked many times more?"""
    for number in range(MORE):
        streamed = bool(answer.body.get("stream"))
        sample = Sample("J27", number, surroundings.seed, streamed=streamed, greedy=False, salt=f"more{number}")
        async with asker.slot():
            if entity_problem(await asker.send(sample, answer.body)):
                return True
    return False


async def _rounded(asker: Asker, surroundings: Surroundings) -> Surveyed:
    del surroundings
    answers = list(asker.trial.answers)
    found = [(answer, problem) for answer in answers if (problem := rounding_problem(answer))]
    figures = {"answers": len(answers), "odd": len(found)}
    if not found:
        return passed(f"no long integer was rounded in {len(answers)} answers", **figures)
    said = f"{found[0][1]} ({len(found)} of {len(answers)} answers)"
    return failed(said, *(answer.exchange for answer, _ in found[:3]), **figures)


def _arguments(answer: Answer) -> Iterator[Any]:
    return (json.loads(call.arguments) for call in answer.reply.calls if not not_an_object(call.arguments))


def _texts(value: Any) -> Iterator[str]:
    """Every string inside, keys of objects left out."""
    if isinstance(value, str):
        yield value
    for each in _inside(value):
        yield from _texts(each)


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    for each in _inside(value):
        yield from _numbers(each)


def _inside(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ())


CHECKS: Final = (
    Check(
        id="J27",
        name="texts that come back escaped or unescaped",
        asks="Nothing at first: looks at what every answer copied; a single odd one is asked for again.",
        holds="no word of the question comes back with &lt; in the place of <, nor with < in that of &lt; or the like",
        catches="servers that escape answers as for a web page, or read them as one: code that cannot be used",
        rule=Overall(f"no two answers; where there is one, none in {MORE} more"),
        survey=_entities,
        looks_back=True,
    ),
    Check(
        id="J28",
        name="long integers that come back rounded",
        asks="Nothing: looks at the calls whose question holds an integer beyond 2^53.",
        holds="none of them arrives as the nearest float",
        catches="parsers that read arguments into floats: ids of seventeen digits that become another's",
        rule=Overall("no failure in any answer"),
        survey=_rounded,
        looks_back=True,
    ),
)
