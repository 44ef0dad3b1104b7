"""The client of the hot loop: many streams at once, without becoming the bottleneck itself.

An `asyncio.Protocol` with httptools on uvloop: requests are encoded beforehand, connections are warm, the clock is read
at the socket read, and no byte is given a meaning until the run is over. A pooled HTTP library adds 20 ms to the first
token at 32 streams and seconds at 128; this one adds less than one. `benchmarks/load_client.py` measures it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from gates.load.connection import Pool
from gates.load.cost import ClientCost, SelfCheck, processes_after, processes_for
from gates.load.fleet import Fleet
from gates.load.lanes import Lane, Load, Window
from gates.load.tape import Tape, WatchedTape
from gates.wire import DEFAULT_LIMIT_BYTES, Exchange, Failure, encode_body, encode_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from gates.endpoint import Endpoint
    from gates.load.connection import Connection

__all__ = ["ClientCost", "Load", "LoadClient", "SelfCheck", "processes_after", "processes_for", "run"]

Result = TypeVar("Result")
_PATH: Final = "/v1/chat/completions"
MAX_HELD_BYTES: Final = 1024 * 1024 * 1024


@dataclass
class LoadClient:
    """Warm connections to one endpoint. Use it inside `run`.

    `limit_bytes` bounds one answer as it comes over the wire. `processes` may be changed between calls of `streams`;
    more than one when a core would saturate: from the rate that is expected (`processes_for`), or after a first cell
    whose client was the limit (`processes_after`).
    """

    endpoint: Endpoint
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    processes: int = 1
    _fleet: Fleet | None = None

    def __post_init__(self) -> None:
        self._pool = Pool(self.endpoint.target)

    async def wave(self, bodies: Sequence[Mapping[str, Any]], *, deadline_s: float) -> list[Exchange]:
        """Send all `bodies` at the same moment, one connection each; the exchanges in the same order.

        `deadline_s` is a monotonic time. Never raises for what the network does.
        """
        payloads = [encode_body(body) for body in bodies]
        warm = await self._pool.take(len(payloads), deadline_s)
        if isinstance(warm, Failure):
            return [_unsent(payload, warm) for payload in payloads]
        with self._lent(warm), _collector_paused():
            tapes = await asyncio.gather(
                *(self._ask(c, self._wire(p), deadline_s) for c, p in zip(warm, payloads, strict=True))
            )
            return [tape.exchange("POST", _PATH, p) for tape, p in zip(tapes, payloads, strict=True)]

    async def streams(
        self,
        bodies: Sequence[Sequence[Mapping[str, Any] | bytes]],
        *,
        deadline_s: float,
        send_until_s: float | None = None,
        request_timeout_s: float | None = None,
        held_bytes: int = MAX_HELD_BYTES,
        start: Callable[[], Awaitable[float]] | None = None,
    ) -> Load:
        """A closed loop: every stream sends its next body when its last answer has ended; all start together.

        `bodies`: one list per stream, mappings or encoded JSON; the concurrency is how many lists there are.
        `deadline_s` (monotonic) ends everything; after `send_until_s` nothing new is sent, what runs is awaited.
        A stream that fails (no answer, or a status that is not 200) pauses before its next request and stops after
        three failures in a row; when the client holds `held_bytes` of answers all stop sending. What was not sent for
        such a reason is counted in the `Load`, with the reason. `start` is called when all connections are warm and
        says at which monotonic time to begin. Never raises for what the network does.
        """
        payloads = [[b if isinstance(b, bytes) else encode_body(b) for b in stream] for stream in bodies]
        window = Window(deadline_s, send_until_s or deadline_s, request_timeout_s, held_bytes)
        if self.processes > 1 and len(payloads) > 1:
            fleet = self._at_hand(min(self.processes, len(payloads)))
            return await fleet.streams(payloads, window)
        warm = await self._pool.take(len(payloads), deadline_s)
        if isinstance(warm, Failure):
            refused = tuple(tuple(_unsent(p, warm) for p in stream[:1]) for stream in payloads)
            return Load(refused, ClientCost(0.0, 0.0), unsent=_rest(payloads, refused), stopped=warm.sentence)
        lanes = [Lane(stream, window) for stream in payloads]
        with _collector_paused():
            await asyncio.sleep((await start() if start else 0.0) - time.monotonic())
            async with SelfCheck() as check:
                self._pool.give(warm)
                await asyncio.gather(*map(self._drive, lanes))
            exchanges = tuple(lane.exchanges(_PATH) for lane in lanes)
        return Load(exchanges, check.cost(), unsent=_rest(payloads, exchanges), stopped=window.stopped)

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
        free = await self._pool.take(1, deadline_s)
        if isinstance(free, Failure):
            return _unsent(payload, free, method, path)
        with self._lent(free):
            tape = await self._ask(free[0], self._wire(payload, method, path), deadline_s, abort_when)
        return tape.exchange(method, path, payload)

    def close(self) -> None:
        self._pool.close()
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None

    async def _drive(self, lane: Lane) -> None:
        """One stream from its first request to its last."""
        while (payload := lane.next()) is not None:
            if lane.pause_s:
                await asyncio.sleep(lane.pause_s)
            until_s = lane.window.until_s()
            free = await self._pool.take(1, until_s)
            if isinstance(free, Failure):
                lane.unanswered(free)
                continue
            with self._lent(free):
                lane.answered(await self._ask(free[0], self._wire(payload), until_s))

    async def _ask(
        self,
        connection: Connection,
        wire: bytes,
        deadline_s: float,
        abort_when: Callable[[int], bool] | None = None,
    ) -> Tape:
        reused = connection.used
        tape = Tape(self.limit_bytes) if abort_when is None else WatchedTape(self.limit_bytes, abort_when)
        await connection.ask(wire, tape, deadline_s)
        if not (reused and tape.closed_unread) or abort_when is not None:
            return tape
        # A server may close an idle connection at the moment it is used again. That is keep-alive's own race and no
        # fault of the engine: what counts is what a fresh connection gets.
        made = await self._pool.connect(1, deadline_s)
        if isinstance(made, Failure):
            tape.failure = made
            return tape
        tape = Tape(self.limit_bytes)
        with self._lent(made):
            await made[0].ask(wire, tape, deadline_s)
        return tape

    @contextlib.contextmanager
    def _lent(self, connections: Sequence[Connection]) -> Iterator[None]:
        try:
            yield
        finally:
            self._pool.give(connections)

    def _wire(self, payload: bytes, method: str = "POST", path: str = _PATH) -> bytes:
        key = self.endpoint.api_key
        return encode_request(self.endpoint.target, method, path, payload, api_key=key, keep_alive=True)

    def _at_hand(self, processes: int) -> Fleet:
        if self._fleet is None or self._fleet.processes != processes:
            if self._fleet is not None:
                self._fleet.close()
            self._fleet = Fleet(self.endpoint, processes, self.limit_bytes)
        return self._fleet


def _unsent(payload: bytes, failure: Failure, method: str = "POST", path: str = _PATH) -> Exchange:
    now_s = time.monotonic()
    return Exchange(method, path, payload, now_s, now_s, failure=failure)


def _rest(payloads: Sequence[Sequence[bytes]], exchanges: Sequence[Sequence[Exchange]]) -> int:
    return sum(map(len, payloads)) - sum(map(len, exchanges))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """The garbage collector stands still: a walk over what earlier rounds left takes tens of milliseconds."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run on uvloop."""
    results: list[Result] = []

    async def keep() -> None:
        # Not as the task's result: the loop makes a repr of that, which for a million pieces takes seconds.
        results.append(await main())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(keep())
    return results[0]
