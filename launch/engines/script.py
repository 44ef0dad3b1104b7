"""A start script of the user's own; docs/launch-contract.md says what it must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base
from launch.engines.vllm import KV_POOL_LOG, KV_POOL_METRICS, METRICS

if TYPE_CHECKING:
    from launch.topology import Topology


class Script(base.Engine):
    """The script's text becomes part of the release; its server is read as vLLM's until it says otherwise."""

    name = "script"
    needs_model = False
    default_command = ()
    metrics = METRICS
    kv_pool_log = KV_POOL_LOG
    kv_pool_metrics = KV_POOL_METRICS
    abbreviates = False
    owned_flags: ClassVar[Mapping[str, str]] = {}

    def key_variables(self, flags: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """What it makes of the variable of the launch contract is the script's own affair."""
        return ()

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:  # noqa: ARG002
        """Nothing: the script gets the flags of the topology as its own."""
        return ()
