"""The command line as people run it: in this process through `main`, or as a program; against a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main
from controller.demo.stage import Stage

PROFILE = "gates:\n  - {name: health, deadline_s: 90, settings: {probes: 1}}\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cutover(capsys, monkeypatch) -> Callable[..., Done]:
    """Run one command in this process."""
    monkeypatch.setenv("COLUMNS", "160")  # the test runner's own width may fold a table

    def run(*words: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return run


def program(*words: object, **environment: str) -> list[str]:
    return [sys.executable, "-m", "controller", *(str(word) for word in words)]


@pytest.fixture
def cutover_program() -> Callable[..., Done]:
    """Run one command as a program of its own."""

    def run(*words: object, timeout_s: float = 90.0, **environment: str) -> Done:
        done = subprocess.run(
            program(*words),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **environment},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def cutover_begun() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begin a command as a program; ended with the test if it is not over."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            program(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """What `condition` gave when it was first true."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not true within {timeout_s} s"
        time.sleep(0.03)
    return found


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return until


class Box:
    """A stage with topology files beside it, and a live release."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.config = stage.config_file
        self.profile = stage.directory / "health.yaml"
        self.profile.write_text(PROFILE)

    def topology(self, name: str, *flags: str, gpus: int = 1, serves: str = "emu", gates: str = "") -> Path:
        """An emulated release, quick to start."""
        path = self.stage.directory / f"{name}.yaml"
        listed = json.dumps(["--start-s", "0.1", "--ttft-ms", "20", "--itl-ms", "4", *flags])
        path.write_text(
            f"name: {name}\nserves: [{serves}]\nengine: emulator\nflags: {listed}\n"
            f"instances: {{a: {{gpus: {gpus}}}}}\nstop_grace_s: 5\ngates: {gates or self.profile}\n"
        )
        return path

    def live(self) -> str | None:
        seat = self.stage.get("/v1/status")["live"]
        return seat["release"] if seat else None

    def ensure_live(self) -> str:
        """Something is live and nothing else goes on."""
        until(lambda: self.stage.get("/v1/status")["rollout"] is None, 120)
        if self.live() is None:
            file = self.topology("first")
            rollout = self.stage.propose(file.read_text(), str(file), bake_s=0)
            done = self.stage.finish(rollout, 120)
            assert done["phase"] == "promoted", done["why"]
        release = self.live()
        assert release is not None
        return release


SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 1, "interval_s": 0.5},
    "drain_s": 20,
    "start_s": 90,
}


@pytest.fixture(scope="session")
def shared_box(tmp_path_factory) -> Iterator[Box]:
    with Stage(tmp_path_factory.mktemp("box"), SETTINGS) as stage:
        yield Box(stage)


@pytest.fixture
def box(shared_box: Box) -> Box:
    """A daemon that several tests share, with a live release; a test leaves something live."""
    shared_box.ensure_live()
    return shared_box


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A configuration of a box without a daemon."""
    path = tmp_path / "cutover.yaml"
    path.write_text(f"state_dir: {tmp_path}/state\ngpus: {{kind: none, count: 2}}\n")
    return path
