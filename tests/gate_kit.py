"""What the tests of the gates share: a server that misbehaves byte by byte, pieces of wire traffic, answers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gates.contract import Verdict
from gates.wire import Exchange, Piece

Script = Callable[[socket.socket, bytes], None]


@dataclass
class RawServer:
    """Gives every connection to a script, with the request as read; closes it when the script returns."""

    script: Script
    requests: list[bytes] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.closing.set()
        # The waiting thread ends before its descriptor's number is free for somebody else's listener.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = read_request(connection)
            if request:
                self.requests.append(request)
                self.script(connection, request)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")), 0
    )
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return head + b"\r\n\r\n" + body


def answer(status: str, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def replying(status: str, content_type: str, body: bytes) -> Script:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(answer(status, content_type, body))

    return script


def event(document: Any) -> bytes:
    return b"data: " + (document if isinstance(document, bytes) else json.dumps(document).encode()) + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    document = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    return event(document)


USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
DONE = b"data: [DONE]\n\n"
FIRST = chunk({"role": "assistant", "content": ""})
END = chunk(usage=USAGE) + DONE


def streamed(*parts: bytes, piece_bytes: int | None = None) -> Exchange:
    """An exchange as if `parts` had come over the wire, one millisecond apart."""
    body = b"".join(parts)
    cut = [body[i : i + piece_bytes] for i in range(0, len(body), piece_bytes)] if piece_bytes else list(parts)
    pieces = tuple(Piece(index / 1000, data) for index, data in enumerate(cut))
    headers = (("Content-Type", "text/event-stream"),)
    return Exchange("POST", "/v1/chat/completions", b"{}", 0.0, len(cut) / 1000, 200, headers, pieces)


def whole(document: Any) -> Exchange:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = (("Content-Type", "application/json"),)
    return Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, 200, headers, (Piece(0.1, body),))


def rules_broken(breaches: Any) -> set[str]:
    return {breach.rule for breach in breaches}


Judge = Callable[..., Verdict]
Engines = Callable[..., str]


def failed_checks(verdict: Verdict) -> set[str]:
    return {check.id for check in verdict.checks if check.verdict == "fail"}
