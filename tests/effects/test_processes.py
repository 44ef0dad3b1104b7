"""Attempts as the loop sees them: whoever the journal remembers is there until it is seen dead."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest

from controller.core.records import Attempt
from controller.core.seen import Life
from controller.effects.processes import Processes
from launch import attempts as launched
from launch.attempts import AttemptSpec
from launch.engine_key import read_key


@pytest.fixture
def running(tmp_path):
    """Ports, releases and scripts aside: processes of a real attempt, and the record that the journal has of it."""
    processes = Processes(tmp_path / "runs", tmp_path / "releases", 10, tmp_path)
    run_dir = processes.run_dir("n-a-1")
    identity = launched.start(AttemptSpec(attempt_id="n-a-1", run_dir=run_dir, argv=("sleep", "1000"), grace_s=5.0))
    planned = Attempt("n-a-1", "r0001", "n@1", "a", "engine", ("gpu-0",), 1, 1)
    yield processes, replace(planned, pid=identity.pid, start_ticks=identity.start_ticks, boot_id=identity.boot_id)
    replace(identity, run_dir=None).send(9)
    launched.kill_strays(run_dir, force=True, remembered=replace(identity, run_dir=None))


def until(condition, timeout_s=30.0):
    give_up_at_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at_s
        time.sleep(0.01)


def test_live_is_not_gone_because_its_directory_is(running):
    processes, attempt = running
    before, pids = processes.look(attempt)
    assert (before.life, processes.alarms([attempt.id])) == (Life.RUNNING, [])
    shutil.rmtree(processes.run_dir(attempt.id))
    seen, still = processes.look(attempt)
    assert (seen.life, seen.pid, still) == (Life.RUNNING, attempt.pid, pids)
    assert "n-a-1 is gone or says nothing of it" in processes.alarms([attempt.id])[0]
    assert processes.alarms([]) == []
    assert processes.stop(attempt).ok
    until(lambda: processes.look(attempt)[0].life is Life.EXITED)
    assert processes.alarms([attempt.id]) == []
    assert processes.clear(attempt, force=True).ok


@pytest.mark.parametrize("facts", [b"", b"\xff\xfe", b"A='"])
def test_facts_that_cannot_be_read_are_no_key(tmp_path, facts):
    (tmp_path / "attempt.env").write_bytes(facts)
    assert read_key(tmp_path) is None
