"""The client of the hot loop: many streams at once, without becoming the bottleneck itself.

An `asyncio.Protocol` with httptools on uvloop: requests are encoded beforehand, connections are warm, the clock is read
at the socket read, and no byte is given a meaning until the run is over. A pooled HTTP library adds 20 ms to the first
token at 32 streams and seconds at 128; this one adds less than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import uvloop

from gates.wire import DEFAULT_LIMIT_BYTES, Exchange, Failure, Recorder, encode_body, encode_request, reason, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from gates.endpoint import Endpoint
    from gates.wire import Target

Result = TypeVar("Result")
_PATH: Final = "/v1/chat/completions"
_LAG_PERIOD_S: Final = 0.01
# What a timer of one millisecond shows even on an idle loop.
_IDLE_LAG_S: Final = 0.0011


@dataclass(frozen=True)
class ClientCost:
    """What the client itself was like while it measured."""

    lag_p99_s: float
    core_share: float


class _Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.used = False
        self.busy = False
        self.abort_when: Callable[[int], bool] | None = None
        self._recorder: Recorder | None = None
        self._done: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    async def exchange(
        self, wire: bytes, body: bytes, deadline_s: float, limit_bytes: int, method: str = "POST", path: str = _PATH
    ) -> Exchange:
        if self.transport is None or self.transport.is_closing():
            return _unsent(body, Failure("port", "the connection was closed before the request"))
        recorder = self._recorder = Recorder(limit_bytes)
        done = self._done = asyncio.get_running_loop().create_future()
        self.used = True
        sent_at_s = time.monotonic()
        self.transport.write(wire)
        try:
            async with asyncio.timeout(max(0.001, deadline_s - sent_at_s)):
                await done
        except TimeoutError:
            recorder.failure = Failure("timeout", recorder.where_it_stood(time.monotonic() - sent_at_s))
        ended_at_s = time.monotonic()
        if recorder.failure is not None or not recorder.keep_alive:
            self.transport.abort()
        self._recorder = None
        return recorder.exchange(method, path, body, sent_at_s, ended_at_s)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by interface, not by inheritance.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        recorder.feed(data, time.monotonic())
        if self.abort_when is not None and self.abort_when(recorder.size_bytes) and not recorder.complete:
            recorder.failure = Failure("http", "the client hung up on purpose")
        if recorder.complete or recorder.failure is not None:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._recorder is not None:
            if exc is not None and not self._recorder.complete:
                self._recorder.failure = self._recorder.failure or Failure(
                    "http", f"the connection broke: {reason(exc)}"
                )
            self._recorder.end_of_stream()
            self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


@dataclass
class LoadClient:
    """Warm connections to one endpoint. Use it inside `run`."""

    endpoint: Endpoint
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    _connections: list[_Connection] = field(default_factory=list)

    async def wave(self, bodies: Sequence[Mapping[str, Any]], *, deadline_s: float) -> list[Exchange]:
        """Send all `bodies` at the same moment, one connection each; the exchanges in the same order.

        `deadline_s` is a monotonic time. Never raises for what the network does.
        """
        payloads = [encode_body(body) for body in bodies]
        self._connections = [connection for connection in self._connections if connection.usable]
        connected = await self._connect(len(payloads) - len(self._connections), deadline_s)
        if isinstance(connected, Failure):
            return [_unsent(payload, connected) for payload in payloads]
        key, target = self.endpoint.api_key, self.endpoint.target
        wires = [encode_request(target, "POST", _PATH, body, api_key=key, keep_alive=True) for body in payloads]
        return await asyncio.gather(
            *(
                self._one(connection, wire, payload, deadline_s)
                for connection, wire, payload in zip(self._connections, wires, payloads, strict=False)
            )
        )

    async def one(
        self,
        payload: bytes,
        *,
        deadline_s: float,
        method: str = "POST",
        path: str = _PATH,
        abort_when: Callable[[int], bool] | None = None,
    ) -> Exchange:
        """One request beside others, on a warm connection that is free, else on a new one.

        `abort_when` gets the bytes of body that have come so far; when it says so, the client hangs up.
        """
        wire = encode_request(
            self.endpoint.target, method, path, payload, api_key=self.endpoint.api_key, keep_alive=True
        )
        free = next((c for c in self._connections if c.usable and not c.busy), None)
        fresh = await self._connect(1, deadline_s) if free is None else [free]
        if isinstance(fresh, Failure):
            return _unsent(payload, fresh, method, path)
        connection = fresh[0]
        connection.busy, reused = True, connection.used
        connection.abort_when = abort_when
        exchange = await connection.exchange(wire, payload, deadline_s, self.limit_bytes, method, path)
        connection.busy = False
        if not connection.usable and connection in self._connections:
            self._connections.remove(connection)
        if reused and _closed(exchange) and abort_when is None:
            return await self._again(payload, wire, deadline_s, method, path)
        return exchange

    async def _again(self, payload: bytes, wire: bytes, deadline_s: float, method: str, path: str) -> Exchange:
        # A server may close an idle connection at the moment it is used again. That is keep-alive's own race and no
        # fault of the engine: what counts is what a fresh connection gets.
        connected = await self._connect(1, deadline_s)
        if isinstance(connected, Failure):
            return _unsent(payload, connected, method, path)
        connected[0].busy = True
        exchange = await connected[0].exchange(wire, payload, deadline_s, self.limit_bytes, method, path)
        connected[0].busy = False
        return exchange

    def close(self) -> None:
        for connection in self._connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def _one(self, connection: _Connection, wire: bytes, payload: bytes, deadline_s: float) -> Exchange:
        reused = connection.used
        exchange = await connection.exchange(wire, payload, deadline_s, self.limit_bytes)
        if not (reused and _closed(exchange)):
            return exchange
        return await self._again(payload, wire, deadline_s, "POST", _PATH)

    async def _connect(self, count: int, deadline_s: float) -> list[_Connection] | Failure:
        """So many further connections, or why not; none when `count` is not positive."""
        fresh: list[_Connection] = []
        if count <= 0:
            return fresh
        target = self.endpoint.target
        address = await asyncio.to_thread(resolve, target, deadline_s - time.monotonic())
        if isinstance(address, Failure):
            return address
        secure = ssl.create_default_context() if target.scheme == "https" else None
        name = target.host if secure else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(max(0.001, deadline_s - time.monotonic())):
                for _ in range(count):
                    _, made = await loop.create_connection(_Connection, *address, ssl=secure, server_hostname=name)
                    fresh.append(made)
                    self._connections.append(made)
        except TimeoutError:
            return Failure("port", _no_connection(target, None))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            return Failure("port", _no_connection(target, error))
        return fresh


def _no_connection(target: Target, error: Exception | None) -> str:
    """`error` is None where time ran out: over TLS mostly a server that takes the handshake for a request."""
    if target.scheme == "http":
        late = f"nobody accepted a connection on {target.authority} before the deadline"
        return late if error is None else f"no connection to {target.authority}: {reason(error)}"
    what = "the handshake did not end before the deadline" if error is None else reason(error)
    refused = isinstance(error, ConnectionRefusedError | ssl.SSLCertVerificationError)
    return f"no TLS connection to {target.authority}: {what}" + ("" if refused else "; does it speak plain http?")


def _unsent(payload: bytes, failure: Failure, method: str = "POST", path: str = _PATH) -> Exchange:
    now_s = time.monotonic()
    return Exchange(method, path, payload, now_s, now_s, failure=failure)


def _closed(exchange: Exchange) -> bool:
    return exchange.status is None and exchange.failure is not None and exchange.failure.layer != "timeout"


class SelfCheck:
    """Measures the lateness of the client's own event loop and the share of a core that it used."""

    def __init__(self) -> None:
        self._late_s: list[float] = []

    async def __aenter__(self) -> Self:
        self._started_s = time.monotonic()
        self._cpu_s = _cpu_s()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._wall_s = time.monotonic() - self._started_s
        self._cpu_s = _cpu_s() - self._cpu_s

    def cost(self) -> ClientCost:
        """After the block: the p99 of the lateness, less what an idle loop shows, and the core share."""
        late = sorted(self._late_s) or [0.0]
        p99 = late[min(len(late) - 1, int(len(late) * 0.99))]
        return ClientCost(max(0.0, p99 - _IDLE_LAG_S), self._cpu_s / max(self._wall_s, 1e-9))

    async def _watch(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(_LAG_PERIOD_S)
            self._late_s.append(max(0.0, time.monotonic() - before_s - _LAG_PERIOD_S))


def run(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _cpu_s() -> float:
    return time.process_time()
