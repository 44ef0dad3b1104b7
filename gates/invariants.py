"""Rules that hold for every answer of a healthy engine, whatever was asked. They run on each response of each gate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates import markers, textrules
from gates.toolwire import Breach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.reply import Reply

RULES: Final = {
    "P01": "server-sent events are framed rightly, one [DONE] ends them",
    "P02": "the role is assistant",
    "P03": "a stream has exactly one finish_reason, it fits the calls, nothing follows it",
    "P04": "tool call deltas: index, then id and whole name once, arguments as strings",
    "P05": "every kind of client assembles the same calls",
    "P06": "a whole answer has the shape of a chat completion",
    "P07": "usage is there and within what was allowed",
    "P08": "no HTTP error, no error inside a 200, no broken connection",
    "P11": "no marker of the model's template leaks into what users read",
    "P17": "the answer names the model that was asked",
    "O02": "no degenerate repetition",
    "O04": "no damaged encoding",
    "J20": "arguments are a JSON object",
}
"""Every rule by its id; the text is what must hold."""


def breaches(reply: Reply, body: Mapping[str, Any]) -> tuple[Breach, ...]:
    """All broken rules of one answer to `body`."""
    if not reply.answered:
        return reply.breaches
    found = [*reply.breaches, *_identity(reply, body), *_budget(reply, body), *_leaks(reply, body)]
    for where, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        found += _text_rules(where, text)
    found += [
        Breach("J20", problem, by_model=True) for call in reply.calls if (problem := not_an_object(call.arguments))
    ]
    return tuple(found)


def not_an_object(arguments: str) -> str | None:
    """Why `arguments` is not a JSON object, or None."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return f"arguments are not JSON ({error}): {arguments[:120]!r}"
    return None if isinstance(value, dict) else f"arguments are JSON but no object: {arguments[:120]!r}"


def _identity(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    if reply.model in (None, "", body.get("model")):
        return []
    return [Breach("P17", f"the answer comes from model {reply.model!r}; {body.get('model')!r} was asked")]


def _budget(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    used = reply.usage.completion_tokens if reply.usage else None
    allowed = body.get("max_tokens")
    if used is None:
        return []
    if used == 0 and (reply.content or reply.reasoning or reply.calls):
        return [Breach("P07", "usage says 0 completion tokens and there is an answer")]
    if isinstance(allowed, int) and used > allowed:
        return [Breach("P07", f"usage says {used} completion tokens; max_tokens was {allowed}")]
    return []


def _leaks(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    asked = json.dumps(body, ensure_ascii=False)
    places = [("content", reply.content, markers.ALL), ("reasoning", reply.reasoning, markers.THINKING)]
    for call in reply.calls:
        places += [("a tool's name", call.name, markers.ALL), ("a call id", call.id, ("<|im_end|>", "<think>"))]
        places.append(("arguments", call.arguments, markers.ALL))
    found = []
    for where, text, table in places:
        # A marker that the request itself holds may come back: somebody may ask what `<think>` means.
        marker = markers.found(text, tuple(m for m in table if m not in asked))
        if marker:
            found.append(Breach("P11", f"{where} holds {marker}: …{_around(text, marker)}…"))
    return found


def _text_rules(where: str, text: str) -> list[Breach]:
    damage = textrules.encoding_damage(text)
    found = [Breach("O04", f"{where} holds {damage}", by_model=True)] if damage else []
    broken = textrules.degeneration(text) if len(text) >= 16 else None
    return [*found, Breach("O02", f"{where}: {broken}", by_model=True)] if broken else found


def _around(text: str, marker: str) -> str:
    at = text.index(marker)
    return " ".join(text[max(0, at - 30) : at + len(marker) + 30].split())
