"""Group O, the length limit: just within is answered, beyond is refused, and nothing in between is made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gates import invariants
from gates.acceptance.asker import user
from gates.acceptance.check import Check, Overall, Sample, Skip
from gates.acceptance.filler import context_tokens, filler, tokens_per_char
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed
from gates.acceptance.tools import code
from gates.acceptance.words import said, shown, unanswered
from gates.reply import read_reply
from gates.trial import Answer

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker

NEAR: Final = 0.90
"""The prompt's share of the limit; `max_tokens` makes up the rest, so that prompt and answer meet it exactly."""
BEYOND: Final = 1.20
MIN_ROOM: Final = 32
SLOWEST_TOK_PER_S: Final = 500
"""No engine that anybody serves users with reads a prompt more slowly."""


class _Case(NamedTuple):
    """What is asked: `over` tokens more than the limit allows."""

    name: str
    over: int


_CASES: Final = (_Case("one token less than the limit", -1), _Case("exactly the limit", 0), _Case("one token more", 1))


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    limit = await context_tokens(asker)
    sample = _sample(asker, around, 0)
    secret = code(sample.rng())
    rate = await tokens_per_char(asker, sample.asked(salt="probe"))
    # The very same prompt every time: another reference could be a token longer.
    messages = [user(sample, _text(sample, secret, int(limit * NEAR / rate)))]
    counted = await _counted(asker, asker.body(sample, messages, max_tokens=1), limit)
    room = limit - counted
    if room < MIN_ROOM:
        raise Skip(f"a prompt of {counted} tokens leaves {room} of {limit}: too short a context to measure at its end")
    seen: list[str] = []
    for number, case in enumerate(_CASES):
        asked = _sample(asker, around, number, salt=str(number))
        answer = await _ask(asker, asker.body(asked, messages, max_tokens=room + case.over), limit)
        wrong = _problem(answer, secret, counted, must_answer=case.over <= 0)
        wrong = wrong or await asker.liveness(asked)
        if wrong:
            return failed(f"{case.name}: {wrong}", answer.exchange, limit=limit, prompt_tokens=counted)
        seen.append(_outcome(answer))
    return await _beyond(asker, around, secret, int(limit * BEYOND / rate), seen, limit)


async def _beyond(asker: Asker, around: Surroundings, secret: str, chars: int, seen: list[str], limit: int) -> Surveyed:
    sample = _sample(asker, around, len(_CASES))
    answer = await _ask(asker, asker.body(sample, _text(sample, secret, chars), max_tokens=MIN_ROOM), limit)
    wrong = _problem(answer, secret, limit, must_answer=False) or await asker.liveness(sample)
    if wrong:
        return failed(f"a prompt a fifth longer than the limit: {wrong}", answer.exchange, limit=limit)
    names = [*(case.name for case in _CASES), "a fifth more"]
    told = "; ".join(f"{name}: {outcome}" for name, outcome in zip(names, [*seen, _outcome(answer)], strict=True))
    return passed(f"limit {limit} tokens; {told}", limit=limit)


async def _ask(asker: Asker, body: Mapping[str, Any], limit: int) -> Answer:
    """Past the rules for every answer, which a refusal would break; with time for a prompt as long as the context."""
    timeout_s = max(asker.limits.timeout_s, limit / SLOWEST_TOK_PER_S)
    exchange = await asker.raw("POST", "/v1/chat/completions", body, timeout_s=timeout_s)
    reply = read_reply(exchange, streamed=bool(body.get("stream")))
    return Answer(body, exchange, reply, invariants.breaches(reply, body, asker.capability))


async def _counted(asker: Asker, body: Mapping[str, Any], limit: int) -> int:
    answer = await _ask(asker, body, limit)
    counted = answer.reply.usage.prompt_tokens if answer.reply.usage else None
    if not counted:
        raise Skip(f"prompt tokens could not be counted: {answer.first_problem or 'there is no usage'}")
    return counted


def _problem(answer: Answer, secret: str, prompt: int, *, must_answer: bool) -> str | None:
    """A refusal is HTTP 4xx; any answer holds the code, and its prompt was not cut silently."""
    status = answer.exchange.status
    if status is not None and 400 <= status < 500:
        return f"HTTP {status}, although it fits" if must_answer else None
    missing = unanswered(answer) or next((breach.sentence for breach in answer.certain), None)
    if missing:
        return missing
    counted = answer.reply.usage.prompt_tokens if answer.reply.usage else None
    if counted is not None and counted < prompt:
        return f"HTTP 200, but only {counted} of {prompt} prompt tokens were read"
    return None if secret in said(answer) else f"HTTP 200 with something else than was asked: {shown(said(answer))}"


def _outcome(answer: Answer) -> str:
    return "answered" if answer.exchange.status == 200 else f"HTTP {answer.exchange.status}"


def _text(sample: Sample, secret: str, chars: int) -> str:
    notes = filler(sample.rng("notes"), chars)
    return f"The code of the safe is {secret}. {notes}\n\nWhat is the code of the safe? Answer with the code only."


def _sample(asker: Asker, around: Surroundings, number: int, **how: Any) -> Sample:
    off = False if asker.capability.thinking == "switch" else None
    return Sample("O16", number, around.seed, number % 2 == 0, greedy=True, thinking=off, **how)


CHECKS: Final = (
    Check(
        id="O16",
        name="length limit",
        asks="Prompt and answer one token below, at and above the longest context, and a prompt a fifth longer.",
        holds="what fits is answered rightly, what does not is HTTP 4xx or answered rightly, and the engine lives on",
        catches="silent truncation, empty or unrelated answers under HTTP 200, and engines that die of a long prompt",
        rule=Overall("no failure among the four"),
        survey=_survey,
        destructive=True,
    ),
)
