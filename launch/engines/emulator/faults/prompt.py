"""Faults of what the model gets to read. They change the request before its prompt is laid out and counted."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ..answer import Answer, Call
from ..prompt import NO_THOUGHT, Segment
from ..tokens import split_tokens
from .entry import Fault, Group, Need, Scene, Stage

if TYPE_CHECKING:
    from ..request import Asked


Prompt: TypeAlias = tuple[Segment, ...]


def _each(change: Callable[[Segment], Segment]) -> Callable[[Prompt], Prompt]:
    return lambda prompt: tuple(change(segment) for segment in prompt)


def _result_emptied(segment: Segment) -> Segment:
    return replace(segment, body="") if segment.kind == "result" else segment


def _null_as_word(segment: Segment) -> Segment:
    return replace(segment, body="None") if segment.kind == "text" and segment.absent else segment


def _coerced(segment: Segment) -> Segment:
    return replace(segment, body="{}") if segment.kind == "call" else segment


def _without_reasoning(prompt: Prompt) -> Prompt:
    return tuple(segment for segment in prompt if segment.kind != "reasoning")


def _without_tool_turns(prompt: Prompt) -> Prompt:
    """As if the conversation had never got to its calls."""
    kept: list[Segment] = []
    turn: list[Segment] = []
    for segment in prompt:
        turn.append(segment)
        if segment.kind in ("end", "tools", "cue"):
            kept += [] if any(part.kind in ("call", "result") for part in turn) else turn
            turn = []
    return tuple(kept)


def _last_system_only(prompt: Prompt) -> Prompt:
    """Of several system messages only the last, as a template has it that overwrites one variable with each."""
    starts = [at for at, segment in enumerate(prompt) if segment.kind == "turn" and segment.body == "system"]
    dropped: set[int] = set()
    for start in starts[:-1]:
        end = next(at for at in range(start, len(prompt)) if prompt[at].kind == "end")
        dropped.update(range(start, end + 1))
    return tuple(segment for at, segment in enumerate(prompt) if at not in dropped)


def _habit(scene: Scene) -> "Asked":
    """Whatever was asked, the switch stands where it stands by itself."""
    cue = Segment("cue", "" if scene.thinks_by_habit else NO_THOUGHT)
    segments = (cue if segment.kind == "cue" else segment for segment in scene.asked.segments)
    return replace(scene.asked, thinking=scene.thinks_by_habit).reading(segments)


def loop_same_call(answer: Answer, scene: Scene) -> Answer:
    """The last call again, instead of an answer to its result."""
    asked = scene.asked
    calls = next((message.calls for message in reversed(asked.messages) if message.calls), ())
    if not asked.results or not calls:
        return answer
    return replace(answer, content=(), calls=tuple(Call(call.name, call.arguments) for call in calls))


def loses_tool_result(answer: Answer, scene: Scene) -> Answer:
    """The answer to a tool result knows nothing of it."""
    text = scene.rng.choice(
        (
            "I have looked that up for you, but I cannot say what the tool found.",
            "I do not have access to that information at the moment.",
        )
    )
    return replace(answer, content=split_tokens(text))


def _fault(name: str, what: str, reads: Callable[[Prompt], Prompt], *needs: Need) -> Fault:
    return Fault(name, Group.PROMPT, Stage.PROMPT, what, reads=reads, needs=needs or (Need.HISTORY,))


FAULTS = (
    _fault("prompt-drop-tool", "tool results are missing in the prompt", _each(_result_emptied)),
    _fault("prompt-drop-history", "turns with calls and results are missing in the prompt", _without_tool_turns),
    _fault("prompt-null-literal", "content null stands in the prompt as the word None", _each(_null_as_word)),
    _fault("prompt-args-coerced", "arguments of earlier calls stand in the prompt as {}", _each(_coerced)),
    _fault(
        "prompt-drop-reasoning",
        "reasoning of earlier turns is missing in the prompt",
        _without_reasoning,
        Need.REASONING_HISTORY,
    ),
    _fault(
        "prompt-last-system",
        "of several system messages only the last stands in the prompt",
        _last_system_only,
        Need.SYSTEMS,
    ),
    Fault(
        "toggle-ignored",
        Group.PROMPT,
        Stage.PROMPT,
        "the thinking switch is ignored",
        asks=_habit,
        only=("switch",),
        needs=(Need.SWITCH,),
    ),
    Fault(
        "loop-same-call",
        Group.PROMPT,
        Stage.ANSWER,
        "after a tool result the same call comes again",
        spoils=loop_same_call,
        needs=(Need.HISTORY,),
    ),
    Fault(
        "loses-tool-result",
        Group.PROMPT,
        Stage.ANSWER,
        "the answer after a tool result knows nothing of the result",
        spoils=loses_tool_result,
        only=("after-tool-result",),
        needs=(Need.HISTORY,),
    ),
)
