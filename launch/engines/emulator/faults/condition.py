"""What a fault can be made to depend on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Situation:
    """What a condition may ask about a request at the moment it is accepted."""

    number: int
    since_ready_s: float = 0.0
    running: int = 1
    streamed: bool = False
    thinking: bool = False
    has_switch: bool = True
    has_tools: bool = False
    choice: str = "auto"
    has_schema: bool = False
    sampled: bool = True
    turn: int = 1
    woken: bool = False
    cached: bool = False
    has_tool_turns: bool = False
    has_result: bool = False
    after_tool_result: bool = False
    longest_argument: int = 0
    """Characters of the longest arguments of a call that the healthy answer makes; 0 without calls."""


CONDITIONS: Mapping[str, Callable[[Situation, float], bool]] = MappingProxyType(
    {
        "stream": lambda s, _: s.streamed,
        "no-stream": lambda s, _: not s.streamed,
        "thinking": lambda s, _: s.thinking,
        "no-thinking": lambda s, _: not s.thinking,
        "switch": lambda s, _: s.has_switch,
        "tools": lambda s, _: s.has_tools,
        "required": lambda s, _: s.choice == "required",
        "named": lambda s, _: s.choice == "named",
        "schema": lambda s, _: s.has_schema,
        "sampled": lambda s, _: s.sampled,
        "tool-turns": lambda s, _: s.has_tool_turns,
        "result": lambda s, _: s.has_result,
        "after-tool-result": lambda s, _: s.after_tool_result,
        "cached": lambda s, _: s.cached,
        "woken": lambda s, _: s.woken,
        "turn": lambda s, n: s.turn >= n,
        "running": lambda s, n: s.running >= n,
        "argument": lambda s, n: s.longest_argument > n,
        "after-s": lambda s, n: s.since_ready_s >= n,
        "after-requests": lambda s, n: s.number > n,
    }
)
COUNTING = frozenset({"turn", "running", "argument", "after-s", "after-requests"})
"""Conditions that are spelled with a number."""
