"""One client connection: HTTP/1.1 read by httptools, answers written straight to the socket.

Straight, because the event loop would otherwise collect writes and send them at the end of its turn:
with 64 streams due together the last ones would leave a millisecond late.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs

import httptools

from .pacer import Pacer
from .wire import compact

BODY_LIMIT_BYTES = 32 * 1024 * 1024
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@dataclass(slots=True)
class Request:
    """One HTTP request. `arrived_ns` is the moment its last byte was read, CLOCK_MONOTONIC."""

    method: str = ""
    path: str = ""
    query: dict[str, list[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    arrived_ns: int = 0
    keep_alive: bool = True
    version: str = "1.1"


class Connection(asyncio.Protocol):
    """Reads requests and hands them one at a time to `serve`; the next one waits until the answer is complete."""

    def __init__(self, serve: Callable[["Connection", Request], None], pacer: Pacer, known: set["Connection"]) -> None:
        self._serve = serve
        self._pacer = pacer
        self._known = known
        self._parser = httptools.HttpRequestParser(self)
        self._reading = Request()
        self._inbox: deque[Request] = deque()
        self._current: Request | None = None
        self._transport: asyncio.Transport
        self._fd = -1
        self.on_lost: Callable[[], None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pacer.run_due()
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")  # noqa: S101 - uvloop's is no subclass
        self._transport = transport  # type: ignore[assignment]
        self._fd = transport.get_extra_info("socket").fileno()
        self._known.add(self)

    def data_received(self, data: bytes) -> None:
        self._pacer.run_due()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.BAD_REQUEST, "this server does not upgrade connections")
        except httptools.HttpParserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"not HTTP/1.1: {error}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's shape
        self._known.discard(self)
        self._inbox.clear()
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    # httptools

    def on_message_begin(self) -> None:
        self._reading = Request()

    def on_url(self, url: bytes) -> None:
        self._reading.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reading.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        request = self._reading
        request.method = self._parser.get_method().decode("latin-1")
        request.version = self._parser.get_http_version()
        if request.headers.get("expect", "").lower() == "100-continue":
            self.write_now(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._reading.body += body
        if len(self._reading.body) > BODY_LIMIT_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {BODY_LIMIT_BYTES} bytes")

    def on_message_complete(self) -> None:
        request = self._reading
        request.arrived_ns = time.monotonic_ns()
        request.keep_alive = self._parser.should_keep_alive()
        request.path, _, query = request.path.partition("?")
        request.query = parse_qs(query)
        self._inbox.append(request)
        if self._current is None:
            # Served in a turn of its own: first every waiting request gets its arrival time.
            self._pacer.in_turn(self._next)

    def _next(self) -> None:
        if self._current is None and self._inbox and not self._transport.is_closing():
            self._pacer.run_due()
            self._current = self._inbox.popleft()
            self._serve(self, self._current)

    # answers

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole answer."""
        reason = HTTPStatus(status).phrase
        head = (
            f"HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\ncontent-type: {content_type}\r\n"
            f"content-length: {len(body)}\r\n{'' if self._keep_alive else 'connection: close' + chr(13) + chr(10)}\r\n"
        )
        bodiless = self._current is not None and self._current.method == "HEAD"
        self.write_now(head.encode("latin-1") + (b"" if bodiless else body))
        self.finished()

    def stream_head(self) -> bytes:
        """The response head of a stream; what follows are HTTP chunks."""
        return _STREAM_HEAD

    def write_now(self, data: bytes) -> None:
        """Write without waiting for the loop's turn to end; what the socket does not take is queued."""
        transport = self._transport
        if transport.is_closing():
            return
        if not transport.get_write_buffer_size():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                transport.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        transport.write(data)

    def finished(self) -> None:
        """The answer is complete: close, or take the next request."""
        self.on_lost = None
        if not self._keep_alive:
            self._transport.close()
            return
        self._current = None
        if self._inbox:
            self._pacer.in_turn(self._next)

    def cut(self) -> None:
        """Close in the middle of an answer; what was written still arrives, the end of the stream does not."""
        self._transport.close()

    def drop(self) -> None:
        """Reset the connection: the client gets no answer, and an error instead of an end."""
        self._transport.abort()

    def retire(self) -> None:
        """Take no further request: close now if idle, else after the answer that is under way."""
        if self._current is None:
            self._transport.close()
        else:
            self._current.keep_alive = False

    @property
    def _keep_alive(self) -> bool:
        return self._current is None or self._current.keep_alive

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        if self._transport.is_closing():
            return
        body = compact({"error": {"message": why, "type": "BadRequestError", "param": None, "code": int(status)}})
        head = f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.write_now(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self._transport.close()
