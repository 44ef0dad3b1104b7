"""A floor or ceiling is held against a measurement, or blocks; `--concurrency` goes before every rung of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.strict import read_model
from gates.throughput.command import left_unjudged, settings_of
from gates.throughput.settings import ThroughputSettings

CHAT: dict[str, Any] = {"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}
QUICK: dict[str, Any] = {
    "rounds": [1],
    "warmups": 1,
    "requests_per_stream": 1,
    # What is tested here is no timing, and the box may be slow.
    "max_client_error": 1.0,
    "max_core_share": 1.0,
}
PROFILE = """\
gates:
  - name: throughput
    settings:
      workloads:
        - {name: chat}
        - {name: long, prompt_tokens: 8000, concurrency: [1, 8]}
      ladder:
        - {concurrency: 2, min_decode_tok_per_s: 30}
        - {concurrency: 4, workload: long, max_ttft_s: 9}
        - {concurrency: beyond, max_ttft_s: 2}
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE)
    return path


def read(given: Any) -> ThroughputSettings:
    return read_model(ThroughputSettings, given, "settings")


def test_a_rung_that_names_a_workload_is_measured_also_beside_its_own() -> None:
    named = {"concurrency": "beyond", "workload": "chat", "max_ttft_s": 0.5}
    settings = read({"workloads": [CHAT | {"concurrency": [1, 4]}], "ladder": [{"concurrency": 2}, named]})
    assert settings.rungs(settings.workloads[0]) == (1, 4, "beyond")


def test_limits_are_judged_or_block(judge: Judge, engines: Engines) -> None:
    ladder = [
        {"concurrency": 6, "min_decode_tok_per_s": 500},
        {"concurrency": "beyond", "workload": "chat", "max_ttft_s": 60},
    ]
    profile = QUICK | {"workloads": [CHAT | {"concurrency": [1]}], "ladder": ladder}
    verdict = judge("throughput", engines("--ttft-ms", "2", "--itl-ms", "1", "--slots", "2"), profile=profile)
    checks = {check.id: check for check in verdict.checks}
    assert verdict.verdict == "inconclusive", verdict.sentence
    assert checks["chat.c3.ttft_ceiling"].verdict == "pass"
    assert "(median of 1 round; the worst of 3 requests " in checks["chat.c3.ttft_ceiling"].sentence
    assert checks["ladder.c6.decode_floor"].sentence == (
        "min_decode_tok_per_s 500: c6 is a rung of no workload, so it was not measured; measured: chat c1, chat c3"
    )


def test_rungs_of_the_command_line_go_before_all_of_the_profile(profile: Path) -> None:
    settings = read(settings_of(profile, {"concurrency": [2, 3]}))
    assert [set(settings.rungs(workload)) for workload in settings.workloads] == [{2, 3}, {2, 3}]
    assert [rung.min_decode_tok_per_s for rung in settings.ladder if rung.limits] == [30]
    assert left_unjudged(profile, {"concurrency": [2, 3]}) == ["long c4", "beyond"]
    assert left_unjudged(profile, {}) == left_unjudged(None, {"concurrency": [1]}) == []


def test_the_profile_of_the_documentation_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "throughput.md").read_text()
    path = tmp_path / "documented.yaml"
    path.write_text(text.split("```yaml\n", 1)[1].split("```", 1)[0])
    settings = read(settings_of(path, {}))
    assert [workload.name for workload in settings.workloads] == ["chat", "long"]
    assert settings.roofline is not None
