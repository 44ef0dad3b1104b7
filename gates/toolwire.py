"""Streamed tool calls: the rules for their deltas, and the clients that have to put them together.

Clients differ in what they forgive, so a stream is only right when all of them arrive at the same calls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Breach:
    """A broken rule. `by_model`: the model alone can do this, so it is judged by repetition, not at once."""

    rule: str
    sentence: str
    by_model: bool = False


@dataclass(frozen=True)
class ToolCall:
    """A call as assembled; `arguments` is the raw string that should be JSON."""

    id: str
    name: str
    arguments: str


@dataclass
class _Draft:
    id: str = ""
    name: str = ""
    fragments: list[str] = field(default_factory=list)
    null_arguments: bool = False

    def call(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.fragments))


@dataclass
class ToolStream:
    """Takes the `tool_calls` lists of one choice's deltas in order."""

    breaches: list[Breach] = field(default_factory=list)
    _drafts: dict[int, _Draft] = field(default_factory=dict)
    _appending: list[dict[str, Any]] = field(default_factory=list)

    def add(self, deltas: object) -> bool:
        """True when something of a call came. Whatever has the wrong shape is a breach of P04."""
        if not isinstance(deltas, list):
            self._broken(f"delta.tool_calls is {_kind(deltas)}, not a list")
            return False
        return any([self._add_one(delta) for delta in deltas])  # noqa: C419 - every delta must be read

    def calls(self) -> tuple[ToolCall, ...]:
        """As a tolerant client reads them: by index, the last word wins."""
        return tuple(draft.call() for _, draft in sorted(self._drafts.items()))

    def finish(self) -> None:
        """Rules that need the whole stream."""
        order = list(self._drafts)
        if order != list(range(len(order))):
            self._broken(f"tool call indices arrive as {order}; expected 0, 1, 2 … in order")
        appended = tuple(_appended_call(entry) for entry in self._appending)
        if appended != self.calls():
            self.breaches.append(
                Breach(
                    "P05", f"a client that appends every string reads {_named(appended)}, not {_named(self.calls())}"
                )
            )
        for index, draft in self._drafts.items():
            self._judge_early_end(index, draft)
            if draft.null_arguments and not draft.fragments:
                self._broken(f"arguments of tool call {index} came as null and never as a string")

    def _add_one(self, delta: object) -> bool:
        if not isinstance(delta, dict):
            self._broken(f"a tool call delta is {_kind(delta)}, not an object")
            return False
        index = delta.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            self._broken(f"a tool call delta has index {index!r}; expected an integer from 0")
            return False
        function = delta.get("function") or {}
        if not isinstance(function, dict):
            self._broken(f"function of tool call {index} is {_kind(function)}, not an object")
            return False
        _append(self._appending, index, delta, function)
        self._take(index, delta, function)
        return True

    def _take(self, index: int, delta: dict[str, Any], function: dict[str, Any]) -> None:
        call_id, name, arguments = delta.get("id"), function.get("name"), function.get("arguments")
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = _Draft()
            self._judge_opening(index, delta, call_id, name)
        elif call_id or name:
            self._broken(f"a later delta of tool call {index} repeats its {'id' if call_id else 'name'}")
        draft.id = call_id if isinstance(call_id, str) and call_id else draft.id
        draft.name = name if isinstance(name, str) and name else draft.name
        if isinstance(arguments, str):
            draft.fragments.append(arguments)
        elif arguments is not None:
            self._broken(f"arguments of tool call {index} are {_kind(arguments)}, not a string")
        elif "arguments" in (delta.get("function") or {}):
            draft.null_arguments = True

    def _judge_opening(self, index: int, delta: dict[str, Any], call_id: object, name: object) -> None:
        if not isinstance(call_id, str) or not call_id:
            self._broken(f"the first delta of tool call {index} has no id")
        elif any(call_id == other.id for other in self._drafts.values()):
            self._broken(f"tool call {index} has the id of another call ({call_id})")
        if not isinstance(name, str) or not name:
            self._broken(f"the first delta of tool call {index} has no function name")
        if delta.get("type") != "function":
            self._broken(f"the first delta of tool call {index} has type {delta.get('type')!r}, not 'function'")

    def _judge_early_end(self, index: int, draft: _Draft) -> None:
        # Some clients take a call for complete as soon as its arguments parse.
        last = max((i for i, text in enumerate(draft.fragments) if text.strip()), default=0)
        so_far = ""
        for fragment in draft.fragments[:last]:
            so_far += fragment
            # Only a piece that closes a brace can complete an object: long arguments are not parsed at every piece.
            if fragment.rstrip().endswith("}") and parses(so_far):
                self.breaches.append(
                    Breach("P05", f"arguments of tool call {index} are complete JSON before their last piece came")
                )
                return

    def _broken(self, sentence: str) -> None:
        self.breaches.append(Breach("P04", sentence))


def parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _append(entries: list[dict[str, Any]], index: int, delta: dict[str, Any], function: dict[str, Any]) -> None:
    # What openai-python's accumulate_delta does: strings are appended, an index beyond the end is inserted at the end.
    piece = {"id": delta.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
    if index >= len(entries):
        entries.append(piece)
        return
    entry = entries[index]
    for key, value in piece.items():
        if entry[key] is None:
            entry[key] = value
        elif isinstance(entry[key], str) and isinstance(value, str):
            entry[key] += value


def _appended_call(entry: dict[str, Any]) -> ToolCall:
    return ToolCall(*(value if isinstance(value := entry[key], str) else "" for key in ("id", "name", "arguments")))


def _named(calls: tuple[ToolCall, ...]) -> str:
    return "[" + ", ".join(f"{call.name}({call.arguments[:80]}) {call.id}" for call in calls) + "]"


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r}")
