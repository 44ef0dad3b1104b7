"""The campaign of `benchmarks/gate_sensitivity.py`: broken off, gone on with, and its tables out of the file alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHEAP = ("--only", "name-repeat", "--measures", "full")


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "benchmarks" / "gate_sensitivity.py"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)


def line(measure: str, name: str, seed: int, verdict: str = "fail", **other: Any) -> str:
    """A run as the file keeps it."""
    faults = [name] if measure == "full" else [f"{name}@0.05"] if measure == "fraction" else []
    job = {"measure": measure, "name": name, "dialect": "vllm", "seed": seed, "faults": faults, "flags": []}
    outcome = {
        "verdict": verdict,
        "blocking": other.get("blocking", ["P05"] if verdict == "fail" else []),
        "warned": [],
        "requests": 21,
        "duration_s": 0.5,
        "sentence": other.get("sentence", ""),
        "timed_out": False,
    }
    fields = {"aimed": [], "cpu_s": 0.7, "first_try": other.get("first_try")}
    return json.dumps({"digest": other.get("digest", "code-of-today"), "job": job, "outcome": outcome, **fields})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def test_a_campaign_goes_on_where_it_was_broken_off(file: Path) -> None:
    first = campaign(*CHEAP, "--seeds", "1", "--json", str(file))
    assert first.returncode == 0, first.stderr
    assert "| `name-repeat` | 1 of 1 | 1 of 1 |" in first.stdout
    assert "1 of 1 runs" in first.stderr

    more = campaign(*CHEAP, "--seeds", "2", "--json", str(file), "--resume")
    assert "1 of these 2 runs are there" in more.stderr
    assert "| `name-repeat` | 2 of 2 | 2 of 2 |" in more.stdout
    seeds = [json.loads(text)["job"]["seed"] for text in file.read_text().splitlines()]
    assert seeds == [1, 2], "the first run is not done again"


def test_runs_of_other_code_are_done_again_unless_they_are_wanted(file: Path) -> None:
    file.write_text(line("full", "name-repeat", 1, digest="code-of-yesterday") + "\n")
    counted = campaign(*CHEAP, "--json", str(file), "--resume", "--any-code")
    assert "1 runs are of other code and count too" in counted.stderr
    assert len(file.read_text().splitlines()) == 1

    again = campaign(*CHEAP, "--json", str(file), "--resume")
    assert "0 of these 1 runs are there; 1 runs are of other code" in again.stderr
    assert len(file.read_text().splitlines()) == 2


def test_the_tables_come_out_of_the_file_alone(file: Path) -> None:
    lines = [line("full", "name-repeat", 1, digest="code-of-yesterday")]
    lines += [line("full", "name-repeat", seed) for seed in range(1, 13)]
    lines += [line("fraction", "name-repeat", seed, "pass" if seed < 3 else "fail") for seed in range(1, 13)]
    lines += [line("healthy", "vllm", 1, "pass"), line("healthy", "vllm", 2, sentence="P05: odd")]
    file.write_text("\n".join([*lines, '{"digest": "cut by a power fai']))
    shown = campaign("--table", str(file))
    assert shown.returncode == 1, "there are findings"
    assert "| `name-repeat` | 12 of 12 (≥ 82%) | 12 of 12 | P05 | 21 | 10 of 12 (≥ 60%) | 21 |" in shown.stdout
    assert "| healthy, vllm | 2 | 1 | P05 | never blocked |" in shown.stdout
    assert "- healthy vllm seed 2: fail, P05: odd" in shown.stdout
    assert "- fraction name-repeat: blocked in 10 of 12, expected at least 95%" in shown.stdout
    assert "26 runs of the code code-of-today; 1 runs of other code are left out" in shown.stdout
    assert "1 lines cannot be read" in shown.stdout


def test_a_run_that_was_tried_twice_and_one_that_broke_are_shown(file: Path) -> None:
    twice = line("full", "name-repeat", 1, first_try="inconclusive: deadline: the deadline of 300 s passed")
    broke = line("full", "name-repeat", 2, "error", sentence="the run itself broke: OSError: no ports")
    file.write_text(f"{twice}\n{broke}\n")
    shown = campaign("--table", str(file))
    assert "| `name-repeat` | 1 of 2, 1 tried twice |" in shown.stdout
    assert "seed 1: tried twice; the first time inconclusive: deadline" in shown.stdout
    assert "seed 2: the run itself broke: OSError: no ports" in shown.stdout


def test_every_row_has_had_its_first_seed_before_any_has_its_last(file: Path) -> None:
    code = (
        "from campaign_runs import *; jobs = planned(MEASURES, CAMPAIGN, 1, frozenset());"
        "rows = {(j.measure, j.name) for j in jobs}; first = jobs[: len(jobs) // 40 + len(rows)];"
        "assert {(j.measure, j.name) for j in first} == rows; assert len(set(jobs)) == len(jobs)"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--resume",), "--resume needs --json FILE"),
        (("--only", "nothing-such"), "there is no fault 'nothing-such'"),
        (("--seeds", "full=many"), "expected a number, or MEASURE=NUMBER"),
        (("--table", "no-such-file"), "there is no file no-such-file"),
    ],
)
def test_bad_words_are_one_sentence(words: tuple[str, ...], said: str) -> None:
    ran = campaign(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_file_is_not_written_over(file: Path) -> None:
    file.write_text(line("full", "name-repeat", 1) + "\n")
    ran = campaign(*CHEAP, "--json", str(file))
    assert ran.returncode == 2
    assert "--resume goes on with it" in ran.stderr
