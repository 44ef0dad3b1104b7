"""Editing what an answer looks like on the wire: its events, or its one body, as plain data.

A struck answer is written by the healthy wire first, then read back and edited. So every fault here works in every
dialect, and a healthy stream pays nothing for any of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from .entry import Scene

if TYPE_CHECKING:
    from ..wire import Written

DONE = b"data: [DONE]\n\n"

Event: TypeAlias = dict[str, Any] | bytes
"""The JSON of one event, or an event that carries none, as it stands."""


class Edit:
    """One fault at work on one answer. Subclasses override the parts they change; the default changes nothing."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.choice = 0  # the one that is being edited
        self._opened: set[tuple[int, int]] = set()

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        """One tool call delta, or one whole call. `number` counts calls from 0; None leaves it out."""
        del number, opens
        return call

    def content(self, text: str) -> str:
        return text

    def reasoning(self, text: str) -> str:
        return text

    def finish(self, reason: str) -> str | None:
        return reason

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        return usage

    def written(self, choice: "Written") -> None:
        """One choice of an answer that is not streamed, before the dialect makes a message of it."""

    def stream(self, events: list[Event]) -> list[Event]:
        """The events that leave together; those that an edit has emptied do not leave."""
        return [event for event in events if isinstance(event, bytes) or self._kept(event)]

    def body(self, document: dict[str, Any]) -> dict[str, Any]:
        """The answer that is not streamed."""
        for choice in document["choices"]:
            self.choice = choice.get("index", 0)
            message = choice.get("message")
            if message is not None:
                self._texts(message)
                self._whole_calls(message)
            choice["finish_reason"] = self.finish(choice["finish_reason"])
        if document.get("usage"):
            document["usage"] = self.usage(document["usage"])
        return document

    def _kept(self, event: dict[str, Any]) -> bool:
        held = [carries(choice) for choice in event.get("choices") or []]
        for choice in event.get("choices") or []:
            self.choice = choice.get("index", 0)
            if choice.get("delta"):
                self._texts(choice["delta"])
                self._call_deltas(choice["delta"])
            if choice.get("finish_reason"):
                choice["finish_reason"] = self.finish(choice["finish_reason"])
                return True
        if event.get("usage"):
            event["usage"] = self.usage(event["usage"])
        return not any(held) or any(carries(choice) for choice in event["choices"])

    def _texts(self, holder: dict[str, Any]) -> None:
        if holder.get("content"):
            holder["content"] = self.content(holder["content"])
        named = [name for name in ("reasoning", "reasoning_content") if holder.get(name)]
        if named:  # the same text under one name or two
            edited = self.reasoning(holder[named[0]])
            holder.update(dict.fromkeys(named, edited))

    def _call_deltas(self, delta: dict[str, Any]) -> None:
        if not delta.get("tool_calls"):
            return
        edited = []
        for call in delta["tool_calls"]:
            number = call["index"]
            opens = (self.choice, number) not in self._opened
            self._opened.add((self.choice, number))
            edited.append(self.call(call, number, opens=opens))
        delta["tool_calls"] = [call for call in edited if call is not None]

    def _whole_calls(self, message: dict[str, Any]) -> None:
        if not message.get("tool_calls"):
            return
        edited = [self.call(call, number, opens=True) for number, call in enumerate(message["tool_calls"])]
        message["tool_calls"] = [call for call in edited if call is not None]
        if not message["tool_calls"]:
            del message["tool_calls"]


def carries(choice: dict[str, Any]) -> bool:
    """Whether a choice of a streamed event says anything."""
    delta = choice.get("delta") or {}
    return bool(choice.get("finish_reason") or choice.get("text") or any(delta.values()))


def choices_of(event: Event) -> Iterator[dict[str, Any]]:
    """The choices of an event that have a delta."""
    if isinstance(event, dict):
        yield from (choice for choice in event.get("choices") or [] if "delta" in choice)


def finishes(event: Event) -> bool:
    """Whether this event carries a finish_reason."""
    return isinstance(event, dict) and any(choice.get("finish_reason") for choice in event.get("choices") or [])


def function_of(event: Event) -> dict[str, Any]:
    """The name and arguments of the tool call delta of this event; empty if it has none."""
    calls = [call for choice in choices_of(event) for call in choice["delta"].get("tool_calls") or []]
    function: dict[str, Any] = calls[0]["function"] if calls else {}
    return function


def opens_call(event: Event) -> bool:
    """Whether this event opens a tool call: its delta has the name."""
    return bool(function_of(event).get("name"))
