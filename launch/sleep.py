"""Whether an instance of a topology can give its cards back while its process lives, and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from launch.compat import told
from launch.engines.base import engine
from launch.engines.sleeping import Sleeping
from launch.model_files import WEIGHTS
from launch.topology import Topology


def sleeping(topology: Topology, instance: str) -> Sleeping | None:
    """How the instance sleeps; None when its engine cannot, or was not told what it needs to.

    Engines behind a router do not: the router would be stopped and started, and knows nothing of sleepers.
    """
    if topology.router is not None or instance not in topology.instances:
        return None
    return engine(topology.engine).sleeping(told(topology, topology.instances[instance]))


def weights_bytes(manifest: Mapping[str, Any]) -> int | None:
    """What an instance puts into the host's memory when it sleeps: its weights as they lie on the disk.

    `manifest` is a release's; None where the model's files were not seen. Every instance of a release has all of them.
    """
    files = manifest["identity"].get("model", {}).get("files")
    if files is None:
        return None
    return sum(int(file["size_bytes"]) for file in files if PurePosixPath(file["name"]).suffix in WEIGHTS)


def can_sleep(topology: Topology) -> bool:
    """Whether every instance can: a release that comes back in part is started as a whole."""
    return all(sleeping(topology, name) is not None for name in topology.instances)
