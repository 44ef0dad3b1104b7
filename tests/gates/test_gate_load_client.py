from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from gate_kit import END, FIRST, Engines, RawServer, Script, answer, chunk, read_request

import gates.load
from gates import load_client
from gates.endpoint import Endpoint
from gates.load.fleet import ClientBrokeError
from gates.load_client import ClientCost, Load, LoadClient, SelfCheck, processes_after, processes_for, run
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


# --- the closed loop --------------------------------------------------------------------------------------------------


def loop(url: str, streams: int, requests: int, *, timeout_s: float = 60.0, processes: int = 1, **options: Any) -> Load:
    """So many streams with so many requests each; body n of stream m says so."""

    async def main() -> Load:
        client = LoadClient(Endpoint.at(url, "sesame"), 1 << 20, processes)
        bodies = [[body(f"{stream}-{turn}") for turn in range(requests)] for stream in range(streams)]
        try:
            return await client.streams(bodies, deadline_s=time.monotonic() + timeout_s, **options)
        finally:
            client.close()

    return run(main)


def body(text: str) -> dict[str, Any]:
    fields = {"model": "emu", "stream": True, "max_tokens": 8, "ignore_eos": True}
    return fields | {"stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": text}]}


def served(connection: socket.socket, request: bytes) -> Iterator[bytes]:
    """The requests of one connection until the client closes it."""
    while request:
        yield request
        request = read_request(connection)


def well(connection: socket.socket, request: bytes) -> None:
    for _ in served(connection, request):
        connection.sendall(GOOD)


def accounted(load: Load, streams: int, requests: int) -> bool:
    """Nothing is silently dropped: every body came to an end that is told, or is counted as unsent."""
    told = all(exchange.status is not None or exchange.failure is not None for exchange in load.exchanges)
    return told and len(load.exchanges) + load.unsent == streams * requests


def test_a_stream_sends_its_next_request_when_its_last_has_ended(raw_server: Start) -> None:
    server = raw_server(well)
    load = loop(server.url, 4, 5)
    assert (load.unsent, load.stopped) == (0, None)
    for number, stream in enumerate(load.streams):
        assert [f'"{number}-{turn}"'.encode() in e.request_body for turn, e in enumerate(stream)] == [True] * 5
        assert all(exchange.status == 200 and exchange.failure is None for exchange in stream)
        assert all(before.ended_at_s <= after.sent_at_s for before, after in pairwise(stream))
        assert all(e.sent_at_s <= e.pieces[0].at_s <= e.ended_at_s for e in stream)
    assert len(server.requests) == 4  # first requests of connections: the others came on the same ones
    assert all(e.written_at_s is not None and e.sent_at_s <= e.written_at_s for e in load.exchanges)


def test_all_streams_are_in_flight_at_once(raw_server: Start) -> None:
    together = threading.Barrier(5)

    def script(connection: socket.socket, request: bytes) -> None:
        for _ in served(connection, request):
            together.wait(30)
            connection.sendall(GOOD)

    assert all(exchange.status == 200 for exchange in loop(raw_server(script).url, 5, 2).exchanges)


def test_connections_that_the_server_closes_are_made_anew(raw_server: Start) -> None:
    script, _ = keeping_alive(1)
    load = loop(raw_server(script).url, 3, 3)
    assert accounted(load, 3, 3)
    assert all(exchange.failure is None for exchange in load.exchanges)


def test_the_closed_loop_reads_an_engine_whole(engines: Engines) -> None:
    load = loop(engines("--ttft-ms", "2", "--itl-ms", "0.5"), 12, 3)
    replies = [read_reply(exchange, streamed=True) for exchange in load.exchanges]
    assert len(replies) == 36
    assert all(reply.breaches == () and reply.usage and reply.usage.completion_tokens == 8 for reply in replies)
    assert load.cost.core_share > 0


# --- what goes wrong is named -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "phrase"), [(429, "Too Many Requests"), (503, "Service Unavailable")])
def test_a_server_that_refuses_above_a_limit(raw_server: Start, status: int, phrase: str) -> None:
    places = threading.Semaphore(2)
    refused = threading.Event()
    no = answer(f"{status} {phrase}", "application/json", b'{"error": {"message": "2 at once are enough"}}')

    def script(connection: socket.socket, request: bytes) -> None:
        for _ in served(connection, request):
            if places.acquire(blocking=False):
                refused.wait(30)  # the place is taken until somebody was turned away
                connection.sendall(GOOD)
                places.release()
            else:
                refused.set()
                connection.sendall(no)

    load = loop(raw_server(script).url, 6, 4)
    assert accounted(load, 6, 4)
    turned_away = [exchange for exchange in load.exchanges if exchange.status == status]
    assert turned_away
    assert any(exchange.status == 200 for exchange in load.exchanges)
    sentence = f"HTTP {status}: 2 at once are enough"
    assert all(read_reply(e, streamed=True).breaches[0].sentence == sentence for e in turned_away)


