"""The blocking client: one request, one connection, one deadline for everything.

It never hangs, never raises for anything the network does, follows no redirect, asks no proxy and reads no more than
its size limit. It is cheap enough to be called from many threads (no event loop, no pool, no session).
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gates.errors import GateUsageError
from gates.wire import (
    DEFAULT_LIMIT_BYTES,
    Exchange,
    Failure,
    Recorder,
    Target,
    encode_body,
    encode_request,
    parse_endpoint,
    reason,
    resolve,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server, and the key it asks for."""

    target: Target
    api_key: str | None = None

    def __post_init__(self) -> None:
        key = self.api_key
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise GateUsageError("The API key is empty, or holds a blank or a character that no HTTP header may carry.")

    @classmethod
    def at(cls, endpoint: str, api_key: str | None = None) -> Endpoint:
        """Raises `GateUsageError` when `endpoint` is no http URL or the key is none."""
        return cls(parse_endpoint(endpoint), api_key)

    def chat(self, body: Mapping[str, Any], *, timeout_s: float, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Exchange:
        return self.request("POST", "/v1/chat/completions", body, timeout_s=timeout_s, limit_bytes=limit_bytes)

    def get(self, path: str, *, timeout_s: float, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Exchange:
        return self.request("GET", path, None, timeout_s=timeout_s, limit_bytes=limit_bytes)

    def served_models(self, *, timeout_s: float) -> tuple[str, ...]:
        """Names on ``/v1/models``; empty when it does not tell."""
        exchange = self.get("/v1/models", timeout_s=timeout_s, limit_bytes=4 * 1024 * 1024)
        return model_names(exchange.body) if exchange.status == 200 else ()

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float, limit_bytes: int
    ) -> Exchange:
        deadline_s = time.monotonic() + timeout_s
        payload = b"" if body is None else encode_body(body)
        wire = encode_request(self.target, method, path, payload, api_key=self.api_key)
        connection = _connect(self.target, deadline_s)
        started_s = time.monotonic()
        if isinstance(connection, Failure):
            return Exchange(method, path, payload, started_s, started_s, failure=connection)
        recorder = Recorder(limit_bytes)
        with connection:
            sent_at_s = _converse(connection, wire, recorder, deadline_s, timeout_s)
        return recorder.exchange(method, path, payload, sent_at_s, time.monotonic())


def model_names(body: bytes) -> tuple[str, ...]:
    """The ids of a ``/v1/models`` answer."""
    try:
        document = json.loads(body)
        names = [entry["id"] for entry in document["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def _connect(target: Target, deadline_s: float) -> socket.socket | Failure:
    address = resolve(target, deadline_s - time.monotonic())
    if isinstance(address, Failure):
        return address
    where = f"{target.host}:{target.port}"
    try:
        connection = socket.create_connection(address, timeout=max(0.001, deadline_s - time.monotonic()))
    except TimeoutError:
        return Failure("port", f"nobody accepted a connection on {where} before the deadline")
    except (OSError, OverflowError) as error:
        return Failure("port", f"no connection to {where}: {reason(error)}")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if target.scheme == "http" else _secure(connection, target, where)


def _secure(connection: socket.socket, target: Target, where: str) -> socket.socket | Failure:
    try:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=target.host)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        connection.close()
        late = isinstance(error, TimeoutError)
        what = "the handshake did not end before the deadline" if late else reason(error)
        hint = "; does it speak plain http?" if late or isinstance(error, ssl.SSLError) else ""
        return Failure("port", f"no TLS connection to {where}: {what}{hint}")


def _converse(connection: socket.socket, wire: bytes, recorder: Recorder, deadline_s: float, timeout_s: float) -> float:
    """Send, then read until the answer is complete. Returns when the request was written."""
    sent_at_s = time.monotonic()
    try:
        connection.settimeout(max(0.001, deadline_s - sent_at_s))
        connection.sendall(wire)
        while not recorder.complete and recorder.failure is None:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError  # noqa: TRY301 - the same end as a socket that ran into its timeout
            connection.settimeout(remaining_s)
            data = connection.recv(_READ_BYTES)
            if data:
                recorder.feed(data, time.monotonic())
            else:
                recorder.end_of_stream()
    except TimeoutError:
        recorder.failure = Failure("timeout", recorder.where_it_stood(timeout_s))
    except (OSError, ValueError) as error:
        recorder.failure = Failure("http", f"the connection broke: {reason(error)}")
    return sent_at_s
