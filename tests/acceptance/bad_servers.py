"""Servers that do everything but answer, byte by byte, on real sockets."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

Script = Callable[[socket.socket, bytes], None]

_STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_MODELS: Final = b'{"object": "list", "data": [{"id": "%s", "object": "model"}]}'
_EVENT: Final = (
    b'data: {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "emu", '
    b'"choices": [{"index": 0, "delta": {"role": "assistant", "content": "and "}, "finish_reason": null}]}\n\n'
)
_ENDED_EARLY: Final = (
    b'{"id": "c1", "object": "chat.completion", "created": 1, "model": "emu", '
    b'"usage": {"prompt_tokens": 5, "completion_tokens": 5}, "choices": '
    b'[{"index": 0, "message": {"role": "assistant", "content": "Hello \xff\xfe"}, "finish_reason": "stop"}]}'
)


@contextlib.contextmanager
def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a server that gives every connection, with the request as read, to `script` and closes it then."""
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=_accept, args=(listener, script, tls, closing), daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            closing.set()
            thread.join(5)


def refusing() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def own_certificate(folder: Path) -> ssl.SSLContext | None:
    """For a TLS server whose certificate nobody trusts; None where no openssl is at hand to make one."""
    program = shutil.which("openssl")
    if program is None:
        return None
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command = [program, "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _accept(listener: socket.socket, script: Script, tls: ssl.SSLContext | None, closing: threading.Event) -> None:
    while not closing.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        threading.Thread(target=_serve, args=(connection, script, tls), daemon=True).start()


def _serve(connection: socket.socket, script: Script, tls: ssl.SSLContext | None) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(30)
        plain = connection if tls is None else tls.wrap_socket(connection, server_side=True)
        with plain:
            script(plain, _request(plain))


def _request(connection: socket.socket) -> bytes:
    data = b""
    # Whatever is no HTTP, as a TLS handshake, is not waited for to the end of.
    while b"\r\n\r\n" not in data and not (data and not data[:1].isalpha()):
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    return data


def replying(status: str, content_type: str, body: bytes) -> Script:
    """The same whole answer to everything."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"

    def script(connection: socket.socket, request: bytes) -> None:
        del request
        connection.sendall(head.encode() + body)

    return script


def with_models(name: str, script: Script) -> Script:
    """A right list of models; `script` answers everything else."""
    models = replying("200 OK", "application/json", _MODELS % name.encode())

    def both(connection: socket.socket, request: bytes) -> None:
        (models if request.startswith(b"GET /v1/models ") else script)(connection, request)

    return both


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _never_answers(connection: socket.socket, request: bytes) -> None:
    del request
    connection.recv(1)


def _headers_only(connection: socket.socket, request: bytes) -> None:
    del request
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n")
    connection.recv(1)


def _streams_for_ever(connection: socket.socket, request: bytes) -> None:
    del request
    connection.sendall(_STREAM)
    while True:
        connection.sendall(_framed(_EVENT))
        time.sleep(0.01)


def _a_gigabyte(connection: socket.socket, request: bytes) -> None:
    del request
    connection.sendall(_STREAM)
    block = _framed(b"data: " + b"x" * 1_000_000)
    for _ in range(1000):
        connection.sendall(block)


def _endless_headers(connection: socket.socket, request: bytes) -> None:
    del request
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")


def _hangs_up(connection: socket.socket, request: bytes) -> None:
    del connection, request


def _refuses_in_plain_http(connection: socket.socket, request: bytes) -> None:
    """What web servers do with a TLS handshake on their plain port."""
    del request
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


_JSON: Final = "application/json"
NO_SUCH_MODEL: Final = replying("404 Not Found", _JSON, b'{"error": {"message": "The model `emu` does not exist."}}')
PLAIN_HTTP: Final = _refuses_in_plain_http
NEVER_ANSWERS: Final = _never_answers
NEEDS_KEY: Final = replying("401 Unauthorized", _JSON, b'{"error": "Unauthorized"}')
HTML: Final = replying("200 OK", "text/html", b"<html><body>It works!</body></html>")

BROKEN: Final[Mapping[str, tuple[Script, str]]] = {
    "html": (HTML, "the server answered with an HTML page; this is no OpenAI-compatible endpoint"),
    "html with 404": (replying("404 Not Found", "text/html", b"<html>nginx</html>"), "HTTP 404: an HTML page"),
    "never answers": (NEVER_ANSWERS, "no answer came within"),
    "headers only": (_headers_only, "HTTP 200 and its headers came, but no byte of content within"),
    "streams for ever": (_streams_for_ever, "the answer had not ended after"),
    "1 GB": (_a_gigabyte, "the answer is larger than 16 MiB and was cut there"),
    "endless headers": (_endless_headers, "the headers of the answer are larger than 256 KiB"),
    "no utf-8": (replying("200 OK", _JSON, b'{"choices": "\xff\xfe"}'), "not valid UTF-8 (byte 0xff at offset 13)"),
    "no utf-8 in the text": (replying("200 OK", _JSON, _ENDED_EARLY), "not valid UTF-8"),
    "binary": (replying("200 OK", "application/octet-stream", bytes(range(256)) * 50), "not valid UTF-8"),
    "deep json": (replying("200 OK", _JSON, b'{"a":' * 20_000), "not a chat completion"),
    "nothing": (replying("200 OK", _JSON, b""), "not a chat completion"),
    "500 on everything": (
        replying("500 Oops", _JSON, b'{"error": {"message": "out of memory"}}'),
        "500: out of memory",
    ),
    "hangs up": (_hangs_up, "the server closed the connection without an answer"),
    "no http": (lambda connection, _: connection.sendall(b"SSH-2.0-OpenSSH_9\r\n"), "the answer is not HTTP"),
    "redirects": (replying("302 Found", "text/plain", b"moved"), "HTTP 302: moved"),
}
"""Servers, and what the gate should say of each."""
ENDLESS: Final = frozenset({"never answers", "headers only", "streams for ever"})
