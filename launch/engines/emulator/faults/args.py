"""Faults of tool call arguments."""

import html
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..answer import Answer
from .edit import Edit, Event, finishes, function_of, opens_call
from .entry import Fault, Group, Harm, Need, Parameter, Scene, Stage

_EXACT = 2**53
"""The largest integer up to which a double holds every one."""
_SHORTENED_SHARE = 0.5


def rewritten(answer: Answer, arguments: Callable[[str], str]) -> Answer:
    """The same answer with every call's arguments put through a function of text."""
    return replace(answer, calls=tuple(replace(call, arguments=arguments(call.arguments)) for call in answer.calls))


def revalued(answer: Answer, value: Callable[[Any], Any]) -> Answer:
    """The same answer with every value of every call's arguments put through a function."""
    return reobjected(answer, lambda arguments: _mapped(arguments, value))


def reobjected(
    answer: Answer, change: Callable[[dict[str, Any]], Any], separators: tuple[str, str] | None = None
) -> Answer:
    """The same answer with every call's arguments changed as an object; what another fault broke stays as it is."""

    def changed(text: str) -> str:
        try:
            arguments = json.loads(text)
        except ValueError:
            return text
        return written(change(arguments), separators) if isinstance(arguments, dict) else text

    return rewritten(answer, changed)


def written(arguments: Any, separators: tuple[str, str] | None = None) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=separators)


def tail_cut(answer: Answer, scene: Scene) -> Answer:
    """No JSON: so many closing characters are missing, never all."""
    return rewritten(answer, lambda text: text[: max(1, len(text) - scene.rng.randint(1, int(scene.values[0])))])


def head_cut(answer: Answer, scene: Scene) -> Answer:
    return rewritten(answer, lambda text: text[scene.rng.randint(1, 2) :])


def overlap(answer: Answer, scene: Scene) -> Answer:
    """The last fragment begins with the three characters that were sent before it."""
    del scene

    def overlapped(text: str) -> str:
        cut = max(0, len(text) - 4)
        return text[:cut] + text[max(0, cut - 3) : cut] + text[cut:] if cut else text * 2

    return rewritten(answer, overlapped)


def value_cut(answer: Answer, scene: Scene) -> Answer:
    """Still JSON, but the longest value of each call lost its second half."""
    del scene

    def cut(arguments: dict[str, Any]) -> dict[str, Any]:
        lengths = {key: len(str(value)) for key, value in arguments.items() if isinstance(value, str | int | float)}
        longest = max(lengths, key=lambda key: lengths[key], default=None)
        return arguments if longest is None else arguments | {longest: _halved(arguments[longest])}

    return reobjected(answer, cut)


def markup_in_key(answer: Answer, scene: Scene) -> Answer:
    """`{"path</arg_key>": …}`: the parser took a tag for part of the key."""
    tag = scene.rng.choice(("</arg_key>", "</parameter"))
    return reobjected(answer, lambda arguments: {key + tag: value for key, value in arguments.items()})


def leak_in_args(answer: Answer, scene: Scene) -> Answer:
    mark = scene.rng.choice(('<|"|>', "</parameter>", "<|channel|>"))
    return revalued(answer, lambda value: f"{mark}{value}{mark}" if isinstance(value, str) else value)


def type_coerce(answer: Answer, scene: Scene) -> Answer:
    """Numbers, booleans and null become strings, strings of digits become numbers."""
    del scene

    def coerced(value: Any) -> Any:
        if isinstance(value, str):
            return int(value) if value.isascii() and value.isdigit() else value
        return json.dumps(value)

    return revalued(answer, coerced)


def value_trim(answer: Answer, scene: Scene) -> Answer:
    del scene
    return revalued(answer, lambda value: value.strip() if isinstance(value, str) else value)


def escape_u(answer: Answer, scene: Scene) -> Answer:
    r"""Non-ASCII text reaches the client as the six characters `\u65e5`, because it was escaped twice."""
    del scene
    return revalued(answer, lambda value: json.dumps(value)[1:-1] if isinstance(value, str) else value)


def html_escaped(answer: Answer, scene: Scene) -> Answer:
    """Content and arguments as for a web page: `&lt;` where the model wrote `<`."""
    del scene
    escaped = revalued(answer, lambda value: html.escape(value) if isinstance(value, str) else value)
    return replace(escaped, content=map(html.escape, answer.content))


def html_unescaped(answer: Answer, scene: Scene) -> Answer:
    """Arguments are read as a web page: `<` where the model wrote `&lt;`."""
    del scene
    return revalued(answer, lambda value: html.unescape(value) if isinstance(value, str) else value)


def int_rounded(answer: Answer, scene: Scene) -> Answer:
    """Integers went through a double: beyond 2^53 they lose their last digits, and half of them become 9.007e+15."""

    def rounded(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) <= _EXACT:
            return value
        return float(f"{value:.3e}") if scene.rng.random() < _SHORTENED_SHARE else int(float(value))

    return revalued(answer, rounded)


def wrong_schema(answer: Answer, scene: Scene) -> Answer:
    """Every value has the wrong type. A tool without arguments gets a list: an empty schema allows every object."""
    del scene

    def spoilt(arguments: dict[str, Any]) -> Any:
        return {k: json.dumps(v) if isinstance(v, dict) else {"value": v} for k, v in arguments.items()} or []

    return reobjected(answer, spoilt)


class Null(Edit):
    """`"arguments": null`, and no fragment after it."""

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        del number
        call["function"]["arguments"] = None
        return call if opens else None


