"""Messages and tools of a request, read from its JSON; whatever a template could not render is refused here."""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import BadRequest
from .schema import check_schema

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
# Agents send the same tools with every request: those whose schemas were found good are not checked again.
_known_good: set[str] = set()
_MOST_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool on offer. `listing` is the JSON with which a prompt presents it, and holds all the rest."""

    name: str
    description: str
    schema: dict[str, Any] = field(compare=False)
    listing: str


@dataclass(frozen=True, slots=True)
class HistoricCall:
    """A call in an earlier assistant message. `arguments` is a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `absent`: its content was null or missing, which a template must not write as a word."""

    role: str
    text: str
    calls: tuple[HistoricCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""
    absent: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What the client allows or demands."""

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""

    @property
    def forced(self) -> bool:
        return self.mode in ("required", "named")


def read_messages(value: Any, reasoning_fields: tuple[str, ...]) -> tuple[Message, ...]:
    """The conversation; reasoning of earlier turns is looked for under these names."""
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a non-empty list", "messages")
    return tuple(_message(item, f"messages[{index}]", reasoning_fields) for index, item in enumerate(value))


def read_tools(value: Any) -> tuple[Tool, ...]:
    """The tools; their schemas are checked."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    return tuple(_tool(item, f"tools[{index}]") for index, item in enumerate(value))


def read_choice(value: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    """The tool choice; what is forced has to be on offer."""
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if value not in ("none", "auto", "required") and not isinstance(value, dict):
        raise BadRequest("tool_choice must be none, auto, required or a named function", "tool_choice")
    if value == "none" or (value == "auto" and not tools):
        return ToolChoice("none")
    if not tools:
        raise BadRequest("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if not isinstance(value, dict):
        return ToolChoice(value)
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in {tool.name for tool in tools}:
        raise BadRequest(f"The tool specified in `tool_choice` does not match any of `tools`: {name!r}", "tool_choice")
    return ToolChoice("named", name)


def _message(value: Any, where: str, reasoning_fields: tuple[str, ...]) -> Message:
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        raise BadRequest(f"{where} must be an object with a role of {', '.join(sorted(_ROLES))}", where)
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list):
        raise BadRequest(f"{where}.tool_calls must be a list", where)
    tool_call_id = value.get("tool_call_id")
    if value["role"] == "tool" and (not isinstance(tool_call_id, str) or not tool_call_id):
        raise BadRequest(f"{where}: a message of role tool needs the tool_call_id of its call", where)
    thoughts = (value.get(name) for name in reasoning_fields)
    return Message(
        role=value["role"],
        text=_text(value.get("content"), where),
        calls=tuple(_historic_call(call, where) for call in calls),
        tool_call_id=tool_call_id if isinstance(tool_call_id, str) else "",
        reasoning=next((thought for thought in thoughts if isinstance(thought, str)), ""),
        absent=value.get("content") is None,
    )


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text") or "") for part in content)
    raise BadRequest(f"{where}.content must be a string, null or a list of parts", where)


def _historic_call(value: Any, where: str) -> HistoricCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"{where}.tool_calls must hold objects with a function and its name", where)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        raise BadRequest(f"{where}.tool_calls: arguments must be a string of JSON", where)
    return HistoricCall(str(value.get("id") or ""), function["name"], _as_rendered(arguments, where))


def _as_rendered(arguments: str, where: str) -> str:
    """Arguments as a template writes them: parsed and serialised again. Nothing at all stands for no arguments."""
    try:
        parsed = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where}.tool_calls: arguments are no JSON: {error}", where) from None
    if not isinstance(parsed, dict):
        raise BadRequest(f"{where}.tool_calls: arguments must be a JSON object, not {arguments[:40]!r}", where)
    return json.dumps(parsed, ensure_ascii=False)


def _tool(value: Any, where: str) -> Tool:
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f'{where} must be {{"type": "function", "function": {{"name": …}}}}', where)
    if not _TOOL_NAME.fullmatch(function["name"]):
        shown = function["name"][:80]
        raise BadRequest(f"{where}.function.name must be 1 to 64 letters, digits, _ . or -, not {shown!r}", where)
    name, description = function["name"], str(function.get("description") or "")
    schema = function.get("parameters")
    shown = {"name": name, "description": description, "parameters": schema or _ANY_OBJECT}
    listing = json.dumps({"type": "function", "function": shown}, ensure_ascii=False)
    if schema is not None and listing not in _known_good:
        check_schema(schema, f"{where}.function.parameters")
        if len(_known_good) >= _MOST_KNOWN:
            _known_good.clear()
        _known_good.add(listing)
    return Tool(name, description, schema or _ANY_OBJECT, listing)
