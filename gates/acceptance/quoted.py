"""Group J: answers that speak of calls, or begin as calls do, and are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance.calls import shape_problem
from gates.acceptance.check import Behaviour, Check, Deterministic, needs
from gates.acceptance.tools import CLOCK, WEATHER
from gates.acceptance.words import unanswered
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.trial import Answer

_MARKUP: Final = ("<tool_call>", "<function=example>", "</parameter>", "[TOOL_CALLS]", "<tool_response>", "<think>")
_SHORT_CHARS: Final = 200
_FEW_TOKENS: Final = 60


def question(sample: Sample) -> tuple[str, str | None]:
    """The text, and what the answer must hold word for word; None where it is an explanation."""
    number = sample.rng().randrange(100, 1000)
    if sample.variant % 3 == 2:
        beginning = f'{{"a": {number}}}'
        return f"Begin your answer with {beginning} and go on in words: say in one sentence what it is.", beginning
    marker = _MARKUP[sample.variant // 3 * 2 % len(_MARKUP) + sample.variant % 3]
    return (
        f"Somebody found the text {marker} in line {number} of a log of a language model. "
        "Explain in about four sentences, in your own words, what such text is for. Do not use any tool."
    ), None


async def ask(asker: Asker, sample: Sample) -> Answer:
    """With tools on offer, or without."""
    tools = [WEATHER, CLOCK] if sample.variant % 2 and asker.capability.tools else []
    return await asker.chat(sample, question(sample)[0], tools=tools)


async def _kept(asker: Asker, sample: Sample) -> str | None:
    return kept_problem(await ask(asker, sample), question(sample)[1])


def kept_problem(answer: Answer, verbatim: str | None) -> str | None:
    """What became of the answer: a call, nothing, without the object it begins with, or cut short."""
    problem = unanswered(answer)
    if problem is not None:
        return problem
    reply = answer.reply
    if verbatim is not None:
        return None if verbatim in reply.content else f"{verbatim} is missing in {reply.content[:80]!r}"
    tokens = (reply.usage.completion_tokens or 0) if reply.usage else 0
    seen = len(reply.content) + len(reply.reasoning)
    # Tokens are longer than one character: fewer characters than tokens were seen, so some never arrived.
    if len(reply.content) < _SHORT_CHARS and tokens > _FEW_TOKENS and seen < tokens:
        return f"{tokens} tokens were made and {seen} characters arrived: {reply.content[-60:]!r}"
    return None


async def _phantom(asker: Asker, sample: Sample) -> str | None:
    return phantom(await ask(asker, sample))


def phantom(answer: Answer) -> str | None:
    """A call that no model made: of no tool on offer, with impossible arguments, or beside the whole explanation.

    A good call in place of an answer is a model's own mistake, and J26 counts it.
    """
    tools = answer.body.get("tools") or []
    for call in answer.reply.calls:
        problem = shape_problem(call, tools)
        if problem is None and len(answer.reply.content) >= _SHORT_CHARS:
            problem = f"{call.name} was called beside a whole answer"
        if problem is not None:
            return f"a call came where markup was only spoken of: {problem}"
    return None


CHECKS: Final = (
    Check(
        id="J26",
        name="quoted markup",
        asks="What <tool_call> and the like mean, and a line that begins with a JSON object; with and without tools.",
        holds="an answer in words that is all there, and the object with it",
        catches="parsers that swallow what looks like a call",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=_kept,
    ),
    Check(
        id="J26p",
        name="phantom calls",
        asks="The questions of J26.",
        holds="no call of a tool that is not there, with arguments that it does not take, or beside a whole answer",
        catches="parsers that make calls of quoted markup",
        rule=Deterministic(12),
        attempt=_phantom,
        needs=needs(tools=True),
    ),
)
