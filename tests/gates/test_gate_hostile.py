"""Servers, gates and people that do what nobody expects: a sentence each time, no secret told, nothing left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from gate_kit import DONE, END, FIRST, USAGE, Judge, RawServer, Script, answer, chunk, replying, whole

from gates import load_client
from gates.__main__ import main
from gates.acceptance.probing import probed_within
from gates.child import run_gate
from gates.contract import GateRequest
from gates.endpoint import Endpoint
from gates.errors import GateUsageError
from gates.load_client import LoadClient
from gates.profile import parse
from gates.reply import read_reply

Start = Callable[[Script], RawServer]
ROOT = Path(__file__).resolve().parents[2]
JSON = "application/json"
KEY = "sk-not-to-be-told-4711"


def completion(content: str | None = "hello", **message: Any) -> bytes:
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if message else "stop"}
    return json.dumps({"model": "emu", "choices": [choice], "usage": USAGE}).encode()


def request_for(folder: Path, **fields: Any) -> GateRequest:
    given = {"gate": "mine", "endpoint": "http://127.0.0.1:1", "model": "m", "deadline_s": 30.0}
    return GateRequest(**{**given, "evidence_dir": str(folder), **fields})


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["1e999", "NaN", "[0]", '"x"'])
def test_an_index_that_is_no_number_is_no_traceback(index: str) -> None:
    reply = read_reply(whole(completion().replace(b'"index": 0', f'"index": {index}'.encode())), streamed=False)
    assert not reply.answered
    assert "not a chat completion" in reply.breaches[0].sentence


@pytest.mark.parametrize("gate", ["health", "acceptance"])
def test_what_stands_between_client_and_engine_is_named(judge: Judge, raw_server: Start, gate: str) -> None:
    def packed(connection: socket.socket, request: bytes) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
        )
        connection.sendall(head + b"\x1f\x8b\x08")

    def moved(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 308 Permanent Redirect\r\nLocation: https://gpu/v1\r\nContent-Length: 0\r\n\r\n")

    assert "is compressed (content-encoding 'gzip')" in judge(gate, raw_server(packed).url).sentence
    assert "HTTP 308: it points to https://gpu/v1" in judge(gate, raw_server(moved).url).sentence


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]
)
def test_interim_answers_come_before_the_answer(raw_server: Start, interim: bytes) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        for number in (1, 2):
            connection.sendall(interim)
            time.sleep(0.05)  # so that the client reads it alone
            connection.sendall(answer("200 OK", JSON, f"answer {number}".encode()))
            if number == 1:
                connection.recv(65536)

    endpoint = Endpoint.at(raw_server(script).url)
    exchange = endpoint.chat({}, timeout_s=20)
    assert (exchange.status, exchange.body, exchange.header("link")) == (200, b"answer 1", "")

    async def twice() -> list[tuple[int | None, bytes]]:
        client = LoadClient(endpoint)
        try:
            both = [await client.one(b"{}", deadline_s=time.monotonic() + 20) for _ in range(2)]
        finally:
            client.close()
        return [(exchange.status, exchange.body) for exchange in both]

    assert load_client.run(twice) == [(200, b"answer 1"), (200, b"answer 2")]


def test_a_probe_says_that_a_key_is_wanted_and_which_models_there_are(raw_server: Start) -> None:
    locked = raw_server(replying("401 Unauthorized", "text/html", b"<html>log in</html>")).url
    with pytest.raises(GateUsageError, match=r"wants an API key \(HTTP 401\); name the environment variable"):
        probed_within(locked, "emu", {}, None, deadline_s=20)

    def other(connection: socket.socket, request: bytes) -> None:
        served = answer("200 OK", JSON, b'{"data": [{"id": "qwen"}]}')
        unknown = answer("404 Not Found", JSON, b'{"error": {"message": "The model `emu` does not exist."}}')
        connection.sendall(served if request.startswith(b"GET /v1/models") else unknown)

    with pytest.raises(GateUsageError, match="does not serve the model 'emu'; it serves qwen"):
        probed_within(raw_server(other).url, "emu", {}, None, deadline_s=20)


# --- the key ----------------------------------------------------------------------------------------------------------


def repeats_the_key(connection: socket.socket, request: bytes) -> None:
    """Calls a tool that is named like the key: whatever is said about it quotes the key."""
    if request.startswith(b"GET"):
        connection.sendall(answer("200 OK", JSON, b'{"data": [{"id": "emu"}]}'))
        return
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": KEY, "arguments": "{}"}}
    parts = [FIRST, chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), END.removesuffix(DONE), DONE]
    streamed = b'"stream": true' in request
    body = b"".join(parts).replace(b'"m"', b'"emu"') if streamed else completion(None, tool_calls=[call])
    connection.sendall(answer("200 OK", "text/event-stream" if streamed else JSON, body))


def test_a_key_that_the_engine_repeats_is_told_nowhere(
    judge: Judge, raw_server: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_KEY", KEY)
    capability = {"thinking": "none"}
    verdict = judge(
        "acceptance", raw_server(repeats_the_key).url, api_key_env="GATE_KEY", profile={"checks": ["J01"]},
        capability=capability,
    )  # fmt: skip
    assert verdict.verdict == "fail"
    assert any(check.measurements.get("reruns") for check in verdict.checks)
    assert KEY not in verdict.to_json()
    files = [path for path in (tmp_path / "evidence").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY in path.read_text()]

    refusing = raw_server(replying("500 Oops", JSON, f'{{"error": "bad key {KEY}"}}'.encode())).url
    with pytest.raises(GateUsageError) as refused:
        probed_within(refusing, "emu", {}, "GATE_KEY", deadline_s=20)
    assert "bad key [api key]" in str(refused.value)


# --- gates of other people --------------------------------------------------------------------------------------------


def test_a_signal_without_a_name_is_a_verdict(tmp_path: Path) -> None:
    verdict = run_gate(["/bin/sh", "-c", f"kill -{signal.SIGRTMIN + 1} $$"], request_for(tmp_path))
    assert (verdict.verdict, f"by signal {signal.SIGRTMIN + 1} without" in verdict.sentence) == ("error", True)


def test_a_log_without_line_ends_is_cut(tmp_path: Path) -> None:
    heard: list[Any] = []
    run_gate(["/bin/sh", "-c", "head -c 3000000 /dev/zero >&2"], request_for(tmp_path), on_progress=heard.append)
    assert 0 < sum(len(fields["log"]) for fields in heard) < 200_000


def test_evidence_that_cannot_be_kept_is_said_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    run = ["run", "--endpoint", "http://127.0.0.1:1", "--model", "m", "--profile", "smoke"]
    assert main([*run, "--evidence", str(tmp_path / "file")]) == 2
    assert "Evidence cannot be written to" in capsys.readouterr().err
    assert main([*run, "--html", str(tmp_path)]) == 2
    assert f"The page cannot be written to {tmp_path}: Is a directory." in (said := capsys.readouterr()).err
    assert not said.out
    assert "started" not in said.err


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\ngates: []", "{? {a: 1} : 2}"])
def test_keys_of_a_profile_are_texts(text: str) -> None:
    with pytest.raises(GateUsageError, match=r"^p\.yaml:1: a key is no plain text\.$"):
        parse("p", text, "p.yaml")


def test_what_a_server_says_does_not_steer_the_terminal(raw_server: Start, capsys: pytest.CaptureFixture[str]) -> None:
    url = raw_server(replying("500 Oops", JSON, b'{"error": "\\u001b[2J\\ud800 oh"}')).url
    assert main(["probe", "--endpoint", url, "--model", "emu"]) == 2
    said = capsys.readouterr().err
    assert "oh" in said
    assert "\x1b" not in said


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "number"), [("gates", signal.SIGINT), ("controller", signal.SIGHUP)])
def test_an_interrupted_run_leaves_no_gate_behind_and_still_reports(
    raw_server: Start, tmp_path: Path, program: str, number: signal.Signals
) -> None:
    url = raw_server(lambda connection, request: connection.recv(1) and None).url
    words = [*(["gate"] if program == "controller" else []), "run", "--endpoint", url, "--model", "emu"]
    words += ["--profile", "smoke", "--json", "--evidence", str(tmp_path)]
    with _running(program, words) as process:
        gates = _wait_for(lambda: psutil.Process(process.pid).children(recursive=True))
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "cancelled" in json.loads(out)["sentence"]
        _wait_for(lambda: not any(gate.is_running() and gate.status() != psutil.STATUS_ZOMBIE for gate in gates))


@contextlib.contextmanager
def _running(program: str, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    # A background job of a shell ignores Ctrl-C, and so would its children.
    code = f"import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module({program!r}, run_name='__main__', alter_sys=True)"  # noqa: E501 - one program
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                each.kill()
        process.wait()


def _wait_for(seen: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + 60
    while not (found := seen()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found
