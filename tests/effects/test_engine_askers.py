"""Whoever of ours asks an engine that wants a key brings it: probes, counters, the KV pool, sleep calls, gates."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from controller.catalogue import Catalogue
from controller.core.desired import ProbeWish
from controller.core.records import Attempt
from controller.effects.engine_pages import counters_of
from controller.effects.gate_runner import GateOrder, GateRunner
from controller.effects.kv_pools import read_pool
from controller.effects.prober import Prober
from controller.effects.sleeper import Sleeper
from gates.throughput.engine_side import read_pages
from launch import attempts as launched
from launch.attempts import Status
from launch.engine_key import KEY, new_key
from launch.engines.base import engine
from launch.topology import parse

OURS = new_key()
METRICS = (
    "llamacpp:prompt_tokens_total 7\nllamacpp:tokens_predicted_total 3\n"
    'vllm:cache_config_info{kv_cache_size_tokens="512"} 1\n'
)
REPLY = {
    "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "emu",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello there"}, "finish_reason": "stop"}],
}  # fmt: skip


@dataclass
class Guarded:
    """An engine that shows nothing without the key, its metrics neither, as llama.cpp has it."""

    port: int = 0
    asleep: bool = False
    refused: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Guarded

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {OURS}":
            self.engine.refused.append(path)
            return self.answer(401, '{"error":"Unauthorized"}')
        if path in ("/sleep", "/wake_up"):
            self.engine.asleep = path == "/sleep"
        usage = {**REPLY, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in (REPLY, usage))
        return self.answer(
            200,
            {
                "/metrics": METRICS,
                "/is_sleeping": json.dumps({"is_sleeping": self.engine.asleep}),
                "/v1/chat/completions": f"{events}data: [DONE]\n\n",
            }.get(path, "{}"),
            "text/event-stream" if path.startswith("/v1") else "text/plain",
        )

    do_POST = do_GET  # noqa: N815 - the name is the library's

    def answer(self, status: int, text: str, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded():
    one = Guarded()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"engine": one}))
    one.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield one
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run_dir(tmp_path):
    """Of an attempt that was given the key."""
    folder = tmp_path / "n-a-1"
    folder.mkdir()
    (folder / "attempt.env").write_text(f"{KEY}={OURS}\n")
    return folder


def until(condition, timeout_s=30.0):
    end_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    return value


def probed(port, pids, key):
    """What is seen of an attempt with these processes after two probes."""
    prober = Prober("127.0.0.1:1", "127.0.0.1:1", lambda _: pids, key_of={"n-a-1": key}.__getitem__)
    try:
        prober.wish([ProbeWish("n-a-1", "emu", 0.1, port, "vllm", "n-a-1")])
        return until(lambda: (now := prober.results().get("n-a-1")) and now.streak >= 2 and now)
    finally:
        prober.close()


def test_a_probe_and_its_counters_bring_it(guarded):
    seen = probed(guarded.port, (os.getpid(),), OURS)
    assert (seen.ok, seen.has_counters, guarded.refused) == (True, True, [])


def test_a_probe_that_has_none_says_what_is_missing(guarded):
    seen = probed(guarded.port, (os.getpid(),), None)
    assert not seen.ok
    assert "wants an API key" in seen.sentence


def test_a_stranger_on_the_attempts_port_does_not_get_to_hear_it(guarded):
    """Its counters are asked for all the same; without the key."""
    assert probed(guarded.port, (1,), OURS).layer == "identity"
    assert set(guarded.refused) == {"/metrics"}


def test_the_front_doors_ways_in_are_asked_with_the_doors_own(guarded):
    """It is the same engine behind another address."""
    address = f"127.0.0.1:{guarded.port}"
    prober = Prober(address, "127.0.0.1:1", lambda _: (), key_of=lambda name: OURS if name is None else None)
    try:
        prober.wish([ProbeWish("public", "emu", 0.1, None, "")])
        assert until(lambda: prober.results().get("public")).ok
    finally:
        prober.close()


def test_pages_are_read_with_it(guarded, run_dir, tmp_path):
    url = f"http://127.0.0.1:{guarded.port}/metrics"
    assert counters_of(guarded.port, OURS, 5.0).prompt_tokens == 7
    assert read_pages((url, url), OURS, timeout_s=5.0).generation_tokens == 6
    assert read_pool(engine("vllm"), run_dir, guarded.port).tokens == 512
    assert guarded.refused == []
    assert counters_of(guarded.port, None, 5.0) is None
    assert read_pages((url,), "ek-other", timeout_s=5.0) is None
    assert read_pool(engine("vllm"), tmp_path, guarded.port).tokens is None


def test_an_engine_is_put_to_sleep_and_woken_with_it(guarded, run_dir, tmp_path):
    text = "name: n\nserves: [emu]\nengine: emulator\nflags: [--dialect, vllm]\ninstances: {a: {gpus: 1}}\n"
    release = Catalogue(tmp_path / "releases").keep(parse(text, source="n.yaml"))
    attempt = Attempt("n-a-1", "r0001", release.id, "a", "engine", ("gpu-0",), guarded.port, 1)
    sleeper = Sleeper(
        tmp_path / "releases", lambda name: tmp_path / name, lambda _: launched.listening_pids(guarded.port), 20.0,
        lambda: 64 << 30,
    )  # fmt: skip
    for wanted in ("sleep", "wake"):
        assert sleeper.begin(attempt, wanted, again=False).ok
        seen = until(lambda: (now := sleeper.results()["n-a-1"]).ok is not None and now)
        assert (seen.wanted, seen.ok, seen.sentence) == (wanted, True, "")
        assert guarded.asleep is (wanted == "sleep")
    assert guarded.refused == []
    assert run_dir.name == attempt.id


def test_a_gate_finds_it_in_its_environment_and_nowhere_else(tmp_path):
    """The request names the variable; neither it, nor the command line, nor what the daemon keeps has the key."""
    secret = f"ek-{secrets.token_hex(16)}"
    script = (
        "import json, os, sys\n"
        "request = json.load(sys.stdin)\n"
        f"found = os.environ[request['api_key_env']] == os.environ[{KEY!r}]\n"
        "print(json.dumps({'contract': 1, 'gate': 'mine', 'verdict': 'pass' if found else 'fail', 'sentence': 's',"
        " 'measurements': {'chars': len(os.environ[request['api_key_env']])}}))\n"
    )
    step = {"name": "mine", "command": [sys.executable, "-c", script], "deadline_s": 60.0}
    runner = GateRunner(tmp_path / "gates")
    order = GateOrder("http://127.0.0.1:9", "emu", step, {}, None, "emulator", key=secret)
    assert secret not in repr(order)
    try:
        assert runner.start("r0001-0-mine-1", "mine", order).ok
        seen = until(lambda: runner.look("r0001-0-mine-1", "mine"), 60)
    finally:
        launched.request_stop(tmp_path / "gates" / "r0001-0-mine-1")
    assert (seen.verdict, dict(seen.measurements)) == ("pass", {"chars": len(secret)})
    until(lambda: launched.observe(tmp_path / "gates" / "r0001-0-mine-1").status is Status.EXITED)
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert [path.name for path in holders] == ["attempt.env"]
    assert holders[0].stat().st_mode & 0o077 == 0
