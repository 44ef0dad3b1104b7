"""Ctrl-C and `kill` of `cutover bench`: what was measured by then is told and kept, and nothing goes on behind it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from gates.ledger.selection import Selection
from gates.ledger.store import Ledger
from gates.throughput.command import Plan, run_bench
from launch.engines.emulator.hosted import hosted

PROFILE = """\
gates:
  - name: throughput
    settings:
      workloads:
        - {name: short, prompt_tokens: 60, answer_tokens: 16, concurrency: [1]}
        - {name: long, prompt_tokens: 60, answer_tokens: 2000, concurrency: [2]}
        - {name: vast, prompt_tokens: 1000000, answer_tokens: 16, concurrency: [1]}
      rounds: [1]
      warmups: 1
      requests_per_stream: 1
      client_processes: 2
      max_client_error: 1.0
      max_core_share: 1.0
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE)
    return path


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    """Ctrl-C as a terminal has it: a shell's background jobs ignore it, and so would the bench."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def clients_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of its load client, once there are any."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s and process.poll() is None:
        found = [each for each in psutil.Process(process.pid).children() if "gates.load.worker" in each.cmdline()]
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("no process of the load client was seen")


def test_a_signal_leaves_what_was_measured_and_ends_the_clients(profile: Path, tmp_path: Path) -> None:
    page, ledger = tmp_path / "bench.html", tmp_path / "ledger.sqlite"
    words = ("--profile", profile, "--html", page, "--ledger-file", ledger, "--start", "monday", "--note", "quiet")
    with hosted("--ttft-ms", "2", "--itl-ms", "10") as engine:
        argv = [sys.executable, "-m", "controller", "bench", engine.url, *map(str, words), "--json"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            clients = clients_of(process)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert not psutil.wait_procs(clients, timeout=30)[1]
    document = json.loads(out)
    told = document["measurements"]
    said = "interrupted after 1 of 2 cells"
    assert (document["verdict"], document["sentence"]) == ("inconclusive", f"run: {said} (and 1 more)")
    assert told["interrupted"] == said
    short, long, vast = told["run"]["cells"]
    assert (short["requests"], len(short["rounds"]["decode_tok_per_s"]), short["problem"]) == (1, 1, None)
    assert (long["requests"], long["problem"]) == (0, "not measured: interrupted")
    assert "do not fit" in vast["problem"]
    assert said in page.read_text()
    [row] = Ledger(ledger).rows(Selection())
    assert (row.cell.key.workload, row.note) == ("short", f"quiet; {said}")
    assert str(row.kind) == "cell", "half a ladder says nothing about starts"


@pytest.mark.usefixtures("default_interrupt")
def test_the_second_interrupt_ends_at_once(profile: Path, tmp_path: Path) -> None:
    heard: list[str] = []

    def press(fields: Mapping[str, Any]) -> None:
        sentence = str(fields.get("sentence"))
        heard.append(sentence)
        if "warming up" in sentence or sentence.startswith("interrupted after 0 of 2 cells"):
            signal.raise_signal(signal.SIGINT)

    with hosted("--ttft-ms", "2", "--itl-ms", "10") as engine, pytest.raises(KeyboardInterrupt):
        run_bench(Plan(engine.url, profile=profile, evidence_dir=tmp_path), press)
    assert heard[-1].startswith("interrupted")
