"""Bytes and arrival times of one HTTP exchange, before anybody asks what they mean.

Both transports (`endpoint.py`, blocking, and `load_client.py`, many at once) feed the same `Recorder`, so that a
probe and a load test can never disagree about what came over the wire.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import httptools

from gates.errors import GateUsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Layer = Literal["host", "port", "http", "generation", "identity", "timeout"]

DEFAULT_LIMIT_BYTES: Final = 64 * 1024 * 1024
_MAX_HEADER_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class Target:
    """Where requests go. `prefix` is what precedes ``/v1`` in the path."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str

    @property
    def base(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == standard else f"{host}:{self.port}"


def parse_endpoint(endpoint: str) -> Target:
    """A base URL with or without ``/v1``. Raises `GateUsageError`."""
    target = _parse_url(endpoint)
    prefix = target.prefix.rstrip("/")
    prefix = prefix.removesuffix("/v1")
    return Target(target.scheme, target.host, target.port, prefix)


def parse_location(url: str) -> tuple[Target, str]:
    """A complete URL, as of a metrics page: the server and the path on it. Raises `GateUsageError`."""
    target = _parse_url(url)
    return Target(target.scheme, target.host, target.port, ""), target.prefix or "/"


def _parse_url(url: str) -> Target:
    shape = "expected http://HOST:PORT, with or without /v1"
    if any(ord(c) <= ord(" ") or ord(c) > ord("~") for c in url):
        raise GateUsageError(f"The endpoint {url!r} holds a blank or a character outside ASCII; {shape}.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise GateUsageError(f"The endpoint {url!r} is not a URL ({error}); {shape}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GateUsageError(f"The endpoint {url!r} is not an http or https URL; {shape}.")
    if parts.username is not None or parts.password is not None:
        raise GateUsageError(
            "The endpoint URL carries a user name or password; name the variable that holds the API key instead."
        )
    if parts.query or parts.fragment:
        raise GateUsageError(f"The endpoint {url!r} has a query or fragment; {shape}.")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Target(scheme, parts.hostname, port or {"http": 80, "https": 443}[scheme], parts.path)


@dataclass(frozen=True)
class Failure:
    """Why there is no complete answer: the layer at which it ended, and a sentence."""

    layer: Layer
    sentence: str


class Piece(NamedTuple):
    """Body bytes that one socket read delivered, and when, on the monotonic clock."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Exchange:
    """One request and whatever came back. All times are `time.monotonic()` seconds."""

    method: str
    path: str
    request_body: bytes
    sent_at_s: float
    ended_at_s: float
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    failure: Failure | None = None
    written_at_s: float | None = None
    """When the system had taken the whole request, where that was seen: it left between `sent_at_s` and then."""

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    @property
    def content_type(self) -> str:
        return self.header("content-type").split(";")[0].strip().lower()

    def header(self, name: str) -> str:
        """Its first value; empty where there is none."""
        return next((v.strip() for k, v in self.headers if k.lower() == name), "")

    @property
    def total_s(self) -> float:
        return self.ended_at_s - self.sent_at_s


@dataclass
class Recorder:
    """The callbacks of httptools: keeps body pieces with the time of the socket read that completed them."""

    limit_bytes: int = DEFAULT_LIMIT_BYTES
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    size_bytes: int = 0
    complete: bool = False
    keep_alive: bool = False
    failure: Failure | None = None

    def __post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._now_s = 0.0
        self._header_bytes = 0

    def feed(self, data: bytes, now_s: float) -> None:
        """Never raises: what is no HTTP becomes `failure`."""
        self._now_s = now_s
        if self.complete:
            self.failure = Failure("http", f"{len(data)} more bytes followed the end of the answer")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as error:
            what = str(error) or type(error).__name__
            self.failure = self.failure or Failure("http", f"the answer is not HTTP ({what})")

    def end_of_stream(self) -> None:
        """The server closed the connection."""
        if self.complete or self.failure:
            return
        if self.status is None:
            self.failure = Failure("http", "the server closed the connection without an answer")
        elif self._ends_at_close():
            self.complete = True
        else:
            self.failure = Failure("http", f"the connection broke off after {self.size_bytes} bytes of the answer")

    def where_it_stood(self, waited_s: float) -> str:
        """How far the answer had got when nobody waited any longer."""
        if self.status is None:
            return f"connected, the request was sent, and no answer came within {waited_s:.3g} s"
        if not self.size_bytes:
            return f"HTTP {self.status} and its headers came, but no byte of content within {waited_s:.3g} s"
        return f"the answer had not ended after {waited_s:.3g} s ({self.size_bytes} bytes had come)"

    def exchange(self, method: str, path: str, body: bytes, sent_at_s: float, ended_at_s: float) -> Exchange:
        headers = tuple(self.headers)
        pieces = tuple(self.pieces)
        return Exchange(method, path, body, sent_at_s, ended_at_s, self.status, headers, pieces, self.failure)

    def _ends_at_close(self) -> bool:
        framed = {"content-length", "transfer-encoding"}
        return not any(name.lower() in framed for name, _ in self.headers)

    # callbacks of httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MAX_HEADER_BYTES:
            self.failure = Failure("http", "the headers of the answer are larger than 256 KiB")
            raise ValueError
        self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self.failure is not None:
            return
        self.size_bytes += len(data)
        if self.size_bytes > self.limit_bytes:
            limit_mib = self.limit_bytes / 1024 / 1024
            self.failure = Failure("http", f"the answer is larger than {limit_mib:g} MiB and was cut there")
            return
        self.pieces.append(Piece(self._now_s, bytes(data)))

    def on_message_complete(self) -> None:
        if is_interim(self.status):
            self.status = None
            self.headers.clear()
            return
        self.keep_alive = self._parser.should_keep_alive()
        self.complete = True


def is_interim(status: int | None) -> bool:
    """100 Continue and 103 Early Hints come before the answer, also to those who did not ask for them (RFC 9110)."""
    return status is not None and 100 <= status < 200 and status != 101


def encode_request(
    target: Target, method: str, path: str, body: bytes, *, api_key: str | None = None, keep_alive: bool = False
) -> bytes:
    """The request as bytes. No redirects are followed and no proxy is asked: there is nothing here that could."""
    lines = [
        f"{method} {target.prefix}{path} HTTP/1.1",
        f"Host: {target.authority}",
        "Accept: application/json, text/event-stream",
        "Accept-Encoding: identity",
        "User-Agent: cutover-gates",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def encode_body(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


def resolve(target: Target, timeout_s: float) -> tuple[str, int] | Failure:
    """A numeric address, within `timeout_s`: the resolver of the C library knows no deadline of its own."""
    try:
        ipaddress.ip_address(target.host)
    except ValueError:
        return _look_up(target, timeout_s)
    return target.host, target.port


def _look_up(target: Target, timeout_s: float) -> tuple[str, int] | Failure:
    found: list[str] = []
    problem: list[str] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem.append(str(error))
            return
        found.extend(str(answer[4][0]) for answer in answers)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(max(0.0, timeout_s))
    if found:
        # An IPv6 answer for `localhost` is no use to a server that listens on 127.0.0.1, as engines do.
        return min(found, key=lambda address: ":" in address), target.port
    if problem:
        return Failure("host", f"the host name {target.host!r} does not resolve ({problem[0]})")
    return Failure("host", f"the host name {target.host!r} did not resolve within {timeout_s:.1f} s")


def reason(error: BaseException) -> str:
    """What the operating system or TLS said, without numbers and brackets."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "reset by the server"
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__)
