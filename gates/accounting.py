"""Rules for what an engine says it counted: it must be there, be possible, and be seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.finish import allowed_tokens
from gates.toolwire import Breach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.reply import Reply

_UNSEEN_TOKENS: Final = 24
_UNSEEN_SHARE: Final = 0.5
_CALL_TOKENS: Final = 32
"""Markers, braces and names around one call, in the wordiest of formats."""
_DIGITS: Final = "0123456789"


def breaches(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    """All of rule P07. An answer that broke off, or whose usage nobody asked for, may lack its usage."""
    usage = reply.usage
    if usage is None:
        wanted = not reply.streamed or _asked_for_usage(body)
        missing = "the answer carries no usage"
        if reply.streamed:
            missing = "usage was asked for (stream_options.include_usage) and never came"
        return [Breach("P07", missing)] if wanted and reply.complete else []
    used, allowed = usage.completion_tokens, allowed_tokens(body)
    if used is None:
        return []
    choices = (reply, *reply.others)
    if used == 0 and any(choice.content or choice.reasoning or choice.calls for choice in choices):
        return [Breach("P07", "usage says 0 completion tokens and there is an answer")]
    n = body.get("n")
    if allowed is not None and used > allowed * (n if isinstance(n, int) else 1):
        return [Breach("P07", f"usage says {used} completion tokens; max_tokens was {allowed}")]
    return _swallowed(reply, body, used)


def _swallowed(reply: Reply, body: Mapping[str, Any], used: int) -> list[Breach]:
    """Tokens were counted and nobody saw them: text or a call was thrown away on the way."""
    choices = (reply, *reply.others)
    if any(choice.finish_reason == "length" for choice in choices) and body.get("tools"):
        return []  # an unfinished call may be withheld
    seen = sum(most_tokens(text) for choice in choices for text in (choice.content, choice.reasoning))
    calls = [call for choice in choices for call in choice.calls]
    seen += sum(_CALL_TOKENS + _keys(call.arguments) * 8 + most_tokens(call.arguments) for call in calls)
    if not any(choice.reasoning for choice in choices) and reply.usage is not None:
        seen += reply.usage.reasoning_tokens or 0  # thoughts that the engine keeps to itself and says so
    unseen = used - seen
    if unseen <= max(_UNSEEN_TOKENS, used * _UNSEEN_SHARE):
        return []
    said = f"usage says {used} completion tokens; what came is at most {seen}: the rest was swallowed"
    return [Breach("P07", said, by_model=True)]


def most_tokens(text: str) -> int:
    """At most so many tokens `text` may have been, for any usual tokeniser.

    No tokeniser is at hand here: two characters each where English has four, every digit one, every byte of a foreign
    script one. Too high an estimate hides a small loss; too low a one would accuse a healthy engine.
    """
    if not text:
        return 0
    size_bytes = len(text.encode(errors="replace"))
    plain = len(text) if text.isascii() else len(text.encode("ascii", errors="ignore"))
    digits = sum(map(text.count, _DIGITS))
    return 2 + digits + (plain - digits) // 2 + size_bytes - plain


def _keys(arguments: str) -> int:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments.count('":')
    return len(value) if isinstance(value, dict) else 0


def _asked_for_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
