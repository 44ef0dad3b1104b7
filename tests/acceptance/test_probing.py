"""What an engine can do is found out by asking it, key by key; what is declared is believed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines

from gates.acceptance.probing import Probed, probe_endpoint
from gates.acceptance.prompts import RefusedError
from gates.capability import Capability
from gates.reply import read_reply
from launch.engines.emulator.testing import emulator

FAST = ("--ttft-ms", "1", "--itl-ms", "0")


def probed(url: str, folder: Path, **declared: Any) -> Probed:
    return probe_endpoint(
        url, "emu", evidence_dir=str(folder), progress=io.StringIO(), declared=declared, deadline_s=60.0
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--dialect", "vllm", "--thinking", "off", "--keeps-reasoning"),
            {"thinking": "switch", "finish_named": "stop", "reasoning_field": "reasoning", "keeps_reasoning": True},
        ),
        (
            ("--dialect", "sglang", "--thinking", "on"),
            {
                "thinking": "switch",
                "finish_named": "tool_calls",
                "reasoning_field": "reasoning_content",
                "keeps_reasoning": False,
            },
        ),
        (("--dialect", "llamacpp", "--thinking", "never"), {"thinking": "none"}),
        (("--dialect", "smg", "--thinking", "always"), {"thinking": "always", "reasoning_field": "reasoning_content"}),
    ],
)
def test_what_each_dialect_can_do(
    engines: Engines, tmp_path: Path, flags: tuple[str, ...], expected: dict[str, Any]
) -> None:
    found = probed(engines(*FAST, *flags), tmp_path)
    all_can = dict.fromkeys(("tools", "required", "named", "parallel_calls", "json_schema"), True)
    known = found.declared()
    assert {key: known.get(key) for key in expected | all_can} == expected | all_can, found.findings
    assert set(known) <= set(found.findings)
    assert found.requests < 45
    # It can be declared as it was found.
    Capability.model_validate(known)


def test_what_is_declared_is_not_asked(engines: Engines, tmp_path: Path) -> None:
    declared = {"thinking": "none", "tools": False, "json_schema": False, "max_context_tokens": 4096, "max_running": 8}
    found = probed(engines(*FAST), tmp_path, **declared)
    assert found.declared() == declared
    assert (found.findings, found.requests) == ({}, 1)


def test_a_short_context_is_never_promised_away(engines: Engines, tmp_path: Path) -> None:
    found = probed(engines(*FAST, "--max-model-len", "2048"), tmp_path)
    assert found.declared()["max_context_tokens"] == 2048
    assert found.declared()["tools"] is True


@pytest.mark.parametrize(
    ("fault", "key", "value"),
    [
        ("call-lost", "tools", False),
        ("required-prose", "required", False),
        ("second-call-lost", "parallel_calls", False),
        ("schema-not-enforced", "json_schema", False),
    ],
)
def test_what_does_not_work_is_not_there(tmp_path: Path, fault: str, key: str, value: object) -> None:
    with emulator(*FAST, "--fault", fault) as engine:
        found = probed(engine.url, tmp_path, thinking="none")
    assert found.declared()[key] is value
    assert found.findings[key].startswith("no, not in 3 tries: ")


def test_thought_in_the_content_names_the_parser(tmp_path: Path) -> None:
    with emulator(*FAST, "--thinking", "always", "--fault", "think-in-content") as engine:
        found = probed(engine.url, tmp_path, tools=False)
    assert found.declared()["thinking"] == "always"
    assert "is a reasoning parser set?" in found.findings["reasoning_parser"]


def test_an_engine_that_does_not_answer_is_said_to_be_so(tmp_path: Path) -> None:
    with emulator(*FAST, "--fault", "http500") as engine, pytest.raises(RefusedError, match="HTTP 500") as refused:
        probed(engine.url, tmp_path)
    assert not read_reply(refused.value.exchange, streamed=False).answered
