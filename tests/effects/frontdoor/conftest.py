"""A small real engine, a raw client that believes nothing, and a front door on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from own_ports import free_port

from controller.core.route import Mode, Route, Slot, SlotState
from controller.effects.frontdoor.door import DoorSettings, FrontDoor

PATIENCE_S = 30.0


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    deadline_s = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"gave up waiting: {what}"
        time.sleep(0.02)
    return value


# ---------------------------------------------------------------------------------------------------------- engine


@dataclass
class Seen:
    """One request as the engine saw it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body_bytes: int
    tag: str = ""
    left: float | None = None  # monotonic: when the client was seen to be gone


class Engine:
    """Speaks just enough HTTP/1.1. A POST's JSON body says how it is answered:

    ``tokens``, ``interval_s``, ``first_s`` (time to the first token), ``late`` (headers only with the first token),
    ``stream``, ``status``, ``break_after`` (cuts the connection after so many tokens).
    Each token carries engine name | index | monotonic ns.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, health_path: str, port: int) -> None:
        self.name = name
        self.health_path = health_path
        self.healthy = True
        self.seen: list[Seen] = []
        self.checks: list[str] = []
        self.open = 0  # requests being answered now
        self._loop = loop
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(port), loop).result(PATIENCE_S)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def posts(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "POST"]

    def kill(self) -> None:
        """As kill -9 looks from outside: the port is closed and every connection is reset."""
        asyncio.run_coroutine_threadsafe(self._kill(), self._loop).result(PATIENCE_S)

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 20)

    async def _kill(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        named = dict(headers)
        body = await self._body(reader, named)
        if method == "GET" and target.split("?")[0] == self.health_path:
            self.checks.append(target)
            return await self._plain(writer, 200 if self.healthy else 503, b"{}")
        seen = Seen(method, target, headers, len(body))
        self.seen.append(seen)
        if method == "GET":
            return await self._plain(
                writer, 404 if target == "/health" else 200, json.dumps({"id": self.name}).encode()
            )
        return await self._generate(reader, writer, json.loads(body), seen)

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b""
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readline()
            return body
        return await reader.readexactly(int(headers.get("content-length", 0)))

    async def _plain(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> bool:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return True

    async def _generate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wish: dict[str, Any], seen: Seen
    ) -> bool:
        seen.tag = wish.get("tag", "")
        self.open += 1
        answer = asyncio.ensure_future(self._answer(writer, wish))
        leaving = asyncio.ensure_future(reader.read(1))  # the door never pipelines: a byte here can only be the end
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                seen.left = time.monotonic()
                return False
            return await answer
        finally:
            self.open -= 1
            for task in (answer, leaving):
                task.cancel()
            await asyncio.gather(answer, leaving, return_exceptions=True)

    async def _answer(self, writer: asyncio.StreamWriter, wish: dict[str, Any]) -> bool:
        if wish.get("status", 200) != 200:
            return await self._plain(writer, wish["status"], b'{"error":{"message":"engine says no"}}')
        if not wish.get("stream", True):
            await asyncio.sleep(wish.get("first_s", 0.01))
            message = {"role": "assistant", "content": self.name}
            return await self._plain(writer, 200, json.dumps({"id": "x", "choices": [{"message": message}]}).encode())
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        if not wish.get("late", False):
            writer.write(head)
            head = b""
        await asyncio.sleep(wish.get("first_s", 0.01))
        for index in range(wish.get("tokens", 5)):
            if index:
                await asyncio.sleep(wish.get("interval_s", 0.01))
            if index == wish.get("break_after"):
                writer.transport.abort()
                return False
            writer.write(head + _chunk(f"data: {self.name}|{index}|{time.monotonic_ns()}\n\n".encode()))
            head = b""
            await writer.drain()
        writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        return True


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


# ---------------------------------------------------------------------------------------------------------- client


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    engine: str = ""
    tokens: int = 0
    whole: bool = False  # every token in order from one engine, [DONE], and the last chunk of the encoding
    lag_s: list[float] = field(default_factory=list)  # per token, from the engine's write to our read
    failure: str = ""

    @property
    def error(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)["error"]
        return document


async def request(
    port: int,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: tuple[str, ...] = (),
    body: bytes | None = None,
    **wish: Any,
) -> Answer:
    """One request on a connection of its own; never raises for what the other side does."""
    answer = Answer()
    if body is None:
        body = json.dumps(wish).encode() if method == "POST" else b""
    lines = [f"{method} {path} HTTP/1.1", "Host: door", f"Content-Length: {len(body)}", *headers, "", ""]
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join(lines).encode() + body)
        await _read_answer(reader, answer)
    except (OSError, asyncio.IncompleteReadError) as error:
        answer.failure = repr(error)
    finally:
        if writer is not None:
            writer.close()
    return answer


async def raw(port: int, data: bytes) -> Answer:
    """Send these very bytes."""
    answer = Answer()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await _read_answer(reader, answer)
    except (OSError, asyncio.IncompleteReadError) as error:
        answer.failure = repr(error)
    finally:
        writer.close()
    return answer


async def _read_answer(reader: asyncio.StreamReader, answer: Answer) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    answer.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    answer.status = int(first.split(" ")[1])
    if "chunked" not in answer.headers.get("transfer-encoding", ""):
        answer.body = await reader.readexactly(int(answer.headers.get("content-length", 0)))
        answer.whole = True
        return
    in_order, partial = True, b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data = (await reader.readexactly(size + 2))[:-2]
        answer.body += data
        *events, partial = (partial + data).split(b"\n\n")  # a proxy may put several events into one chunk
        for event in events:
            if event.count(b"|") == 2:
                engine, index, sent_ns = event.decode().removeprefix("data: ").split("|")
                answer.lag_s.append((time.monotonic_ns() - int(sent_ns)) / 1e9)
                in_order &= int(index) == answer.tokens and answer.engine in ("", engine)
                answer.engine = engine
                answer.tokens += 1
    await reader.readuntil(b"\r\n")
    answer.whole = in_order and answer.body.endswith(b"data: [DONE]\n\n")


def run(work: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    """:func:`wait_for` inside a running loop; bounded by :func:`run`."""
    while not condition():  # noqa: ASYNC110  # the condition is in another process
        await asyncio.sleep(0.02)


# --------------------------------------------------------------------------------------------------------- fixtures


@dataclass
class Tools:
    """What the tests need from this file without importing it (test directories are not packages)."""

    request = staticmethod(request)
    raw = staticmethod(raw)
    run = staticmethod(run)
    until = staticmethod(until)
    wait_for = staticmethod(wait_for)
    free_port = staticmethod(free_port)


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def engines() -> Iterator[Callable[..., Engine]]:
    """``engines("blue")`` starts one; all end with the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started: list[Engine] = []

    def make(name: str, health_path: str = "/health", port: int = 0) -> Engine:
        started.append(Engine(loop, name, health_path, port))
        return started[-1]

    yield make
    for engine in started:
        engine.kill()
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(PATIENCE_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE_S)
    loop.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Door(FrontDoor):
    """The product's door, with shorthands for the tests."""

    @property
    def port(self) -> int:
        return self.settings.public_address.port

    @property
    def preview_port(self) -> int:
        return self.settings.preview_address.port

    @property
    def log(self) -> Path:
        return self.settings.directory / "run" / "engine.log"

    def serve(self, *slots: Slot, preview: tuple[Slot, ...] = (), mode: Mode = Mode.OPEN, generation: int = 1) -> Route:
        """Apply a route and wait until its ready slots are up."""
        route = Route(generation, slots, preview, mode)
        self.apply(route)
        wait_for(lambda: self.all_up(route), f"all up: {self.read()}")
        return route

    def all_up(self, route: Route) -> bool:
        seen = self.read()
        up = {slot.number for slot in seen.public if slot.up}, {slot.number for slot in seen.preview if slot.up}
        ready = tuple(
            {slot.number for slot in slots if slot.state is SlotState.READY} for slots in (route.public, route.preview)
        )
        return ready[0] <= up[0] and ready[1] <= up[1]


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    """``doors(**settings)`` makes one on free ports and starts it; all end with the test."""
    made: list[Door] = []

    def make(*, start: bool = True, **settings: Any) -> Door:
        directory = tmp_path / f"door{len(made)}"
        ports = {"public": f"127.0.0.1:{free_port()}", "preview": f"127.0.0.1:{free_port()}"}
        made.append(Door(DoorSettings(directory, **(ports | settings))))
        if start:
            made[-1].ensure()
        return made[-1]

    yield make
    for door in made:
        with contextlib.suppress(FileNotFoundError):
            door.stop()


@pytest.fixture
def slot_of() -> Callable[..., Slot]:
    def make(number: int, engine: Engine, **changes: Any) -> Slot:
        wished = {"port": engine.port, "health_path": engine.health_path, "release": "r@1", "attempt": engine.name}
        return Slot(number, **(wished | changes))

    return make
