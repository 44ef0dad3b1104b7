"""What strangers try at the public address, against a real HAProxy and an engine that writes down what it is asked.

The engine reads strictly: a request whose framing two readers could understand differently is a breach, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time

import pytest

from controller.core.route import Route, Slot
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
from controller.effects.frontdoor.settings import PASSED

LISTED = {path for _, path in PASSED}
MARK = "/sleep"


class Recorder:
    """An engine on a port of its own. `asked`: (method, target) as they came; `breaches`: unclear framing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.breaches: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file, contextlib.suppress(OSError, ValueError):
            while head := self._head(file):
                first, *lines = head.split(b"\r\n")
                method, target, _ = first.decode("latin-1").split(" ")
                if target != "/health":
                    self.asked.append((method, target))
                self._body(file, self._framing(first, lines))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    @staticmethod
    def _head(file) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = file.readline()
            if not line:
                return b""
            head += line
        return head[:-4]

    def _framing(self, first: bytes, lines: list[bytes]) -> str:
        named = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        lengths = [value for name, value in named if name == b"content-length"]
        codings = [value for name, value in named if name == b"transfer-encoding"]
        unclear = (
            len(lengths) + len(codings) > 1
            or codings not in ([], [b"chunked"])
            or any(re.fullmatch(rb"[0-9]{1,15}", value) is None for value in lengths)
            or any(re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:.*", line) is None for line in lines)
            or any(byte in line for line in (first, *lines) for byte in (b"\n", b"\r", b"\0"))
        )
        if unclear:
            self.breaches.append(repr((first, lines)))
        return "chunked" if codings else (lengths or [b"0"])[0].decode()

    def _body(self, file, framing: str) -> None:
        if framing != "chunked":
            file.read(min(int(framing), 1 << 30))
            return
        while size_line := file.readline():
            if re.fullmatch(rb"[0-9A-Fa-f]+\r\n", size_line) is None:
                self.breaches.append(f"chunk {size_line!r}")
            size = int(size_line, 16)
            if size == 0:
                file.readline()
                return
            file.read(size + 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(door, engine): one HAProxy, short of patience, for all tests of this module."""
    engine = Recorder()
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    names = {"public": f"127.0.0.1:{ports[0]}", "preview": f"127.0.0.1:{ports[1]}"}
    door = FrontDoor(DoorSettings(tmp_path_factory.mktemp("door") / "d", slots=2, request_timeout_s=2, **names))
    try:
        door.ensure()
        slot = Slot(1, engine.port, health_path="/health", release="r@1", attempt="a-1")
        door.apply(Route(1, (slot,), (slot,)))
        end_s = time.monotonic() + 20
        while not any(one.up for one in door.read().public):
            assert time.monotonic() < end_s
            time.sleep(0.02)
        yield door, engine
    finally:
        with contextlib.suppress(FileNotFoundError):
            door.stop()
        engine.close()


@pytest.fixture
def door_and_engine(place):
    door, engine = place
    engine.asked.clear()
    engine.breaches.clear()
    return door, engine


async def _send(port: int, data: bytes, quiet_s: float = 0.5) -> bytes:
    """Everything that comes back, until the door closes or says nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        while part := await asyncio.wait_for(reader.read(65536), quiet_s):
            answer += part
    except (TimeoutError, OSError):
        pass
    finally:
        writer.close()
    return answer


def send_all(door: FrontDoor, requests: list[bytes]) -> list[bytes]:
    """To the public and to the preview address, all at once."""
    ports = (door.settings.public_address.port, door.settings.preview_address.port)

    async def scenario() -> list[bytes]:
        return await asyncio.gather(*(_send(port, data) for port in ports for data in requests))

    return asyncio.run(scenario())


def request(target: str | bytes, method: str = "POST", version: str = "1.1", *headers: str) -> bytes:
    """One request as bytes, whatever the target contains."""
    raw = target if isinstance(target, bytes) else target.encode("utf-8")
    lines = [f"Host: door:{'80'}", "Content-Length: 2", "Connection: close", *headers]
    return method.encode() + b" " + raw + f" HTTP/{version}\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n{}"


def test_the_recorder_sees_what_it_is_asked():
    """The judge of this module, judged."""
    engine = Recorder()
    bad = [
        request(MARK),
        b"POST /x HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /y HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /z HTTP/1.1\r\nA: b\r\n folded: x\r\n\r\n",
        b"POST /w HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0;x=y\r\n\r\n",
    ]

    async def scenario():
        for data in bad:
            await _send(engine.port, data, 0.2)

    asyncio.run(scenario())
    engine.close()
    assert [target for _, target in engine.asked] == [MARK, "/x", "/y", "/z", "/w"]
    assert len(engine.breaches) == 4


OTHER_PATHS = [
    MARK, f"/{MARK}", f"{MARK}/", f"{MARK}?", f"{MARK}#", f"{MARK};x", f"{MARK}.", f"{MARK}%20", f"{MARK}%00", "/SLEEP",
    "/%73leep", "/v1/../sleep", "/v1/models/../../sleep", "/v1/%2e%2e/sleep", "/v1/%2E%2E/sleep", "/v1/..%2fsleep",
    "/v1/..%2Fsleep", "/v1/..%5csleep", "/v1/..\\sleep", "/v1/%252e%252e/sleep", "/v1/.%2e/sleep", "/v1/..;/sleep",
    "/v1/%c0%ae%c0%ae/sleep", "/v1/..%c0%afsleep", "/v1/\uff0e\uff0e/sleep", "/v1/models/..;/..;/sleep", "/./sleep",
    "//v1/models", "/v1//models", "/v1/models/", "/v1/models/.", "/v1/models/x/..", "/v1/models.", "/v1/models;x=1",
    "/v1/models;", "/v1/models%00", "/v1/models%0a", "/v1/models%20", "/v1/models%3f", "/v1/models%23", "/v1/models,x",
    "/v1/models/qwen", "/V1/models", "/v1/Models", "/v1/%6dodels", "/%76%31/models", "/v1%2fmodels", "/v1%2Fmodels",
    "/v1\\models", "/v1/models\\", "/v1/mode\u006c\u0301s", "/v1/models:80", "/@/v1/models", "/v1/models@x",
    "/v1/models&x", "/v1/chat/completions/", "/v1/chat/completions/render", "/v1/completionsx",
    "v1/models", "sleep", "..", "*", "", ".", "/", "?", "/?/v1/models", "/#/v1/models", "door:80", "door:443",
    "http://door/v1/models", "http://door/sleep", "http://door:80//v1/models", "HTTP://DOOR/sleep", "https://door/sleep",
    "http://u:p@door/sleep", "http:///sleep", "http:/sleep", "file:///etc/passwd", "unix:/v1/models", "//door/sleep",
    "///sleep", "/v1/models http://x", "/v1/models /sleep",
]  # fmt: skip
RAW_PATHS = [
    b"/v1/models\0", b"/v1/models\0/../sleep", b"/sleep\xff", b"/v1/models\x7f", b"/v1/models\x01", b"\0/sleep",
    b"/v1/models\x0b", b"/v1/models\r/sleep", b"/v1/models\n/sleep", b"/v1/\xc0\xae\xc0\xae/sleep",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT"])
def test_no_other_spelling_of_a_path_arrives(door_and_engine, method):
    door, engine = door_and_engine
    answers = send_all(door, [request(target, method) for target in (*OTHER_PATHS, *RAW_PATHS)])
    assert engine.asked == []
    assert engine.breaches == []
    for answer in answers:
        assert answer[:9] in {b"", b"HTTP/1.1 ", b"HTTP/1.0 "}
        assert answer[9:10] in {b"", b"4"}, answer[:60]


OTHER_METHODS = ["CONNECT", "TRACE", "OPTIONS", "DELETE", "PATCH", "PROPFIND", "PRI", "get", "post", "X" * 100,
                 "POST\0", "M-SEARCH", "DEBUG", "TRACK", "BREW"]  # fmt: skip


def test_no_other_method_and_no_other_protocol_arrives(door_and_engine):
    door, engine = door_and_engine
    sent = [request(path, method) for method in OTHER_METHODS for path in ("/v1/models", "/v1/completions", MARK, "*")]
    sent += [request("door:80", "CONNECT"), request("127.0.0.1:22", "CONNECT"), request("/v1/models", "CONNECT")]
    sent += [request(path, version=v) for v in ("1.0", "1.1", "0.9", "2.0", "1.2", "3", "x") for path in (MARK, "/x")]
    sent += [b"GET /sleep\r\n\r\n", b"GET /v1/models\r\n\r\n", b"\r\n\r\nGET /sleep HTTP/1.0\r\n\r\n"]
    sent += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", b"\x16\x03\x01\0\xa5\x01\0\0\xa1\x03\x03"]
    answers = send_all(door, sent)
    assert engine.asked == []
    assert engine.breaches == []
    assert not any(answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 101", b"HTTP/1.0 2")) for answer in answers)


def test_a_tab_is_a_space_and_what_arrives_is_on_the_list(door_and_engine):
    """HAProxy reads it as a separator, and writes the line anew."""
    door, engine = door_and_engine
    send_all(door, [request("/v1/models\t", "GET"), request("/v1/models", "GET\t"), request(f"{MARK}\t", "GET")])
    assert engine.asked == [("GET", "/v1/models")] * 4
    assert engine.breaches == []


def test_no_upgrade_makes_a_tunnel(door_and_engine):
    door, engine = door_and_engine
    after = b"\0\0\0\4\0\0\0\0\0" + request(MARK, "GET")
    sent = [
        request("/v1/completions", "POST", "1.1", *headers) + after
        for headers in (
            ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", "Connection: Upgrade, HTTP2-Settings"),
            ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            ("Upgrade: TLS/1.0", "Connection: Upgrade"),
        )
    ]
    answers = send_all(door, sent)
    assert {target for _, target in engine.asked} <= LISTED
    assert engine.breaches == []
    assert not any(b" 101 " in answer for answer in answers)


HIDDEN = b"GET /sleep HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"0\r\n\r\n" + HIDDEN
TE = b"Transfer-Encoding: "
SMUGGLED = {
    "length and chunks": HEAD + b"Content-Length: %d\r\n" % len(CHUNKED) + TE + b"chunked\r\n\r\n" + CHUNKED,
    "chunks and length": HEAD + TE + b"chunked\r\nContent-Length: 4\r\n\r\n" + b"21\r\n" + HIDDEN + b"\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + HIDDEN,
    "two equal lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "a list of lengths": HEAD + b"Content-Length: 2, 40\r\n\r\n{}" + HIDDEN,
    "a plus": HEAD + b"Content-Length: +2\r\n\r\n{}" + HIDDEN,
    "hexadecimal": HEAD + b"Content-Length: 0x2\r\n\r\n{}" + HIDDEN,
    "an empty length": HEAD + b"Content-Length: \r\n\r\n" + HIDDEN,
    "a length beyond 64 bit": HEAD + b"Content-Length: 18446744073709551618\r\n\r\n{}" + HIDDEN,
    "a space before the colon": HEAD + b"Content-Length : 40\r\n\r\n" + HIDDEN,
    "a folded length": HEAD + b"Content-Length:\r\n 40\r\nX: y\r\n\r\n" + HIDDEN,
    "a folded header": HEAD + b"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "two codings": HEAD + TE + b"chunked\r\n" + TE + b"identity\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "an unknown coding": HEAD + TE + b"xchunked\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "identity": HEAD + TE + b"identity\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "a tab": HEAD + b"Transfer-Encoding:\tchunked\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "a vertical tab": HEAD + TE + b"\x0bchunked\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "quotes": HEAD + TE + b'"chunked"\r\nContent-Length: 40\r\n\r\n' + CHUNKED,
    "chunked, chunked": HEAD + TE + b"chunked, chunked\r\n\r\n" + CHUNKED,
    "a null in a name": HEAD + b"Transfer-\0Encoding: chunked\r\nContent-Length: 40\r\n\r\n" + CHUNKED,
    "an underscore": HEAD + b"Transfer_Encoding: chunked\r\nContent_Length: 40\r\n\r\n" + HIDDEN,
    "only line feeds": b"POST /v1/completions HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}" + HIDDEN,
    "a bare carriage return": HEAD + b"X: y\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "no name": HEAD + b": x\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "no colon": HEAD + b"Transfer-Encoding chunked\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    "a first line that is folded": b"POST /v1/completions HTTP/1.1\r\n Content-Length: 40\r\nHost: x\r\n\r\n" + HIDDEN,
    "junk for a size": HEAD + TE + b"chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "a negative size": HEAD + TE + b"chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "a size with a prefix": HEAD + TE + b"chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "a size beyond 64 bit": HEAD + TE + b"chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "an extension": HEAD + TE + b"chunked\r\n\r\n2;x=" + b"y" * 100 + b"\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "an extension with a line feed": HEAD + TE + b"chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n" + HIDDEN,
    "a chunk that is too long": HEAD + TE + b"chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "no end of a chunk": HEAD + TE + b"chunked\r\n\r\n2\r\n{}0\r\n\r\n" + HIDDEN,
    "trailers": HEAD + TE + b"chunked\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 40\r\n\r\n" + HIDDEN,
    "chunks in 1.0": HEAD.replace(b"1.1", b"1.0") + TE + b"chunked\r\nContent-Length: 2\r\n\r\n" + CHUNKED,
    "a body of a GET": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" + HIDDEN,
    "connection names the length": HEAD + b"Connection: Content-Length\r\nContent-Length: 33\r\n\r\n" + HIDDEN,
    "pipelined": HEAD + b"Content-Length: 2\r\n\r\n{}" + HIDDEN,
    "two hosts": HEAD + b"Host: y\r\nContent-Length: 2\r\n\r\n{}",
}  # fmt: skip


def test_nothing_is_smuggled(door_and_engine):
    door, engine = door_and_engine
    answers = dict(zip(SMUGGLED, send_all(door, list(SMUGGLED.values())), strict=False))
    assert {target for _, target in engine.asked} <= LISTED
    assert engine.breaches == []
    assert answers["pipelined"].count(b"HTTP/1.1 ") == 2, "the second was read as a request of its own, and refused"
    assert b" 404 " in answers["pipelined"]
    assert engine.asked, "some of these are valid, and arrive in one clear form"


def test_who_dribbles_is_left_and_keeps_nobody_waiting(door_and_engine):
    """A hundred clients that send a byte now and then, of a head or of a body; the limit is two seconds here."""
    door, engine = door_and_engine
    port = door.settings.public_address.port

    async def dribble(start: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(reader.read(65536), 0.3)
                writer.write(b"x")
        except OSError:
            return b""
        finally:
            writer.close()

    async def scenario() -> tuple[list[bytes], bytes]:
        starts = [b"P", b"POST /v1/completions HTTP/1.1\r\nX: ", HEAD + b"Content-Length: 9999\r\n\r\n{", b"\r\n"]
        slow = [asyncio.create_task(dribble(start)) for start in starts for _ in range(25)]
        await asyncio.sleep(0.5)
        served = await _send(port, request("/v1/completions"), 10)
        return await asyncio.wait_for(asyncio.gather(*slow), 60), served

    left, served = asyncio.run(scenario())
    assert served.startswith(b"HTTP/1.1 200")
    assert all(answer == b"" or answer[9:12] in {b"408", b"400"} for answer in left)
    assert engine.asked == [("POST", "/v1/completions")]


def test_what_is_too_large_is_refused(door_and_engine):
    door, engine = door_and_engine
    huge = [
        b"GET /v1/models?" + b"x" * 400_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(2000)) + b"\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 400_000 + b"\r\n\r\n",
        HEAD + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 300_000,
    ]
    answers = send_all(door, huge)
    assert engine.asked == []
    assert all(answer == b"" or answer[9:10] == b"4" for answer in answers)


def test_the_door_serves_after_all_that(door_and_engine):
    door, engine = door_and_engine
    answers = send_all(door, [request(path, method) for method, path in PASSED])
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert sorted(engine.asked) == sorted(PASSED * 2)
