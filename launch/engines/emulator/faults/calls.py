"""Faults of which calls and which words arrive at all."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from ..answer import Answer, Call
from ..tokens import split_tokens
from .edit import Edit, Event, choices_of, opens_call
from .entry import Fault, Group, Harm, Need, Parameter, Scene, Stage

_KEPT_CHARACTERS = 19
_CONTROL_TOKENS = (
    *("<|im_end|>", "<turn|>", "<|observation|>", "<|eot_id|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    *("</s>", "<eos>", "<|eot|>", "<pad>"),
)


class CallsLost(Edit):
    """No call arrives, though its tokens were made, and the answer looks as if there had been none."""

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del call, number, opens
        return None

    def finish(self, reason: str) -> str | None:
        return "stop" if reason == "tool_calls" else reason


class CallsLostFinishKept(CallsLost):
    def finish(self, reason: str) -> str | None:
        return reason


class SecondCallLost(Edit):
    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del opens
        return call if number == 0 else None


class ContentLost(Edit):
    """The text stops after a few characters; its tokens are counted all the same."""

    _left = _KEPT_CHARACTERS

    def content(self, text: str) -> str:
        kept = text[: self._left]
        self._left -= len(kept)
        return kept


class ContentGap(Edit):
    """Every fourth delta of the text is missing."""

    _seen = 0

    def content(self, text: str) -> str:
        self._seen += 1
        return "" if self._seen % 4 == 3 else text


class EmptyChunk(Edit):
    """One more `{"content": ""}` in front of the calls."""

    _done = False

    def stream(self, events: list[Event]) -> list[Event]:
        return [each for event in events for each in self._preceded(event)]

    def _preceded(self, event: Event) -> Iterator[Event]:
        if not self._done and opens_call(event):
            self._done = True
            empty = deepcopy(event)
            for choice in choices_of(empty):
                choice["delta"] = {"content": ""}
            yield empty
        yield event


class AllEmpty(CallsLost):
    """A good ending and nothing before it but reasoning; the tokens are counted."""

    def content(self, text: str) -> str:
        del text
        return ""


def raw_calls(calls: tuple[Call, ...], family: int) -> Iterator[str]:
    """Calls as a model writes them, before a parser has read them, token by token."""
    return split_tokens("".join(_FAMILIES[(family - 1) % len(_FAMILIES)](call) for call in calls))


def leak_markup(answer: Answer, scene: Scene) -> Answer:
    """Calls arrive as the model's raw text: the tool parser is missing, or one for another model."""
    raw = raw_calls(answer.calls, int(scene.values[0]))
    return replace(answer, content=chain(answer.content, raw), calls=())


def leak_json(answer: Answer, scene: Scene) -> Answer:
    """Calls arrive as bare JSON in the content."""
    del scene
    raw = "\n".join(f'{{"name": "{call.name}", "parameters": {call.arguments}}}' for call in answer.calls)
    return replace(answer, content=chain(answer.content, split_tokens(raw)), calls=())


def leak_control(answer: Answer, scene: Scene) -> Answer:
    """A control token of the model ends the text."""
    return (
        answer if answer.calls else replace(answer, content=chain(answer.content, [scene.rng.choice(_CONTROL_TOKENS)]))
    )


def phantom_call(answer: Answer, scene: Scene) -> Answer:
    """A call that nobody made appears beside the text."""
    if answer.calls or not scene.asked.chat:
        return answer
    return replace(answer, calls=(Call("example_function_name", "{}"),))


def content_ws(answer: Answer, scene: Scene) -> Answer:
    del scene
    return replace(answer, content=chain(answer.content, ["\n\n"])) if answer.calls else answer


def state_bleed(answer: Answer, scene: Scene) -> Answer:
    """A parser kept what belonged to another request: it stands in front of this one's arguments or words."""
    if not scene.others:
        return answer
    other = scene.think(scene.rng.choice(scene.others))
    if answer.calls and other.calls:
        first, *rest = answer.calls
        return replace(answer, calls=(replace(first, arguments=other.calls[0].arguments + first.arguments), *rest))
    alien = [call.arguments for call in other.calls] or list(islice(other.content, 12))
    return replace(answer, content=chain(split_tokens("".join(alien) + " "), answer.content))


def _values(call: Call) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments)
    except ValueError:  # broken by another fault
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def _xml_call(call: Call) -> str:
    values = _values(call).items()
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
    return f"<tool_call>\n<function={call.name}>\n{lines}</function>\n</tool_call>"


def _glm_call(call: Call) -> str:
    values = _values(call).items()
    lines = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values)
    return f"<tool_call>{call.name}\n{lines}</tool_call>"


_FAMILIES: tuple[Callable[[Call], str], ...] = (
    lambda call: f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>',
    _xml_call,
    _glm_call,
    lambda call: f'[TOOL_CALLS][{{"name": "{call.name}", "arguments": {call.arguments}}}]',
    lambda call: f'<|python_tag|>{{"name": "{call.name}", "parameters": {call.arguments}}}',
    lambda call: (
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>"
        f"{call.name}<\uff5ctool\u2581sep\uff5c>{call.arguments}<\uff5ctool\u2581call\u2581end\uff5c>"
        "<\uff5ctool\u2581calls\u2581end\uff5c>"
    ),
    lambda call: (
        "<|tool_calls_section_begin|><|tool_call_begin|>"
        f"functions.{call.name}:0<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    lambda call: f"<|channel|>commentary to=functions.{call.name}<|message|>{call.arguments}<|call|>",
)


def _wire(name: str, what: str, edits: type[Edit], *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.CALLS, Stage.WIRE, what, edits=edits, needs=needs, **more)


def _answer(name: str, what: str, spoils: Callable[[Answer, Scene], Answer], *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.CALLS, Stage.ANSWER, what, spoils=spoils, needs=needs, **more)


FAULTS = (
    _wire(
        "call-lost-fin-toolcalls",
        "no call arrives, and the finish_reason says tool_calls",
        CallsLostFinishKept,
        Need.CALL,
    ),
    _wire("call-lost", "no call arrives, and the finish_reason says stop", CallsLost, Need.CALL),
    _wire("second-call-lost", "of several calls only the first arrives", SecondCallLost, Need.PARALLEL),
    _answer("phantom-call", "a call that nobody made stands beside the text", phantom_call),
    _answer(
        "leak-markup",
        "calls come as raw text in the content, tool_calls stays empty; FAMILY 1 to 8 is the model's format",
        leak_markup,
        Need.CALL,
        parameters=(Parameter("family", 1),),
        aliases=("tool-text-in-content",),
    ),
    _answer("leak-json", "calls come as bare JSON in the content, tool_calls stays empty", leak_json, Need.CALL),
    _answer("leak-control", "the text ends in a control token such as <|im_end|>", leak_control),
    _wire(
        "content-lost",
        f"the text ends after {_KEPT_CHARACTERS} characters, though more tokens are counted",
        ContentLost,
    ),
    _wire("content-gap", "every fourth delta of the text is missing", ContentGap, only=("stream",)),
    _answer("content-ws", "two newlines as content beside the calls", content_ws, Need.CALL, harm=Harm.WARN),
    _wire(
        "content-empty-chunk",
        "an empty content delta in front of the calls",
        EmptyChunk,
        Need.CALL,
        only=("stream",),
        harm=Harm.WARN,
    ),
    _wire("all-empty", "neither text nor call, finish_reason stop; tokens are counted", AllEmpty),
    _answer("state-bleed", "what belongs to another request stands in front of arguments or text", state_bleed),
)
