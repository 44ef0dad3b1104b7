"""Rules for the calls of one answer: a tool that was offered, arguments that fit its schema, an id of its own."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonschema

from gates.toolwire import Breach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gates.reply import Reply
    from gates.toolwire import ToolCall


def breaches(reply: Reply, body: Mapping[str, Any]) -> list[Breach]:
    """Broken rules of the calls in `reply`.

    Where the engine has to constrain what the model writes (a forced choice, a strict tool) it answers for it;
    elsewhere a model may be wrong by itself.
    """
    offered = {name: function for function in _functions(body) if isinstance(name := function.get("name"), str)}
    forced = body.get("tool_choice") == "required" or isinstance(body.get("tool_choice"), dict)
    history = set(_history_ids(body))
    found = []
    for position, call in enumerate(reply.calls):
        if call.id and call.id in history:
            # Some models write the id themselves, made of the function's name and a number.
            said = f"tool call {position} has the id of a call in the history ({call.id})"
            found.append(Breach("P04" if reply.streamed else "P06", said, by_model=_written_by_model(call)))
        if cut(reply, position):
            continue
        function = offered.get(call.name)
        by_model = not (forced or (function is not None and function.get("strict") is True))
        problem = not_an_object(call.arguments)
        if problem is None and function is not None:
            problem = schema_problem(json.loads(call.arguments), function.get("parameters"))
        if problem is not None:
            # What a model writes can be wrong, but parsers make `{}` at least of it: an empty text is something lost.
            found.append(Breach("J20", problem, by_model=by_model and call.arguments != ""))
        if offered and call.name and function is None:
            said = f"the tool {call.name!r} was called; offered were {', '.join(offered)[:200]}"
            found.append(Breach("J25", said, by_model=not forced))
    return found


def cut(reply: Reply, position: int) -> bool:
    """Was this call cut in the middle, honestly so? Then its arguments may end anywhere."""
    return position == len(reply.calls) - 1 and (reply.finish_reason == "length" or not reply.complete)


def not_an_object(arguments: str) -> str | None:
    """Why `arguments` is not a JSON object, or None."""
    try:
        value = json.loads(arguments, object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return f"arguments are not JSON ({error}): {arguments[:120]!r}"
    return None if isinstance(value, dict) else f"arguments are JSON but no object: {arguments[:120]!r}"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values with one name some readers take the first and some the last (RFC 8259, 4)."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(name for name in names if names.count(name) > 1)!r} stands twice in an object"
        )
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def schema_problem(arguments: Any, schema: object) -> str | None:
    """How `arguments` break the declared `schema`, or None; also where no validator can work with the schema."""
    return _schema_problem(json.dumps(arguments), json.dumps(schema)) if isinstance(schema, dict) else None


# Asked twice of most calls: by the rule for every answer, and by the check that wanted the call.
@lru_cache(maxsize=256)
def _schema_problem(arguments: str, schema: str) -> str | None:
    try:
        validator = jsonschema.Draft202012Validator(json.loads(schema))
        error = next(iter(validator.iter_errors(json.loads(arguments))), None)
    except Exception:  # noqa: BLE001 - validators raise many things for odd schemas, and those say nothing about the answer
        return None
    if error is None:
        return None
    where = ".".join(str(part) for part in error.path) or "arguments"
    return f"arguments break their schema: {where}: {error.message[:200]}"


def _functions(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list | tuple) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            yield function


def _history_ids(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list | tuple) else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                yield call["id"]


def _written_by_model(call: ToolCall) -> bool:
    return bool(call.name) and call.name in call.id
