from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from gate_kit import RawServer, Script, answer, replying

from gates.endpoint import Endpoint
from gates.errors import GateUsageError
from gates.wire import parse_endpoint, parse_location

Start = Callable[[Script], RawServer]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("http://gpu/box/v1", "http://gpu:80/box"),
        ("https://gpu", "https://gpu:443"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_endpoints_with_and_without_v1(url: str, base: str) -> None:
    assert parse_endpoint(url).base == base


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000", "is not an http or https URL"),
        ("ftp://h", "is not an http or https URL"),
        ("http://", "is not an http or https URL"),
        ("http://h:port", "is not a URL"),
        ("http://h:99999", "is not a URL"),
        ("http://user:secret@h", "user name or password"),
        ("http://h/?a=1", "query or fragment"),
        ("http://h/a b", "blank"),
        ("http://h\r\nX: y", "blank"),
    ],
)
def test_what_is_no_endpoint(url: str, said: str) -> None:
    with pytest.raises(GateUsageError, match=said) as caught:
        parse_endpoint(url)
    assert caught.value.exit_code == 2
    assert "secret" not in str(caught.value)


def test_a_metrics_url_keeps_its_path() -> None:
    target, path = parse_location("http://h:9/metrics")
    assert (target.base, path) == ("http://h:9", "/metrics")


def test_a_key_that_would_break_a_header_is_refused() -> None:
    with pytest.raises(GateUsageError, match="API key"):
        Endpoint.at("http://h", "abc\r\nX-Evil: 1")


def test_the_key_travels_in_the_header_and_redirects_are_not_followed(raw_server: Start) -> None:
    target = raw_server(replying("200 OK", "text/plain", b"never asked"))

    def redirect(connection: socket.socket, request: bytes) -> None:
        connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {target.url}\r\nContent-Length: 0\r\n\r\n".encode())

    server = raw_server(redirect)
    exchange = Endpoint.at(server.url, "sk-1").get("/v1/models", timeout_s=10)
    assert (exchange.status, target.requests) == (302, [])
    assert b"Authorization: Bearer sk-1\r\n" in server.requests[0]


def test_proxy_variables_are_ignored(raw_server: Start) -> None:
    # Whoever reads only sockets cannot be led astray; the request arrives in origin form, not in proxy form.
    server = raw_server(replying("200 OK", "text/plain", b"x"))
    Endpoint.at(server.url).get("/v1/models", timeout_s=10)
    assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")


def test_a_body_that_ends_with_the_connection_is_complete(raw_server: Start) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")

    exchange = Endpoint.at(raw_server(script).url).get("/", timeout_s=10)
    assert (exchange.body, exchange.failure) == (b"hello", None)


def test_a_body_that_breaks_off_is_not(raw_server: Start) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(answer("200 OK", "text/plain", b"hello world")[:-3])

    exchange = Endpoint.at(raw_server(script).url).get("/", timeout_s=10)
    assert exchange.failure is not None
    assert (exchange.failure.layer, exchange.body) == ("http", b"hello wo")


def test_the_size_limit_cuts_and_says_so(raw_server: Start) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    exchange = Endpoint.at(raw_server(script).url).request("GET", "/", None, timeout_s=30, limit_bytes=200_000)
    assert exchange.failure is not None
    assert "larger than" in exchange.failure.sentence
    assert len(exchange.body) <= 200_000


def test_the_deadline_holds_against_a_server_that_drips(raw_server: Start) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    before_s = time.monotonic()
    exchange = Endpoint.at(raw_server(script).url).get("/", timeout_s=0.5)
    assert exchange.failure is not None
    assert exchange.failure.layer == "timeout"
    assert time.monotonic() - before_s < 10


def test_layers_host_and_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    refused = Endpoint.at(f"http://127.0.0.1:{port}").get("/", timeout_s=10)
    assert refused.failure is not None
    assert (refused.failure.layer, refused.failure.sentence) == (
        "port",
        f"no connection to 127.0.0.1:{port}: connection refused",
    )
    nowhere = Endpoint.at("http://no-such-host.invalid").get("/", timeout_s=10)
    assert nowhere.failure is not None
    assert nowhere.failure.layer == "host"
