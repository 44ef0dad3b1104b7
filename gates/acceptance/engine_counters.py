"""Group O, what the engine counts about itself: speculation, NaN in logits, and a KV cache that is full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.check import Check, Overall, Sample, Skip, Tier
from gates.acceptance.filler import filler
from gates.acceptance.metrics import counters
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed, undecided
from gates.acceptance.together import together
from gates.acceptance.tools import code
from gates.acceptance.words import said, shown, unanswered

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.counters import Counters
    from gates.trial import Answer

MIN_ACCEPTED: Final = 0.02
MIN_ACCEPT_LENGTH: Final = 1.02
"""Tokens per step: 1 is what there would be without speculation."""
PRESSURE: Final = (32, 64, 128, 256)
"""Conversations at once, one level after the other until the engine has to put some of them back."""
PRESSURE_CHARS: Final = 12_000
_NO_PAGE: Final = "no metrics page of a known engine was given"


async def _now(asker: Asker, around: Surroundings) -> Counters:
    found = await counters(asker, around)
    if found is None:
        raise Skip(_NO_PAGE)
    return found


async def _speculation(asker: Asker, around: Surroundings) -> Surveyed:
    return judge_speculation(await _now(asker, around))


def judge_speculation(now: Counters) -> Surveyed:
    """At the end of a run. Raises `Skip` where nothing speculates."""
    if now.drafted is not None:
        if now.drafted <= 0:
            return undecided("speculation is configured and never proposed a token: it was not exercised", drafted=0)
        share = (now.accepted or 0.0) / now.drafted
        figures = {"drafted": now.drafted, "accepted": now.accepted, "share": round(share, 4)}
        sentence = f"{share:.0%} of {now.drafted:.0f} proposed tokens were accepted"
        return passed(sentence, **figures) if share >= MIN_ACCEPTED else failed(sentence, **figures)
    if now.accept_length:
        sentence = f"a step of speculation yields {now.accept_length:.2f} tokens"
        good = now.accept_length >= MIN_ACCEPT_LENGTH
        return (passed if good else failed)(sentence, accept_length=now.accept_length)
    raise Skip("the engine counts no speculation")


async def _nan(asker: Asker, around: Surroundings) -> Surveyed:
    corrupted = (await _now(asker, around)).corrupted
    if corrupted is None:
        raise Skip("the engine does not count NaN in logits (vLLM does with VLLM_COMPUTE_NANS_IN_LOGITS=1)")
    if corrupted:
        return failed(f"the engine saw NaN in the logits of {corrupted:.0f} requests", corrupted=corrupted)
    return passed("no request had NaN in its logits", corrupted=0)


# --- a full KV cache --------------------------------------------------------------------------------------------------


async def _pressure(asker: Asker, around: Surroundings) -> Surveyed:
    before = await _now(asker, around)
    if before.preemptions is None:
        raise Skip("the engine does not count preemptions")
    asked = 0
    for level in PRESSURE:
        problems = await together(_copy(asker, around, asked + number) for number in range(level))
        asked += level
        wrong = [(answer, problem) for answer, problem in problems if problem]
        after = await _now(asker, around)
        put_back = (after.preemptions or 0.0) - before.preemptions
        figures = {"asked": asked, "wrong": len(wrong), "preemptions": put_back, "concurrency": level}
        if wrong:
            sentence = f"{len(wrong)} of {level} are wrong with {put_back:.0f} preemptions: {wrong[0][1]}"
            return failed(sentence, wrong[0][0].exchange, **figures)
        if put_back > 0:
            return passed(f"{asked} answers are right, over {put_back:.0f} preemptions", **figures)
    alive = await asker.liveness(_pressing(asker, around, asked))
    if alive:
        return failed(alive)
    raise Skip(f"{PRESSURE[-1]} conversations at once did not fill the KV cache: nothing was preempted")


async def _copy(asker: Asker, around: Surroundings, number: int) -> tuple[Answer, str | None]:
    """A long prompt with a code, and an answer long enough to be put back in the middle of it."""
    sample = _pressing(asker, around, number)
    rng = sample.rng()
    secret = code(rng)
    keys: dict[str, Any] = {"max_tokens": asker.capability.room(800)}
    limit = asker.capability.max_context_tokens
    asked = filler(rng, min(PRESSURE_CHARS, limit) if limit else PRESSURE_CHARS)
    if asker.capability.json_schema:
        keys["response_format"] = _FORMAT
        asked += f'\n\nAnswer with a JSON object: secret is "{secret}", reference is "{sample.nonce}", and story is a'
        asked += " story of 200 words."
    else:
        asked += f"\n\nBegin your answer with the code {sample.nonce}-{secret}. Then write about 200 words on rivers."
    answer = await asker.chat(sample, asked, **keys)
    return answer, _copy_problem(answer, secret, sample.nonce, strict=asker.capability.json_schema)


def _copy_problem(answer: Answer, secret: str, nonce: str, *, strict: bool) -> str | None:
    missing = unanswered(answer)
    if missing:
        return missing
    if strict and answer.reply.finish_reason != "length":
        try:
            value = json.loads(answer.reply.content)
        except (ValueError, RecursionError) as error:
            return f"the object is not JSON ({error}): {shown(answer.reply.content)}"
        if not isinstance(value, dict) or set(value) != set(_SCHEMA["properties"]):
            return f"the object has other keys than its schema: {shown(answer.reply.content)}"
    text = said(answer) if not strict else answer.reply.content
    lost = next((wanted for wanted in (secret, nonce) if wanted not in text), None)
    return None if lost is None else f"{lost} is not in the answer {shown(text)}"


def _pressing(asker: Asker, around: Surroundings, number: int) -> Sample:
    off = False if asker.capability.thinking == "switch" else None
    streamed, greedy = number % 2 == 0, number // 2 % 2 == 0
    return Sample("O15", number, around.seed, streamed, greedy, thinking=off, variant=number)


_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"secret": {"type": "string"}, "reference": {"type": "string"}, "story": {"type": "string"}},
    "required": ["secret", "reference", "story"],
    "additionalProperties": False,
}
_FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": _SCHEMA}}

CHECKS: Final = (
    Check(
        id="O11",
        name="speculation exercised",
        asks="Nothing: the engine's counters of speculative decoding after everything else.",
        holds="tokens were proposed, and at least some were accepted",
        catches="a draft model or MTP head that does not fit, so that speculation costs and yields nothing",
        rule=Overall(f"at least {MIN_ACCEPTED:.0%} accepted; inconclusive when nothing was proposed"),
        survey=_speculation,
        looks_back=True,
    ),
    Check(
        id="O14",
        name="NaN in logits",
        asks="Nothing: the engine's counter of corrupted requests after everything else.",
        holds="it is zero",
        catches="a kernel that computes NaN: the answer still looks like one, or is a row of exclamation marks",
        rule=Overall("no request with NaN in its logits"),
        survey=_nan,
        looks_back=True,
    ),
    Check(
        id="O15",
        name="full KV cache",
        asks=f"Long prompts with a code, long answers, up to {PRESSURE[-1]} at once, until the engine preempts some.",
        holds="every answer has its own code, and objects keep their schema",
        catches="preemption and recomputation that splice answers, skip keys or lose what was said",
        rule=Overall("no wrong answer up to the first preemption"),
        survey=_pressure,
        tier=Tier.EXTENDED,
        destructive=True,
    ),
)
