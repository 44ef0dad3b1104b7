"""SGLang's launch_server.

Internal ports: one for torch's rendezvous (``--nccl-port``); everything else is Unix sockets, except under data
parallel attention, where seven TCP ports count up from ``--dist-init-addr``. SGLANG_GRPC_PORT is left alone on
purpose: setting it turns a second server on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base
from launch.engines.sleeping import SGLANG, Sleeping

if TYPE_CHECKING:
    from launch.told import Told
    from launch.topology import Topology

METRICS = base.MetricNames(
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    generation_tokens_total="sglang:generation_tokens_total",
    prompt_tokens_total="sglang:prompt_tokens_total",
    preemptions_total="sglang:num_retracted_reqs",
    kv_usage_ratio="sglang:token_usage",
    cached_tokens_total="sglang:cached_tokens_total",
    # The first moves at every log interval, chunked prefill included; the others only when a request finishes.
    progress=("sglang:realtime_tokens_total", "sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
)
KV_POOL_METRICS = (base.PoolMetric("sglang:max_total_num_tokens"),)

_PLAIN_HTTP = "the front door and the probes speak plain HTTP on the loopback address; remove it"


class Sglang(base.Engine):
    """SGLang started as its module, or as ``sglang serve``."""

    name = "sglang"
    default_command = ("python3", "-m", "sglang.launch_server")
    known_commands = frozenset({("python", "-m", "sglang.launch_server"), ("sglang", "serve")})
    package = "sglang"
    served_names_max = 1
    metrics = METRICS
    metrics_flag = "--enable-metrics"
    kv_pool_log = re.compile(r"max_total_num_tokens=(?P<tokens>\d+)")
    kv_pool_metrics = KV_POOL_METRICS
    running_flags = ("--max-running-requests",)
    owned_flags: ClassVar[Mapping[str, str]] = {
        "--host": "the address is chosen per attempt; remove it",
        "--port": "the port is chosen per attempt; remove it",
        "--model-path": "write the model into the key model",
        "--model": "write the model into the key model",
        "--served-model-name": "write the name into the key serves",
        "--config": "a file of flags would hide them from the release; write them into flags",
        "--base-gpu-id": "the GPUs are chosen per attempt; remove it",
        "--gpu-id-step": "the GPUs are chosen per attempt; remove it",
        "--api-key": base.IN_ARGV
        + ", and it reads a key from nowhere else: leave it out; it listens on the loopback only",
        "--admin-api-key": base.IN_ARGV + "; leave it out: the front door passes no admin path",
        "--ssl-keyfile": _PLAIN_HTTP,
        "--ssl-certfile": _PLAIN_HTTP,
        "--ssl-keyfile-password": base.SECRET_IN_ARGV,
    }
    admin_flags: ClassVar[Mapping[str, str]] = {
        "--trust-remote-code": "runs Python code from the model folder",
        "--tool-server": "lets the server call tools",
        "--enable-custom-logit-processor": "runs Python code that requests bring along",
        "--custom-weight-loader": "loads Python code",
        "--forward-hooks": "loads Python code",
        "--grpc-port": "opens a second server",
        "--smg-grpc-mode": "opens another kind of server",
    }
    admin_env: ClassVar[Mapping[str, str]] = {
        "SGLANG_EXTERNAL_MODEL_PACKAGE": "loads Python code",
        "SGLANG_GRPC_PORT": "opens a second server",
        "SGLANG_PLUGINS": "chooses the plugins that are loaded",
    }

    def sleeping(self, told: Told) -> Sleeping | None:
        """Only with the memory saver, and with a copy of the weights in host memory: without it they are lost."""
        return SGLANG if told.has("--enable-memory-saver") and told.has("--enable-weights-cpu-backup") else None

    def gpus_wanted(self, flags: Sequence[str]) -> int | None:
        """Tensor times pipeline times data parallel size; data parallel attention shares the tensor ranks."""
        data_parallel = base.flag_number(flags, 1, "--dp-size", "--data-parallel-size", "--dp")
        return base.product_of(
            (
                base.flag_number(flags, 1, "--tp-size", "--tensor-parallel-size", "--tp"),
                base.flag_number(flags, 1, "--pp-size", "--pipeline-parallel-size", "--pp"),
                1 if base.has_flag(flags, "--enable-dp-attention") else data_parallel,
            ),
        )

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:
        """Model, name, address, and internal ports where the flags do not choose them."""
        lines: list[base.Line] = [
            ("--model-path", str(topology.model)),
            ("--served-model-name", topology.serves[0]),
            ("--host", base.HOST),
            ("--port", base.PORT),
        ]
        if not base.has_flag(topology.flags, "--nccl-port"):
            lines.append(("--nccl-port", base.FIRST_INTERNAL_PORT))
        counts_up = base.has_flag(topology.flags, "--enable-dp-attention")
        if counts_up and not base.has_flag(topology.flags, "--dist-init-addr"):
            lines.append(("--dist-init-addr", base.Expand("127.0.0.1:$((internal_port + 1))")))
        return tuple(lines)
