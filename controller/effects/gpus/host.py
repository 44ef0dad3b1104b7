"""The host's own memory and disk: hierarchical caches and page caches live there, and run out like cards do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Host:
    """Bytes. `available`: what can be had without swapping; disk is that of the state directory."""

    ram_total_bytes: int
    ram_available_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int
    disk_path: str
    disk_total_bytes: int | None
    disk_free_bytes: int | None


def look_at_host(state_dir: Path) -> Host:
    """Now. A disk that cannot be looked at is None."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    try:
        disk = shutil.disk_usage(state_dir)
    except OSError:
        disk = None
    return Host(
        memory.total,
        memory.available,
        swap.total,
        swap.used,
        str(state_dir),
        disk.total if disk else None,
        disk.free if disk else None,
    )
