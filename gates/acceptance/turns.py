"""Conversations of several turns: the messages of a history, and what is wrong with the answer that follows."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.calls import no_call_reason
from gates.reply import read_reply
from gates.text import folded, holds
from gates.trial import Answer, DeadlineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

STATUS_TOKENS: Final = 48
"""Enough of an answer where only its status counts."""
_ID: Final = re.compile(r"[\w.:-]{4,64}")
_NO_ACCESS: Final = re.compile(
    r"(?:not|n['\u2019]t) have (?:any )?(?:\w+ )?access|no access"
    r"|(?:cannot|can['\u2019]t|unable to) (?:access|see|retrieve)",
    re.IGNORECASE,
)


# --- messages of a history --------------------------------------------------------------------------------------------


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """One entry of an assistant message's `tool_calls`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Mapping[str, Any], content: str | None = None, **keys: Any) -> dict[str, Any]:
    """An assistant message that calls tools."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **keys}


def said(text: str) -> dict[str, Any]:
    """An assistant message of plain text."""
    return {"role": "assistant", "content": text}


def call_ids(asker: Asker, rng: Random, names: Sequence[str]) -> list[str]:
    """Ids for the calls of a history that never was, one for each tool's name.

    In the style of an id that the engine itself gave, where it gave one in this run: some templates take no others.
    """
    seen = next((call for answer in asker.trial.answers for call in answer.reply.calls if _ID.fullmatch(call.id)), None)
    if seen is None:
        return [f"call_{_letters(rng, '0123456789abcdef', 24)}" for _ in names]
    return [styled(seen.id, seen.name, name, number, rng) for number, name in enumerate(names)]


def styled(pattern: str, pattern_name: str, name: str, number: int, rng: Random) -> str:
    """An id as `pattern`, which was given to a call of `pattern_name`, for call `number`, of the tool `name`."""
    if pattern_name and pattern_name in pattern:
        # Kimi's `functions.get_weather:0` says which tool and which call of the conversation.
        return re.sub(r"\d+$", str(number), pattern.replace(pattern_name, name))
    head, tail = id_parts(pattern)
    alphabet = "0123456789abcdef" if set(tail) <= set("0123456789abcdef") else string.ascii_letters + string.digits
    return head + _letters(rng, alphabet, len(tail))


def id_parts(call_id: str) -> tuple[str, str]:
    """The fixed head of a call id and its random tail: `call_` and `8f3a…`."""
    cut = max(call_id.rfind(sign) for sign in "-_.:") + 1
    return call_id[:cut], call_id[cut:]


def _letters(rng: Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


# --- asking what may be refused ---------------------------------------------------------------------------------------


async def ask_unjudged(asker: Asker, sample: Sample, body: Mapping[str, Any]) -> Answer:
    """Ask what the engine may refuse: the answer is evidence for the check, and no invariant counts it."""
    exchange = await asker.raw("POST", "/v1/chat/completions", body)
    if exchange.failure is not None and exchange.failure.layer == "timeout" and asker.remaining_s() <= 0:
        raise DeadlineError
    reply = read_reply(exchange, streamed=bool(body.get("stream")))
    answer = Answer(body, exchange, reply, reply.breaches)
    asker.by_sample[sample.check, sample.number].append(answer)
    return answer


def breakdown(answer: Answer) -> str | None:
    """Why this is neither an answer nor a clear refusal: no connection, HTTP 5xx, an error in a 200."""
    if refusal(answer) is not None:
        return None
    return status_problem(answer)


def refusal(answer: Answer) -> str | None:
    """What the engine said when it refused with a status of 400 to 499."""
    status = answer.exchange.status
    return answer.reply.breaches[0].sentence if status is not None and 400 <= status < 500 else None


# --- what is wrong ----------------------------------------------------------------------------------------------------


def status_problem(answer: Answer) -> str | None:
    """Why there is no answer at all; None for any answer, whatever it says."""
    broken = next((breach.sentence for breach in answer.breaches if breach.rule == "P08"), None)
    return broken or (None if answer.reply.answered else answer.reply.breaches[0].sentence)


def told_problem(answer: Answer, *canaries: str) -> str | None:
    """What is wrong with an answer that should tell in plain text what the tools gave."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if reply.calls:
        names = ", ".join(call.name for call in reply.calls)
        return f"after the result {names} was called; expected an answer in text"
    if reply.finish_reason == "length":
        return "the answer to the result reached max_tokens"
    if not reply.content.strip():
        hidden = canaries and all(holds(reply.reasoning, canary) for canary in canaries)
        return f"the answer to the result is empty{': it is in the reasoning' if hidden else ''}"
    return missing(reply.content, *canaries) or (
        None if reply.finish_reason == "stop" else f"finish_reason is {reply.finish_reason}; expected stop"
    )


def missing(content: str, *canaries: str) -> str | None:
    """Which value of the results is not in the content."""
    lost = [canary for canary in canaries if not holds(content, canary)]
    if not lost:
        return None
    quoted = " ".join(content.split())[:120]
    if _NO_ACCESS.search(content):
        return f"the answer says that it has no access to what the tool gave: {quoted!r}"
    which = f"the value {lost[0]} of the result is" if len(lost) == 1 else f"the values {', '.join(lost)} are"
    return f"{which} not in the answer: {quoted!r}"


def misattributed(content: str, values: Mapping[str, str]) -> str | None:
    """Which value stands with the wrong place; `values` are by place. Names come before their values, or after them."""
    text = str(folded(content)).replace(",", ".")
    places = sorted((match.start(), place) for place in values for match in _mentions(text, place))
    found = {place: at for place, value in values.items() if (at := text.find(value)) >= 0}
    before = [place for place, at in found.items() if place != _last([p for start, p in places if start < at])]
    after = [place for place, at in found.items() if place != _first([p for start, p in places if start > at])]
    if not before or not after:
        return None
    wrong = min(before, after, key=len)[0]
    return f"{values[wrong]} of {wrong} does not stand with {wrong}: {' '.join(content.split())[:160]!r}"


def _mentions(text: str, place: str) -> list[re.Match[str]]:
    return list(re.finditer(re.escape(str(folded(place)).replace(",", ".")), text))


def _last(places: list[str]) -> str | None:
    return places[-1] if places else None


def _first(places: list[str]) -> str | None:
    return places[0] if places else None


def call_missing(answer: Answer, offered: Sequence[str]) -> str | None:
    """Why an answer that should call one of the tools does not."""
    if answer.first_problem:
        return answer.first_problem
    if not answer.reply.calls:
        return no_call_reason(answer.reply)
    unknown = [call.name for call in answer.reply.calls if call.name not in offered]
    return f"the tool {unknown[0]!r} was called, which was not on offer" if unknown else None
