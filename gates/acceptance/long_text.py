"""Group O, long answers and long prompts: what goes wrong only after a thousand tokens, or thirty thousand."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gates import textrules
from gates.acceptance import prose
from gates.acceptance.check import Behaviour, Check, Deterministic, Skip, Tier
from gates.acceptance.filler import context_tokens, filler, tokens_per_char
from gates.acceptance.tools import code
from gates.acceptance.words import said, shown, unanswered
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

MAX_TOKENS: Final = 6_000
LINES: Final = 150
MIN_CHARS: Final = 2_000
CONTEXTS: Final = (8_000, 32_000)
FULL: Final = 0.90
DEPTHS: Final = (0.1, 0.5, 0.9)
_NUMBER: Final = re.compile(r"^\s*(?:[-*#]+\s*)?\**(\d{1,4})\s*[.):\-–]", re.MULTILINE)
_ROOM: Final = 200


# --- long answers -----------------------------------------------------------------------------------------------------


def _list(sample: Sample) -> str:
    kind = sample.rng().choice(("animals", "plants", "tools", "cities", "foods", "professions"))
    return (
        f"Write a numbered list of {LINES} {kind}, one on each line, each with a short note. Number them 1 to {LINES}."
    )


def _story(sample: Sample) -> str:
    return f"Write a story of about 1500 words about {prose.topic(sample)}."


def _code(sample: Sample) -> str:
    what = sample.rng().choice(("a library's loans", "a train timetable", "a shop's stock", "a chess clock"))
    return f"Write a Python program of about 200 lines that manages {what}, with comments."


def _report(sample: Sample) -> str:
    return f"Write a report of about 1500 words with several chapters about {prose.topic(sample)}."


_TASKS: Final[tuple[Callable[[Sample], str], ...]] = (_list, _story, _code, _report)


async def _write(asker: Asker, sample: Sample) -> str | None:
    task = _TASKS[sample.variant % len(_TASKS)]
    end = f"END-{sample.nonce}"
    asked = f'{task(sample)} Let the last line be "{end}", with nothing after it.'
    answer = await asker.chat(sample, asked, max_tokens=asker.capability.room(MAX_TOKENS))
    ended = answer.reply.finish_reason != "length"
    return unanswered(answer) or problem(said(answer), end if ended else None, task)


def problem(text: str, end: str | None, task: Callable[[Sample], str]) -> str | None:
    """What is wrong with a long `text`; `end` stands at its end, and is None when it was cut at max_tokens."""
    broken = sick_code(text) if task is _code else textrules.degenerate_window(text)
    if broken is None and task in (_story, _report):
        broken = textrules.prose_problem(text[-textrules.WINDOW_CHARS :], 0)
    if broken is None and task is _list:
        broken = numbering_problem(text)
    if broken is not None or end is None:
        return broken
    if end not in text[-200:]:
        return f"the answer stops without its last line {end}: …{shown(text[-80:])}"
    return None if len(text) >= MIN_CHARS else f"only {len(text)} characters came, expected {MIN_CHARS} or more"


def sick_code(text: str) -> str | None:
    """Rules on repetition for source code: two of them at one place."""
    for start in range(0, len(text), textrules.WINDOW_CHARS // 2):
        broken = list(textrules.degenerations(text[start : start + textrules.WINDOW_CHARS]))
        if len(broken) >= 2:
            return f"from character {start}: {broken[0]}"
    return None


def numbering_problem(text: str) -> str | None:
    """Numbers at the beginning of lines must go up one by one."""
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if len(numbers) < 10:
        return f"only {len(numbers)} numbered lines came"
    wrong = next(((a, b) for a, b in pairwise(numbers) if b != a + 1), None)
    return None if wrong is None else f"after number {wrong[0]} comes number {wrong[1]}"


# --- needles ----------------------------------------------------------------------------------------------------------


async def _needle(asker: Asker, sample: Sample) -> str | None:
    """The first try measures how many tokens a character is; the others share what it found."""
    length, depth = await _wanted(asker, sample)
    rate = asker.shared.get("tokens_per_char") or await tokens_per_char(asker, sample.asked(salt="probe"))
    asker.shared["tokens_per_char"] = rate
    rng = sample.rng("needle")
    secret, place = code(rng), rng.choice(prose.PLACES)
    chars = int((length - _ROOM) / rate)
    before = filler(rng, int(chars * depth))
    after = filler(rng, int(chars * (1 - depth)))
    needle = f"Remember this: the code of the safe in {place} is {secret}."
    asked = f"{before}\n{needle}\n{after}\n\nWhat is the code of the safe in {place}? Answer with the code only."
    thinks = asker.capability.thinking in ("always", None)
    room = min(asker.limits.thinking_max_tokens if thinks else _ROOM, int(length * (1 - FULL)))
    answer = await asker.chat(sample, asked, max_tokens=room)
    missing = unanswered(answer)
    if missing or secret in said(answer).replace(" ", "").replace(",", ""):
        return missing
    return f"{secret}, at {depth:.0%} of about {length} tokens, is not in the answer {shown(said(answer))}"


async def _wanted(asker: Asker, sample: Sample) -> tuple[int, float]:
    """Length in tokens and depth as a share: three lengths by three depths, twice."""
    limit = asker.shared.get("context_tokens") or await context_tokens(asker)
    asker.shared["context_tokens"] = limit
    lengths = [*(length for length in CONTEXTS if length < FULL * limit), int(FULL * limit)]
    if lengths[-1] < 2 * _ROOM:
        raise Skip(f"a context of {limit} tokens is too short to hide anything in")
    return lengths[sample.number // len(DEPTHS) % len(lengths)], DEPTHS[sample.number % len(DEPTHS)]


CHECKS: Final = (
    Check(
        id="O08",
        name="long answers",
        asks=f"A numbered list of {LINES} lines, a story, a report and a program, up to {MAX_TOKENS} tokens each.",
        holds="no window of 800 characters is degenerate, the numbering goes up one by one, the last line is there",
        catches="loops, endless counting, lost text and drift into nonsense that begin after a thousand tokens",
        rule=Deterministic(4, persists=True),
        attempt=_write,
    ),
    Check(
        id="O10",
        name="needle",
        asks="A code hidden at the beginning, middle and end of 8,000, 32,000 tokens and 90 % of the context.",
        holds="the code is in the answer",
        catches="a context that is longer on paper than in the engine: wrong rope scaling, lost or damaged KV blocks",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=_needle,
        tier=Tier.EXTENDED,
        thinking=(False,),
        exclusive=True,
    ),
)
