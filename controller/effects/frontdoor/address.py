"""The addresses that the front door listens on."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

import psutil

from .errors import DoorError, DoorPermissionError, DoorPortTakenError, DoorSettingsError

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    host: str  # without brackets
    port: int

    @classmethod
    def parse(cls, text: str, key: str) -> Address:
        """``host:port`` or ``[v6]:port``; ``key`` is the name of the setting, for the error."""
        found = _ADDRESS.fullmatch(text)
        if not found or not 0 < int(found["port"]) < 65536:
            raise DoorSettingsError(f"{key}: {text!r} is not an address; expected host:port, such as 127.0.0.1:8000")
        return cls(found["host"].strip("[]"), int(found["port"]))

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_free(address: Address) -> None:
    """Bind it for an instant, because HAProxy's own message says neither who holds the port nor what to do."""
    host = "" if address.host == "*" else address.host
    try:
        found = socket.getaddrinfo(host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise DoorSettingsError(f"{address.host} is not a host name or address of this machine: {error}") from error
    family, kind, protocol, _, target = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(target)
            probe.listen(1)
        except PermissionError as error:
            raise DoorPermissionError(
                f"this user may not listen on {address}; choose a port above 1023, or give it the right "
                "(AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or sysctl net.ipv4.ip_unprivileged_port_start)"
            ) from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise DoorPortTakenError(
                    f"{address} is taken by {_holder(address.port)}; stop it, or give the front door another address"
                ) from error
            raise DoorError(f"the front door cannot listen on {address}: {error.strerror}") from error


def _holder(port: int) -> str:
    """Who listens on the port, as far as this user may see."""
    try:
        listening = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
        pids = {found.pid for found in listening if found.pid and found.laddr and found.laddr.port == port}
        names = [f"process {pid} ({psutil.Process(pid).name()})" for pid in sorted(pids)]
    except psutil.Error:
        names = []
    return " and ".join(names) or "a process of another user"
