"""Who is on the other end: the kernel says of a Unix socket, a token says over TCP; and how long they may take."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ExitCode
from .desk import ROLES, Person

SCOPE_KEY = "cutover.person"
REQUEST_TIMEOUT_S = 30.0  # from the first byte, or the connection, until a whole request is there
# Connections. More are closed at once: nobody can use up the open files (1024, usually) that everybody else needs, the
# loop above all, which cannot look at anything without.
MOST_TCP = 64
MOST_OF_ONE = 128  # of one user at the socket
MOST_OF_ALL = 512  # of all of them; beyond that the daemon's user and root still get in
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

    uid: int | None = None  # of the peer; over TCP nobody knows it
    roles: Mapping[str, str] = {}
    request_timeout_s = REQUEST_TIMEOUT_S
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            _, uid, gid = struct.unpack("3i", credentials)
            self.uid = uid
            if refusal := self._refusal():
                transport.write(refusal)
                transport.close()
                return
            inherited: dict[str, Any] = self.app_state
            self.app_state = {**inherited, SCOPE_KEY: person_of(uid, gid, self.roles)}
        elif sum(peer.is_tcp for peer in self._peers()) > MOST_TCP:
            transport.abort()
            return
        self._expect_a_request()

    def _peers(self) -> list[PeerProtocol]:
        return [other for other in self.connections if isinstance(other, PeerProtocol)]

    def _refusal(self) -> bytes:
        """The answer, whatever was to be asked, where there are too many of them; empty for whoever may stay."""
        at_socket = [peer.uid for peer in self._peers() if peer.uid is not None]
        if sum(uid == self.uid for uid in at_socket) > MOST_OF_ONE:
            return _busy(f"this user has {MOST_OF_ONE} connections to the daemon already; end what holds them open")
        if len(at_socket) > MOST_OF_ALL and self.uid not in {0, os.geteuid()}:
            return _busy(f"{MOST_OF_ALL} connections to the daemon are open already; try again later")
        return b""

    @property
    def is_tcp(self) -> bool:
        return self.uid is None

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


def _busy(sentence: str) -> bytes:
    body = json.dumps({"error": sentence, "exit_code": int(ExitCode.REFUSED)})
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n{body}".encode()


def protocol_for(roles: Mapping[str, str]) -> type[PeerProtocol]:
    """One protocol is made per connection, from a class: this one knows the roles."""
    return type("Peers", (PeerProtocol,), {"roles": dict(roles)})
