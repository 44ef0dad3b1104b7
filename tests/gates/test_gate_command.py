from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gate_kit import Engines

from gates.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


def gates(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    command = [sys.executable, "-m", "gates", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, timeout=100, check=False
    )


def test_a_run_from_the_command_line(engines: Engines, tmp_path: Path) -> None:
    done = gates("run", "--endpoint", engines() + "/v1", "--model", "emu", "--profile", "smoke", "--gate", "health",
                 "--json", "--evidence", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["verdict"], report["steps"][0]["gate"]) == (1, "pass", "health")
    assert "health generates.stream.1: pass" in done.stderr
    wrong = gates("run", "--endpoint", engines(), "--model", "emmu", "--gate", "health", "--evidence", str(tmp_path))
    assert wrong.returncode == 10
    assert "it serves emu" in " ".join(wrong.stdout.split())


def test_a_gate_on_the_contract(tmp_path: Path) -> None:
    request = {"contract": 1, "gate": "health", "endpoint": "http://127.0.0.1:1", "model": "m", "deadline_s": 20}
    done = gates("health", stdin=json.dumps(request | {"evidence_dir": str(tmp_path)}))
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, verdict["verdict"]) == (10, "fail")
    assert "connection refused" in verdict["sentence"]
    assert all(json.loads(line)["gate"] == "health" for line in done.stderr.splitlines())
    broken = gates("health", stdin="{}")
    assert (broken.returncode, json.loads(broken.stdout)["verdict"]) == (12, "error")


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("gates: [{name: health, dedline_s: 3}]")
    run = ["run", "--endpoint", "http://127.0.0.1:1", "--model", "m"]
    for arguments, code, said in (
        ([*run, "--profile", str(bad)], 2, "did you mean 'deadline_s'?"),
        ([*run, "--profile", "smok"], 3, "did you mean 'smoke'?"),
        ([*run, "--capability", "thinking"], 2, "expected KEY=VALUE"),
        ([*run, "--baseline", str(bad)], 2, "is not JSON"),
        (["explain", "acceptence"], 3, "did you mean 'acceptance'?"),
        (["run", "--model", "m"], 2, "--endpoint"),
        (["walk"], 2, "invalid choice"),
    ):
        try:
            ended = main(arguments)
        except SystemExit as exit_:  # argparse ends this way
            ended = int(exit_.code or 0)
        assert ended == code
        assert said in capsys.readouterr().err


def test_list_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(line == line.rstrip() for line in listed.splitlines())
    assert all(name in listed for name in ("health", "smoke", "acceptance", "throughput", "standard", "smoke"))
    assert main(["explain", "acceptance"]) == 0
    explained = capsys.readouterr().out
    assert "leaked thinking" in explained
    assert "stop_early" in explained
