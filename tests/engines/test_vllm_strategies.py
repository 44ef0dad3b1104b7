"""A box without free cards, on real vLLM: rolling, and a swap in the dark, there and back under load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import launch

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1500)]

ROOT = Path(launch.__file__).parents[1]
PLAY_LIMIT_S = 1400.0


@dataclass
class Played:
    """What a run of `benchmarks/cutover.py` told, and what it left behind."""

    figures: dict[str, Any]
    text: str
    most_processes: int  # at once, of those that live below its directory
    left_over: list[str]


@pytest.fixture
def below() -> Iterator[Path]:
    """A directory with a short name: sockets lie in it."""
    directory = Path(tempfile.mkdtemp(prefix="vllm-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def play(vllm_python, one_engine_at_a_time, below):
    def run(strategy: str) -> Played:
        kept, said = below / "figures.json", below / "said.log"
        argv = [sys.executable, "benchmarks/cutover.py", "--engine", "vllm", "--runs", "1"]
        argv += ["--strategies", strategy, "--json", str(kept)]
        most = 0
        with said.open("w") as out:
            environment = {**os.environ, "TMPDIR": str(below)}
            playing = subprocess.Popen(argv, cwd=ROOT, stdout=out, stderr=out, env=environment)
        try:
            give_up_at_s = time.monotonic() + PLAY_LIMIT_S
            while playing.poll() is None and time.monotonic() < give_up_at_s:
                most = max(most, len(living(below)))
                time.sleep(2)
        finally:
            if playing.poll() is None:
                playing.terminate()  # it ends what it has started
                playing.wait(120)
        assert kept.exists(), said.read_text()
        (figures,) = json.loads(kept.read_text())
        print(said.read_text())
        return Played(figures, said.read_text(), most, living(below))

    return run


def living(directory: Path) -> list[str]:
    """Processes whose working directory or command line lies there; vLLM's workers hide their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [process.cwd(), *process.cmdline()]
        except psutil.Error:
            continue
        if any(str(directory) in word for word in words):
            found.append(f"{process.pid} {' '.join(words[1:])[:80]}")
    return found


def all_arrived(played: Played) -> None:
    told = played.figures
    assert told["complete"] == told["sent"] > 0, told["first_problem"]
    assert (told["failed"], told["truncated"]) == (0, 0), told["first_problem"]
    well = sum(count for end, count in told["door"].items() if end.startswith("200 -- "))
    assert well >= told["sent"], told["door"]
    assert played.most_processes > len(played.left_over) == 0


def test_rolling(play):
    """TP1×2 → TP1×2’ on two cards, and back: somebody serves all the time."""
    played = play("rolling")
    all_arrived(played)
    assert played.figures["dark"] == []
    waited = {end: count for end, count in played.figures["door"].items() if not end.endswith(" -")}
    assert not waited, "nobody waited at the door"


def test_swap(play):
    """TP2 → TP2’ on its cards, and back: requests wait in the dark, whose parts are told."""
    played = play("swap")
    all_arrived(played)
    there, back = played.figures["dark"]
    for parts in (there, back):
        assert parts["start"] > 0
        assert parts["stop"] > 0
    assert there["gates"] > 0
    assert len(played.figures["ours_s"]) == 2
    assert played.figures["door"].get("200 -- released", 0) > 0, "requests waited, and went on"