def test_a_stream_that_is_always_refused_stops_and_says_so(raw_server: Start) -> None:
    no = answer("429 Too Many Requests", "application/json", b"{}")

    def script(connection: socket.socket, request: bytes) -> None:
        for _ in served(connection, request):
            connection.sendall(no)

    load = loop(raw_server(script).url, 2, 50)
    assert [len(stream) for stream in load.streams] == [3, 3]
    assert load.unsent == 94
    assert load.stopped is not None
    assert "3 times in a row" in load.stopped


def test_an_engine_that_dies_under_way(engines: Engines) -> None:
    load = loop(engines("--itl-ms", "0.5", "--fault", "dies-after-requests=10"), 4, 8)
    assert accounted(load, 4, 8)
    assert any(exchange.status == 200 and exchange.failure is None for exchange in load.exchanges)
    failed = [exchange for exchange in load.exchanges if exchange.failure is not None]
    assert len(failed) >= 4
    assert all(exchange.failure and exchange.failure.layer in ("port", "http") for exchange in failed)
    assert load.unsent > 0
    assert load.stopped is not None


def test_streams_that_are_cut_off(engines: Engines) -> None:
    load = loop(engines("--itl-ms", "0.5", "--fault", "stream-cut=3"), 3, 2)
    assert accounted(load, 3, 2)
    assert all(e.failure is not None and "broke off" in e.failure.sentence for e in load.exchanges)
    assert all(len(read_reply(e, streamed=True).token_times_s) == 3 for e in load.exchanges)


def test_a_server_that_nobody_reaches() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    load = loop(f"http://127.0.0.1:{port}", 3, 5)
    assert accounted(load, 3, 5)
    assert [e.failure.layer for e in load.exchanges if e.failure] == ["port"] * 3
    assert load.stopped is not None
    assert "connection refused" in load.stopped


def test_a_server_that_falls_silent_costs_a_request_its_own_time(raw_server: Start) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        for asked in served(connection, request):
            if b'"0-0"' in asked:
                continue
            connection.sendall(GOOD)

    load = loop(raw_server(script).url, 2, 2, request_timeout_s=1.0)
    [[silent, next_one], _] = load.streams
    assert silent.failure is not None
    assert (silent.failure.layer, next_one.status) == ("timeout", 200)


def test_the_end_of_time_ends_everything(raw_server: Start) -> None:
    load = loop(raw_server(lambda connection, request: connection.recv(1) and None).url, 2, 9, timeout_s=1.0)
    assert accounted(load, 2, 9)
    # "port": a box too slow to connect in that time.
    assert all(e.failure is not None and e.failure.layer in ("timeout", "port") for e in load.exchanges)
    assert load.unsent == 16  # a stream whose request ran into the end sends no other


def test_what_runs_when_the_time_to_send_is_over_is_awaited(raw_server: Start) -> None:
    # Late enough that the first request is out by then on a slow machine, too.
    until_s = time.monotonic() + 1.5

    def script(connection: socket.socket, request: bytes) -> None:
        for _ in served(connection, request):
            time.sleep(max(0.02, until_s - time.monotonic()))
            connection.sendall(GOOD)

    load = loop(raw_server(script).url, 2, 1000, send_until_s=until_s)
    assert load.exchanges
    assert all(exchange.status == 200 for exchange in load.exchanges)
    assert (accounted(load, 2, 1000), load.unsent > 0, load.stopped) == (True, True, None)


def test_memory_is_bounded(raw_server: Start) -> None:
    load = loop(raw_server(well).url, 2, 1000, held_bytes=20_000)
    assert accounted(load, 2, 1000)
    assert load.unsent > 0
    assert load.stopped is not None
    assert "MiB of answers" in load.stopped
    assert sum(len(exchange.body) for exchange in load.exchanges) < 40_000


def test_a_request_larger_than_any_socket_buffer_arrives_whole(raw_server: Start) -> None:
    server = raw_server(well)

    async def main() -> Load:
        client = LoadClient(Endpoint.at(server.url))
        try:
            return await client.streams([[b"x" * (6 << 20)]], deadline_s=time.monotonic() + 60)
        finally:
            client.close()

    [[exchange]] = run(main).streams
    assert (exchange.status, exchange.written_at_s) == (200, None)
    assert len(server.requests[0]) > 6 << 20


