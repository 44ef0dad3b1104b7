"""Asking engines to sleep: found or done, never believed without asking back, and never asked of a stranger."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from controller.catalogue import Catalogue
from controller.core.records import Attempt
from controller.effects.sleeper import Sleeper, sleeps
from launch.engines.emulator.testing import emulator
from launch.topology import parse

ME = (os.getpid(),)


@pytest.fixture
def asked(tmp_path):
    """Ask the engine on a port, and return what was seen in the end and how often somebody was told."""
    catalogue = Catalogue(tmp_path / "releases")

    def ask(port: int, wanted: str, *, again=False, dialect="vllm", pids=ME, deadline_s=20.0, gpus=("gpu-0",)):
        flags = json.dumps(["--dialect", dialect])
        text = f"name: n\nserves: [emu]\nengine: emulator\nflags: {flags}\ninstances: {{a: {{gpus: 1}}}}\n"
        release = catalogue.keep(parse(text, source="n.yaml"))
        attempt = Attempt("n-a-1", "r0001", release.id, "a", "engine", gpus, port, 1)
        told = threading.Event()
        sleeper = Sleeper(
            tmp_path / "releases", lambda name: tmp_path / name, lambda _: pids, deadline_s, lambda: 64 << 30, told.set
        )
        outcome = sleeper.begin(attempt, wanted, again=again)
        if not outcome.ok:
            return release, outcome
        assert sleeper.results()["n-a-1"].wanted == wanted
        assert told.wait(60)
        return release, sleeper.results()["n-a-1"]

    return ask


class Mute(BaseHTTPRequestHandler):
    """Answers what `server.says` holds for the path (the last one for ever); notes what it was asked."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.heard.append(f"{self.command} {self.path}")
        answers = self.server.says.get(path, [(404, "no such path")])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        if status is None:
            time.sleep(body)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET  # noqa: N815 - the name that the base class looks for

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mute)
    server.daemon_threads = True
    server.says, server.heard = {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


AWAKE, ASLEEP = (200, '{"is_sleeping": false}'), (200, '{"is_sleeping": true}')


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_a_real_engine_sleeps_and_wakes(asked, dialect):
    with emulator("--dialect", dialect, "--vram-mib", "20000") as running:
        release, seen = asked(running.port, "sleep", dialect=dialect, pids=(running.pid,))
        assert release.can_sleep
        assert seen.ok, seen.sentence
        info = httpx.get(f"{running.url}/server_info").json()
        assert info["vram_mib"] < 4_000
        _, seen = asked(running.port, "wake", dialect=dialect, pids=(running.pid,))
        assert seen.ok, seen.sentence
        assert httpx.get(f"{running.url}/server_info").json()["vram_mib"] > info["vram_mib"]


def test_who_sleeps_already_is_not_asked_twice(asked, engine):
    engine.says = {"/is_sleeping": [ASLEEP], "/wake_up": [(200, "")]}
    assert asked(engine.server_port, "sleep", again=True)[1].ok
    assert not any("/sleep" in line for line in engine.heard)


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ({"/is_sleeping": [ASLEEP]}, True),
        ({"/is_sleeping": [AWAKE]}, False),
        ({"/is_sleeping": [(200, "<html>")]}, False),
        ({}, False),
    ],
)
def test_whoever_has_lost_the_journal_asks_the_engine(asked, engine, tmp_path, says, answer):
    """Declared cards have no lock that could tell."""
    engine.says = {"/is_sleeping": [AWAKE, ASLEEP], "/sleep": [(200, "")]}
    release, _ = asked(engine.server_port, "sleep")
    engine.says, engine.heard[:] = says, []
    run_dir = tmp_path / "n-a-1"  # not there: nothing could be noted

    def look(pids=ME):
        return sleeps(tmp_path / "releases", release.id, "a", run_dir, engine.server_port, pids)

    assert look() is answer
    assert look(pids=()) is False, "a stranger is not asked"


