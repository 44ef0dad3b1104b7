"""Does the finish_reason fit what came? In which value a named choice ends differs between healthy engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gates.callrules import not_an_object
from gates.toolwire import Breach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.capability import Capability
    from gates.reply import Reply, Usage


def breaches(reply: Reply, usage: Usage | None, body: Mapping[str, Any], capability: Capability | None) -> list[Breach]:
    """A missing or unknown finish_reason is found where the answer is read; here it is known."""
    rule = "P03" if reply.streamed else "P06"
    finish, calls = reply.finish_reason, len(reply.calls)
    if not reply.complete or finish is None:
        return []
    if finish == "tool_calls" and not calls:
        return [Breach(rule, "finish_reason is tool_calls and there is no call")]
    if finish in ("stop", "tool_calls") and calls:
        expected = _expected(body, capability)
        if expected not in (finish, "any"):
            said = f"finish_reason is {finish} and there are {calls} tool calls; expected {expected}"
            return [Breach(rule, said)]
    return [] if finish == "length" or not _used_up(usage, body) else _cut(reply, rule)


def _expected(body: Mapping[str, Any], capability: Capability | None) -> str:
    """`stop`, `tool_calls` or `any`: how an answer with calls ends, as the kind of tool choice asks."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        return capability.finish_named if capability is not None else "any"
    if choice == "required":
        return capability.finish_required if capability is not None else "any"
    return "tool_calls"


def allowed_tokens(body: Mapping[str, Any]) -> int | None:
    """How many tokens each choice may have; None where the body sets no limit."""
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _used_up(usage: Usage | None, body: Mapping[str, Any]) -> bool:
    allowed = allowed_tokens(body)
    used = usage.completion_tokens if usage is not None else None
    return allowed is not None and allowed > 1 and used is not None and body.get("n") in (None, 1) and used >= allowed


def _cut(reply: Reply, rule: str) -> list[Breach]:
    # An answer may happen to end with its last allowed token; one that was cut looks cut.
    said = (
        f"the token budget is used up, the answer is cut, and finish_reason is {reply.finish_reason}; expected length"
    )
    if reply.calls:
        return [Breach(rule, said)] if not_an_object(reply.calls[-1].arguments) else []
    text = reply.content.rstrip()
    return [Breach(rule, said, by_model=True)] if len(text.split()) > 8 and text[-1:].islower() else []
