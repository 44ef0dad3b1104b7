"""The questions of the gate `toolcalls`: a prompt, the tools on offer, the call that is right, the result it gets.

Every case is made anew for every run: parser faults depend on the text, so another city finds more than another seed,
and a result that nobody can guess must come back or the engine never saw it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gates.strict import StrictModel

if TYPE_CHECKING:
    from collections.abc import Callable

CITIES: Final = (
    "Kraków",
    "Lisbon",
    "Osaka",
    "Nairobi",
    "Reykjavík",
    "Montevideo",
    "Tallinn",
    "Adelaide",
    "Marrakesh",
    "Vancouver",
    "Zürich",
    "Bergen",
)


@dataclass(frozen=True)
class Case:
    """One question. `canary` must be in the answer to the tool's `result`; without one there is no second turn."""

    name: str
    prompt: str
    tools: tuple[Mapping[str, Any], ...]
    called: str
    expected: Mapping[str, Any]
    result: str = ""
    canary: str = ""

    @property
    def feedback_id(self) -> str:
        """The id of the check on the second turn."""
        return self.name.replace("J01", "F01", 1) if self.name.startswith("J01") else f"F01.{self.name}"

    def schema(self, tool: str) -> Mapping[str, Any] | None:
        """The declared parameters of `tool`; None when it was not on offer."""
        for offered in self.tools:
            function = offered["function"]
            if function["name"] == tool:
                parameters: Mapping[str, Any] = function.get("parameters") or {"type": "object"}
                return parameters
        return None


class OwnCase(StrictModel):
    """A user's own case in a profile. ``{canary}`` in `result` becomes six digits that must come back."""

    ask: str
    tool: Mapping[str, Any]
    expect: Mapping[str, Any] = Field(default_factory=dict)
    result: str = ""


def _tool(name: str, description: str, properties: Mapping[str, Any], required: list[str]) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER: Final = _tool(
    "get_weather",
    "Current weather of a city.",
    {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
    ["city"],
)
RECORD: Final = _tool("lookup_record", "Looks up a record by its id.", {"record_id": {"type": "string"}}, ["record_id"])
CLOCK: Final = _tool("get_server_time", "The server's current time.", {}, [])


def weather() -> Case:
    city = secrets.choice(CITIES)
    # Two decimals that no rounding leaves alone: 48.37, never 48.30.
    temperature = f"{secrets.randbelow(18) + 41}.{secrets.randbelow(8) + 1}{secrets.randbelow(9) + 1}"
    return Case(
        name="J01",
        prompt=f"[ref {nonce()}] What is the weather in {city} right now? Use the tool, unit c.",
        tools=(WEATHER,),
        called="get_weather",
        expected={"city": city},
        result=json.dumps({"temp_c": float(temperature), "sky": "dust haze"}),
        canary=temperature,
    )


def record() -> Case:
    record_id = f"00{secrets.randbelow(9000) + 1000}-{secrets.choice('ABCDEFGH')}X"
    code = str(secrets.randbelow(900_000) + 100_000)
    return Case(
        name="J01.choice",
        prompt=f"[ref {nonce()}] Look up record {record_id} with the tool and tell me its code.",
        tools=(CLOCK, WEATHER, RECORD),
        called="lookup_record",
        expected={"record_id": record_id},
        result=json.dumps({"record": record_id, "code": int(code)}),
        canary=code,
    )


def clock() -> Case:
    return Case(
        name="J02",
        prompt=f"[ref {nonce()}] What time is it on the server? Use the tool.",
        tools=(CLOCK,),
        called="get_server_time",
        expected={},
    )


BUILT_IN: Final[Mapping[str, Callable[[], Case]]] = {"weather": weather, "record": record, "clock": clock}


def own(case: OwnCase, number: int) -> Callable[[], Case]:
    """A maker of a user's case."""

    def make() -> Case:
        canary = str(secrets.randbelow(900_000) + 100_000) if "{canary}" in case.result else ""
        function = case.tool.get("function", case.tool)
        return Case(
            name=f"own.{number}",
            prompt=f"[ref {nonce()}] {case.ask}",
            tools=({"type": "function", "function": function},),
            called=str(function.get("name", "")),
            expected=case.expect,
            result=case.result.replace("{canary}", canary),
            canary=canary,
        )

    return make


def nonce() -> str:
    """Defeats response and prefix caches, and tells one request from another."""
    token = secrets.token_hex(3).upper()
    return f"{token[:3]}-{token[3:]}"
