"""Who is on the other end: the kernel says of a Unix socket, a token says over TCP; and how long they may take."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .desk import ROLES, Person

SCOPE_KEY = "cutover.person"
REQUEST_TIMEOUT_S = 30.0  # from the first byte, or the connection, until a whole request is there
MOST_TCP = 64  # connections: more are closed at once, so that strangers cannot use up what the socket's users need
EVERYBODY = "*"
USUAL_ROLE = "propose"
_INCOMPLETE = frozenset({h11.IDLE, h11.SEND_BODY})  # states of the client in which more of a request has to come


def person_of(uid: int, gid: int = -1, roles: Mapping[str, str] | None = None) -> Person:
    """The daemon's own user and root are admins; others have the highest role that `roles` gives them.

    Keys of `roles` are users, groups as `@group`, and `*` for whoever may open the socket, by default `propose`.
    `gid` is the primary group of the process; the user's supplementary groups count too.
    """
    roles = roles or {}
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    if uid in {0, os.geteuid()}:
        return Person(name, uid, "admin")
    keys = {name, EVERYBODY, *(f"@{group}" for group in _groups(name, gid, roles))}
    given = [role for key, role in roles.items() if key in keys]
    if EVERYBODY not in roles:
        given.append(USUAL_ROLE)
    return Person(name, uid, max(given, key=ROLES.index))


def _groups(name: str, gid: int, roles: Mapping[str, str]) -> list[str]:
    """Of the groups that `roles` names, those that the user is in."""
    found = []
    for wanted in (key[1:] for key in roles if key.startswith("@")):
        try:
            group = grp.getgrnam(wanted)
        except KeyError:
            continue
        if group.gr_gid == gid or name in group.gr_mem:
            found.append(wanted)
    return found


class PeerProtocol(H11Protocol):
    """uvicorn's own protocol, with the peer's credentials read once per connection, and an end to its patience.

    A TCP connection has no person: its requests bring a token each.
    """

    roles: Mapping[str, str] = {}
    request_timeout_s = REQUEST_TIMEOUT_S
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            _, uid, gid = struct.unpack("3i", credentials)
            inherited: dict[str, Any] = self.app_state
            self.app_state = {**inherited, SCOPE_KEY: person_of(uid, gid, self.roles)}
        elif sum(isinstance(other, PeerProtocol) and other.is_tcp for other in self.connections) > MOST_TCP:
            transport.abort()
            return
        self._expect_a_request()

    @property
    def is_tcp(self) -> bool:
        return SCOPE_KEY not in self.app_state

    def connection_lost(self, exc: Exception | None) -> None:
        self._got_it()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state in _INCOMPLETE:
            self._expect_a_request()
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._got_it()

    def on_response_complete(self) -> None:
        self._got_it()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the next request has begun to arrive already
            self._expect_a_request()

    def _expect_a_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.request_timeout_s, self.transport.abort)

    def _got_it(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def protocol_for(roles: Mapping[str, str]) -> type[PeerProtocol]:
    """One protocol is made per connection, from a class: this one knows the roles."""
    return type("Peers", (PeerProtocol,), {"roles": dict(roles)})
