from __future__ import annotations

import pytest
from conftest import Engines, Judge, failed_checks

from launch.engines.emulator.testing import emulator

FAST = ("--ttft-ms", "2", "--itl-ms", "0.5")


@pytest.mark.parametrize(("habit", "capability"), [("off", {}), ("on", {"thinking": "always"})])
def test_a_healthy_engine_speaks(judge: Judge, engines: Engines, habit: str, capability: dict[str, str]) -> None:
    verdict = judge("sanity", engines(*FAST, "--thinking", habit), capability=capability)
    assert verdict.verdict == "pass", verdict.sentence


def test_fast_garbage_is_garbage(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "garbage", model="emu") as engine:
        verdict = judge("sanity", engine.url)
    assert {"O01.copy.stream", "O01.copy.whole", "O02.prose.stream", "O02.prose.whole"} == failed_checks(verdict)


def test_leaking_thought_is_seen_without_tools_too(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "leak-think", model="emu") as engine:
        verdict = judge("sanity", engine.url)
    assert failed_checks(verdict) == {"P11"}


def test_a_small_model_may_do_without_a_question(judge: Judge, engines: Engines) -> None:
    verdict = judge("sanity", engines(*FAST), profile={"prose": False})
    assert {check.id for check in verdict.checks if check.id.startswith("O0")} >= {"O01.copy.stream"}
    assert not any(check.id.startswith("O02") for check in verdict.checks)
