"""The prompt: what a chat template makes of a conversation, as a list of segments. Rendered here and nowhere else.

Prompt tokens are counted from the rendered segments, and the pseudo model knows only what it reads in them: a segment
that is left out is left out for both. Faults of the prompt take the list of a request and give another one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .conversation import HistoricCall, Message, Tool

SegmentKind = Literal["tools", "turn", "reasoning", "text", "call", "result", "end", "cue"]
_TOOLS_BEFORE = """<|im_start|>system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_TOOLS_AFTER = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags.\
<|im_end|>
"""
_MARKUP: dict[SegmentKind, tuple[str, str]] = {
    "tools": (_TOOLS_BEFORE, _TOOLS_AFTER),
    "turn": ("<|im_start|>", "\n"),
    "reasoning": ("<think>\n", "\n</think>\n\n"),
    "text": ("", ""),
    "call": ("\n<tool_call>\n", "\n</tool_call>"),
    "result": ("<tool_response>\n", "\n</tool_response>"),
    "end": ("", "<|im_end|>\n"),
    "cue": ("<|im_start|>assistant\n", ""),
}
NO_THOUGHT = "<think>\n\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the prompt. `turn … end` enclose a message: reasoning, text and calls, or one result.

    `body` is a turn's role, a call's arguments, otherwise the text itself; the cue's is what forbids to think.
    `name` is a call's function, `id` joins calls and results (no template writes it). `absent`: a text that the
    client did not send, or sent as null.
    """

    kind: SegmentKind
    body: str = ""
    name: str = ""
    id: str = ""
    absent: bool = False

    def written(self) -> str:
        """The segment with the template's markup around it."""
        before, after = _MARKUP[self.kind]
        body = f'{{"name": "{self.name}", "arguments": {self.body}}}' if self.kind == "call" else self.body
        return f"{before}{body}{after}"


def render(messages: Iterable[Message], tools: Sequence[Tool], *, no_thought: bool) -> tuple[Segment, ...]:
    """The segments of a conversation, ready for the answer; `no_thought` closes the thought before it begins."""
    segments = [Segment("tools", "\n".join(tool.listing for tool in tools))] if tools else []
    for message in messages:
        segments.append(Segment("turn", message.role))
        if message.reasoning:
            segments.append(Segment("reasoning", message.reasoning))
        if message.role == "tool":
            segments.append(Segment("result", message.text, id=message.tool_call_id))
        else:
            segments.append(Segment("text", message.text, absent=message.absent))
        segments += [Segment("call", call.arguments, call.name, call.id) for call in message.calls]
        segments.append(Segment("end"))
    return (*segments, Segment("cue", NO_THOUGHT if no_thought else ""))


def written(segments: Iterable[Segment]) -> bytes:
    """The prompt as it would be tokenised."""
    return "".join(segment.written() for segment in segments).encode(errors="replace")


def messages_in(segments: Iterable[Segment]) -> tuple[Message, ...]:
    """The conversation as somebody finds it who reads only this."""
    return tuple(_message(turn) for turn in _turns(segments))


def tools_in(segments: Iterable[Segment], tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Those of the tools that the prompt speaks of."""
    listings = [segment.body for segment in segments if segment.kind == "tools"]
    return tuple(tool for tool in tools if any(tool.listing in listing for listing in listings))


def _turns(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    turn: list[Segment] = []
    for segment in segments:
        if segment.kind == "turn":
            turn = [segment]
        elif segment.kind == "end":
            yield turn
            turn = []
        else:
            turn.append(segment)


def _message(turn: list[Segment]) -> Message:
    said = [s for s in turn if s.kind in ("text", "result")]
    return Message(
        role=next((s.body for s in turn if s.kind == "turn"), "user"),
        text="".join(s.body for s in said),
        calls=tuple(HistoricCall(s.id, s.name, s.body) for s in turn if s.kind == "call"),
        tool_call_id=next((s.id for s in turn if s.kind == "result"), ""),
        reasoning="".join(s.body for s in turn if s.kind == "reasoning"),
        absent=all(s.absent for s in said),
    )