class Merged(Edit):
    """Later calls have no beginning of their own: their arguments go on where the first call's ended."""

    _first: dict[str, Any] | None = None

    def call(self, call: dict[str, Any], number: int, *, opens: bool) -> dict[str, Any] | None:
        if number == 0:
            self._first = call
            return call
        arguments = call["function"]["arguments"]
        if self.scene.asked.streamed:
            return {"index": 0, "function": {"arguments": arguments}} if arguments or not opens else None
        if self._first is not None:
            self._first["function"]["arguments"] += arguments
        return None


class OneChunk(Edit):
    """Nothing of the arguments until they are complete: then all in one delta."""

    holds_opening = False
    holds_fragments: int | None = None
    """How many fragments are put together; None: all of them."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._held: dict[int, dict[str, Any]] = {}
        self._fragments: Counter[int] = Counter()

    def stream(self, events: list[Event]) -> list[Event]:
        return [each for event in events for each in self._gathered(event)]

    def _gathered(self, event: Event) -> Iterator[Event]:
        if isinstance(event, bytes) or not event.get("choices"):
            yield event
            return
        choice = event["choices"][0]["index"]
        fragment = bool(function_of(event)) and not opens_call(event)
        if fragment and self._fragments[choice] != self.holds_fragments:
            self._fragments[choice] += 1
            self._hold(choice, event)
            return
        if choice in self._held and (opens_call(event) or fragment or finishes(event)):
            yield self._held.pop(choice)
        if opens_call(event):
            self._fragments[choice] = 0
            if self.holds_opening:
                self._held[choice] = event
                return
        yield event

    def _hold(self, choice: int, event: dict[str, Any]) -> None:
        held = self._held.setdefault(choice, event)
        if held is not event:
            function_of(held)["arguments"] += function_of(event)["arguments"]


def _arguments_lost(number: int) -> Callable[[Answer, Scene], Answer]:
    """One call keeps its name only. Two calls in one step of the model make parsers do this: one alone is safe."""

    def lost(answer: Answer, scene: Scene) -> Answer:
        del scene
        if len(answer.calls) < 2:
            return answer
        calls = [replace(call, arguments="") if i == number else call for i, call in enumerate(answer.calls)]
        return replace(answer, calls=tuple(calls))

    return lost


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(each, function) for key, each in value.items()}
    if isinstance(value, list):
        return [_mapped(each, function) for each in value]
    return function(value)


def _halved(value: Any) -> Any:
    if isinstance(value, str):
        return value[: len(value) // 2]
    return value if isinstance(value, bool) else type(value)(value / 10)


def _fault(name: str, what: str, spoils: Callable[[Answer, Scene], Answer], *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.ARGS, Stage.ANSWER, what, spoils=spoils, needs=needs or (Need.CALL,), **more)


FAULTS = (
    _fault(
        "args-tail-cut",
        "arguments are no JSON: up to CHARACTERS at the end are missing",
        tail_cut,
        parameters=(Parameter("characters", 5),),
        aliases=("bad-tool-arguments",),
    ),
    _fault("args-head-cut", "arguments lack their first one or two characters", head_cut),
    _fault("args-extra-tail", "one closing brace too many", lambda answer, _: rewritten(answer, lambda t: t + "}")),
    _fault("args-doubled", "the arguments' object stands there twice", lambda a, _: rewritten(a, lambda t: t + t)),
    _fault("args-overlap", "the end of the arguments repeats three characters already sent", overlap, only=("stream",)),
    Fault(
        "args-merged",
        Group.ARGS,
        Stage.WIRE,
        "arguments of later calls are appended to those of the first",
        edits=Merged,
        needs=(Need.PARALLEL,),
    ),
    _fault("args-empty-str", "arguments are the empty string", lambda answer, _: rewritten(answer, lambda _: "")),
    _fault("args-empty-obj", "arguments are {}, whatever was asked", lambda a, _: rewritten(a, lambda _: "{}")),
    Fault("args-null", Group.ARGS, Stage.WIRE, "arguments are null", edits=Null, needs=(Need.CALL,)),
    _fault("args-value-cut", "arguments are JSON, but the longest value lost its second half", value_cut),
    _fault(
        "args-markup-in-key", 'a tag of the model\'s format ends up in the keys: {"path</arg_key>": …}', markup_in_key
    ),
    _fault("leak-in-args", "marks of the model's format stand inside string arguments", leak_in_args),
    _fault("type-coerce", "numbers become strings, strings of digits become numbers", type_coerce, Need.NUMBER),
    _fault("value-trim", "outer spaces of strings are gone", value_trim, Need.OUTER_SPACES, harm=Harm.WARN),
    _fault("escape-u", r"non-ASCII arguments arrive as literal \u65e5", escape_u, Need.NON_ASCII),
    _fault(
        "html-escaped", "content and arguments are escaped as for a web page: &lt; &quot;", html_escaped, Need.MARKUP
    ),
    _fault("html-unescaped", "arguments are read as a web page: < where &lt; was written", html_unescaped, Need.ENTITY),
    _fault("int-rounded", "integer arguments beyond 2^53 went through a float", int_rounded, Need.BIG_INTEGER),
    Fault(
        "args-one-chunk",
        Group.ARGS,
        Stage.WIRE,
        "arguments come late, all in one delta",
        edits=OneChunk,
        only=("stream",),
        harm=Harm.HEALTHY,
        needs=(Need.CALL,),
    ),
    _fault("first-args-lost", "of several calls the first has no arguments", _arguments_lost(0), Need.PARALLEL),
    _fault("second-args-lost", "of several calls the second has no arguments", _arguments_lost(1), Need.PARALLEL),
    _fault("wrong-schema-arguments", "arguments are JSON, but not what the schema asks for", wrong_schema),
)
