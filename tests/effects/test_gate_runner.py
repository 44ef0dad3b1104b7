"""Gates as children: one that hangs, crashes or babbles costs one verdict."""

from __future__ import annotations

import json
import sys
import time

import pytest

from controller.effects.gate_runner import GateOrder, GateRunner
from gates.contract import MAX_DOCUMENT_BYTES
from launch import attempts as launched
from launch.attempts import Status

GOOD = {"contract": 1, "gate": "mine", "verdict": "pass", "sentence": "all is well", "measurements": {"n": 3}}


@pytest.fixture
def run(tmp_path):
    full: list[bool] = []
    runner = GateRunner(tmp_path / "gates", slack_s=0.5, disk_is_full=lambda: bool(full))

    def begin(script: str, deadline_s: float = 30.0):
        step = {
            "name": "mine",
            "command": [sys.executable, "-c", script],
            "deadline_s": deadline_s,
            "settings": {"x": 1},
        }
        order = GateOrder("http://127.0.0.1:9", "emu", step, {"thinking": "none"}, {"release": "one@1"}, "emulator")
        assert runner.start("r0001-0-mine-1", "mine", order).ok
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            if (seen := runner.look("r0001-0-mine-1", "mine")) is not None:
                return seen
            time.sleep(0.05)
        raise AssertionError("the gate never ended")

    begin.runner, begin.full = runner, full
    yield begin
    launched.request_stop(tmp_path / "gates" / "r0001-0-mine-1")


def test_a_program_of_the_users_reads_the_request_and_is_believed(run):
    script = (
        "import json, sys; request = json.load(sys.stdin);"
        "assert request['model'] == 'emu' and request['profile'] == {'x': 1}, request;"
        "assert request['baseline'] == {'release': 'one@1'};"
        f"print('chatter'); print(json.dumps({GOOD!r}))"
    )
    seen = run(script)
    assert (seen.verdict, seen.sentence, dict(seen.measurements)) == ("pass", "all is well", {"n": 3})
    assert run.runner.report("r0001-0-mine-1")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('this is not JSON')", "it begins: 'this is not JSON'. (exit code 0)"),
        ("raise SystemExit('no such file')", "exit code 1; its last words: no such file"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        (f"print({json.dumps(json.dumps(GOOD | {'verdict': 'excellent'}))})", "verdict"),
    ],
    ids=["silent", "babbles", "says why", "killed", "invents"],
)
def test_no_verdict_is_an_error(run, script, said):
    seen = run(script)
    assert seen.verdict == "error"
    assert said in seen.sentence


def test_what_a_gate_died_of_on_a_full_disk_is_the_disk(run, tmp_path):
    run.full.append(True)
    assert run("raise SystemExit(1)").sentence.startswith(f"the disk of {tmp_path}/gates is full: ")


def test_a_gate_that_judges_on_a_full_disk_is_believed(run):
    run.full.append(True)
    assert run(f"import json; print(json.dumps({GOOD!r}))").sentence == "all is well"


def test_a_gate_that_hangs_is_ended_at_its_deadline_with_all_its_children(run, tmp_path):
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); os.fork(); time.sleep(600)"
    )
    seen = run(script, deadline_s=1.0)
    assert seen.verdict == "error"
    assert "deadline" in seen.sentence
    observed = launched.observe(tmp_path / "gates" / "r0001-0-mine-1")
    assert (observed.status, observed.pids) == (Status.EXITED, ())


def test_a_gate_that_cannot_be_started_is_an_error(tmp_path):
    runner = GateRunner(tmp_path / "gates")
    step = {"name": "mine", "command": [str(tmp_path / "nowhere")], "deadline_s": 5.0, "settings": {}}
    order = GateOrder("http://127.0.0.1:9", "emu", step, {}, None, "")
    started = runner.start("run-1", "mine", order)
    if started.ok:
        end_s = time.monotonic() + 30
        while runner.look("run-1", "mine") is None and time.monotonic() < end_s:
            time.sleep(0.05)
        assert runner.look("run-1", "mine").verdict == "error"
    else:
        assert "nowhere" in started.sentence


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"caf\xe9\n" + json.dumps(GOOD).encode(), "all is well"),
        (b"\xff\xfe", "does not end in a JSON object"),
        (b"x" * (MAX_DOCUMENT_BYTES + 10), f"at most {MAX_DOCUMENT_BYTES} are read"),
    ],
)
def test_whatever_a_gate_wrote_can_be_shown(tmp_path, written, said):
    """`cutover show` and the morning report ask for it: a byte that is no UTF-8 must not cost them."""
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "verdict.json").write_bytes(written)
    assert said in GateRunner(tmp_path).report("r1")["sentence"]
