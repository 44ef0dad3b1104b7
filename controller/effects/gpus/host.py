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
    ram_limit_bytes: int | None  # of the container that this is; None: there is none, or it is no less than the total
    ram_available_bytes: int  # within that limit
    swap_total_bytes: int
    swap_used_bytes: int
    disk_path: str
    disk_total_bytes: int | None
    disk_free_bytes: int | None


def look_at_host(state_dir: Path, cgroups: Path = Path("/sys/fs/cgroup")) -> Host:
    """Now. A disk that cannot be looked at is None. `cgroups`: where the kernel's control groups are mounted."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    limit_bytes, left_bytes = _container(cgroups) or (memory.total, memory.available)
    try:
        disk = shutil.disk_usage(state_dir)
    except OSError:
        disk = None
    return Host(
        memory.total,
        limit_bytes if limit_bytes < memory.total else None,
        min(memory.available, left_bytes),
        swap.total,
        swap.used,
        str(state_dir),
        disk.total if disk else None,
        disk.free if disk else None,
    )


def _container(cgroups: Path) -> tuple[int, int] | None:
    """Limit of the topmost group that is seen, and what is left of it; None where it has none.

    Inside a container that group is the container's; on the host it has no limit. The daemon's own is not asked:
    engines run in units of their own. Layouts: docs.kernel.org admin-guide, cgroup-v2 and cgroup-v1/memory.
    """
    for limit, charged, cache in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        try:
            limit_bytes = int((cgroups / limit).read_text())
            charged_bytes = int((cgroups / charged).read_text())
            told = (cgroups / limit).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):  # not this version; or `max`
            continue
        sizes = dict(line.split(" ", 1) for line in told if " " in line)
        files_bytes = sum(int(sizes.get(name, 0)) for name in cache)  # the kernel drops these before it runs short
        return limit_bytes, max(0, limit_bytes - charged_bytes + files_bytes)
    return None
