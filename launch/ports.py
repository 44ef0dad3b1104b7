"""Blocks of ports for instances, and who listens on a port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil

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
    return first_in_use(block) is None


def first_in_use(block: range) -> int | None:
    """The first port of the block that could not be bound now; None when all can."""
    free = (_can_bind(socket.AF_INET, "0.0.0.0", port) and _can_bind(socket.AF_INET6, "::", port) for port in block)
    return next((port for port, is_free in zip(block, free, strict=True) if not is_free), None)


def holder_of(port: int) -> str:
    """Who has the port, as far as this user may see: ``process 17 (python3) listens on it``."""
    try:
        found = [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port]
        listening = [each for each in found if each.status == psutil.CONN_LISTEN]
        for each in (*listening, *found):
            if each.pid:
                does = "listens on it" if each in listening else f"has a connection from it to {_remote(each)}"
                return f"process {each.pid} ({printable(psutil.Process(each.pid).name())}) {does}"
    except psutil.Error:
        return "its holder cannot be told"
    if listening:
        return "a process of another user listens on it"
    if found:
        return f"a connection to {_remote(found[0])} has it, {found[0].status}"
    return "its holder cannot be told"


def printable(name: str) -> str:
    """A process names itself as it likes; a terminal shall not obey it."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def _remote(connection: Any) -> str:
    return f"{connection.raddr.ip}:{connection.raddr.port}" if connection.raddr else "nobody"


def outgoing_ports() -> tuple[range, frozenset[int]]:
    """The ports that the kernel gives to outgoing connections, and those that it was told to leave alone.

    From ``/proc/sys/net/ipv4`` (Linux ip-sysctl); an empty range where they cannot be read.
    """
    folder = Path("/proc/sys/net/ipv4")
    try:
        first, last = (int(word) for word in (folder / "ip_local_port_range").read_text(encoding="ascii").split())
        reserved = (folder / "ip_local_reserved_ports").read_text(encoding="ascii").strip()
        spans = [part.partition("-") for part in reserved.split(",") if part]
        kept = {port for low, _, high in spans for port in range(int(low), int(high or low) + 1)}
    except (OSError, ValueError):
        return range(0), frozenset()
    return range(first, last + 1), frozenset(kept)


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
