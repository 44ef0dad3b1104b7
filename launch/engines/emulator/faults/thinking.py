"""Faults between reasoning and answer."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

from ..answer import Answer
from ..tokens import split_tokens
from .calls import raw_calls
from .edit import Edit, Event, choices_of, finishes
from .entry import Fault, Group, Need, Parameter, Scene, Stage

_TAIL_CHARACTERS = 40


def think_in_content(answer: Answer, scene: Scene) -> Answer:
    """The reasoning arrives inside the content, tags included: the reasoning parser is missing."""
    del scene
    thought = chain(("<think>", "\n"), answer.reasoning or split_tokens("The user wants an answer, so I write one."))
    return replace(answer, reasoning=(), content=chain(thought, ("\n", "</think>", "\n\n"), answer.content))


def think_untagged(answer: Answer, scene: Scene) -> Answer:
    """Thought and answer are one text."""
    del scene
    return replace(answer, reasoning=(), content=chain(answer.reasoning, ("\n\n",), answer.content))


def answer_in_reasoning(answer: Answer, scene: Scene) -> Answer:
    del scene
    return replace(answer, reasoning=chain(answer.reasoning, answer.content), content=())


def answer_dup(answer: Answer, scene: Scene) -> Answer:
    """The answer stands in the reasoning too. The model wrote it once, and once its tokens are counted."""
    del scene
    content = tuple(answer.content)
    return replace(answer, reasoning=chain(answer.reasoning, ("".join(content),)), content=content)


def tool_in_reasoning(answer: Answer, scene: Scene) -> Answer:
    """The call stays inside the thought, as raw text."""
    del scene
    return replace(answer, reasoning=chain(answer.reasoning, raw_calls(answer.calls, 1)), calls=())


def stop_in_reasoning(answer: Answer, scene: Scene) -> Answer:
    """A stop string that the thought contains ends everything: the rest of the thought's tag is all that is said."""
    if not scene.asked.stop:
        return answer
    thought = tuple(answer.reasoning)
    return replace(answer, reasoning=thought[: len(thought) // 2], content=("/think>",), calls=())


class ReasoningLost(Edit):
    def reasoning(self, text: str) -> str:
        del text
        return ""


class ReasoningGap(Edit):
    """The last TOKENS deltas of the thought are lost at the boundary to what follows."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._held: deque[str] = deque()

    def reasoning(self, text: str) -> str:
        self._held.append(text)
        return self._held.popleft() if len(self._held) > self.scene.values[0] else ""


class ThinkTailInFinal(Edit):
    """The event with the finish_reason repeats the end of the thought as content."""

    _tail = ""

    def reasoning(self, text: str) -> str:
        self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
        return text

    def stream(self, events: list[Event]) -> list[Event]:
        events = super().stream(events)
        for event in events:
            if self._tail and finishes(event):
                for choice in choices_of(event):
                    choice["delta"]["content"] = self._tail
        return events


def _fault(name: str, what: str, spoils: Callable[[Answer, Scene], Answer], *needs: Need, **more: Any) -> Fault:
    needs = needs or (Need.THINKING,)
    return Fault(name, Group.THINKING, Stage.ANSWER, what, spoils=spoils, needs=needs, **more)


def _wire(name: str, what: str, edits: type[Edit], **more: Any) -> Fault:
    return Fault(name, Group.THINKING, Stage.WIRE, what, edits=edits, needs=(Need.THINKING,), **more)


_THINKING = ("thinking",)

FAULTS = (
    Fault(
        "think-in-content",
        Group.THINKING,
        Stage.ANSWER,
        "<think>…</think> stands in the content",
        spoils=think_in_content,
        aliases=("leak-think",),
    ),
    _fault("think-untagged", "thought and answer are one text without a tag", think_untagged, only=_THINKING),
    Fault(
        "answer-in-reasoning",
        Group.THINKING,
        Stage.ANSWER,
        "the answer stands in the reasoning, the content is empty",
        spoils=answer_in_reasoning,
    ),
    _fault("answer-dup", "the answer stands in the reasoning and in the content", answer_dup, only=_THINKING),
    _wire(
        "think-tail-in-final",
        "the last event repeats the end of the thought as content",
        ThinkTailInFinal,
        only=("stream", "thinking"),
    ),
    _fault(
        "tool-in-reasoning",
        "the call stands in the reasoning as raw text",
        tool_in_reasoning,
        Need.THINKING,
        Need.CALL,
        only=("thinking", "tools"),
    ),
    _fault(
        "json-in-reasoning",
        "JSON asked for by response_format stands in the reasoning",
        answer_in_reasoning,
        Need.THINKING,
        Need.SCHEMA,
        only=("thinking", "schema"),
    ),
    _fault(
        "stop-in-reasoning",
        "a stop string inside the thought ends the answer",
        stop_in_reasoning,
        Need.THINKING,
        Need.STOP,
        only=_THINKING,
    ),
    _wire(
        "reasoning-lost",
        "no reasoning arrives as soon as tools are declared",
        ReasoningLost,
        only=("thinking", "tools"),
    ),
    _wire(
        "reasoning-gap",
        "the last TOKENS of the thought are missing in the stream",
        ReasoningGap,
        parameters=(Parameter("tokens", 32),),
        only=("stream", "thinking"),
    ),
)
