"""F15: conversations that began on production go on here, and those that began here go on there.

At a cutover every open conversation changes engines: its next request brings a history that the other one wrote, with
the other one's ids, its reasoning field, and its habits of null and "". After a rollback the same happens the other
way round. The check records its own conversations, so that the next candidate can continue them.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import lookups
from gates.acceptance.asker import SilentError, result, user
from gates.acceptance.calls import one_call_problem
from gates.acceptance.check import Behaviour, Check, Sample, needs
from gates.acceptance.survey import Surveyed, failed, passed, skipped, undecided
from gates.acceptance.together import together
from gates.acceptance.tools import RECORD, WEATHER, code, named, temperature
from gates.acceptance.turns import status_problem, told_problem
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.lookups import Lookup
    from gates.acceptance.survey import Surroundings
    from gates.capability import Capability
    from gates.trial import Answer
    from gates.wire import Exchange

Conversation = list[dict[str, Any]]

CONVERSATIONS: Final = 20
ALLOWED: Final = 2
"""So many of the twenty may lack the value: where a model is right in 99 %, one run in a thousand fails."""
MAX_BYTES: Final = 64 * 1024
"""Of all recorded conversations together: they travel in the report of a run."""
FEWEST: Final = 5
"""With fewer conversations nothing can be said."""
_TURNS: Final = (2, 3, 4, 5, 6)
"""Answers of the model in a recorded conversation; with an odd number its last one is a call that waits."""
_TOOLS: Final = (WEATHER, RECORD)


# --- recording --------------------------------------------------------------------------------------------------------


async def record(asker: Asker, samples: Sequence[Sample]) -> list[Conversation]:
    """Conversations as this engine has them; those that it does not bring to their end are left out."""

    async def one(sample: Sample) -> Conversation | None:
        async with asker.slot():
            with contextlib.suppress(SilentError):  # who does not answer has no conversations
                return await _recorded(asker, sample, _TURNS[sample.number % len(_TURNS)])
            return None

    found = await together([one(sample) for sample in samples])
    return bounded([conversation for conversation in found if conversation])


async def _recorded(asker: Asker, sample: Sample, turns: int) -> Conversation | None:
    messages: Conversation = []
    for number in range(-(-turns // 2)):
        asked = sample.asked(salt=f"{sample.salt}record{number}")
        wanted = lookups.lookup(sample.rng(f"record {number}"))
        messages.append(user(asked, wanted.text))
        call = await asker.chat(asked, messages, tools=_TOOLS)
        if one_call_problem(call, _TOOLS, wanted.name, wanted.arguments):
            return None
        messages.append(raw_message(call))
        if number * 2 + 1 == turns:
            break
        messages.append(result(call.reply.calls[0].id, wanted.result))
        answer = await asker.chat(asked, messages, tools=_TOOLS)
        if told_problem(answer, wanted.canary):
            return None
        messages.append(raw_message(answer))
    return messages


def raw_message(answer: Answer) -> dict[str, Any]:
    """The assistant message as a client keeps it: of a whole answer every key that came, nulls included."""
    if answer.reply.streamed:
        return answer.reply.message()
    message = json.loads(answer.exchange.body)["choices"][0]["message"]
    return dict(message)


def bounded(conversations: Sequence[Conversation]) -> list[Conversation]:
    """As many as fit into the bounds, in their order."""
    kept: list[Conversation] = []
    size = 0
    for conversation in conversations[:CONVERSATIONS]:
        size += len(json.dumps(conversation, ensure_ascii=False).encode(errors="replace"))
        if size > MAX_BYTES:
            break
        kept.append(conversation)
    return kept


def known(value: Any) -> list[Conversation]:
    """Conversations out of the measurements of an earlier run, which may be anything."""
    return [conversation for conversation in value if _sound(conversation)] if isinstance(value, list) else []


def _sound(conversation: Any) -> bool:
    if not isinstance(conversation, list) or not conversation:
        return False
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in conversation):
        return False
    last = conversation[-1]
    calls = last.get("tool_calls")
    return last["role"] == "assistant" and (not calls or _waiting(last) is not None)


def _waiting(message: dict[str, Any]) -> tuple[str, str, str] | None:
    """Id, name and arguments of the one call that waits for its result."""
    try:
        (call,) = message["tool_calls"]
        found = call["id"], call["function"]["name"], call["function"]["arguments"]
    except (LookupError, TypeError, ValueError):
        return None
    return found if all(isinstance(part, str) for part in found) else None


# --- continuing -------------------------------------------------------------------------------------------------------


@dataclass
class Continued:
    """What came of the conversations of one engine on another."""

    there: str
    """Where they went on, for sentences."""
    done: int = 0
    broken: list[tuple[str, tuple[Exchange, ...]]] = field(default_factory=list)
    """No answer at all: refused, an error, silence."""
    untold: list[tuple[str, tuple[Exchange, ...]]] = field(default_factory=list)
    """Answers without the value."""


async def go_on(
    asker: Asker, conversations: Sequence[Conversation], samples: Sequence[Sample], there: str
) -> Continued:
    """One more turn of every conversation."""
    outcome = Continued(there)

    async def one(sample: Sample, conversation: Conversation) -> None:
        async with asker.slot():
            try:
                answers = await _went_on(asker, sample, conversation)
            except SilentError as silent:
                outcome.done += 1
                outcome.broken.append((str(silent), (silent.exchange,)))
                return
        broken = next((said for answer, _ in answers if (said := status_problem(answer))), None)
        wrong = next((said for _, said in answers if said), None)
        outcome.done += 1
        evidence = tuple(answer.exchange for answer, _ in answers)
        if broken:
            outcome.broken.append((broken, evidence))
        elif wrong:
            outcome.untold.append((wrong, evidence))

    await together([one(sample, conversation) for sample, conversation in zip(samples, conversations, strict=False)])
    return outcome


async def _went_on(asker: Asker, sample: Sample, conversation: Conversation) -> list[tuple[Answer, str | None]]:
    """The answers of one conversation's next turn, each with what is wrong with it."""
    waiting = _waiting(conversation[-1])
    if waiting is not None:
        call_id, name, arguments = waiting
        content, canary = _result_of(sample.rng("result"), name, arguments)
        answer = await asker.chat(sample, [*conversation, result(call_id, content)], tools=_TOOLS)
        return [(answer, told_problem(answer, canary))]
    return await _next_question(asker, sample, conversation, lookups.lookup(sample.rng("next")))


