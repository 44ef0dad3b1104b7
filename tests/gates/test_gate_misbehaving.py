"""Servers that do everything but answer: each is a verdict within the deadline, and nobody's traceback."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from gate_kit import FIRST, Judge, RawServer, Script, chunk, replying

GATES = ("health", "smoke", "acceptance", "throughput")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def never_answers(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)


def streams_for_ever(connection: socket.socket, request: bytes) -> None:
    connection.sendall(HEAD + framed(FIRST))
    while True:
        connection.sendall(framed(chunk({"content": "and "})))
        time.sleep(0.01)


def huge_body(connection: socket.socket, request: bytes) -> None:
    connection.sendall(HEAD)
    block = framed(b"data: " + b"x" * 1_000_000)
    for _ in range(1000):
        connection.sendall(block)


def endless_header(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")


SERVERS: dict[str, Script] = {
    "html": replying("200 OK", "text/html", b"<html><body>It works!</body></html>"),
    "never answers": never_answers,
    "streams for ever": streams_for_ever,
    "huge body": huge_body,
    "endless header": endless_header,
    "invalid utf-8": replying("200 OK", "text/event-stream", b'data: {"choices": "\xff\xfe"}\n\n'),
    "binary": replying("200 OK", "application/octet-stream", bytes(range(256)) * 50),
    "deep json": replying("200 OK", "application/json", b'{"a":' * 20_000),
    "hangs up": lambda connection, request: None,
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("server", SERVERS)
def test_a_verdict_in_time_whatever_comes(
    judge: Judge, raw_server: Callable[[Script], RawServer], gate: str, server: str
) -> None:
    patience = {"request_timeout_s": 0.5} if gate == "throughput" else {"timeout_s": 0.5}
    before_s = time.monotonic()
    verdict = judge(gate, raw_server(SERVERS[server]).url, profile=patience, deadline_s=30)
    assert verdict.verdict == "fail", verdict.sentence
    assert time.monotonic() - before_s < 30
    assert verdict.sentence


def test_the_gates_own_end_says_nothing_about_the_engine(
    judge: Judge, raw_server: Callable[[Script], RawServer]
) -> None:
    for gate in ("acceptance", "throughput"):
        verdict = judge(gate, raw_server(never_answers).url, deadline_s=0.8)
        assert verdict.verdict == "inconclusive", verdict.sentence


@pytest.mark.parametrize("gate", GATES)
def test_a_wrong_model_name_fails_and_names_the_served_ones(
    judge: Judge, raw_server: Callable[[Script], RawServer], gate: str
) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        models = replying("200 OK", "application/json", b'{"data": [{"id": "qwen"}]}')
        refused = replying(
            "404 Not Found", "application/json", b'{"error": {"message": "The model `emu` does not exist."}}'
        )
        (models if request.startswith(b"GET /v1/models") else refused)(connection, request)

    verdict = judge(gate, raw_server(script).url)
    assert verdict.verdict == "fail"
    assert "qwen" in verdict.sentence


@pytest.mark.parametrize("gate", GATES)
def test_bad_settings_and_addresses_are_errors_with_a_hint(judge: Judge, gate: str) -> None:
    known = "margin" if gate == "throughput" else "max_tokens"
    misspelt = judge(gate, "http://127.0.0.1:1", profile={known[:-1]: 5})
    assert (misspelt.verdict, f"did you mean {known!r}?" in misspelt.sentence) == ("error", True)
    capability = judge(gate, "http://127.0.0.1:1", capability={"thinkng": "none"})
    assert (capability.verdict, "did you mean 'thinking'?" in capability.sentence) == ("error", True)
    address = judge(gate, "localhost:8000")
    assert (address.verdict, "not an http or https URL" in address.sentence) == ("error", True)
