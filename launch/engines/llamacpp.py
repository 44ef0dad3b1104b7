"""llama.cpp's llama-server: one port, one process, GGUF files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base

if TYPE_CHECKING:
    from launch.topology import Topology

_LOADED_FROM = "write the model into the key model"


class LlamaCpp(base.Engine):
    """llama-server with one model."""

    name = "llamacpp"
    default_command = ("llama-server",)
    known_commands = frozenset({("llama-server",)})
    metrics = base.MetricNames(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        generation_tokens_total="llamacpp:tokens_predicted_total",
        prompt_tokens_total="llamacpp:prompt_tokens_total",
        preemptions_total=None,
        kv_usage_ratio=None,
        cached_tokens_total=None,
        # Token counters move when a request ends; decode calls move all the time, a long prefill included.
        progress=("llamacpp:n_decode_total", "llamacpp:tokens_predicted_total", "llamacpp:prompt_tokens_total"),
    )
    metrics_flag = "--metrics"
    kv_pool_log = re.compile(r"llama_context: n_ctx\s*=\s*(?P<tokens>\d+)")
    running_flags = ("--parallel", "-np")
    abbreviates = False
    owned_flags: ClassVar[Mapping[str, str]] = {
        "--host": "the address is chosen per attempt; remove it",
        "--port": "the port is chosen per attempt; remove it",
        "-m": _LOADED_FROM,
        "--model": _LOADED_FROM,
        "-mu": _LOADED_FROM,
        "--model-url": _LOADED_FROM,
        "-hf": _LOADED_FROM,
        "-hfr": _LOADED_FROM,
        "--hf-repo": _LOADED_FROM,
        "-a": "write the name into the key serves",
        "--alias": "write the name into the key serves",
        "--api-key": base.KEY_IN_ARGV,
        "--hf-token": base.SECRET_IN_ARGV + " as HF_TOKEN=…",
        "-hft": base.SECRET_IN_ARGV + " as HF_TOKEN=…",
        "--ssl-key-file": "the front door and the probes speak plain HTTP on the loopback address; remove it",
        "--ssl-cert-file": "the front door and the probes speak plain HTTP on the loopback address; remove it",
        "--api-prefix": "probes and the front door use the paths under /v1; remove it",
    }
    admin_flags: ClassVar[Mapping[str, str]] = {
        "--tools": "lets the server run tools on the box",
        "--agent": "lets the server run tools on the box",
        "--webui-mcp-proxy": "lets browsers reach other servers through this one",
        "--path": "serves files of the box",
        "--media-path": "lets requests read files of the box",
        "--slot-save-path": "lets requests write files",
        "--props": "lets requests change the server's properties",
        "--models-dir": "lets requests load other models",
        "--rpc": "sends the model's tensors to another host",
    }
    owned_env: ClassVar[Mapping[str, str]] = {
        "LLAMA_ARG_HOST": "the address is chosen per attempt; remove it",
        "LLAMA_ARG_PORT": "the port is chosen per attempt; remove it",
        "LLAMA_ARG_MODEL": _LOADED_FROM,
        "LLAMA_ARG_HF_REPO": _LOADED_FROM,
        "LLAMA_ARG_ALIAS": "write the name into the key serves",
        "LLAMA_API_KEY": "the engine gets a key, which the front door brings to it; remove it",
    }

    def key_variables(self, flags: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """It guards all but its health pages and its list of models; the metrics too."""
        return ("LLAMA_API_KEY",)

    def port_count(self, flags: Sequence[str]) -> int:  # noqa: ARG002
        """Only the main one."""
        return 1

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:
        """Model (a GGUF file, or a hub repository), names and address."""
        model = str(topology.model)
        return (
            ("--model", model) if model.startswith("/") else ("--hf-repo", model),
            ("--alias", ",".join(topology.serves)),
            ("--host", base.HOST),
            ("--port", base.PORT),
        )
