"""The public address with a certificate and with keys: who is served, what engines hear of it, how both change."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import signal
import ssl
import threading
import time
from pathlib import Path

import httpx
import pytest
from own_ports import free_port

from controller.core.route import Route, Slot
from controller.effects.frontdoor.door import DoorError, DoorSettings, FrontDoor

CERTS = Path(__file__).parent / "certs"
OLD, NEW, WRONG = "sk-old-0123456789abcdef", "sk-new-0123456789abcdef", "sk-bad-0123456789abcdef"


class _Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        if self.path != "/health":
            self.heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, *_: object) -> None:
        pass


class _Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A check that resets its connection is no news."""


@pytest.fixture(scope="module")
def engine():
    handler = type("Handler", (_Engine,), {"heard": []})
    server = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], handler.heard
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def guarded_door(tmp_path_factory, engine):
    directory = tmp_path_factory.mktemp("door")
    pem, keys = directory / "site.pem", directory / "keys"
    shutil.copyfile(CERTS / "one.pem", pem)
    keys.write_text(f"# ours\n{OLD}\n")
    for file in (pem, keys):
        file.chmod(0o640)
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("public", "preview", "inner")}
    door = FrontDoor(DoorSettings(directory / "door", **ports, slots=2, tls_cert=pem, api_keys_file=keys))
    try:
        door.ensure()
        door.apply(Route(1, (Slot(1, engine[0], health_path="/health", release="r@1", attempt="a-1"),), ()))
        until(lambda: any(slot.up for slot in door.read().public))
        yield door, pem, keys
    finally:
        with contextlib.suppress(FileNotFoundError):
            door.stop()


def until(condition, timeout_s=20.0):
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def ask(door, *, method="GET", path="/v1/models", cert="one", **headers):
    context = ssl.create_default_context(cafile=str(CERTS / f"{cert}.pem"))
    with httpx.Client(base_url=f"https://127.0.0.1:{door.settings.public_address.port}", verify=context) as client:
        return client.request(method, path, headers=headers)


def test_only_who_has_a_key_is_served(guarded_door, engine):
    door, _, _ = guarded_door
    engine[1].clear()
    refused = [{}, {"Authorization": OLD}, {"Authorization": f"Basic {OLD}"}, {"x-api-key": ""}]
    refused += [{name: value} for value in (WRONG, "k-", "none", OLD[:-1], OLD.upper()) for name in ("x-api-key",)]
    refused += [{"Authorization": f"Bearer {value}"} for value in (WRONG, digest(OLD), f"{WRONG},{WRONG}")]
    refused += [{"Authorization": f"Bearer {WRONG}", "x-api-key": OLD}]
    for headers in refused:
        answer = ask(door, **headers)
        assert answer.status_code == 401, headers
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert ask(door, method="POST", path="/v1/completions", **headers).status_code == 401
        assert ask(door, path="/sleep", **headers).status_code == 401
    assert engine[1] == []
    assert ask(door, path="/health").status_code == 200, "a balancer has no key"
    for headers in ({"Authorization": f"Bearer {OLD}"}, {"authorization": f"bearer {OLD}"}, {"x-api-key": OLD}):
        assert ask(door, **headers).status_code == 200, headers
    for _, heard in engine[1]:
        assert not {"authorization", "x-api-key"} & set(heard)


def digest(key):
    return hashlib.sha256(key.encode()).hexdigest().upper()


def test_the_daemon_has_a_way_in_of_its_own(guarded_door):
    door, _, _ = guarded_door
    for port in (door.settings.inner_address.port, door.settings.preview_address.port):
        assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code in {200, 503}
    inner = f"http://127.0.0.1:{door.settings.inner_address.port}"
    assert httpx.get(f"{inner}/v1/models", trust_env=False).status_code == 200
    assert httpx.get(f"{inner}/sleep", trust_env=False).status_code == 404


def test_no_old_tls_and_no_plain_text(guarded_door, engine):
    door, _, _ = guarded_door
    engine[1].clear()
    port = door.settings.public_address.port
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/v1/models", headers={"x-api-key": OLD}, trust_env=False)
    old = ssl.create_default_context(cafile=str(CERTS / "one.pem"))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx.TransportError):
        httpx.get(f"https://127.0.0.1:{port}/v1/models", headers={"x-api-key": OLD}, verify=old, trust_env=False)
    assert engine[1] == []


