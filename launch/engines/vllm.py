"""vLLM's OpenAI server.

Internal ports: vLLM takes the first free port at or above VLLM_PORT for its torch rendezvous and, with data
parallelism, its coordinators; the rest of its plumbing is Unix sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base
from launch.engines.sleeping import VLLM, Sleeping

if TYPE_CHECKING:
    from launch.told import Told
    from launch.topology import Topology

METRICS = base.MetricNames(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    generation_tokens_total="vllm:generation_tokens_total",
    prompt_tokens_total="vllm:prompt_tokens_total",
    preemptions_total="vllm:num_preemptions_total",
    kv_usage_ratio="vllm:kv_cache_usage_perc",
    cached_tokens_total="vllm:prefix_cache_hits_total",
    progress=("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_sum"),
)
# v1/core/kv_cache_utils.py: "GPU KV cache size: 2,174,253 tokens, Maximum …"; also "CPU", "XPU", "GPU + host".
KV_POOL_LOG = re.compile(r"KV cache size: (?P<tokens>[\d,]+) tokens")
# Every field of its CacheConfig is a label. The first is in newer versions, and is right for hybrid models too.
KV_POOL_METRICS = (
    base.PoolMetric("vllm:cache_config_info", ("kv_cache_size_tokens",)),
    base.PoolMetric("vllm:cache_config_info", ("block_size", "num_gpu_blocks")),
)

_PLAIN_HTTP = "the front door and the probes speak plain HTTP on the loopback address; remove it"


class Vllm(base.Engine):
    """vLLM started as its API server module, or as ``vllm serve``."""

    name = "vllm"
    default_command = ("python3", "-m", "vllm.entrypoints.openai.api_server")
    known_commands = frozenset({("python", "-m", "vllm.entrypoints.openai.api_server"), ("vllm", "serve")})
    package = "vllm"
    metrics = METRICS
    kv_pool_log = KV_POOL_LOG
    kv_pool_metrics = KV_POOL_METRICS
    running_flags = ("--max-num-seqs",)
    owned_flags: ClassVar[Mapping[str, str]] = {
        "--host": "the address is chosen per attempt; remove it",
        "--port": "the port is chosen per attempt; remove it",
        "--uds": "the server must listen on the attempt's port; remove it",
        "--model": "write the model into the key model",
        "--served-model-name": "write the names into the key serves",
        "--config": "a file of flags would hide them from the release; write them into flags",
        "--api-key": base.KEY_IN_ARGV,
        "--hf-token": base.SECRET_IN_ARGV + " as HF_TOKEN=…",
        "--ssl-keyfile": _PLAIN_HTTP,
        "--ssl-certfile": _PLAIN_HTTP,
        "--headless": "a server without its API cannot be probed; remove it",
    }
    admin_flags: ClassVar[Mapping[str, str]] = {
        "--trust-remote-code": "runs Python code from the model folder",
        "--tool-server": "lets the server call tools",
        "--tool-parser-plugin": "loads a Python file",
        "--reasoning-parser-plugin": "loads a Python file",
        "--logits-processors": "loads Python classes",
        "--middleware": "loads Python classes into the API server",
        "--worker-cls": "loads a Python class",
        "--worker-extension-cls": "loads a Python class",
        "--scheduler-cls": "loads a Python class",
        "--kv-transfer-config": "may load a connector from a Python module",
        "--allowed-local-media-path": "lets requests read files of the box",
        "--profiler-config": "adds endpoints that write files",
        "--enable-tokenizer-info-endpoint": "shows the chat template to every client",
    }
    whole_flags = frozenset({"--reasoning-parser"})
    owned_env: ClassVar[Mapping[str, str]] = {
        "VLLM_API_KEY": "the engine gets a key, which the front door brings to it; remove it",
    }
    admin_env: ClassVar[Mapping[str, str]] = {
        "VLLM_SERVER_DEV_MODE": "adds endpoints that pause, reset and run code",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load adapters",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "lets pickled objects in",
        "VLLM_PLUGINS": "chooses the plugins that are loaded",
    }

    def sleeping(self, told: Told) -> Sleeping | None:
        """Only with its sleep mode, and with the endpoints that its development mode adds."""
        return VLLM if told.has("--enable-sleep-mode") and told.switched_on("VLLM_SERVER_DEV_MODE") else None

    def key_variables(self, flags: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """It guards /v1, /v2, /inference and /cohere, and no other path (serve/middleware/authenticate.py, 0.32.0)."""
        return ("VLLM_API_KEY",)

    def gpus_wanted(self, flags: Sequence[str]) -> int | None:
        """Tensor times pipeline times local data parallel size."""
        return base.product_of(
            (
                base.flag_number(flags, 1, "--tensor-parallel-size", "-tp"),
                base.flag_number(flags, 1, "--pipeline-parallel-size", "-pp"),
                base.flag_number(flags, 1, "--data-parallel-size", "-dp"),
            ),
        )

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:
        """Model, names and address; ``vllm serve`` wants the model as its first word."""
        model = str(topology.model)
        serve = topology.command is not None and topology.command[-1] == "serve"
        return (
            (model,) if serve else ("--model", model),
            ("--served-model-name", *topology.serves),
            ("--host", base.HOST),
            ("--port", base.PORT),
        )

    def environment(self, topology: Topology) -> Mapping[str, base.Word]:  # noqa: ARG002
        """Internal ports from the attempt's range; no redirects when a request names an image by URL."""
        return {
            "VLLM_PORT": base.FIRST_INTERNAL_PORT,
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        }
