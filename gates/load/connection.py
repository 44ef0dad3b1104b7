"""Keep-alive connections on the event loop, one request at a time each."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from gates.wire import Failure, reason, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.load.tape import Tape
    from gates.wire import Target

# Servers queue a limited number of connections that they have not accepted yet.
_DIALS_AT_ONCE: Final = 32


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.used = False
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._tape: Tape | None = None
        self._done: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, wire: bytes, tape: Tape, deadline_s: float) -> None:
        """Send `wire` and record until the answer has ended or `deadline_s`, a monotonic time, has come."""
        loop = asyncio.get_running_loop()
        done = self._done = loop.create_future()
        self._tape, self.used = tape, True
        tape.sent_at_s = time.monotonic()
        if self.usable:
            if self._write(wire):
                tape.written_at_s = time.monotonic()
        else:
            self._lost(None)
        timer = loop.call_later(max(0.001, deadline_s - tape.sent_at_s), self._late)
        try:
            await done
        finally:
            timer.cancel()
            self._tape = None
            if not (tape.complete and tape.keep_alive):
                self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by interface, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object") is None:
            self._descriptor = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        tape = self._tape
        if tape is None:
            return
        tape.feed(data, now_s)
        if tape.complete or tape.failure is not None:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)

    def _write(self, wire: bytes) -> bool:
        """Straight to the socket: the loop collects writes, and would send the last of many requests late.

        Whether the socket took all of it at once.
        """
        assert self._transport is not None  # noqa: S101 - `usable` was asked
        if self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, wire)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._lost(error)
                return False
            if sent == len(wire):
                return True
            wire = wire[sent:]
        self._transport.write(wire)
        return False

    def _lost(self, error: Exception | None) -> None:
        if self._tape is not None and not self._tape.over:
            self._tape.close(error)
        self._finish()

    def _late(self) -> None:
        if self._tape is not None and not self._tape.over:
            self._tape.give_up()
        self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class Pool:
    """Connections to one server that nobody uses now. Its address is looked up once, when the first is made."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._address: tuple[str, int] | None = None
        self._idle: list[Connection] = []

    async def take(self, count: int, deadline_s: float) -> list[Connection] | Failure:
        """So many connections, warm ones first, or why there are none. Whoever takes them gives them back."""
        taken: list[Connection] = []
        while self._idle and len(taken) < count:
            connection = self._idle.pop()
            taken += [connection] if connection.usable else []
        made = await self.connect(count - len(taken), deadline_s)
        if isinstance(made, Failure):
            self.give(taken)
            return made
        return taken + made

    def give(self, connections: Sequence[Connection]) -> None:
        self._idle += [connection for connection in connections if connection.usable]

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle = []

    async def connect(self, count: int, deadline_s: float) -> list[Connection] | Failure:
        """So many new connections, or why not all of them."""
        if count <= 0:
            return []
        found: tuple[str, int] | Failure | None = self._address
        if found is None:
            found = await asyncio.to_thread(resolve, self._target, deadline_s - time.monotonic())
        if isinstance(found, Failure):
            return found
        host, port = self._address = found
        secure = _tls() if self._target.scheme == "https" else None
        name = self._target.host if secure else None
        made: list[Connection] = []
        room = asyncio.Semaphore(_DIALS_AT_ONCE)

        async def one() -> None:
            async with room:
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(Connection, host, port, ssl=secure, server_hostname=name)
                made.append(connection)

        try:
            async with asyncio.timeout(max(0.001, deadline_s - time.monotonic())):
                await asyncio.gather(*(one() for _ in range(count)))
        except (OSError, ValueError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            for connection in made:
                connection.abort()
            late = isinstance(error, TimeoutError)
            return Failure("port", _no_connection(self._target, None if late else error))
        return made


@cache
def _tls() -> ssl.SSLContext:
    # Reading the certificate store takes ten milliseconds, which no stream should have to wait for.
    return ssl.create_default_context()


def _no_connection(target: Target, error: Exception | None) -> str:
    """`error` is None where time ran out: over TLS mostly a server that takes the handshake for a request."""
    if target.scheme == "http":
        late = f"nobody accepted a connection on {target.authority} before the deadline"
        return late if error is None else f"no connection to {target.authority}: {reason(error)}"
    what = "the handshake did not end before the deadline" if error is None else reason(error)
    refused = isinstance(error, ConnectionRefusedError | ssl.SSLCertVerificationError)
    return f"no TLS connection to {target.authority}: {what}" + ("" if refused else "; does it speak plain http?")
