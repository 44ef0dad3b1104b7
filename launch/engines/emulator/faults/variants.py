"""No faults at all: what some healthy server does and another does not. A gate that minds any of them is wrong."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..answer import Answer
from .args import OneChunk, reobjected
from .edit import Edit, Event, choices_of
from .entry import Fault, Group, Harm, Need, Scene, Stage

if TYPE_CHECKING:
    from ..request import Asked

_PING = b": ping\n\n"
_PING_EVERY = 8


class WholeCall(OneChunk):
    """A call is one delta: name and arguments together."""

    holds_opening = True


class NameWithBrace(WholeCall):
    """The first delta of a call has the name and the first piece of its arguments."""

    holds_fragments = 1


class ContentBesideCalls(Edit):
    """`content` is null beside the deltas of calls, and an empty string beside whole ones."""

    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            for choice in choices_of(event):
                if choice["delta"].get("tool_calls"):
                    choice["delta"].setdefault("content", None)
        return events

    def body(self, document: dict[str, Any]) -> dict[str, Any]:
        for choice in document["choices"]:
            if choice.get("message", {}).get("tool_calls"):
                choice["message"]["content"] = choice["message"].get("content") or ""
        return document


class RoleRepeated(Edit):
    """Every delta says `"role": "assistant"`."""

    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            for choice in choices_of(event):
                choice["delta"]["role"] = "assistant"
        return events


class PingComments(Edit):
    """Comment lines between the events."""

    _seen = 0

    def stream(self, events: list[Event]) -> list[Event]:
        return [each for event in events for each in self._announced(event)]

    def _announced(self, event: Event) -> Iterator[Event]:
        if self._seen % _PING_EVERY == 0:
            yield _PING
        self._seen += 1
        yield event


def usage_everywhere(scene: Scene) -> "Asked":
    """Usage on every chunk for those who wanted it at the end."""
    return replace(scene.asked, continuous_usage=scene.asked.include_usage)


def without_spaces(answer: Answer, scene: Scene) -> Answer:
    del scene
    return reobjected(answer, lambda arguments: arguments, separators=(",", ":"))


def reordered(answer: Answer, scene: Scene) -> Answer:
    del scene
    return reobjected(answer, lambda arguments: dict(reversed(arguments.items())))


def _variant(name: str, what: str, stage: Stage, *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.VARIANTS, stage, what, harm=Harm.HEALTHY, needs=needs, **more)


_STREAM = ("stream",)

FAULTS = (
    _variant("whole-call", "a call is one delta", Stage.WIRE, Need.CALL, edits=WholeCall, only=_STREAM),
    _variant(
        "name-with-brace",
        "the name comes together with the first piece of the arguments",
        Stage.WIRE,
        Need.CALL,
        edits=NameWithBrace,
        only=_STREAM,
    ),
    _variant(
        "content-beside-calls",
        "content is null or empty beside calls, not absent",
        Stage.WIRE,
        Need.CALL,
        edits=ContentBesideCalls,
    ),
    _variant("role-repeated", "every delta says role assistant", Stage.WIRE, edits=RoleRepeated, only=_STREAM),
    _variant("ping-comments", "comment lines between the events", Stage.WIRE, edits=PingComments, only=_STREAM),
    _variant("usage-everywhere", "usage on every chunk", Stage.PROMPT, asks=usage_everywhere, only=_STREAM),
    _variant("args-without-spaces", "arguments without spaces", Stage.ANSWER, Need.CALL, spoils=without_spaces),
    _variant("args-reordered", "arguments in another order", Stage.ANSWER, Need.CALL, spoils=reordered),
)
