"""The emulated engine: an OpenAI server without a model, for demos, rehearsals and tests."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base, llamacpp, sglang
from launch.engines.sleeping import EMULATED_SGLANG, VLLM, Sleeping
from launch.engines.vllm import KV_POOL_LOG, KV_POOL_METRICS, METRICS

if TYPE_CHECKING:
    from launch.told import Told
    from launch.topology import Topology


class Emulated(base.Engine):
    """``cutover emulate`` as an engine; it speaks vLLM's dialect unless its flags say otherwise."""

    name = "emulator"
    needs_model = False
    default_command = (sys.executable, "-m", "launch.engines.emulator")
    known_commands = frozenset({("python", "-m", "launch.engines.emulator"), ("cutover", "emulate")})
    package = "launch"
    metrics = METRICS
    kv_pool_log = KV_POOL_LOG
    kv_pool_metrics = (*KV_POOL_METRICS, *sglang.KV_POOL_METRICS)
    running_flags = ("--slots",)
    owned_flags: ClassVar[Mapping[str, str]] = {
        "--host": "the address is chosen per attempt; remove it",
        "--port": "the port is chosen per attempt; remove it",
        "--model": "write the name into the key serves",
    }

    def key_variables(self, flags: Sequence[str]) -> tuple[str, ...] | None:
        """The variable that its flags name; it guards /v1."""
        name = base.flag_value(flags, "--api-key-env")
        return None if name is None else (name,)

    def port_count(self, flags: Sequence[str]) -> int:  # noqa: ARG002
        """Only the main one."""
        return 1

    def sleeping(self, told: Told) -> Sleeping | None:
        """Always, as the engine whose dialect it speaks; llama.cpp has no sleep."""
        dialect = told.value("--dialect") or "vllm"
        if dialect == "llamacpp":
            return None
        return VLLM if dialect.startswith("vllm") else EMULATED_SGLANG

    def gpus_wanted(self, flags: Sequence[str]) -> int | None:
        """The tensor parallel size it claims, where it claims one."""
        return base.flag_number(flags, 1, "--tp") if base.has_flag(flags, "--tp") else None

    def metrics_for(self, flags: Sequence[str]) -> base.MetricNames | None:
        """The names of the engine whose dialect it speaks; behind smg that is SGLang."""
        dialect = base.flag_value(flags, "--dialect")
        if dialect == "llamacpp":
            return llamacpp.LlamaCpp.metrics
        return sglang.METRICS if dialect in ("sglang", "smg") else METRICS

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:
        """Served names and address."""
        return (
            ("--model", *topology.serves),
            ("--host", base.HOST),
            ("--port", base.PORT),
        )
