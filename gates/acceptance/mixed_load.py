"""One load for several checks: questions of many kinds side by side, at one level of concurrency after another.

The levels follow from how many requests the engine runs at once, and end where they would take too long: a gate on a
slow engine must still give its verdict in time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gates.acceptance.calls import single
from gates.acceptance.check import Sample
from gates.acceptance.copying import types
from gates.acceptance.parallel import different, same_tool
from gates.acceptance.running import max_running
from gates.acceptance.structured import one_object
from gates.acceptance.survey import Surveyed, failed, passed, undecided
from gates.acceptance.together import together
from gates.acceptance.tries import Try
from gates.contract import VerdictKind
from gates.statistics import fisher_worse

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Attempt
    from gates.capability import Capability

SEQUENTIAL: Final = 1
FEWEST: Final = 48
"""Questions at a level at least: so many right ones, alone, tell a share of 10 % wrong ones under load from chance."""
ALPHA: Final = 0.01
"""The chance to find a difference between the levels where there is none."""
SHARE_OF_TIME: Final = 0.5
"""Of the time that is left when the load begins; the rest is for what comes after it."""
CALLS: Final = ("call", "types", "parallel", "cities")
"""The kinds that call tools."""
_SEVERAL: Final = ("parallel", "cities")
"""Several calls in one answer: always streamed here, where a parser has to tell them apart piece by piece."""
_LAYER: Final = "the engine under load: alone the same questions are right"
_SUBJECTS: Final = ("rivers", "bridges", "bread", "lighthouses", "maps", "paper", "clocks", "gardens")
_LENGTHS_WORDS: Final = (40, 120, 300, 600)


@dataclass(frozen=True)
class Level:
    """What came at one concurrency: every question's kind and try, in the order of their numbers."""

    concurrency: int
    tries: tuple[tuple[str, Try], ...]
    took_s: float = 0.0
    slowest_s: float = 0.0
    """The longest time that one answer took."""

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


@dataclass(frozen=True)
class Load:
    """The levels that were asked, the lowest first, and in words what was left out of them."""

    levels: Mapping[int, Level]
    running: str = ""
    """How many run at once, and from where that is known."""
    left_out: str = ""


async def mixed_load(asker: Asker, seed: str) -> Load:
    """Ask the same mix at every level of concurrency, once in a run: every check that needs it looks at the same load.

    Kinds: what calls tools (`CALLS`), as far as the capability goes, `object` (structured output), `copy`, `sum` and
    `prose` (40 to 600 words). Streamed and whole take turns. Use it in exclusive surveys only: beside anything else
    the levels mean nothing.
    """
    load: Load | None = asker.shared.get("mixed_load")
    if load is None:
        load = asker.shared["mixed_load"] = await _climb(asker, seed)
    return load


def against_alone(levels: Mapping[int, Level], kinds: Sequence[str]) -> Surveyed:
    """Each level, and all together, against the answers given alone (Fisher, one-sided); of these kinds."""
    figures = {str(level.concurrency): level.by_kind() for level in levels.values()}
    base, *loaded = levels.values()
    base_right, base_n = base.counts(kinds)
    if not loaded:
        return undecided(f"alone {base_right} of {base_n} were right; nothing was asked under load", levels=figures)
    for some in [*([level] for level in loaded), loaded]:
        right, n = _sum(some, kinds)
        # Several looks at the same data share the one error that is allowed.
        if fisher_worse(right, n, base_right, base_n) < ALPHA / (len(loaded) + 1):
            worst = next(one for level in some for one in level.failures(kinds))
            where = " and ".join(str(level.concurrency) for level in some)
            return failed(
                f"at concurrency {where} {right} of {n} were right, alone {base_right} of {base_n}: {worst.problem}",
                *(answer.exchange for answer in worst.answers),
                levels=figures,
                layer=_LAYER,
            )
    right, n = _sum(loaded, kinds)
    return passed(f"{right} of {n} right under load, {base_right} of {base_n} alone", levels=figures)


def told(found: Surveyed, load: Load) -> Surveyed:
    """What was found, with how high the load went; a pass whose highest levels are missing is shown."""
    sentence = f"{found.sentence}; {load.left_out}" if load.left_out else found.sentence
    missing = bool(load.left_out) and found.verdict is VerdictKind.PASS
    measurements = {**found.measurements, "running": load.running}
    return replace(found, sentence=sentence, measurements=measurements, warn=found.warn or missing)


def _sum(levels: Sequence[Level], kinds: Sequence[str]) -> tuple[int, int]:
    counts = [level.counts(kinds) for level in levels]
    return sum(right for right, _ in counts), sum(n for _, n in counts)


