"""Group O, the prefix cache: the same prompt again must be as right as it was the first time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import answers
from gates.acceptance.asker import user
from gates.acceptance.check import Check, Overall, Sample
from gates.acceptance.filler import filler
from gates.acceptance.metrics import counters
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed, undecided
from gates.acceptance.together import in_turn

if TYPE_CHECKING:
    from gates.acceptance.answers import Question
    from gates.acceptance.asker import Asker
    from gates.trial import Answer

PROMPTS: Final = 24
TAILS: Final = 16
LONG_CHARS: Final = 1_200
"""Several cache blocks of any engine."""
SHARED_CHARS: Final = 9_000
"""About two thousand tokens."""


@dataclass
class _Series:
    """One prompt, asked again and again with the very same bytes."""

    asker: Asker
    sample: Sample
    known: Question
    warm: list[Answer] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    comparable: bool = True
    """False when the cold answer was wrong too: then nothing can be said about the cache."""

    @property
    def problem(self) -> str | None:
        """Wrong in two of three."""
        return self.wrong[0] if self.comparable and len(self.wrong) >= 2 else None

    async def cold(self, body: Mapping[str, Any]) -> None:
        answer = await self.asker.send(self.sample, body)
        self.comparable = answers.problem(answer, self.known) is None

    async def again(self, body: Mapping[str, Any]) -> None:
        answer = await self.asker.send(self.sample, body)
        self.warm.append(answer)
        problem = answers.problem(answer, self.known)
        if problem:
            self.wrong.append(problem)


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    before = await counters(asker, around)
    seen = await in_turn(asker, [_identical(asker, _sample(asker, around, number)) for number in range(PROMPTS)])
    # The first tail brings the shared prefix into the cache, the others find it there.
    tails = [_tail(asker, _sample(asker, around, PROMPTS + number), around.seed) for number in range(TAILS)]
    seen += await in_turn(asker, tails[:1])
    seen += await in_turn(asker, tails[1:])
    after = await counters(asker, around)
    grown = after.cache_hits - before.cache_hits if before and after and after.cache_hits and before.cache_hits else 0
    return _judged(asker, seen, grown)


def _judged(asker: Asker, seen: list[_Series], grown: float) -> Surveyed:
    cached = [answer.reply.usage.cached_tokens for one in seen for answer in one.warm if answer.reply.usage]
    hits = sum(bool(tokens) for tokens in cached)
    compared = sum(one.comparable for one in seen)
    figures = {"prompts": len(seen), "compared": compared, "hits": hits, "hit_tokens": grown}
    wrong = [one for one in seen if one.problem]
    if wrong:
        found = f"cold it was right, the same prompt warm is not: {wrong[0].problem} ({len(wrong)} of {len(seen)})"
        return failed(found, *(answer.exchange for answer in wrong[0].warm), **figures)
    if not compared:
        return undecided("no prompt was answered rightly even cold, so that nothing can be compared", **figures)
    fine = f"{compared} of {len(seen)} prompts were right cold, and warm as well"
    if hits or grown > 0:
        return passed(f"{fine}; the cache was hit", **figures)
    if asker.capability.prefix_caching:
        return undecided(f"{fine}, but prefix caching is declared and no hit was seen", **figures)
    told = any(tokens is not None for tokens in cached)
    known = "the cache was never hit" if told else "the engine does not say whether the cache was hit"
    return passed(f"{fine}; {known}", **figures)


async def _identical(asker: Asker, sample: Sample) -> _Series:
    known = answers.question(sample)
    body = asker.body(sample, f"{filler(sample.rng('filler'), LONG_CHARS)}\n\n{known.text}")
    series = _Series(asker, sample, known)
    await series.cold(body)
    for asked in range(3):
        if series.comparable and (asked < 2 or series.wrong):
            await series.again(body)
    return series


async def _tail(asker: Asker, sample: Sample, seed: str) -> _Series:
    known = answers.question(sample)
    series = _Series(asker, sample, known)
    warm = _after(asker, sample, known, f"shared {seed}")
    await series.again(warm)
    if series.wrong:
        # Is it the question? Cold means that the very first words are others.
        await series.cold(_after(asker, sample, known, f"own {sample.nonce}"))
        await series.again(warm)
        await series.again(warm)
    return series


def _after(asker: Asker, sample: Sample, known: Question, prefix: str) -> dict[str, Any]:
    background = f"Notes {prefix}. {filler(sample.asked(variant=0).rng('shared'), SHARED_CHARS)}"
    return asker.body(sample, [{"role": "system", "content": background}, user(sample, known.text)])


def _sample(asker: Asker, around: Surroundings, number: int) -> Sample:
    thinking = False if asker.capability.thinking == "switch" else None
    return Sample("O07", number, around.seed, number % 2 == 0, greedy=True, thinking=thinking, variant=number)


CHECKS: Final = (
    Check(
        id="O07",
        name="cold and warm prefix",
        asks=f"{PROMPTS} prompts three times each, then {TAILS} questions behind the same two thousand tokens.",
        holds="whatever is right cold is right warm, in two of three",
        catches="a prefix cache that hands out the wrong or damaged blocks: the second user of a prompt suffers",
        rule=Overall("no prompt that was right cold is wrong in two of three warm tries"),
        survey=_survey,
    ),
)
