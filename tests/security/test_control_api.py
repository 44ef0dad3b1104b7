"""Who may talk to the daemon, and how much of its patience they get."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import socket
import stat
import threading
import time

import httpx
import pytest
import uvicorn

from controller.api.peers import MOST_OF_ONE, PeerProtocol, person_of
from controller.api.tokens import Failures, Tokens
from controller.cli import main
from controller.config import parse_config
from controller.daemon import Daemon, refuse_second_daemon
from controller.errors import CutoverError, NotFoundError, RefusedError, UsageError

DAY_S = 86_400.0


# --- over the socket: the kernel says who it is ---


def test_the_socket_is_for_its_owner_and_group_alone(guarded):
    mode = guarded.stage.config.socket.stat()
    assert stat.S_IMODE(mode.st_mode) == 0o660
    assert mode.st_uid == os.geteuid()


def test_roles_by_user_group_and_everybody():
    stranger = next(user for user in pwd.getpwall() if user.pw_uid not in {0, os.geteuid()})
    name, uid, gid = stranger.pw_name, stranger.pw_uid, stranger.pw_gid
    group = grp.getgrgid(gid).gr_name

    def role(**roles):
        return person_of(uid, gid, roles).role

    assert person_of(uid, gid).role == "propose"
    assert role(**{"*": "view"}) == "view"
    assert role(**{"*": "view", name: "approve"}) == "approve"
    assert role(**{f"@{group}": "admin"}) == "admin"
    assert role(**{"@no-such-group": "admin", "nobody-else": "admin"}) == "propose"
    assert role(**{name: "approve", f"@{group}": "propose"}) == "approve", "the highest that applies"
    assert person_of(0, 0, {"*": "view"}).role == "admin"
    assert person_of(4_000_000_000, -1).name == "uid 4000000000"


# --- over TCP: a token says it ---


def test_nobody_gets_in_without_a_token(guarded):
    for secret in (None, "", "cutover_" + "A" * 43, "ü\udce9", "x" * 5000):
        for method, path in (("GET", "/v1/status"), ("POST", "/v1/rollback"), ("GET", "/openapi.json"), ("GET", "/x")):
            headers = {} if secret is None else {"Authorization": b"Bearer x" + secret.encode(errors="surrogateescape")}
            with guarded.tcp() as client:
                answer = client.request(method, path, headers=headers)
            assert answer.status_code in {401, 429}, (secret, path)
            assert answer.json()["exit_code"] == 4
            assert set(answer.json()) == {"error", "exit_code"}


def test_wrong_tokens_are_bounded_and_right_ones_never(guarded):
    _, secret = guarded.token("view")
    with guarded.tcp("wrong") as wrong, guarded.tcp(secret) as right:
        answers = [wrong.get("/v1/status") for _ in range(12)]
        assert answers[-1].status_code == 429
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
        assert right.get("/v1/status").status_code == 200


def test_a_token_has_its_role_and_no_more(guarded):
    _, view = guarded.token("view")
    _, propose = guarded.token("propose")
    with guarded.tcp(view) as client:
        assert client.get("/v1/status").status_code == 200
        assert client.post("/v1/freeze", json={"why": "x"}).status_code == 403
        assert client.get("/v1/tokens").status_code == 403
        assert client.post("/v1/tokens", json={"name": "me", "role": "admin"}).status_code == 403
    with guarded.tcp(propose) as client:
        refused = client.post("/v1/rollback")
        assert refused.status_code == 409, "allowed, and there is nothing to return to"
        stopped = client.post("/v1/stop")
        assert stopped.status_code == 403
        assert "ci (token t" in stopped.json()["error"]


def test_a_token_ends_by_its_date_or_by_hand(guarded):
    token_id, secret = guarded.token("admin")
    _, short = guarded.token("view", days=1e-9)
    with guarded.tcp(short) as client:
        assert client.get("/v1/status").status_code in {401, 429}
    with guarded.tcp(secret) as client:
        listed = {entry["id"]: entry for entry in client.get("/v1/tokens").json()["tokens"]}
        assert listed[token_id]["role"] == "admin"
        assert "digest" not in listed[token_id]
        assert client.post(f"/v1/tokens/{token_id}/revoke").status_code == 200
        assert client.get("/v1/status").status_code in {401, 429}
    assert guarded.stage.api.post(f"/v1/tokens/{token_id}/revoke").status_code == 404


def test_the_file_keeps_digests_for_its_owner_alone(guarded):
    _, secret = guarded.token("view")
    file = guarded.stage.config.state_dir / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text()
    assert secret not in (guarded.stage.directory / "daemon.log").read_text()


def test_tokens_at_the_command_line(guarded, capsys):
    def run(*words):
        code = main(["--config", str(guarded.stage.config_file), "token", *words])
        return code, *capsys.readouterr()

    code, secret, said = run("create", "night", "--role", "propose", "--days", "2")
    assert code == 0
    token_id = said.partition(":")[0]
    with guarded.tcp(secret.strip()) as client:
        assert client.get("/v1/status").status_code == 200
        assert token_id in run("list")[1]
        assert run("revoke", token_id)[0] == 0
        assert client.get("/v1/status").status_code in {401, 429}
    assert token_id not in run("list")[1]
    assert run("revoke", token_id)[0] == 3
    for words in (("x", "--role", "king"), ("a b",), ("x", "--days", "0"), ("../x",)):
        code, out, said = run("create", *words)
        assert (code, out) == (2, ""), words
        assert said.startswith("cutover: ")


def test_another_name_than_ours_is_refused(guarded):
    """DNS rebinding: a page of somebody else's whose name leads here."""
    _, secret = guarded.token("view")
    for host, status in (("evil.example", 421), ("127.0.0.1.evil.example:80", 421), ("localhost:1", 200), ("", 421)):
        with guarded.tcp(secret, Host=host) as client:
            assert client.get("/v1/status").status_code == status, host