async def _next_question(
    asker: Asker, sample: Sample, conversation: Conversation, wanted: Lookup
) -> list[tuple[Answer, str | None]]:
    """A call is asked for once more before it counts: calls are group J's matter."""
    for salt in ("", "once more"):
        asked = sample.asked(salt=sample.salt + salt)
        messages = [*conversation, user(asked, wanted.text)]
        call = await asker.chat(asked, messages, tools=_TOOLS)
        problem = one_call_problem(call, _TOOLS, wanted.name, wanted.arguments)
        if problem is None or status_problem(call):
            break
    if problem is not None:
        return [(call, problem)]
    messages = [*messages, call.reply.message(), result(call.reply.calls[0].id, wanted.result)]
    answer = await asker.chat(asked, messages, tools=_TOOLS)
    return [(call, None), (answer, told_problem(answer, wanted.canary))]


def _result_of(rng: Random, name: str, arguments: str) -> tuple[str, str]:
    """A result for a call that waits, and the value in it."""
    if name == named(WEATHER):
        value = temperature(rng)
        return lookups.weather_result(rng, value), value
    value = code(rng)
    try:
        wanted = str(json.loads(arguments)["record_id"])
    except (ValueError, LookupError, TypeError):
        wanted = "?"
    return lookups.record_result(rng, wanted, value), value


# --- the check --------------------------------------------------------------------------------------------------------


async def survey(asker: Asker, surroundings: Surroundings) -> Surveyed:
    """Production's conversations here, and ours there. What is recorded here is measured in any case."""
    own = await record(asker, _samples(surroundings, asker.capability, "own"))
    live = await _answering(surroundings)
    theirs = known(surroundings.before("F15").get("conversations"))
    if not theirs and live is not None:
        theirs = await record(live, _samples(surroundings, live.capability, "theirs"))
    if not theirs and live is None:
        why = "no conversations of production are known, and no live endpoint that answers"
        return skipped(f"{why}; {len(own)} own ones are kept for the next candidate", conversations=own)
    outcomes = []
    if theirs:
        outcomes.append(await go_on(asker, theirs, _samples(surroundings, asker.capability, "here"), "the candidate"))
    if live is not None and own:
        outcomes.append(await go_on(live, own, _samples(surroundings, live.capability, "back"), "production"))
    return judged(outcomes, own)


async def _answering(surroundings: Surroundings) -> Asker | None:
    """Production, if it is there: what it does not answer when it is down says nothing about the candidate."""
    live = surroundings.live
    if live is None or await live.liveness(CHECK.sample(0, surroundings.seed, live.capability)):
        return None
    return live


def judged(outcomes: Sequence[Continued], own: list[Conversation]) -> Surveyed:
    """No conversation may break; a value may be missing in a few."""
    figures: dict[str, Any] = {
        "conversations": own,
        "continued": [{"on": o.there, "n": o.done, "broken": len(o.broken), "untold": len(o.untold)} for o in outcomes],
    }
    for outcome in outcomes:
        for found, allowed in ((outcome.broken, 0), (outcome.untold, ALLOWED)):
            if len(found) > allowed:
                sentence, exchanges = found[0]
                share = f"{len(found)} of {outcome.done} conversations that were continued on {outcome.there}"
                return failed(f"{sentence} ({share})", *exchanges, **figures)
    told = " and ".join(f"{outcome.done} on {outcome.there}" for outcome in outcomes)
    if any(outcome.done < FEWEST for outcome in outcomes) or not outcomes:
        return undecided(f"only {told or 'none'} could be continued; at least {FEWEST} are needed", **figures)
    return passed(f"conversations of the other engine went on: {told}", **figures)


def _samples(surroundings: Surroundings, capability: Capability, salt: str) -> list[Sample]:
    return [CHECK.sample(n, surroundings.seed, capability).asked(salt=salt) for n in range(CONVERSATIONS)]


CHECK: Final = Check(
    id="F15",
    name="continuation across engines",
    asks="Up to 20 conversations of 2 to 6 answers that production wrote go on here, and ours go on there.",
    holds=f"none is refused or breaks, and at most {ALLOWED} of them lack the value of their next result",
    catches="histories of the old engine (its ids, its reasoning field, its nulls) that the new one cannot take",
    rule=Behaviour(FixedPlan(CONVERSATIONS, ALLOWED)),
    survey=survey,
    needs=needs(tools=True),
)
CHECKS: Final = (CHECK,)