# --- processes and clocks ---------------------------------------------------------------------------------------------


def test_several_processes_are_one_load(raw_server: Start) -> None:
    server = raw_server(well)
    before_s = time.monotonic()
    load = loop(server.url, 5, 3, processes=2)
    after_s = time.monotonic()
    assert (load.cost.processes, load.unsent, load.stopped) == (2, 0, None)
    for number, stream in enumerate(load.streams):
        assert [f'"{number}-{turn}"'.encode() in e.request_body for turn, e in enumerate(stream)] == [True] * 3
        assert all(exchange.status == 200 for exchange in stream)
    # One clock for all processes.
    assert all(before_s < e.sent_at_s < e.pieces[0].at_s <= e.ended_at_s < after_s for e in load.exchanges)
    assert all(b"Bearer sesame" in request for request in server.requests)


def test_worker_processes_stay_warm_carry_no_secret_and_end_with_the_client(raw_server: Start) -> None:
    server = raw_server(well)
    seen: list[list[psutil.Process]] = []

    async def main() -> None:
        client = LoadClient(Endpoint.at(server.url, "sesame"), processes=2)
        for _ in range(2):
            load = await client.streams([[body("a")], [body("b")]], deadline_s=time.monotonic() + 60)
            assert [exchange.status for exchange in load.exchanges] == [200, 200]
            seen.append(workers())
            assert "sesame" not in str([worker.cmdline() for worker in seen[-1]])
        client.close()

    run(main)
    assert len(seen[0]) == 2
    assert seen[0] == seen[1]
    assert len(server.requests) == 2
    gone, alive = psutil.wait_procs(seen[0], timeout=30)
    assert (len(gone), alive) == (2, [])


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            found += [process] if "gates.load.worker" in process.cmdline() else []
    return found


def test_a_server_that_no_process_reaches() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    load = loop(f"http://127.0.0.1:{port}", 3, 2, processes=2)
    assert accounted(load, 3, 2)
    assert load.stopped is not None
    assert "connection refused" in load.stopped


def test_a_worker_that_dies_is_an_error_and_no_measurement(raw_server: Start) -> None:
    asked = threading.Event()

    def script(connection: socket.socket, request: bytes) -> None:
        asked.set()
        connection.recv(1)

    def kill() -> None:
        asked.wait(30)
        for worker in workers():
            worker.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ClientBrokeError, match="ended in the middle"):
        loop(raw_server(script).url, 2, 1, processes=2)
    killer.join()


def test_no_part_of_the_client_reads_a_clock_that_can_be_set() -> None:
    parts = [Path(inspect.getfile(load_client)), *Path(gates.load.__path__[0]).glob("*.py")]
    assert len(parts) > 4
    for path in parts:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr in ("monotonic", "process_time"), f"{path.name}:{node.lineno} reads time.{node.attr}"


def test_the_client_says_when_it_was_the_limit() -> None:
    assert ClientCost(0.0005, 0.3).limit(0.005) is None
    assert ClientCost(0.05, 0.3).limit(None) is None
    busy = ClientCost(0.0, 0.71).limit(0.005)
    late = ClientCost(0.0011, 0.3).limit(0.005)
    assert busy is not None
    assert late is not None
    assert "71% of a core" in busy
    assert "1.1 ms late" in late


def test_processes_follow_the_offered_rate() -> None:
    assert [processes_for(rate, cores=8) for rate in (0, 6_400, 40_000, 40_001, 10**9)] == [1, 1, 1, 2, 8]
    assert processes_for(10**6, cores=1) == 1
    assert processes_for(10**6, cores=os.cpu_count() or 1) <= (os.cpu_count() or 1)


def test_a_saturated_client_gets_more_processes() -> None:
    assert [processes_after(ClientCost(0.0, share), cores=8) for share in (0.1, 0.7, 0.8, 1.0)] == [1, 1, 3, 3]
    assert processes_after(ClientCost(0.0, 1.0, processes=4), cores=8) == 8
    assert processes_after(ClientCost(0.0, 1.0, processes=2), cores=2) == 2


def test_a_result_is_handed_over_without_being_looked_at() -> None:
    class Huge:
        def __repr__(self) -> str:
            raise AssertionError("nobody needs this")

    async def main() -> Huge:
        return Huge()

    assert isinstance(run(main), Huge)