def test_tokens_survive_and_a_broken_file_is_said(tmp_path):
    now = [1000.0]
    tokens = Tokens(tmp_path / "t.json", lambda: now[0])
    shown, secret = tokens.create("ci", "approve", 1, "root")
    again = Tokens(tmp_path / "t.json", lambda: now[0])
    assert again.person(secret).role == "approve"
    assert again.person(secret[:-1]) is None
    now[0] += DAY_S
    assert again.person(secret) is None
    assert again.listed()[0]["expired"]
    with pytest.raises(NotFoundError, match="token list"):
        again.revoke("../t")
    for _ in range(100):
        tokens.create("ci", "view", 10, "root")
    with pytest.raises(RefusedError, match="100 tokens already"):
        tokens.create("ci", "view", 10, "root")
    assert shown["id"] not in {entry["id"] for entry in tokens.listed()}, "an expired one is forgotten"
    for text in ("", "{", "[]", '{"tokens": [{}]}', '{"tokens": 3}', '{"tokens": [{"id": 1}]}'):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(CutoverError, match="cutover token create"):
            Tokens(tmp_path / "t.json", lambda: 0.0)


def test_failures_are_counted_in_a_window():
    now = [0.0]
    failures = Failures(lambda: now[0], 3, 10.0)
    assert [failures.wait_s() for _ in range(4)] == [0, 0, 0, 10]
    now[0] = 7.6
    assert failures.wait_s() == 2
    now[0] = 10.0
    assert [failures.wait_s() for _ in range(4)] == [0, 0, 0, 10]


def test_the_listener_is_for_this_machine_alone(tmp_path):
    defaults = {"state_dir": tmp_path, "socket": tmp_path / "s"}
    for address in ("127.0.0.1:8010", "127.9.9.9:1", "[::1]:8010", "localhost:8010"):
        assert parse_config(f'api: "{address}"', "c.yaml", defaults).api == address
    for address in ("0.0.0.0:8010", "[::]:8010", "10.0.0.1:8010", "box.example:8010", "*:8010"):
        with pytest.raises(UsageError, match=r"c\.yaml:1: `api`.*ssh -L"):
            parse_config(f'api: "{address}"', "c.yaml", defaults)


