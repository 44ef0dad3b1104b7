"""What an exchange with a chat endpoint means: text, calls, end, accounting, and every broken rule of the protocol."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gates.replyparts import (
    FINISH_REASONS,
    REASONING_FIELDS,
    Reply,
    Usage,
    decoded,
    error_text,
    finish_breaches,
    header_breaches,
    read_reasoning,
    read_text,
    read_usage,
    refusal_text,
    strange_number,
)
from gates.replystream import StreamReader
from gates.toolwire import Breach, ToolCall

if TYPE_CHECKING:
    from gates.wire import Exchange

__all__ = ["FINISH_REASONS", "REASONING_FIELDS", "Reply", "Usage", "error_text", "read_reply"]


def read_reply(exchange: Exchange, *, streamed: bool) -> Reply:
    """Never raises, whatever the server sent."""
    if exchange.status is not None and exchange.status != 200:
        return _none(refusal_text(exchange), streamed=streamed)
    if exchange.failure is not None and not (streamed and exchange.pieces):
        return _none(exchange.failure.sentence, streamed=streamed)
    if exchange.content_type == "text/html":
        return _none("the server answered with an HTML page; this is no OpenAI-compatible endpoint", streamed=streamed)
    packed = exchange.header("content-encoding").lower()
    if packed not in ("", "identity"):
        said = f"the answer is compressed (content-encoding {packed!r:.40}), though the request asks for none of that"
        return _none(said, streamed=streamed)
    return StreamReader().read(exchange) if streamed else _read_whole(exchange)


def _none(sentence: str, *, streamed: bool, rule: str = "P08") -> Reply:
    return Reply(streamed, breaches=(Breach(rule, sentence),), answered=False, complete=False)


def _read_whole(exchange: Exchange) -> Reply:
    breaches: list[Breach] = []
    try:
        text = decoded(exchange.body, breaches)
        document = json.loads(text)
        if document.get("error"):
            return _none(f"HTTP 200 with an error: {error_text(exchange.body)}", streamed=False)
        choices = sorted(document["choices"], key=lambda choice: int(choice.get("index") or 0))
        first, *others = [_choice(choice, exchange.ended_at_s) for choice in choices]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        breaches.append(Breach("P06", "the answer is not a chat completion: no choices[0].message in it"))
        return Reply(False, breaches=tuple(breaches), answered=False, complete=False)
    if strange := strange_number(text):
        breaches.append(Breach("P06", f"the answer is not JSON: {strange}"))
    if "json" not in exchange.content_type:
        # The client of OpenAI then hands out the body as text.
        breaches.append(
            Breach("P06", f"the answer's content type is {exchange.content_type or 'absent'!r}, not JSON's")
        )
    breaches += header_breaches(document, "P06", "the answer", "chat.completion")
    usage = read_usage(document.get("usage"), breaches)
    model = document.get("model") if isinstance(document.get("model"), str) else None
    return replace(first, model=model, usage=usage, breaches=(*breaches, *first.breaches), others=tuple(others))


def _choice(choice: dict[str, Any], ended_at_s: float) -> Reply:
    """One choice of a whole answer. Raises what a wrong shape raises."""
    breaches: list[Breach] = []
    message = choice["message"]
    finish = choice.get("finish_reason")
    reasoning, reasoning_field = read_reasoning(message, breaches)
    if message.get("role") != "assistant":
        breaches.append(Breach("P06", f"the message's role is {message.get('role')!r}, not 'assistant'"))
    calls = _calls(message.get("tool_calls"), breaches)
    breaches += finish_breaches(finish, "P06")
    return Reply(
        streamed=False,
        content=read_text(message.get("content"), "content", breaches),
        reasoning=reasoning,
        reasoning_field=reasoning_field,
        calls=calls,
        finish_reason=finish if isinstance(finish, str) else None,
        token_times_s=(ended_at_s,),
        breaches=tuple(breaches),
    )


def _calls(value: object, breaches: list[Breach]) -> tuple[ToolCall, ...]:
    if not value:
        return ()
    calls: list[ToolCall] = []
    for position, entry in enumerate(value if isinstance(value, list) else [value]):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(function, dict):
            breaches.append(Breach("P06", f"tool call {position} is not an object with a function"))
            continue
        call_id, name, arguments = entry.get("id"), function.get("name"), function.get("arguments")
        if not isinstance(call_id, str) or not call_id or call_id in {call.id for call in calls}:
            breaches.append(Breach("P06", f"tool call {position} has no id of its own ({call_id!r})"))
        if entry.get("type") != "function":
            breaches.append(Breach("P06", f"tool call {position} has type {entry.get('type')!r}, not 'function'"))
        if not isinstance(name, str) or not name:
            breaches.append(Breach("P06", f"tool call {position} has no function name"))
        if not isinstance(arguments, str):
            breaches.append(Breach("P06", f"arguments of tool call {position} are not a string"))
        calls.append(ToolCall(*(v if isinstance(v, str) else "" for v in (call_id, name, arguments))))
    return tuple(calls)
