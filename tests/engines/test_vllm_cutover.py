"""The mission on a real engine: vLLM is switched from one topology to another under load, and back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]


def test_tp2_to_two_tp1_and_back_with_real_tool_calls(vllm_python, one_engine_at_a_time, tmp_path, record_property):
    """TP2 live → TP1×2 → gates → cutover → bake → promoted; a missing tool parser is rejected; rolled back by hand."""
    played = subprocess.run(
        [sys.executable, "-m", "controller", "demo", "--engine", "vllm", "--yes", "--json"],
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
        cwd=tmp_path,
    )
    assert played.stdout, played.stderr
    answer = json.loads(played.stdout)
    record_property("seconds", answer["seconds"])
    outcomes = [(act["release"].split("@")[0], act["outcome"]) for act in answer["acts"]]
    assert outcomes == [
        ("vllm-tiny-tp2", "promoted"),
        ("vllm-tiny-tp1x2", "promoted"),
        ("vllm-tiny-noparser", "rejected"),
        ("vllm-tiny-tp2", "rolled_back"),
    ], played.stderr
    assert "--tool-call-parser" in answer["acts"][2]["why"]
    clients = answer["clients"]
    assert clients["complete"] == clients["sent"] > 0
    assert (clients["failed"], clients["truncated"], clients["leaked"]) == (0, 0, 0), clients["first_problem"]
    assert "(still warm) is live again" in answer["acts"][3]["why"]
    assert played.returncode == 0
