"""Group J: a call at the end of a long context, with a value from its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance.calls import one_call_problem
from gates.acceptance.check import Behaviour, Check, Skip, Tier, needs
from gates.acceptance.filler import context_tokens, filler, tokens_per_char
from gates.acceptance.tools import RECORD, record_id
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Attempt, Sample

_RESERVE_TOKENS: Final = 600
"""For the template, the tool and the call."""


def call_after(tokens: int | None) -> Attempt:
    """The attempt at a context of so many tokens, or at nine tenths of the longest one."""

    async def attempt(asker: Asker, sample: Sample) -> str | None:
        longest = await context_tokens(asker)
        thinks = asker.capability.may_think and sample.thinking is not False
        room = asker.limits.thinking_max_tokens if thinks else asker.limits.max_tokens
        wanted = longest * 9 // 10 if tokens is None else tokens
        room = min(room, longest - wanted - _RESERVE_TOKENS)
        if room < _RESERVE_TOKENS // 2:
            raise Skip(f"{wanted} tokens and a call do not fit into {longest} tokens of context")
        rng = sample.rng()
        wanted_id = record_id(rng)
        chars = int((wanted - _RESERVE_TOKENS // 2) / await _density(asker, sample))
        depth = rng.uniform(0.03, 0.2)
        text = (
            f'{filler(rng, int(chars * depth))}\nThe record of the lighthouse has the record_id "{wanted_id}".\n'
            f"{filler(rng, int(chars * (1 - depth)))}\n\n"
            "Look up the record of the lighthouse with the tool; its record_id stands in the text above."
        )
        answer = await asker.chat(sample, text, tools=[RECORD], max_tokens=room)
        problem = one_call_problem(answer, [RECORD], "lookup_record", {"record_id": wanted_id})
        counted = answer.reply.usage.prompt_tokens if answer.reply.usage else None
        return f"{problem} (after {counted or wanted} tokens)" if problem else None

    return attempt


async def _density(asker: Asker, sample: Sample) -> float:
    """Tokens per character, measured once in a run."""
    if "tokens_per_char" not in asker.shared:
        asker.shared["tokens_per_char"] = await tokens_per_char(asker, sample)
    density: float = asker.shared["tokens_per_char"]
    return density


def _check(suffix: str, size: str, tokens: int | None) -> Check:
    return Check(
        id=f"J23{suffix}",
        name=f"a call after {size}",
        asks=f"To look up a record whose id stands near the beginning of {size} of text.",
        holds="the call, with that id",
        catches="caches, attention and position scaling that lose what is far away",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=call_after(tokens),
        tier=Tier.EXTENDED,
        needs=needs(tools=True),
        extra={"context_tokens": tokens},
    )


CHECKS: Final = (
    _check("", "8,000 tokens", 8_000),
    _check("b", "32,000 tokens", 32_000),
    _check("c", "nine tenths of the longest context", None),
)
