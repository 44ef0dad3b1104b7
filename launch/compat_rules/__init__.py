"""The table of known incompatibilities, one file per engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.compat_rules import every, llamacpp, sglang, sglang_pipeline, vllm

if TYPE_CHECKING:
    from launch.compat import Rule

RULES: tuple[Rule, ...] = (
    *vllm.RULES,
    *sglang_pipeline.RULES,
    *sglang.RULES,
    *llamacpp.RULES,
    *every.RULES,
)