def levels_of(running: int) -> tuple[int, ...]:
    """The levels for an engine that runs so many at once; at twice as many some wait."""
    return tuple(sorted(level for level in {SEQUENTIAL, 8, 32, running, 2 * running} if level <= 2 * running))


async def _climb(asker: Asker, seed: str) -> Load:
    running = await max_running(asker)
    kinds = questions(asker.capability)
    began_s, allowed_s = time.monotonic(), SHARE_OF_TIME * asker.remaining_s()
    done: dict[int, Level] = {}
    left_out = ""
    levels = levels_of(running.number)
    for concurrency in levels:
        left_s = allowed_s - (time.monotonic() - began_s)
        why_not = too_slow(done, concurrency, len(kinds), left_s, asker.limits.timeout_s)
        if why_not is not None:
            skipped = " and ".join(str(level) for level in levels if level >= concurrency)
            left_out = f"not asked at concurrency {skipped}: {why_not}"
            break
        asker.trial.say(f"load: {concurrency} at once")
        # Alone is slowest of all, and what it takes from the others they cannot give back.
        until_s = time.monotonic() + (left_s / 2 if concurrency == SEQUENTIAL else left_s)
        done[concurrency] = await _level(asker, seed, concurrency, kinds, until_s)
    return Load(done, f"{running.number} run at once ({running.source})", left_out)


def too_slow(done: Mapping[int, Level], concurrency: int, kinds: int, left_s: float, timeout_s: float) -> str | None:
    """Would this level take too long, as the one before it went? In words; None: it fits."""
    if not done:
        return None
    before = done[max(done)]
    # As if more at once made nothing faster: so it is where all run that can.
    takes_s = before.took_s * _count(concurrency, kinds) / max(1, len(before.tries))
    if takes_s > left_s:
        return f"that would take {takes_s:.0f} s, and {max(0.0, left_s):.0f} s are left for it"
    slowest_s = before.slowest_s * min(2.0, concurrency / before.concurrency)
    if slowest_s > timeout_s:
        return f"an answer would take {slowest_s:.0f} s, and this run waits {timeout_s:g} s"
    return None


def _count(concurrency: int, kinds: int) -> int:
    """How many questions a level has: every kind equally often."""
    # A quarter more than run at once: those that end first make room for the others.
    count = max(FEWEST, concurrency * 5 // 4)
    return count + -count % kinds


def questions(capability: Capability) -> Mapping[str, Attempt]:
    """The kinds that can be asked here."""
    kinds: dict[str, Attempt] = {"copy": _copy, "sum": _addition, "prose": _prose}
    if capability.tools:
        kinds |= {"call": single, "types": types}
        if capability.parallel_calls:
            kinds |= {"parallel": different, "cities": same_tool}
    if capability.json_schema:
        kinds["object"] = one_object
    return kinds


async def _level(asker: Asker, seed: str, concurrency: int, kinds: Mapping[str, Attempt], until_s: float) -> Level:
    """No question begins after `until_s` (monotonic); what has begun is waited for."""
    room = asyncio.Semaphore(concurrency)
    names = sorted(kinds)

    async def ask(number: int) -> tuple[str, Try] | None:
        lap, place = divmod(number, len(names))
        kind = names[place]
        sample = Sample(
            check="load",
            number=concurrency * 100_000 + number,
            variant=number,
            seed=seed,
            streamed=kind in _SEVERAL or lap % 2 == 0,
            greedy=lap // 2 % 2 == 0,
            thinking=_thinks(kind, lap) if asker.capability.thinking == "switch" else None,
        )
        async with room:
            if time.monotonic() > until_s:
                return None
            problem = await kinds[kind](asker, sample)
        return kind, Try(sample, problem, tuple(asker.by_sample[sample.check, sample.number]))

    began_s = time.monotonic()
    asked = await together(ask(number) for number in range(_count(concurrency, len(names))))
    tries = tuple(one for one in asked if one is not None)
    slowest_s = max((answer.exchange.total_s for _, one in tries for answer in one.answers), default=0.0)
    return Level(concurrency, tries, time.monotonic() - began_s, slowest_s)


def _thinks(kind: str, lap: int) -> bool:
    """Hardly anybody: the load is made of many answers, not of long ones.

    Half of the objects do, because a grammar that begins in a thought shows nowhere else.
    """
    return kind == "object" and lap % 4 in (0, 3)


async def _copy(asker: Asker, sample: Sample) -> str | None:
    """The canary alone: short answers between long ones."""
    answer = await asker.chat(sample, f"Reply with only the following code: {sample.nonce}")
    return answer.first_problem or (
        None if sample.nonce in answer.reply.content else f"its own code {sample.nonce} is not in the answer"
    )


async def _addition(asker: Asker, sample: Sample) -> str | None:
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
