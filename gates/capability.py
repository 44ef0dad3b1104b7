"""What a model and its engine are declared to be able to do. It decides which checks apply, never whether they pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from gates.strict import StrictModel, read_model

SWITCHES: Final[Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    "enable_thinking": (
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "thinking": ({"chat_template_kwargs": {"thinking": True}}, {"chat_template_kwargs": {"thinking": False}}),
    "thinking_mode": (
        {"chat_template_kwargs": {"thinking_mode": "enabled"}},
        {"chat_template_kwargs": {"thinking_mode": "disabled"}},
    ),
    "reasoning_effort": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}),
}


class Capability(StrictModel):
    """The `capability` of a topology. What is not declared is not checked, and reported as skipped."""

    tools: bool = True
    thinking: Literal["none", "always", "switch"] | None = None
    thinking_switch: Literal["enable_thinking", "thinking", "thinking_mode", "reasoning_effort"] = "enable_thinking"
    """How the switch is spelled: Qwen and GLM, DeepSeek and Kimi, MiniMax, or OpenAI's effort."""
    interleaved_reasoning: bool = False
    """The model may think again after content or a call has begun."""
    required: bool = False
    """`tool_choice: required` is supported."""
    parallel_calls: bool = False
    named: bool = False
    """`tool_choice` may name a function."""
    json_schema: bool = False
    keeps_reasoning: bool = False
    """The reasoning of earlier turns of a chain of tool calls stays in the prompt."""
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    finish_named: Literal["stop", "tool_calls", "any"] = "any"
    """How an answer ends whose function was named: vLLM says stop, as OpenAI does; SGLang and smg say tool_calls."""
    finish_required: Literal["stop", "tool_calls", "any"] = "any"
    """How an answer ends that had to call something: tool_calls nearly everywhere; vLLM before 0.12 says stop where
    it does not stream."""
    malformed_history: Literal["refused", "coerced"] | None = None
    """What becomes of a history whose arguments are no JSON object: an error, or silently something else."""
    foreign_ids: Literal["accepted", "refused"] | None = None
    """May the history hold call ids that another engine made?"""
    max_context_tokens: int | None = Field(default=None, gt=0)
    max_running: int | None = Field(default=None, gt=0)
    """How many requests the engine runs at once, all instances together: load checks go up to twice as many."""
    prefix_caching: bool = False
    """The engine caches prefixes: a run that never sees a hit could not judge the cache."""

    @property
    def thinking_on(self) -> Mapping[str, Any]:
        """Request keys that switch thinking on."""
        return SWITCHES[self.thinking_switch][0]

    @property
    def thinking_off(self) -> Mapping[str, Any]:
        """Request keys that switch thinking off."""
        return SWITCHES[self.thinking_switch][1]

    @property
    def may_think(self) -> bool:
        """Without a switch that is thrown, an answer may have to think first and needs room for it."""
        return self.thinking != "none"

    def room(self, tokens: int) -> int:
        """As many tokens of answer as were wanted, or half of the context: the question needs the rest."""
        return tokens if self.max_context_tokens is None else min(tokens, max(1, self.max_context_tokens // 2))


def read_capability(mapping: Mapping[str, Any]) -> Capability:
    """Raises `GateUsageError` for a key that is not known."""
    return read_model(Capability, mapping, "capability")
