"""F08, what is compared with production: the reasoning of earlier turns, and every length of prompt at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import arithmetic
from gates.acceptance.check import Check, Overall, Sample, Skip, Tier, needs
from gates.acceptance.prompts import RefusedError, count, count_if_accepted, one_token, parting, rendered
from gates.acceptance.survey import Surveyed, failed, keep, passed
from gates.replyparts import REASONING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.capability import Capability

_KEPT: Final = "F08h"
_VECTOR: Final = "F08l"
_SHOWN: Final = 6
_FIXED: Final = Sample(_VECTOR, 0, "fixed", streamed=False, greedy=True)

Conversation = tuple[Any, Any, "Mapping[str, Any]"]
"""Messages, tools on offer, further keys of the request."""


async def reasoning_lengths(asker: Asker, sample: Sample) -> dict[str, int | None]:
    """By how many prompt tokens 200 words of reasoning in a chain of tool calls show, in each spelling of the field.

    None where the engine refuses the field. Raises `RefusedError`.
    """
    first = arithmetic.question(sample)
    plain = await count(asker, sample, arithmetic.base(first), arithmetic.TOOLS)
    grown: dict[str, int | None] = {}
    for spelled in REASONING_FIELDS:
        messages = arithmetic.base(first)
        messages[1][spelled] = arithmetic.words(arithmetic.MANY_WORDS)
        tokens = await count_if_accepted(asker, sample, messages, arithmetic.TOOLS)
        grown[spelled] = None if tokens is None else tokens - plain
    return grown


def is_kept(grown: Mapping[str, Any]) -> bool:
    """Does the reasoning reach the prompt in one spelling at least?"""
    return any(isinstance(tokens, int) and tokens >= arithmetic.MANY_TOKENS for tokens in grown.values())


async def _reasoning(asker: Asker, around: Surroundings) -> Surveyed:
    sample = Sample(_KEPT, 0, around.seed, streamed=False, greedy=True)
    try:
        grown = await reasoning_lengths(asker, sample)
    except RefusedError as refused:
        return failed(str(refused), refused.exchange)
    kept = is_kept(grown)
    shown = ", ".join(f"{name} {'refused' if n is None else f'+{n}'}" for name, n in grown.items())
    said = f"200 words of earlier reasoning show in the prompt ({shown} tokens)"
    said = said if kept else f"earlier reasoning does not reach the prompt ({shown} tokens)"
    evidence = [answer.exchange for answer in asker.by_sample[_KEPT, 0]]
    before = around.before(_KEPT).get("kept")
    if asker.capability.keeps_reasoning and not kept:
        return failed(f"{said}; the capability says keeps_reasoning", *evidence, grown=grown, kept=kept)
    if isinstance(before, bool) and before != kept:
        return failed(f"{said}; on production it was the other way", *evidence, grown=grown, kept=kept)
    return passed(said, grown=grown, kept=kept)


def _thinks(capability: Capability) -> str | None:
    if capability.keeps_reasoning or capability.thinking in ("always", "switch"):
        return needs(tools=True)(capability)
    return "the capability of this topology does not say that the model thinks"


def _conversations(capability: Capability) -> dict[str, Conversation]:
    """What is counted, the same texts in every run."""
    first = {"role": "user", "content": "What is the weather in Lisbon, and what time is it there?"}
    long = arithmetic.words(arithmetic.MANY_WORDS)
    told = f"Clear, 48.37 degrees, {arithmetic.words(40)}."
    conversations: dict[str, Conversation] = {
        "question": ([first], arithmetic.TOOLS, {}),
        "no tools": ([first], (), {}),
        "system": ([{"role": "system", "content": "Be brief."}, first], arithmetic.TOOLS, {}),
        "result": (arithmetic.base(first), arithmetic.TOOLS, {}),
        "long result": (arithmetic.base(first, told=f"48.37 {long}"), arithmetic.TOOLS, {}),
        "long arguments": (arithmetic.base(first, arguments={"city": long}), arithmetic.TOOLS, {}),
        "text beside the call": (arithmetic.base(first, text=long), arithmetic.TOOLS, {}),
        "empty content": (arithmetic.base(first, text=""), arithmetic.TOOLS, {}),
        "result in parts": (arithmetic.base(first, told=[{"type": "text", "text": told}]), arithmetic.TOOLS, {}),
        "two results": (arithmetic.two_results(first, told, told), arithmetic.TOOLS, {}),
        "foreign letters": (arithmetic.base(first, told=arithmetic.HAN_TEXT), arithmetic.TOOLS, {}),
        "next question": (
            [*arithmetic.base(first), {"role": "assistant", "content": "48.37 degrees."}, first],
            arithmetic.TOOLS,
            {},
        ),
    }
    if capability.thinking == "switch":
        conversations["thinking on"] = ([first], arithmetic.TOOLS, capability.thinking_on)
        conversations["thinking off"] = ([first], arithmetic.TOOLS, capability.thinking_off)
    return conversations


async def measure(asker: Asker) -> dict[str, int]:
    """Prompt tokens of a fixed set of conversations. Raises `RefusedError`."""
    return {
        name: await count(asker, _FIXED, messages, tools, **keys)
        for name, (messages, tools, keys) in _conversations(asker.capability).items()
    }


async def _parting(asker: Asker, live: Asker | None, name: str) -> str:
    """Where the prompt of this conversation leaves production's, when both engines show theirs."""
    if live is None:
        return ""
    messages, tools, keys = _conversations(asker.capability)[name]
    prompts = [await rendered(each, one_token(each, _FIXED, messages, tools, **keys)) for each in (asker, live)]
    if prompts[0] is None or prompts[1] is None or prompts[0] == prompts[1]:
        return ""
    mine, theirs = parting(prompts[0], prompts[1])
    return f"; in the first of them the prompt goes on with {mine!r} here, with {theirs!r} on production"


