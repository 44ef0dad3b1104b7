"""smg, the Shepherd Model Gateway: cache-aware balancing over the instances of one topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from launch.engines import base
from launch.routers.base import WORKERS, Router

if TYPE_CHECKING:
    from launch.topology import Topology


class Smg(Router):
    """``smg launch`` on the loopback address.

    Its ``/health`` answers 200 without a single worker; ``/readiness`` tells the truth. It answers 404
    ``model_not_found`` until its workers are registered, and looks for them every 30 s unless told to look sooner.
    """

    kind = "smg"
    default_command = ("smg", "launch")
    package = "smg"
    health_path = "/readiness"
    # It reads its key from its arguments, and from nowhere else (1.13.0). Those of the process everybody on the box may
    # read; the copy of them that its program reads nobody may.
    with_key = (
        'import os, runpy, sys; sys.argv = [*sys.argv[1:], "--api-key", os.environ["CUTOVER_API_KEY"]]; '
        'runpy.run_path(sys.argv[0], run_name="__main__")'
    )
    owned_flags: ClassVar[Mapping[str, str]] = {
        "--host": "the address is chosen per attempt; remove it",
        "--port": "the port is chosen per attempt; remove it",
        "--worker-urls": "the workers are the instances of this topology; remove it",
        "--prometheus-host": "the address is chosen per attempt; remove it",
        "--prometheus-port": "the port is chosen per attempt; remove it",
        "--health-check-port": "the router's slot is probed on its main port; remove it",
        "--service-discovery": "the workers are the instances of this topology; remove it",
        "--discovery-provider": "the workers are the instances of this topology; remove it",
        "--discovery-file": "the workers are the instances of this topology; remove it",
        "--api-key": base.IN_ARGV + "; leave it out: it gets the one that its workers want",
        "--tls-cert-path": "the front door and the probes speak plain HTTP on the loopback address; remove it",
        "--tls-key-path": "the front door and the probes speak plain HTTP on the loopback address; remove it",
    }
    admin_flags: ClassVar[Mapping[str, str]] = {
        "--enable-wasm": "loads code into the router",
        "--storage-hook-wasm-path": "loads code into the router",
        "--mcp-config-path": "lets the router call tools",
        "--enable-mesh": "opens a second server on all interfaces",
        "--enable-rl": "adds endpoints that control the engines",
        "--mm-allow-private-media-hosts": "lets requests fetch from private addresses",
    }

    def arguments(self, topology: Topology) -> tuple[base.Line, ...]:
        """Address and metrics port, and two habits of smg changed unless the flags choose them."""
        flags = topology.router.flags if topology.router is not None else ()
        lines: list[base.Line] = [
            ("--host", base.HOST),
            ("--port", base.PORT),
            ("--prometheus-host", base.HOST),
            ("--prometheus-port", base.FIRST_INTERNAL_PORT),
            ("--worker-urls", WORKERS),
        ]
        if not base.has_flag(flags, "--worker-startup-check-interval"):
            lines.append(("--worker-startup-check-interval", "1"))
        if not base.has_flag(flags, "--disable-tokenizer-autoload", "--tokenizer-path", "--model-path"):
            lines.append(("--disable-tokenizer-autoload",))  # else it asks a model hub about names it does not know
        return tuple(lines)