def test_an_engine_that_cannot_be_asked_has_it_noted_until_it_is_woken(asked, engine, tmp_path):
    engine.says = {path: [(200, "null")] for path in ("/release_memory_occupation", "/resume_memory_occupation")}
    run_dir = tmp_path / "n-a-1"
    run_dir.mkdir()
    release, _ = asked(engine.server_port, "sleep", dialect="sglang")
    assert sleeps(tmp_path / "releases", release.id, "a", run_dir, engine.server_port, ME)
    asked(engine.server_port, "wake", dialect="sglang")
    assert not sleeps(tmp_path / "releases", release.id, "a", run_dir, engine.server_port, ME)


def test_who_was_only_half_asked_is_asked_again(asked, engine):
    engine.says = {"/is_sleeping": [AWAKE, ASLEEP], "/sleep": [(200, "")]}
    assert asked(engine.server_port, "sleep", again=True)[1].ok
    assert "POST /sleep?level=1&mode=wait" in engine.heard


def test_an_engine_that_cannot_be_asked_is_not_asked_twice(asked, engine):
    engine.says = {"/release_memory_occupation": [(200, "null")]}
    assert asked(engine.server_port, "sleep", dialect="sglang")[1].ok
    _, seen = asked(engine.server_port, "sleep", dialect="sglang", again=True)
    assert seen.ok is False
    assert "cannot tell what came of it" in seen.sentence


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ({"/is_sleeping": [AWAKE], "/sleep": [(200, "")]}, "/is_sleeping says that it did not"),
        ({"/is_sleeping": [AWAKE], "/sleep": [(500, "CUDA error")]}, "answered 500 CUDA error"),
        ({"/is_sleeping": [AWAKE], "/sleep": [(None, 30)]}, "was not answered within 1 s"),
        ({"/is_sleeping": [(200, "<html>")]}, "/is_sleeping answered 200 <html>"),
        ({"/is_sleeping": [(200, '{"is_sleeping": "perhaps"}')]}, "perhaps"),
        ({}, "/is_sleeping answered 404 no such path"),
    ],
)
def test_a_wish_that_fails_says_how(asked, engine, says, sentence):
    engine.says = says
    _, seen = asked(engine.server_port, "sleep", deadline_s=1.0)
    assert seen.ok is False
    assert sentence in seen.sentence


def test_a_stranger_on_its_port_is_left_alone(asked, engine):
    engine.says = {"/is_sleeping": [AWAKE], "/sleep": [(200, "")]}
    _, seen = asked(engine.server_port, "sleep", pids=(1,))
    assert seen.ok is False
    assert "none of its own" in seen.sentence
    assert engine.heard == []


def test_nobody_there(asked, engine):
    port = engine.server_port
    engine.shutdown()
    engine.server_close()
    _, seen = asked(port, "wake")
    assert seen.ok is False
    assert seen.sentence


def test_an_engine_without_sleep_is_refused(asked, engine):
    release, outcome = asked(engine.server_port, "sleep", dialect="llamacpp")
    assert not release.can_sleep
    assert "was not told what it needs" in outcome.sentence


def test_weights_for_which_the_host_has_no_memory_stay_where_they_are(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(10 << 30)  # on the disk it takes no room
    flags = '["--enable-sleep-mode"]'
    text = (
        f"name: n\nserves: [m]\nengine: vllm\nmodel: {model}\ncommand: [/bin/true]\nflags: {flags}\n"
        "env: {VLLM_SERVER_DEV_MODE: '1'}\ninstances: {a: {gpus: 1}}\n"
    )
    release = Catalogue(tmp_path / "releases").keep(parse(text, source="n.yaml"))
    assert release.can_sleep
    attempt = Attempt("n-a-1", "r0001", release.id, "a", "engine", ("gpu-0",), 1, 1)
    sleeper = Sleeper(tmp_path / "releases", lambda name: tmp_path / name, lambda _: ME, 1.0, lambda: 12 << 30)
    assert sleeper.begin(attempt, "sleep", again=False).ok
    seen = sleeper.results()["n-a-1"]
    assert seen.ok is False
    assert seen.sentence == "its weights are 10.0 GiB, and the host's memory has 12.0 GiB left"
