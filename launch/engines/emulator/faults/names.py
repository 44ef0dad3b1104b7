"""Faults of what identifies a call: name, id, type, index, and the choice it belongs to."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..answer import Answer
from .edit import Edit, Event, choices_of, opens_call
from .entry import Fault, Group, Harm, Need, Scene, Stage

_BAD_ID_DIGITS = 40
BAD_ID = re.compile(rf"chatcmpl-tool-[0-9a-f]{{{_BAD_ID_DIGITS}}}")
"""Longer than any id of a healthy engine: so it is known when it comes back."""


class NameRepeat(Edit):
    """The whole name in every delta of a call."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._names: dict[tuple[int, int], str] = {}

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        if opens:
            self._names[self.choice, number] = call["function"]["name"]
        call["function"]["name"] = self._names[self.choice, number]
        return call


class IdMissing(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number, opens
        call.pop("id", None)
        return call


class IdNullLater(Edit):
    """Later deltas of a call say `"id": null, "name": null` instead of leaving both out."""

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number
        if not opens:
            call["id"] = None
            call["function"] = {"name": None} | call["function"]
        return call


class IdBadFormat(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number
        if opens:
            call["id"] = f"chatcmpl-tool-{self.scene.rng.getrandbits(4 * _BAD_ID_DIGITS):0{_BAD_ID_DIGITS}x}"
        return call


class IdDuplicate(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number
        if opens:
            call["id"] = "call_0"
        return call


class TypeMissing(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number, opens
        call.pop("type", None)
        return call


class IndexAllZero(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number, opens
        call["index"] = 0
        return call


class IndexByTool(Edit):
    """The first call's index is the place of its tool in the list of tools."""

    _index: int | None = None

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        if number == 0:
            if opens:
                names = [tool.name for tool in self.scene.asked.tools]
                name = call["function"]["name"]
                self._index = names.index(name) if name in names else 0
            call["index"] = self._index
        return call


class ChoiceMix(Edit):
    """What belongs to the second choice lands in the first."""

    def stream(self, events: list[Event]) -> list[Event]:
        for event in events:
            for choice in choices_of(event):
                if choice["delta"].get("tool_calls") and not opens_call(event):
                    choice["index"] = 0
        return super().stream(events)


def renamed(answer: Answer, name: Callable[[str], str]) -> Answer:
    return replace(answer, calls=tuple(replace(call, name=name(call.name)) for call in answer.calls))


def truncated(answer: Answer, scene: Scene) -> Answer:
    """`run_in_terminal` becomes `run_in`."""
    del scene
    return renamed(answer, lambda name: name.rpartition("_")[0] or name[: max(1, len(name) // 2)])


def garbled(answer: Answer, scene: Scene) -> Answer:
    junk = scene.rng.choice(("<|channel|>commentary", "<|constrain|>json", "\n<tool_call>"))
    return renamed(answer, lambda name: name + junk)


def unknown(answer: Answer, scene: Scene) -> Answer:
    declared = {tool.name for tool in scene.asked.tools}
    invented = next(name for name in ("search_web", "browser", "python") if name not in declared)
    return renamed(answer, lambda _: invented)


def _wire(name: str, what: str, edits: type[Edit], *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.NAMES, Stage.WIRE, what, edits=edits, needs=needs or (Need.CALL,), **more)


def _answer(name: str, what: str, spoils: Callable[[Answer, Scene], Answer]) -> Fault:
    return Fault(name, Group.NAMES, Stage.ANSWER, what, spoils=spoils, needs=(Need.CALL,))


FAULTS = (
    _wire("name-repeat", "the name stands in every delta of a call", NameRepeat, only=("stream",)),
    _answer("name-truncated", "the name lost its last word", truncated),
    _answer("name-garbage", "the name ends in marks of the model's format", garbled),
    _answer("name-empty", "the name is empty", lambda answer, _: renamed(answer, lambda _: "")),
    _wire("id-missing", "calls have no id", IdMissing),
    _wire(
        "id-null-cont",
        "later deltas of a call carry id null and name null",
        IdNullLater,
        only=("stream",),
        harm=Harm.HEALTHY,
    ),
    _wire("id-bad-format", "ids that the engine itself refuses when they come back: 400", IdBadFormat),
    _wire("id-duplicate", "every call has the same id", IdDuplicate),
    _wire("type-missing", 'calls have no "type": "function"', TypeMissing),
    _wire("index-all-zero", "every call has index 0", IndexAllZero, Need.PARALLEL, only=("stream",)),
    _wire(
        "index-by-tool",
        "the first call's index is its tool's place in the list",
        IndexByTool,
        Need.TOOL_LIST,
        only=("stream",),
    ),
    _wire(
        "choice-mix",
        "argument fragments of the second choice land in the first",
        ChoiceMix,
        Need.CHOICES,
        only=("stream",),
    ),
    _answer("unknown-name", "calls a tool that was not declared", unknown),
)
