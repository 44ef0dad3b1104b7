"""Faults of tool_choice, response_format and finish_reason."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..answer import Answer
from ..tokens import split_tokens
from .calls import raw_calls
from .edit import Edit, Event, finishes
from .entry import Fault, Group, Need, Scene, Stage

if TYPE_CHECKING:
    from ..request import Asked
    from ..wire import Written


def required_prose(answer: Answer, scene: Scene) -> Answer:
    """`required` or a named function is ignored: prose."""
    asked = scene.asked
    if asked.choice.mode not in ("required", "named"):
        return answer
    return scene.think(replace(asked, tools=(), choice=replace(asked.choice, mode="none")))


class RequiredProseFinish(Edit):
    """Half of the prose under `required` ends with tool_calls all the same."""

    def finish(self, reason: str) -> str | None:
        lies = self.scene.asked.choice.mode == "required" and self.scene.rng.random() < 0.5
        return "tool_calls" if lies and reason == "stop" else reason


def none_calls(answer: Answer, scene: Scene) -> Answer:
    """`none` is ignored; where no tools were sent, the last call of the history comes again as raw text."""
    if _forbids(scene.asked):
        return scene.think(replace(scene.asked, choice=replace(scene.asked.choice, mode="required")))
    if calls := _calls_without_tools(scene.asked):
        return replace(answer, content=raw_calls(calls[-1:], 1))
    return answer


class NoneCallsFinish(Edit):
    """Raw call text without tools ends with tool_calls."""

    def finish(self, reason: str) -> str | None:
        return "tool_calls" if _calls_without_tools(self.scene.asked) else reason


def none_swallow(answer: Answer, scene: Scene) -> Answer:
    """The model writes a call although it may not; `NoneSwallow` throws it away."""
    if _forbids(scene.asked):
        called = scene.think(replace(scene.asked, choice=replace(scene.asked.choice, mode="required")))
        return replace(answer, content=raw_calls(called.calls, 1))
    if calls := _calls_without_tools(scene.asked):
        return replace(answer, content=raw_calls(calls[-1:], 1))
    return answer


class NoneSwallow(Edit):
    """Every delta `{}`, nothing in the message: the parser took the call out and nobody wanted it."""

    def stream(self, events: list[Event]) -> list[Event]:
        if self._strikes:
            for event in events:
                self._empty(event)
        return events

    def content(self, text: str) -> str:
        return "" if self._strikes else text

    @property
    def _strikes(self) -> bool:
        return _forbids(self.scene.asked) or bool(_calls_without_tools(self.scene.asked))

    @staticmethod
    def _empty(event: Event) -> None:
        for choice in event.get("choices") or [] if isinstance(event, dict) else []:
            if "delta" in choice and not choice["delta"].get("role"):
                choice["delta"] = {}


def parallel_ignored(answer: Answer, scene: Scene) -> Answer:
    """`parallel_tool_calls: false` is ignored."""
    return answer if scene.asked.parallel_calls else scene.think(replace(scene.asked, parallel_calls=True))


class FinishToolCallsOnLength(Edit):
    """A call cut by max_tokens ends as if it were complete; unstreamed its arguments are mended into an object."""

    _called = False

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number, opens
        self._called = True
        return call

    def written(self, choice: "Written") -> None:
        if choice.cut_call:
            choice.cut_call = False
            choice.calls[-1][1] = mended(choice.calls[-1][1])

    def finish(self, reason: str) -> str | None:
        return "tool_calls" if reason == "length" and self._called else reason


class FinishStopOnCalls(Edit):
    def finish(self, reason: str) -> str | None:
        return "stop" if reason == "tool_calls" else reason


class NoFinish(Edit):
    def finish(self, reason: str) -> str | None:
        del reason
        return None


class TwoFinish(Edit):
    """The event with the finish_reason comes twice."""

    def stream(self, events: list[Event]) -> list[Event]:
        doubled: list[Event] = []
        for event in events:
            doubled += [deepcopy(event), event] if finishes(event) else [event]
        return doubled


def schema_not_enforced(answer: Answer, scene: Scene) -> Answer:
    """response_format is ignored: JSON of another shape, or prose."""
    if scene.asked.answer_schema is None:
        return answer
    if scene.rng.random() < 0.5:
        return scene.think(replace(scene.asked, answer_schema=None))
    return replace(answer, content=split_tokens('{"result": "done", "notes": ["no schema was followed"]}'))


def mended(arguments: str) -> str:
    """The part of cut JSON that still makes an object, `{}` if there is none."""
    for end in range(len(arguments), 0, -1):
        for closing in ("", "}", '"}'):
            try:
                value = json.loads(arguments[:end] + closing)
            except ValueError:
                continue
            if isinstance(value, dict):
                return arguments[:end] + closing
    return "{}"


def _forbids(asked: "Asked") -> bool:
    return bool(asked.tools) and asked.choice.mode == "none"


def _calls_without_tools(asked: "Asked") -> tuple[Any, ...]:
    """Calls of the history of a request that declares no tools."""
    return () if asked.tools else tuple(call for message in asked.messages for call in message.calls)


def _fault(
    name: str,
    what: str,
    *needs: Need,
    spoils: Callable[[Answer, Scene], Answer] | None = None,
    edits: type[Edit] | None = None,
    only: tuple[str, ...] = (),
) -> Fault:
    stage = Stage.ANSWER if spoils else Stage.WIRE
    return Fault(name, Group.CHOICE, stage, what, spoils=spoils, edits=edits, needs=needs, only=only)


FAULTS = (
    _fault(
        "required-prose",
        "prose under tool_choice required or named, half of it with finish_reason tool_calls",
        Need.FORCED,
        spoils=required_prose,
        edits=RequiredProseFinish,
    ),
    _fault(
        "none-calls",
        "calls under tool_choice none; raw call text when no tools are sent after tool turns",
        Need.NONE,
        spoils=none_calls,
        edits=NoneCallsFinish,
    ),
    _fault(
        "none-swallow",
        "under tool_choice none, or without tools after tool turns, every delta is empty",
        Need.NONE,
        spoils=none_swallow,
        edits=NoneSwallow,
    ),
    _fault(
        "parallel-ignored", "several calls under parallel_tool_calls false", Need.ONE_CALL_ONLY, spoils=parallel_ignored
    ),
    _fault(
        "fin-toolcalls-on-length",
        "a call cut by max_tokens ends with finish_reason tool_calls",
        Need.TRUNCATION,
        edits=FinishToolCallsOnLength,
    ),
    _fault(
        "fin-stop-on-calls",
        "calls with finish_reason stop; healthy with +named, as vLLM does it",
        Need.CALL,
        edits=FinishStopOnCalls,
    ),
    _fault("no-finish", "no finish_reason ever", edits=NoFinish),
    _fault("two-finish", "the event with the finish_reason comes twice", edits=TwoFinish, only=("stream",)),
    _fault("schema-not-enforced", "response_format is ignored", Need.SCHEMA, spoils=schema_not_enforced),
)
