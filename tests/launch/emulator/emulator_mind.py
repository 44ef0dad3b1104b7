"""The pseudo model without its server: a request in, its answer out."""

import json
from dataclasses import dataclass
from typing import Any

from launch.engines.emulator.__main__ import build_parser, settings_from
from launch.engines.emulator.mind import answer
from launch.engines.emulator.request import read_chat


@dataclass(frozen=True)
class Said:
    content: str
    reasoning: str
    calls: list[tuple[str, Any]]


def tool(name: str, properties: dict[str, Any] | None = None, optional: tuple[str, ...] = (), what: str = "") -> Any:
    properties = properties or {}
    required = [key for key in properties if key not in optional]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": schema}}


TEXT = {"type": "string"}
WEATHER = tool(
    "get_weather",
    {"city": TEXT, "unit": {"type": "string", "enum": ["c", "f"]}},
    ("unit",),
    "Current weather of a city.",
)
CLOCK = tool("get_server_time", {}, (), "The server's current time.")
RECORD = tool("lookup_record", {"record_id": TEXT}, (), "Looks up a record by its id.")
SAVE = tool("save_file", {"path": TEXT, "text": TEXT}, (), "Saves a text under a path.")
PRICE = tool(
    "set_price",
    {"sku": TEXT, "price": {"type": "number"}, "qty": {"type": "integer"}},
    (),
    "Sets the price of an article.",
)
PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "email": TEXT},
    "required": ["name", "email"],
    "additionalProperties": False,
}
EVENT = tool(
    "create_event",
    {
        "title": TEXT,
        "start": {"type": "string", "description": "ISO 8601"},
        "attendees": {"type": "array", "items": PERSON},
        "location": {
            "type": "object",
            "properties": {"city": TEXT, "room": TEXT},
            "required": ["city", "room"],
            "additionalProperties": False,
        },
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "notify": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
    ("attendees", "location", "priority", "notify", "note"),
    "Puts an event into the calendar.",
)
RUN = tool("run", {"cmd": TEXT}, (), "Runs a command.")
RUN_IN_TERMINAL = tool("run_in_terminal", {"cmd": TEXT, "cwd": TEXT}, (), "Runs a command in a terminal.")
ALL = [WEATHER, CLOCK, RECORD, SAVE, PRICE, EVENT]


def flags(*words: str) -> Any:
    return settings_from(build_parser().parse_args(words))


USUAL = flags()


def say(text: str | list[Any], *tools: Any, settings: Any = USUAL, **fields: Any) -> Said:
    """The answer to a message, or to a whole conversation."""
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    body: dict[str, Any] = {"messages": messages, **fields}
    if tools:
        body["tools"] = list(tools)
    said = answer(read_chat(json.dumps(body).encode(), settings), settings)
    return Said(
        "".join(said.content),
        "".join(said.reasoning),
        [(call.name, json.loads(call.arguments)) for call in said.calls],
    )


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def calling(*calls: tuple[str, Any], content: str | None = None, ids: tuple[str, ...] = (), **fields: Any) -> Any:
    """An assistant message that calls; its ids are c0, c1 … unless given."""
    listed = [
        {
            "id": ids[number] if ids else f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": listed, **fields}


def result(content: Any, call_id: str = "c0") -> Any:
    text = content if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call_id, "content": text}