# --- patience ---


@pytest.fixture
def hasty():
    """The same protocol, with half a second of patience, before an application that answers everybody."""

    async def answer(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    class Hasty(PeerProtocol):
        request_timeout_s = 0.5

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(answer, http=Hasty, ws="none", lifespan="off", log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [(), (b"POST / HTT",), (HEAD, b"1"), (HEAD + b"123", b"POST"), (HEAD + b"123" + HEAD + b"1",)],
    ids=["nothing", "half a head", "half a body", "a second head", "a second body"],
)
def test_a_client_that_dawdles_is_left(hasty, sent):
    with socket.create_connection(("127.0.0.1", hasty), timeout=30) as client:
        for part in sent:
            client.sendall(part)
            time.sleep(0.05)
        received = b""
        try:
            while data := client.recv(4096):
                received += data
        except ConnectionResetError:
            pass
    whole = b"".join(sent).count(b"123")
    assert received.count(b"200 OK") == whole


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        client.settimeout(10)
        return client.recv(65536)


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n", (b"400",)),
        (b"POST /v1/rollouts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", (b"413",)),
        (b"POST /v1/rollouts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", (b"413",)),
        (b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", (b"400",)),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", (b"400",)),
        (b"GET /v1/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"400",)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", (b"400",)),
        (b"CONNECT evil:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"401", b"429")),
        (b"GET http://evil/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"401", b"429")),
    ],
    ids=["head", "chunks", "length", "two lengths", "no host", "no ascii", "tls", "connect", "absolute"],
)
def test_what_no_client_of_ours_sends(guarded, data, statuses):
    assert raw(guarded.port, data).split(b" ", 2)[1] in statuses


def test_many_connections_do_not_keep_the_socket_from_its_users(guarded):
    held = [socket.create_connection(("127.0.0.1", guarded.port), timeout=10) for _ in range(200)]
    try:
        assert guarded.stage.api.get("/v1/status").status_code == 200
        deadline_s = time.monotonic() + 20
        closed = 0
        while closed < 100 and time.monotonic() < deadline_s:
            closed = sum(_is_closed(one) for one in held)
        assert closed >= 100
    finally:
        for one in held:
            one.close()


def test_one_user_does_not_use_up_the_files_of_the_daemon(guarded):
    """Of 1024 open files that a process usually may have: without one the loop can look at nothing."""

    def connect():
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(10)
        one.connect(str(guarded.stage.config.socket))
        return one

    held = [connect() for _ in range(MOST_OF_ONE + 50)]
    try:
        with connect() as one:
            answer = one.recv(4096)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"end what holds them open" in answer
        tcp = raw(guarded.port, b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert tcp.split(b" ", 2)[1] in {b"401", b"429"}  # by another door
    finally:
        for one in held:
            one.close()
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(guarded.stage.config.socket))) as client:
        deadline_s = time.monotonic() + 20
        while client.get("http://cutover/v1/status").status_code != 200:
            assert time.monotonic() < deadline_s


def _is_closed(one: socket.socket) -> bool:
    one.settimeout(0.01)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_daemon_that_hangs_is_one_too(tmp_path):
    """Its queue of connections is full: who asks whether it lives must neither wait for it nor take its place."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(str(path))
        with pytest.raises(RefusedError, match="another daemon answers on"):
            refuse_second_daemon(path)
        for one in waiting:
            one.close()
    refuse_second_daemon(path)  # nobody is there any more


def test_the_daemon_names_the_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"state_dir: {tmp_path}/state\napi: 127.0.0.1:{port}\ngpus: {{kind: none}}\n"
        daemon = Daemon(parse_config(text, "c.yaml", {}))
        with pytest.raises(CutoverError, match=f"api: 127.0.0.1:{port} cannot be listened on"):
            daemon.run()