async def _same_as_production(asker: Asker, around: Surroundings) -> Surveyed:
    try:
        mine = await measure(asker)
        theirs = around.before(_VECTOR).get("prompt_tokens")
        if not isinstance(theirs, dict) and around.live is not None:
            theirs = await measure(around.live)
    except RefusedError as refused:
        return failed(str(refused), refused.exchange)
    if not isinstance(theirs, dict):
        keep(asker, _VECTOR, prompt_tokens=mine)
        raise Skip("nothing to compare with; the lengths are recorded for the next run")
    names = [name for name, tokens in mine.items() if name in theirs and theirs[name] != tokens]
    differing = [f"{name}: {mine[name]} here, {theirs[name]} on production" for name in names]
    if not differing:
        return passed(f"{len(mine)} prompts count as many tokens as on production", prompt_tokens=mine)
    more = f" (and {len(differing) - _SHOWN} more)" if len(differing) > _SHOWN else ""
    said = f"{len(differing)} of {len(mine)} prompts count other numbers of tokens: {'; '.join(differing[:_SHOWN])}"
    said += more + await _parting(asker, around.live, names[0])
    evidence = [answer.exchange for answer in asker.by_sample[_VECTOR, 0]][:_SHOWN]
    return failed(said, *evidence, prompt_tokens=mine, production=theirs)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id=_KEPT,
        name="earlier reasoning in the prompt",
        asks="A conversation with 200 words of reasoning beside an earlier call, in both spellings of the field.",
        holds="where the capability says keeps_reasoning they reach the prompt; else it is as on production",
        catches="a chain of tool calls in which the model forgets its own thoughts",
        rule=Overall(
            "at least 150 prompt tokens more in one spelling where that is declared; the same as on production"
        ),
        survey=_reasoning,
        tier=Tier.SMOKE,
        needs=_thinks,
    ),
    Check(
        id=_VECTOR,
        name="prompts as long as on production",
        asks="Twelve to fourteen fixed conversations, one token of answer each.",
        holds="each counts as many prompt tokens as on production",
        catches="any drift of chat template or tokeniser; waive it where model or template are meant to be others",
        rule=Overall("the same numbers as on production, exactly"),
        survey=_same_as_production,
        tier=Tier.SMOKE,
        needs=needs(tools=True),
    ),
)
