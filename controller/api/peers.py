"""Who is on the other end of the Unix socket: the kernel says, no header does."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .desk import Person

SCOPE_KEY = "cutover.person"


def person_of(uid: int) -> Person:
    """The daemon's own user and root are admins; whoever else may open the socket (its group) may propose."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    return Person(name, uid, "admin" if uid in {0, os.geteuid()} else "propose")


class PeerProtocol(H11Protocol):
    """uvicorn's own protocol, with the peer's credentials read once per connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        inherited: dict[str, Any] = self.app_state
        self.app_state = {**inherited, SCOPE_KEY: person_of(uid)}
