"""Blocks of ports for instances, and who listens on a port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from launch.errors import LaunchError

LISTEN = "0A"  # TCP state in /proc/net/tcp


class PortsError(LaunchError):
    """No block of ports can be had."""

    exit_code: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Ports:
    """The configured range: ``first`` to ``last`` inclusive, in blocks of ``size`` consecutive ports.

    The first port of a block is the instance's address; the others are for the engine's internal sockets.
    """

    first: int = 18000
    last: int = 18999
    size: int = 10

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.last <= 65535 and 0 < self.size <= self.last - self.first + 1):
            raise PortsError(
                f"port range {self.first}-{self.last} cannot hold one block of {self.size} ports: "
                "give a first and a last port between 1 and 65535, at least one block apart"
            )

    def allocate(self, in_use: Collection[int], last_used: int | None = None) -> range:
        """The next free block after ``last_used``, round and round.

        ``in_use`` and ``last_used`` are first ports of blocks. Rotating keeps a port out of use for as long as
        possible: a server restarted on the port of a killed one was seen to hang (sgl-project/sglang#22779).
        """
        starts = range(self.first, self.last - self.size + 2, self.size)
        after = [start for start in starts if last_used is not None and start > last_used]
        for start in [*after, *(start for start in starts if start not in after)]:
            block = range(start, start + self.size)
            taken = any(start < other + self.size and other < start + self.size for other in in_use)
            if not taken and is_bindable(block):
                return block
        raise PortsError(
            f"no block of {self.size} free ports is left in {self.first}-{self.last} ({len(in_use)} of "
            f"{len(starts)} blocks are ours): stop an attempt, see with `ss -ltn` who listens there, or widen the range"
        )


def is_bindable(block: range) -> bool:
    """Whether every port of the block could be bound now, on all addresses, IPv4 and IPv6.

    Deliberately without SO_REUSEADDR: connections of a former owner that still linger count as in use.
    """
    return all(_can_bind(socket.AF_INET, "0.0.0.0", port) and _can_bind(socket.AF_INET6, "::", port) for port in block)


def _can_bind(family: socket.AddressFamily, host: str, port: int) -> bool:
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return True  # a kernel without IPv6 has nobody on it
    with probe:
        try:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
        except OSError as error:
            return family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL  # IPv6 is off
    return True


def listening_pids(port: int) -> tuple[int, ...]:
    """The processes that hold a listening TCP socket on ``port``, as far as this user may see (own uid; root: all).

    Identity comes before readiness: an orphan of yesterday answers 200 too (mostlygeek/llama-swap#100).
    """
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return ()
    return tuple(sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and _holds(name, sockets)))  # noqa: PTH208


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _holds(pid: str, sockets: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for handle in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{handle}") in sockets:  # noqa: PTH115  # thousands of times
                    return True
    return False
