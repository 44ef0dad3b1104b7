from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from gate_kit import END, FIRST, Engines, RawServer, Script, answer, chunk, read_request

from gates.endpoint import Endpoint
from gates.load_client import LoadClient, SelfCheck, run
from gates.reply import read_reply
from gates.wire import Exchange

Start = Callable[[Script], RawServer]
GOOD = answer("200 OK", "text/event-stream", FIRST + chunk({"content": "Hi"}, "stop") + END)


def waves(url: str, *sizes: int, limit_bytes: int = 1 << 20, timeout_s: float = 20.0) -> list[list[Exchange]]:
    async def main() -> list[list[Exchange]]:
        client = LoadClient(Endpoint.at(url), limit_bytes)
        try:
            return [
                await client.wave([{"n": n} for n in range(size)], deadline_s=time.monotonic() + timeout_s)
                for size in sizes
            ]
        finally:
            client.close()

    return run(main)


def keeping_alive(answers: int) -> tuple[Script, list[int]]:
    """Serves so many requests per connection, then closes it without a word; counts its connections."""
    connections: list[int] = []

    def script(connection: socket.socket, request: bytes) -> None:
        connections.append(1)
        for _ in range(answers - 1):
            connection.sendall(GOOD)
            request = read_request(connection)
        if request:
            connection.sendall(GOOD)

    return script, connections


def test_connections_stay_warm(raw_server: Start) -> None:
    script, connections = keeping_alive(100)
    exchanges = waves(raw_server(script).url, 4, 4, 2)
    assert [len(wave) for wave in exchanges] == [4, 4, 2]
    assert all(exchange.status == 200 and exchange.failure is None for wave in exchanges for exchange in wave)
    assert len(connections) == 4


def test_an_idle_connection_that_the_server_closed_is_no_failure(raw_server: Start) -> None:
    script, connections = keeping_alive(1)
    exchanges = waves(raw_server(script).url, 3, 3, 3)
    assert all(exchange.failure is None for wave in exchanges for exchange in wave)
    assert len(connections) == 9


def test_a_server_that_hangs_up_on_requests_is_one(raw_server: Start) -> None:
    [[exchange]] = waves(raw_server(lambda connection, request: None).url, 1)
    assert exchange.failure is not None
    assert "without an answer" in exchange.failure.sentence


def test_deadline_limit_and_refusal(raw_server: Start) -> None:
    [[late]] = waves(raw_server(lambda connection, request: connection.recv(1) and None).url, 1, timeout_s=0.3)
    assert late.failure is not None
    assert late.failure.layer == "timeout"
    [[large]] = waves(
        raw_server(lambda c, r: c.sendall(answer("200 OK", "text/plain", b"x" * 4096))).url, 1, limit_bytes=1000
    )
    assert large.failure is not None
    assert "larger than" in large.failure.sentence
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    [[refused, _]] = waves(f"http://127.0.0.1:{port}", 2)
    assert refused.failure is not None
    assert (refused.failure.layer, "connection refused" in refused.failure.sentence.lower()) == ("port", True)


def test_many_streams_at_once_arrive_whole(engines: Engines) -> None:
    async def main() -> list[Exchange]:
        client = LoadClient(Endpoint.at(engines("--ttft-ms", "2", "--itl-ms", "0.5")))
        body = {
            "model": "emu",
            "stream": True,
            "max_tokens": 40,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
        bodies = [body | {"messages": [{"role": "user", "content": f"Tell me story {n}"}]} for n in range(24)]
        async with SelfCheck() as check:
            exchanges = await client.wave(bodies, deadline_s=time.monotonic() + 60)
        client.close()
        cost = check.cost()
        assert cost.lag_p99_s >= 0
        assert 0 < cost.core_share < 3
        return exchanges

    replies = [read_reply(exchange, streamed=True) for exchange in run(main)]
    assert len(replies) == 24
    assert all(reply.breaches == () and reply.usage and reply.usage.completion_tokens == 40 for reply in replies)
    assert all(list(reply.token_times_s) == sorted(reply.token_times_s) for reply in replies)


def test_a_blocked_loop_is_noticed() -> None:
    async def main() -> float:
        async with SelfCheck() as check:
            for _ in range(3):
                await asyncio.sleep(0.02)
                time.sleep(0.2)  # noqa: ASYNC251 - the very thing that must be noticed
        return check.cost().lag_p99_s

    assert run(main) > 0.1