def test_keys_are_in_no_file_of_the_door(guarded_door):
    door, _, _ = guarded_door
    ask(door, **{"x-api-key": OLD})
    files = [path for path in door.settings.directory.rglob("*") if path.is_file()]
    for path in files:
        assert not any(key.encode() in path.read_bytes() for key in (OLD, NEW, WRONG)), path
    for name in ("tls.pem", "keys.map"):
        assert (door.settings.directory / name).stat().st_mode & 0o077 == 0
    line = (door.settings.directory / "run" / "engine.log").read_text().splitlines()[-1]
    assert json.loads(line)["key"] == f"k-{digest(OLD)[:8].lower()}"


def test_keys_and_certificate_change_while_it_runs(guarded_door):
    door, pem, keys = guarded_door
    pid = door.read().pid
    keys.write_text(f"{NEW}\n")
    door.refresh()
    assert ask(door, **{"x-api-key": OLD}).status_code == 401
    assert ask(door, **{"x-api-key": NEW}).status_code == 200
    for text, says in (
        ("", "0 keys"),
        ("short\n", "keys:1: expected one key"),
        (f"{NEW} x\n", "keys:1"),
        (None, "cannot be read"),
    ):
        if text is None:
            keys.unlink()
        else:
            keys.write_text(text)
        for _ in range(2):
            with pytest.raises(DoorError, match=says):
                door.refresh()
        assert ask(door, **{"x-api-key": NEW}).status_code == 200, "what is in force stays"
    keys.write_text(f"{NEW}\n{OLD}\n")
    keys.chmod(0o600)
    door.refresh()
    assert ask(door, **{"x-api-key": OLD}).status_code == 200

    shutil.copyfile(CERTS / "two.pem", pem)
    door.refresh()
    assert ask(door, cert="two", **{"x-api-key": NEW}).status_code == 200
    with pytest.raises(httpx.TransportError):
        ask(door, cert="one", **{"x-api-key": NEW})
    certificate, _, _ = (CERTS / "one.pem").read_text().partition("-----BEGIN PRIVATE")
    _, _, foreign_key = (CERTS / "two.pem").read_text().partition("-----BEGIN PRIVATE")
    pem.write_text(f"{certificate}-----BEGIN PRIVATE{foreign_key}")
    with pytest.raises(DoorError, match="the former certificate stays"):
        door.refresh()
    assert ask(door, cert="two", **{"x-api-key": NEW}).status_code == 200
    shutil.copyfile(CERTS / "two.pem", pem)
    door.refresh()
    assert door.read().pid == pid
    assert not door.drifted


def test_a_door_that_dies_still_demands_keys(guarded_door):
    door, _, _ = guarded_door
    pid = door.read().pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: door.read().alive and door.read().pid != pid and any(slot.up for slot in door.read().public))
    assert ask(door, cert="two", **{"x-api-key": WRONG}).status_code == 401
    assert ask(door, cert="two", **{"x-api-key": OLD}).status_code == 200


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"preview": "0.0.0.0:1"}, "preview: .* can be reached from other machines"),
        ({"inner": "[::]:1"}, "inner: .* can be reached from other machines"),
        ({"inner": "127.0.0.1:8000"}, "choose another"),
    ],
)
def test_no_open_door_beside_the_guarded_one(tmp_path, changes, says):
    with pytest.raises(DoorError, match=says):
        DoorSettings(tmp_path, api_keys_file=tmp_path / "keys", **changes)


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (f"{OLD}\n", 0o644, "everybody on this machine may read .*chmod o-r"),
        ("x" * 200_000, 0o600, "too large"),
        ("sk-,-0123456789abcdef\n", 0o600, "keys:1: expected one key"),
        ("sk-ä-0123456789abcdef\n", 0o600, "keys:1: expected one key"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_keys_file_that_cannot_be_used_starts_no_door(tmp_path, text, mode, says):
    keys = tmp_path / "keys"
    if text is not None:
        keys.write_text(text)
        keys.chmod(mode)
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("public", "preview", "inner")}
    door = FrontDoor(DoorSettings(tmp_path / "door", **ports, api_keys_file=keys))
    with pytest.raises(DoorError, match=says):
        door.ensure()


def test_a_door_that_was_started_without_them_says_when_they_take_effect(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"{OLD}\n")
    keys.chmod(0o600)
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("public", "preview", "inner")}
    plain = FrontDoor(DoorSettings(tmp_path / "door", **ports))
    plain.ensure()
    try:
        told = FrontDoor(DoorSettings(tmp_path / "door", **ports, api_keys_file=keys))
        told.ensure()
        assert told.drifted
        with pytest.raises(DoorError, match="takes effect when the front door is started again"):
            told.refresh()
    finally:
        plain.stop()
