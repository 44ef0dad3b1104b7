"""Rules that hold for every answer of a healthy engine, whatever was asked. They run on each response of each gate.

Two kinds of breaches. What only a server can do counts at once; what a model may do by itself now and then is marked
`by_model` and judged by repetition.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gates import accounting, callrules, finish, markers, textrules
from gates.callrules import not_an_object
from gates.toolwire import Breach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.capability import Capability
    from gates.reply import Reply

__all__ = ["BY_MODEL_ONLY", "RULES", "SAID_BY_OTHERS", "breaches", "not_an_object"]

RULES: Final = {
    "P01": "server-sent events are framed rightly, one [DONE] ends them",
    "P02": "the role is assistant",
    "P03": "a stream has exactly one finish_reason, it fits the calls, nothing follows it",
    "P04": "tool call deltas: index, then id and whole name once, arguments as strings; ids are new",
    "P05": "every kind of client assembles the same calls",
    "P06": "a whole answer has the shape of a chat completion, its finish_reason fits the calls",
    "P07": "usage is there, within what was allowed, and what it counts can be seen",
    "P08": "no HTTP error, no error inside a 200, no broken connection",
    "P11": "no marker of the model's template leaks into what users read",
    "P17": "the answer names the model that was asked",
    "J20": "arguments are a JSON object that fits the declared schema",
    "J25": "a call names a tool that was offered",
    "T07": "in a stream reasoning ends before content or a call begins",
    "T14": "no call is swallowed by the reasoning",
    "O02": "no degenerate repetition",
    "O04": "no damaged encoding, no control characters",
    "O06": "no answer holds what only another request held",
    "O17": "an answer is written in a script of its request",
}
"""Every rule by its id; the text is what must hold."""

BY_MODEL_ONLY: Final = frozenset({"O02", "O17", "P11", "T14"})
"""Rules that a model alone can break in every case."""
SAID_BY_OTHERS: Final = frozenset({"P07", "P11", "T14"})
"""Rules whose breach leaves an answer that can be judged otherwise too, and more tellingly."""
_FEWEST_CHARS: Final = 16


def breaches(reply: Reply, body: Mapping[str, Any], capability: Capability | None = None) -> tuple[Breach, ...]:
    """All broken rules of one answer to `body`. `capability` knows in what healthy engines differ."""
    if not reply.answered:
        return reply.breaches
    found = [*reply.breaches, *_identity(reply, body)]
    found += accounting.breaches(reply, body)
    asked = _Asked(body)
    for choice in (reply, *reply.others):
        found += () if choice is reply else choice.breaches
        found += finish.breaches(choice, reply.usage, body, capability)
        found += callrules.breaches(choice, body)
        found += [*_leaks(choice, asked), *_swallowed_call(choice, asked), *_text_rules(choice, body)]
        found += _signs(choice, asked)
    if reply.others and body.get("n") in (None, 1):
        found.append(Breach("P01", f"{1 + len(reply.others)} choices came; one was asked"))
    if capability is not None and capability.interleaved_reasoning:
        found = [breach for breach in found if breach.rule != "T07"]
    return tuple(found)


def _identity(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    if reply.model in (None, "", body.get("model")):
        return []
    return [Breach("P17", f"the answer comes from model {reply.model!r}; {body.get('model')!r} was asked")]


class _Asked:
    """The request as one text, written only when an answer holds a marker: somebody may ask what `<think>` means."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    @cached_property
    def text(self) -> str:
        return json.dumps(self._body, ensure_ascii=False)

    def holds(self, sign: str) -> bool:
        """The character itself, or as JSON writes it, also within arguments of a call."""
        return sign in self.text or json.dumps(sign)[1:-1] in self.text

    def leaked(self, text: str, table: tuple[str, ...]) -> str | None:
        """The first marker of `table` that `text` holds and the request does not."""
        if markers.OPENING.search(text) is None:
            return None
        return next((marker for marker in table if marker in text and marker not in self.text), None)


def _leaks(reply: Reply, asked: _Asked) -> list[Breach]:
    places = [("content", reply.content, markers.ALL), ("reasoning", reply.reasoning, markers.THINKING)]
    for call in reply.calls:
        places += [("a tool's name", call.name, markers.ALL), ("a call id", call.id, markers.ALL)]
        places.append(("arguments", call.arguments, markers.ALL))
    found = []
    for where, text, table in places:
        marker = asked.leaked(text, table)
        if marker is None and where == "content":
            marker = next((token for token in markers.unlisted(text) if token not in asked.text), None)
        if marker:
            found.append(Breach("P11", f"{where} holds {marker}: …{_around(text, marker)}…", by_model=True))
    return found


def _swallowed_call(reply: Reply, asked: _Asked) -> list[Breach]:
    if reply.calls or reply.finish_reason != "stop":
        return []
    marker = asked.leaked(reply.reasoning, markers.TOOLS)
    if marker is None:
        return []
    said = f"the reasoning holds {marker} and there is no call: …{_around(reply.reasoning, marker)}…"
    return [Breach("T14", said, by_model=True)]


def _last_question(body: Mapping[str, Any]) -> str:
    messages = body.get("messages")
    users = [m.get("content") for m in messages or () if isinstance(m, dict) and m.get("role") == "user"]
    return users[-1] if users and isinstance(users[-1], str) else ""


def _text_rules(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    found = []
    for where, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        broken = list(textrules.degenerations(text)) if len(text) >= _FEWEST_CHARS else []
        if reply.finish_reason == "length" and (counting := textrules.counts_on(text)):
            broken.append(counting)
        # Healthy source code breaks one rule now and then, but hardly ever two, and it does not run into max_tokens.
        excused = len(broken) == 1 and reply.finish_reason != "length" and textrules.asks_for_code(_last_question(body))
        if broken and not excused:
            found.append(Breach("O02", f"{where}: {broken[0]}", by_model=True))
    texts = [("content", reply.content), ("reasoning", reply.reasoning)]
    texts += [(f"the call of {call.name}", f"{call.name} {call.arguments}") for call in reply.calls]
    for where, text in texts:
        damage = textrules.encoding_damage(text)
        if damage:
            found.append(Breach("O04", f"{where} holds {damage}", by_model=True))
    return found


def _signs(reply: Reply, asked: _Asked) -> list[Breach]:
    """Signs that cannot be seen, and letters that nobody asked for. A thought may be in any language."""
    found = []
    for where, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        sign = next((sign for sign in textrules.invisible_signs(text) if not asked.holds(sign)), None)
        if sign is not None:
            found.append(Breach("O04", f"{where} holds the invisible character U+{ord(sign):04X}", by_model=True))
    stray = None if reply.content.isascii() else textrules.other_script(reply.content, asked.text)
    return found if stray is None else [*found, Breach("O17", f"content: {stray}", by_model=True)]


def _around(text: str, marker: str) -> str:
    at = text.index(marker)
    return " ".join(text[max(0, at - 30) : at + len(marker) + 30].split())
