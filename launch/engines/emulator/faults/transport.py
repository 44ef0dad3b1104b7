"""Faults of how an answer is carried: statuses, endings, connections, counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .calls import CallsLost
from .edit import DONE, Edit, Event, choices_of
from .entry import Fault, Group, Need, Parameter, Scene, Stage

if TYPE_CHECKING:
    from ..request import Asked


class DoneOnly(Edit):
    def stream(self, events: list[Event]) -> list[Event]:
        return [event for event in events if event == DONE]


class NoDone(Edit):
    def stream(self, events: list[Event]) -> list[Event]:
        return [event for event in events if event != DONE]


class NoUsage(Edit):
    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, dict) and event.get("usage"):
                event["usage"] = None
        return [event for event in events if isinstance(event, bytes) or event.get("choices")]

    def body(self, document: dict[str, Any]) -> dict[str, Any]:
        document["usage"] = None
        return document


class UsageWrong(Edit):
    """No completion token at all, and all of them reasoning."""

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        wrong = {"completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}
        reasoning = {"reasoning_tokens": usage["completion_tokens"]} if "reasoning_tokens" in usage else {}
        return usage | wrong | reasoning


class NoNumber(Edit):
    """A rate that was divided by zero, as Python writes it: no JSON."""

    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, dict) and event.get("usage"):
                event["usage"]["tokens_per_second"] = float("nan")
        return super().stream(events)

    def body(self, document: dict[str, Any]) -> dict[str, Any]:
        document["usage"]["tokens_per_second"] = float("nan")
        return super().body(document)


class Renamed(Edit):
    """Another model signs all events but the one that opens the message."""

    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, dict) and not any(choice["delta"].get("role") for choice in choices_of(event)):
                event["model"] = "another-model"
        return super().stream(events)


class Headless(Edit):
    """What every typed client asks for first is missing, or says something else."""

    def stream(self, events: list[Event]) -> list[Event]:
        return super().stream([_headless(event) if isinstance(event, dict) else event for event in events])

    def body(self, document: dict[str, Any]) -> dict[str, Any]:
        return super().body(_headless(document))


def _headless(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("id", "created")} | {"object": "list"}


class Aborted(Edit):
    def finish(self, reason: str) -> str | None:
        del reason
        return "abort"


class AbortedAsLength(CallsLost):
    """Nothing was answered, and the finish_reason says that the limit was reached."""

    def content(self, text: str) -> str:
        del text
        return ""

    def reasoning(self, text: str) -> str:
        del text
        return ""

    def finish(self, reason: str) -> str | None:
        del reason
        return "length"


def after_tokens(limit: Callable[[Scene], int]) -> "Callable[[Scene], Asked]":
    """The engine stops by itself after so many tokens."""
    return lambda scene: replace(scene.asked, max_tokens=min(scene.asked.max_tokens, limit(scene)))


def _wire(name: str, what: str, edits: type[Edit], **more: Any) -> Fault:
    return Fault(name, Group.TRANSPORT, Stage.WIRE, what, edits=edits, **more)


def _place(name: str, what: str, *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.TRANSPORT, Stage.TRANSPORT, what, needs=needs, **more)


_CHUNKS = (Parameter("chunks", 5),)
_TOKENS = (Parameter("tokens", 5),)
_told = after_tokens(lambda scene: int(scene.values[0]))

FAULTS = (
    _place(
        "err-in-stream",
        "after so many CHUNKS an error event, then [DONE], under HTTP 200",
        parameters=_CHUNKS,
        only=("stream",),
    ),
    _place("stream-cut", "closes the connection after so many CHUNKS", parameters=_CHUNKS, aliases=("truncates",)),
    _wire("done-only", "the stream is [DONE] and nothing else", DoneOnly, only=("stream",)),
    _wire("no-done", "the stream ends without [DONE]", NoDone, only=("stream",)),
    _place("http500", "answers 500 with an error body", aliases=("error-500",)),
    _place(
        "http500-history",
        "answers 500 when the history holds calls or tool results",
        Need.HISTORY,
        only=("tool-turns",),
    ),
    _place("http400", "answers 400 to a good request"),
    _place("conn-drop", "resets the connection without an answer"),
    _place("engine-death", "this request and all that follow are answered with 500, /health with 503"),
    _place("hang", "after so many CHUNKS nothing more comes, and the connection stays open", parameters=_CHUNKS),
    _wire("abort", "after TOKENS it ends with finish_reason abort", Aborted, parameters=_TOKENS, asks=_told),
    _wire(
        "abort-as-length",
        "an empty answer with finish_reason length under HTTP 200; also for a prompt that is too long",
        AbortedAsLength,
        asks=after_tokens(lambda _: 1),
    ),
    _wire("usage-wrong", "usage counts no completion tokens, and all of them as reasoning", UsageWrong),
    _wire("no-usage", "sends no usage, streamed or not, even when asked", NoUsage),
    _wire("nan-in-json", "NaN stands in the usage, which is no JSON", NoNumber),
    _wire("model-renamed", "another model's name in all events but the first", Renamed, only=("stream",)),
    _wire("headless", "object is 'list', id and created are missing", Headless),
)
