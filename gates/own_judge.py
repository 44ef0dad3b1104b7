"""Is the answer to a request of a user's own set what its line expects? In words; nothing is remembered."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gates import markers
from gates.invariants import not_an_object
from gates.json_schemas import mismatch
from gates.patience import RunawayError, computing_limit

if TYPE_CHECKING:
    from gates.own_set import Expect, Item
    from gates.reply import Reply
    from gates.toolwire import ToolCall


LIMIT_S: Final = 2.0
"""Of computing, for one answer; a sound expectation takes milliseconds on the longest one."""


def judged(item: Item, reply: Reply, limit_s: float = LIMIT_S) -> str | None:
    """`problem` within `limit_s` of computing. Raises `RunawayError`, whose sentence names the item.

    A regular expression of the user's may take for ever on some texts: no fault of the engine's, and nothing that
    should cost the other items their turn.
    """
    try:
        with computing_limit(limit_s):
            return problem(item, reply)
    except RunawayError as error:
        what = str(error) or "what it expects"
        raise RunawayError(
            f"{item.id}: {what} could not be judged within {limit_s:g} s of computing; the answer was "
            f"{_short(reply.content)}. Rewrite the expectation of this line: repetitions within repetitions explode"
        ) from None


def problem(item: Item, reply: Reply) -> str | None:
    """What is wrong with `reply` as the answer to `item`, in one sentence; None when nothing is."""
    broken = next((breach.sentence for breach in reply.breaches if breach.rule == "P08"), None)
    if broken or not reply.answered:
        return broken or (reply.breaches[0].sentence if reply.breaches else "there is no answer")
    expect = item.expect
    found = _calls_problem(item, reply) or _content_problem(expect, reply)
    if found and reply.finish_reason == "length" and expect.finish != "length":
        return f"{found} (the answer reached max_tokens)"
    if found is None and expect.finish is not None and reply.finish_reason != expect.finish:
        return f"finish_reason is {reply.finish_reason}; expected {expect.finish}"
    return found


def _calls_problem(item: Item, reply: Reply) -> str | None:
    """Every call must be one that a client can carry out, and the expected one must be among them."""
    if item.expect.no_tool and reply.calls:
        return f"{_named(reply.calls)} was called; expected no call"
    for call in reply.calls:
        wrong = _call_problem(item, call)
        if wrong:
            return wrong
    name = item.expect.called
    if name is None:
        return None
    mine = [call for call in reply.calls if call.name == name]
    if not mine:
        return f"{_named(reply.calls)} was called; expected {name}" if reply.calls else _no_call(name, reply)
    differences = [difference(item.expect.arguments or {}, json.loads(call.arguments)) for call in mine]
    return None if None in differences else f"{name} was called with other arguments: {differences[0]}"


def _call_problem(item: Item, call: ToolCall) -> str | None:
    parameters = item.parameters(call.name)
    if parameters is None:
        return f"the tool {call.name!r} was called, which was not on offer"
    wrong = not_an_object(call.arguments)
    if wrong:
        return f"{call.name}: {wrong}"
    wrong = mismatch(json.loads(call.arguments), parameters)
    return f"{call.name}: arguments break their schema: {wrong}" if wrong else None


def _named(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(call.name for call in calls)


def _no_call(name: str, reply: Reply) -> str:
    for where, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        marker = markers.found(text, markers.TOOLS)
        if marker:
            return f"{name} was not called: a call was left in the {where} as text ({marker})"
    said = f"the answer was {_short(reply.content)}" if reply.content.strip() else "the answer is empty"
    return f"{name} was not called; {said}"


def difference(expected: Any, given: Any, path: str = "") -> str | None:
    """Where `given` is not `expected`; objects may hold more keys than expected. None when nothing differs."""
    if isinstance(expected, Mapping) and isinstance(given, Mapping):
        for key, value in expected.items():
            inner = f"{path}.{key}" if path else str(key)
            if key not in given:
                return f"{inner} is missing; expected {value!r:.80}"
            found = difference(value, given[key], inner)
            if found:
                return found
        return None
    if isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        pairs = enumerate(zip(expected, given, strict=True))
        return next((found for i, (a, b) in pairs if (found := difference(a, b, f"{path}[{i}]"))), None)
    if isinstance(expected, str) and isinstance(given, str):
        same = _composed(expected) == _composed(given)
    else:
        # In JSON 1 is 1.0, and true is no number.
        same = isinstance(expected, bool) is isinstance(given, bool) and expected == given
    return None if same else f"{path or 'value'} is {given!r:.80}; expected {expected!r:.80}"


def _content_problem(expect: Expect, reply: Reply) -> str | None:
    content = _composed(reply.content)
    for text in expect.contains:
        if _composed(text) not in content:
            return f"the answer does not contain {text!r}{_hidden(text, reply)}; it was {_short(content)}"
    for text in expect.not_contains:
        if _composed(text) in content:
            return f"the answer contains {text!r}: {_short(content[max(0, content.index(_composed(text)) - 40) :])}"
    for pattern in expect.regex:
        if not _found(pattern, content):
            return f"the answer does not match {pattern!r}; it was {_short(content)}"
    return None if expect.json_schema is None else _json_problem(content, expect.json_schema)


def _found(pattern: str, content: str) -> bool:
    try:
        return re.search(pattern, content) is not None
    except RunawayError:
        raise RunawayError(f"the regular expression {pattern!r}") from None


def _json_problem(content: str, schema: Mapping[str, Any]) -> str | None:
    try:
        value = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        fenced = "it stands in a code fence; " if content.lstrip().startswith("```") else ""
        return f"the answer is not JSON ({error}); {fenced}it was {_short(content)}"
    wrong = mismatch(value, schema)
    return f"the answer breaks its JSON schema: {wrong}" if wrong else None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _hidden(text: str, reply: Reply) -> str:
    return " (it is in the reasoning)" if _composed(text) in _composed(reply.reasoning) else ""


def _composed(text: str) -> str:
    # é may be one sign or two, and looks the same to whoever wrote the expectation.
    return unicodedata.normalize("NFC", text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line) if len(line) <= 160 else f"{line[:160]!r} …"
