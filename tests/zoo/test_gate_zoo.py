"""A gate that misbehaves as a process: whatever becomes of its shim, nothing of it is left when its verdict is told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from zoo_animals import PROGRAMS
from zoo_cage import wait_until

from controller.effects.gate_runner import GateOrder, GateRunner
from launch import attempts as launched
from launch import shim
from launch.identity import strays_in

RUN = "r0001-0-mine-1"


@pytest.fixture
def orphaned(tmp_path: Path) -> Iterator[GateRunner]:
    """A gate with a helper that hears no SIGTERM, and no shim any more."""
    runner = GateRunner(tmp_path)
    command = [sys.executable, "-S", "-I", str(PROGRAMS / "daemonises.py")]
    order = GateOrder("http://127.0.0.1:9", "emu", {"command": command, "deadline_s": 600.0}, {}, None, "")
    assert runner.start(RUN, "mine", order).ok
    wait_until((tmp_path / RUN / "grandchild").exists, "its helper is there")
    identity = launched.observe(tmp_path / RUN).identity
    assert identity is not None
    shim.signal_all({identity.pid: identity.start_ticks}, signal.SIGKILL)
    wait_until(lambda: not identity.is_alive(), "its shim is dead")
    yield runner
    launched.kill_strays(tmp_path / RUN, force=True)


def test_what_is_left_of_a_gate_is_ended_before_its_verdict_is_told(orphaned, tmp_path):
    seen = orphaned.look(RUN, "mine")
    assert seen is not None
    assert seen.verdict == "error"
    assert "lost" in seen.sentence
    wait_until(lambda: not strays_in(str(tmp_path / RUN), 0), "nothing of it is left")


def test_a_gate_without_its_shim_can_be_stopped(orphaned, tmp_path):
    assert orphaned.stop(RUN).ok
    wait_until(lambda: not strays_in(str(tmp_path / RUN), 0), "nothing of it is left")
