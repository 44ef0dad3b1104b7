"""What a model and its engine are declared to be able to do. It decides which checks apply, never whether they pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from gates.strict import StrictModel, read_model

_SWITCHES: Final[Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    "enable_thinking": (
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "thinking": ({"chat_template_kwargs": {"thinking": True}}, {"chat_template_kwargs": {"thinking": False}}),
    "reasoning_effort": ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}),
}


class Capability(StrictModel):
    """The `capability` of a topology. What is not declared is not checked, and reported as skipped."""

    tools: bool = True
    thinking: Literal["none", "always", "switch"] | None = None
    thinking_switch: Literal["enable_thinking", "thinking", "reasoning_effort"] = "enable_thinking"
    """How the switch is spelled: Qwen and GLM, DeepSeek and Kimi, or OpenAI's effort."""
    required: bool = False
    """`tool_choice: required` is supported."""
    parallel_calls: bool = False
    named: bool = False
    json_schema: bool = False
    keeps_reasoning: bool = False
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    max_context_tokens: int | None = Field(default=None, gt=0)

    @property
    def thinking_on(self) -> Mapping[str, Any]:
        """Request keys that switch thinking on."""
        return _SWITCHES[self.thinking_switch][0]

    @property
    def thinking_off(self) -> Mapping[str, Any]:
        """Request keys that switch thinking off."""
        return _SWITCHES[self.thinking_switch][1]

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
