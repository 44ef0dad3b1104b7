"""The tools that checks offer, and the values they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

Tool = Mapping[str, Any]


def tool(name: str, description: str, properties: Mapping[str, Any] | None = None, *optional: str) -> Tool:
    """A function tool; every property that is not in `optional` is required."""
    properties = properties or {}
    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_TEXT: Final = {"type": "string"}

WEATHER: Final = tool(
    "get_weather",
    "Current weather of a city.",
    {"city": _TEXT, "unit": {"type": "string", "enum": ["c", "f"]}},
    "unit",
)
CLOCK: Final = tool("get_server_time", "The server's current time.")
RECORD: Final = tool("lookup_record", "Looks up a record by its id.", {"record_id": _TEXT})
SAVE: Final = tool("save_file", "Saves a text under a path.", {"path": _TEXT, "text": _TEXT})
EVENT: Final = tool(
    "create_event",
    "Puts an event into the calendar.",
    {
        "title": _TEXT,
        "start": {"type": "string", "description": "ISO 8601"},
        "attendees": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": _TEXT, "email": _TEXT},
                "required": ["name", "email"],
                "additionalProperties": False,
            },
        },
        "location": {
            "type": "object",
            "properties": {"city": _TEXT, "room": _TEXT},
            "required": ["city", "room"],
            "additionalProperties": False,
        },
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "notify": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
    "attendees",
    "location",
    "priority",
    "notify",
    "note",
)
RUN: Final = tool("run", "Runs a command.", {"cmd": _TEXT})
RUN_IN_TERMINAL: Final = tool("run_in_terminal", "Runs a command in a terminal.", {"cmd": _TEXT, "cwd": _TEXT})
PRICE: Final = tool(
    "set_price",
    "Sets the price of an article.",
    {"sku": _TEXT, "price": {"type": "number"}, "qty": {"type": "integer"}},
)

CITIES: Final = (
    "Kraków", "Lisbon", "Osaka", "Nairobi", "Reykjavík", "Montevideo", "Tallinn", "Adelaide", "Marrakesh", "Vancouver",
    "Zürich", "Bergen", "Porto", "Quito", "Helsinki", "Mombasa", "Sapporo", "Valparaíso", "Tbilisi", "Ghent",
    "Ljubljana", "Cardiff", "Málaga", "Hanoi", "Windhoek", "Trondheim", "Gdańsk", "Aarhus", "Nagoya", "Salvador",
    "Perth", "Utrecht",
)  # fmt: skip


def named(offered: Tool) -> str:
    """The function's name."""
    name: str = offered["function"]["name"]
    return name


def schema_of(offered: Tool) -> Mapping[str, Any]:
    """The declared parameters."""
    parameters: Mapping[str, Any] = offered["function"].get("parameters") or {"type": "object"}
    return parameters


def temperature(rng: Random) -> str:
    """A value nobody can guess, with two decimals that no rounding leaves alone: 48.37, never 48.30."""
    return f"{rng.randrange(41, 59)}.{rng.randrange(1, 9)}{rng.randrange(1, 10)}"


def code(rng: Random) -> str:
    """Six digits."""
    return str(rng.randrange(100_000, 1_000_000))


def record_id(rng: Random) -> str:
    """With leading zeros, so that a number would not do: `004711-BX`."""
    return f"00{rng.randrange(1000, 10_000)}-{rng.choice('ABCDEFGH')}X"
