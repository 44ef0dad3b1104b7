"""One load for several checks: questions of many kinds side by side, at one level of concurrency after another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gates.acceptance.calls import clock, single
from gates.acceptance.check import Sample
from gates.acceptance.copying import types
from gates.acceptance.parallel import different
from gates.acceptance.structured import one_object
from gates.acceptance.together import together
from gates.acceptance.tries import Try

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Attempt
    from gates.capability import Capability

SEQUENTIAL: Final = 1
FEWEST: Final = 48
"""Questions at a level at least: so many right ones, alone, tell a share of 10 % wrong ones under load from chance."""
CALLS: Final = ("call", "clock", "types", "parallel")
"""The kinds that call tools."""
_SUBJECTS: Final = ("rivers", "bridges", "bread", "lighthouses", "maps", "paper", "clocks", "gardens")
_LENGTHS_WORDS: Final = (40, 120, 300, 600)


@dataclass(frozen=True)
class Level:
    """What came at one concurrency: every question's kind and try, in the order of their numbers."""

    concurrency: int
    tries: tuple[tuple[str, Try], ...]

    def counts(self, kinds: Sequence[str] = ()) -> tuple[int, int]:
        """(right, asked) of these kinds; of all when none is named."""
        mine = [one for kind, one in self.tries if not kinds or kind in kinds]
        return sum(one.problem is None for one in mine), len(mine)

    def failures(self, kinds: Sequence[str] = ()) -> list[Try]:
        return [one for kind, one in self.tries if one.problem is not None and (not kinds or kind in kinds)]

    def by_kind(self) -> Mapping[str, Mapping[str, int]]:
        """For reports: kind → ``{"n": …, "right": …}``."""
        asked = Counter(kind for kind, _ in self.tries)
        right = Counter(kind for kind, one in self.tries if one.problem is None)
        return {kind: {"n": n, "right": right[kind]} for kind, n in asked.items()}


async def mixed_load(asker: Asker, seed: str, levels: Sequence[int]) -> Mapping[int, Level]:
    """Ask the same mix at every concurrency of `levels`, the lowest first; a level that this run has seen is kept.

    Concurrency 1 is the sequential base that `levels` should hold. Kinds: what calls tools (`CALLS`), as far as the
    capability goes, `object` (structured output), `copy`, `sum` and `prose` (40 to 600 words). Streamed and whole
    take turns. Use it in exclusive surveys only: beside anything else the levels mean nothing.
    """
    done: dict[int, Level] = asker.shared.setdefault("mixed_load", {})
    kinds = questions(asker.capability)
    for concurrency in sorted(set(levels) - set(done)):
        done[concurrency] = await _level(asker, seed, concurrency, kinds)
    return {concurrency: done[concurrency] for concurrency in sorted(levels)}


def questions(capability: Capability) -> Mapping[str, Attempt]:
    """The kinds that can be asked here."""
    kinds: dict[str, Attempt] = {"copy": _copy, "sum": _sum, "prose": _prose}
    if capability.tools:
        kinds |= {"call": single, "clock": clock, "types": types}
        if capability.parallel_calls:
            kinds["parallel"] = different
    if capability.json_schema:
        kinds["object"] = one_object
    return kinds


async def _level(asker: Asker, seed: str, concurrency: int, kinds: Mapping[str, Attempt]) -> Level:
    room = asyncio.Semaphore(concurrency)
    # Nobody thinks here: the load is made of many answers, not of long ones.
    thinking = False if asker.capability.thinking == "switch" else None
    names = sorted(kinds)
    count = max(FEWEST, 2 * concurrency)
    count += -count % len(names)

    async def ask(number: int) -> tuple[str, Try]:
        kind = names[number % len(names)]
        sample = Sample(
            check="load",
            number=concurrency * 100_000 + number,
            variant=number,
            seed=seed,
            streamed=number // len(names) % 2 == 0,
            greedy=number // len(names) // 2 % 2 == 0,
            thinking=thinking,
        )
        async with room:
            problem = await kinds[kind](asker, sample)
        return kind, Try(sample, problem, tuple(asker.by_sample[sample.check, sample.number]))

    return Level(concurrency, tuple(await together(ask(number) for number in range(count))))


async def _copy(asker: Asker, sample: Sample) -> str | None:
    """The canary alone: short answers between long ones."""
    answer = await asker.chat(sample, f"Reply with only the following code: {sample.nonce}")
    return answer.first_problem or (
        None if sample.nonce in answer.reply.content else f"its own code {sample.nonce} is not in the answer"
    )


async def _sum(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    left, right = rng.randrange(11, 50), rng.randrange(11, 50)
    answer = await asker.chat(sample, f"What is {left} + {right}? Answer with the number only.")
    said = answer.reply.content
    return answer.first_problem or (
        None if str(left + right) in said else f"{left} + {right} is answered with {said[:80]!r}"
    )


async def _prose(asker: Asker, sample: Sample) -> str | None:
    """Text of many lengths, so that answers begin and end at all times; whether it is language, the rules say."""
    rng = sample.rng()
    words, subject = rng.choice(_LENGTHS_WORDS), rng.choice(_SUBJECTS)
    text = f"Begin your answer with the code {sample.nonce}. Then write about {words} words on {subject}."
    answer = await asker.chat(sample, text, max_tokens=asker.capability.room(4 * words + 100))
    return answer.first_problem or (
        None if sample.nonce in answer.reply.content else f"its own code {sample.nonce} is not in the answer"
    )
