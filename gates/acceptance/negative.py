"""P09: requests that no client should send, and a question after each: is the engine still there?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import user
from gates.acceptance.check import Check, Overall, Sample
from gates.acceptance.plain import refused, unthinking
from gates.acceptance.survey import Surveyed, failed, passed
from gates.acceptance.tools import WEATHER
from gates.reply import read_reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.wire import Exchange

_TIMEOUT_S: Final = 30.0
_TOKENS: Final = 16
_DEEP: Final = 40
_BIG_LIST_BYTES: Final = 300_000
_SHOWN: Final = 5
_GONE_AFTER: Final = 2


@dataclass(frozen=True)
class _Bad:
    """One bad request. `must_refuse`: any other answer than 4xx is wrong, else a 200 with an answer will do."""

    name: str
    payload: bytes | Mapping[str, Any]
    must_refuse: bool = False


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    sample = unthinking(asker, Sample("P09", 0, around.seed, streamed=False, greedy=True))
    problems: list[str] = []
    evidence: list[Exchange] = []
    statuses: dict[str, int | None] = {}
    dead = 0
    for bad in requests(asker, sample, await context_tokens(asker)):
        if dead >= _GONE_AFTER:
            problems.append("the rest was not asked: the engine is gone")
            break
        exchange = await asker.raw("POST", "/v1/chat/completions", bad.payload, timeout_s=_TIMEOUT_S)
        statuses[bad.name] = exchange.status
        problem, after = problem_of(bad, exchange, asker), await asker.liveness(sample)
        dead = dead + 1 if after else 0
        if problem or after:
            problems.append(f"{bad.name}: {'; '.join(said for said in (problem, after) if said)}")
            evidence.append(exchange)
    if not problems:
        return passed(
            f"{len(statuses)} bad requests were answered in order, a plain question after each", statuses=statuses
        )
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return failed("; ".join(problems[:_SHOWN]) + more, *evidence[:_SHOWN], statuses=statuses)


def problem_of(bad: _Bad, exchange: Exchange, asker: Asker) -> str | None:
    """What is wrong with the answer to one bad request, or None."""
    if exchange.failure is not None:
        return exchange.failure.sentence
    if refused(exchange):
        return None
    if exchange.status != 200:
        return f"HTTP {exchange.status}; expected a refusal (4xx)"
    if bad.must_refuse:
        return "HTTP 200; expected a refusal (4xx)"
    reply = read_reply(exchange, streamed=False)
    if not reply.answered:
        return reply.breaches[0].sentence
    if bad.name == "history with broken arguments" and asker.capability.malformed_history == "refused":
        return "HTTP 200; the capability says malformed_history: refused"
    return None


async def context_tokens(asker: Asker) -> int | None:
    """How much the engine reads: as declared, else as it says on ``/v1/models``; None where nobody says."""
    if asker.capability.max_context_tokens is not None:
        return asker.capability.max_context_tokens
    exchange = await asker.raw("GET", "/v1/models", timeout_s=_TIMEOUT_S)
    try:
        entry = json.loads(exchange.body)["data"][0]
        length = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return length if isinstance(length, int) and length > 0 else None


def requests(asker: Asker, sample: Sample, context: int | None) -> Iterator[_Bad]:
    """Twenty or, where the engine's limit is known, twenty-one bad requests."""
    plain = asker.body(sample, "Hello.", max_tokens=_TOKENS)
    calling = plain | {"tools": [WEATHER], "tool_choice": "auto"}
    yield _Bad("unknown tool_choice", calling | {"tool_choice": "sometimes"})
    absent = {"type": "function", "function": {"name": "no_such_tool"}}
    yield _Bad("named tool that is not in the list", calling | {"tool_choice": absent})
    yield _Bad("empty list of tools", plain | {"tools": []})
    yield _Bad("tool name with a blank", plain | {"tools": [_tool(name="get the weather")]})
    yield _Bad("tool name of 80 letters", plain | {"tools": [_tool(name="w" * 80)]})
    choice = "required" if asker.capability.required else "auto"
    for name, schema in _SCHEMAS.items():
        yield _Bad(name, plain | {"tools": [_tool(schema)], "tool_choice": choice})
    yield _Bad("body that is no JSON", b'{"model": "x", "messages": [', must_refuse=True)
    function = {"name": "get_weather", "arguments": '{"city": "Par'}
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "Wthr4K7Q2", "type": "function", "function": function}],
    }
    answered = [user(sample, "Weather?"), turn, {"role": "tool", "tool_call_id": "Wthr4K7Q2", "content": "48"}]
    yield _Bad("history with broken arguments", calling | {"messages": answered})
    yield _Bad(
        "tool message without an id",
        calling | {"messages": [user(sample, "Weather?"), {"role": "tool", "content": "48"}]},
    )
    yield _Bad("unknown role", plain | {"messages": [{"role": "wizard", "content": "Hello."}]})
    yield _Bad("max_tokens 0", plain | {"max_tokens": 0})
    yield _Bad("max_tokens -1", plain | {"max_tokens": -1})
    odd = "{}{{%s}} \\ \\u00 \"'` <|im_end|> </tool_call> {% endif %} {{ x }}"
    yield _Bad("description full of signs", plain | {"tools": [_tool(description=odd)]})
    size = _BIG_LIST_BYTES // len(json.dumps(_tool(name="tool_000")))
    yield _Bad("300 KB of tools", plain | {"tools": [_tool(name=f"tool_{i:03}") for i in range(size)]})
    if context is not None:
        long = "word " * (context + context // 5)
        yield _Bad("prompt longer than the limit", plain | {"messages": [user(sample, long)]}, must_refuse=True)


def _tool(schema: Mapping[str, Any] | None = None, *, name: str = "get_weather", description: str = "Weather.") -> Any:
    parameters = schema or {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _holding(**city: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"city": city}, "required": ["city"]}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "schema of an unknown type": {"type": "banana"},
    "schema that refers to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "schema with pattern and format": _holding(type="string", pattern="^[A-Z]{3}$", format="date-time"),
    "schema with minItems": _holding(type="array", items={"type": "string"}, minItems=3, uniqueItems=True),
    "schema with oneOf": _holding(oneOf=[{"type": "string"}, {"type": "integer"}, {"not": {"type": "null"}}]),
    "schema of forty levels": _nested(_DEEP),
    "schema with a pattern that explodes": _holding(type="string", pattern="^((a+)+)+$"),
}

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="P09",
        name="bad requests",
        asks="Twenty-one requests that are wrong, odd or huge; a plain question after each.",
        holds="each is refused (4xx) or answered, never 5xx, a timeout or a dropped connection; the engine lives on",
        catches="one client's odd schema or broken history that kills the engine for all others",
        rule=Overall("no failure in 21 bad requests, nor of the question after each"),
        survey=_survey,
        destructive=True,
    ),
)
