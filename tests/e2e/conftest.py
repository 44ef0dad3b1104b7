"""A real daemon, a real HAProxy and emulated engines on a stage of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.demo.stage import Clients, Stage

SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 1, "interval_s": 0.5},
    "drain_s": 30,
    "start_s": 90,
}
SMOKE = """\
gates:
  - {name: health, deadline_s: 60, settings: {probes: 1}}
"""


def topology(name: str, *flags: str, instances: str = "{a: {gpus: 2}}", extra: str = "") -> str:
    """An emulated release, quick to start."""
    listed = ", ".join(f'"{flag}"' for flag in ("--start-s", "0.2", "--ttft-ms", "40", "--itl-ms", "10", *flags))
    return (
        f"name: {name}\nserves: [emu]\nengine: emulator\nflags: [{listed}]\ninstances: {instances}\n"
        f"stop_grace_s: 5\n{extra}"
    )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path / "stage", SETTINGS) as box:
        yield box


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """A gate profile with health only, for tests that are about something else."""
    path = tmp_path / "smoke.yaml"
    path.write_text(SMOKE)
    return str(path)


@pytest.fixture
def clients(stage: Stage) -> Iterator[Callable[[], Clients]]:
    started: list[Clients] = []

    def begin(streams: int = 8, max_tokens: int = 60) -> Clients:
        load = Clients(f"http://{stage.config.public}", "emu", streams, max_tokens, stage.directory / "clients.log")
        started.append(load)
        return load

    yield begin
    for load in started:
        load.stop()


@pytest.fixture
def make() -> Callable[..., str]:
    return topology
