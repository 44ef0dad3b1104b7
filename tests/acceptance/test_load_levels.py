"""How far the load checks go: twice what the engine runs at once, and never past what the run has time for."""

from __future__ import annotations

from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.acceptance.check import Sample
from gates.acceptance.mixed_load import Level, Load, against_alone, levels_of, told, too_slow
from gates.acceptance.running import MOST, USUAL, number_in
from gates.acceptance.tries import Try

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--thinking", "never")
CAPABILITY = {"thinking": "none", "json_schema": False}


@pytest.mark.parametrize(
    ("running", "levels"),
    [
        (1, (1, 2)),
        (4, (1, 4, 8)),
        (8, (1, 8, 16)),
        (20, (1, 8, 20, 32, 40)),
        (USUAL, (1, 8, 32, 64, 128)),
        (MOST, (1, 8, 32, 128, 256)),
    ],
)
def test_the_levels_follow_from_what_runs_at_once(running: int, levels: tuple[int, ...]) -> None:
    assert levels_of(running) == levels


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ({"max_running_requests": 48}, 48),
        ({"max_running_requests": None, "internal_states": [{"effective_max_running_requests_per_dp": 52}] * 2}, 104),
        ({"max_running_requests": 16, "internal_states": [{"last_gen_throughput": 1.0}]}, 16),
        ({"total_slots": 4}, 4),
        ({"total_slots": True}, None),
        ({"max_running_requests": "many", "internal_states": "none"}, None),
        ({"max_running_requests": -1}, None),
        ({"vllm_config": "…"}, None),
        (["a list"], None),
        (None, None),
    ],
)
def test_what_a_page_of_the_engine_says(page: Any, number: int | None) -> None:
    assert number_in(page) == number


@pytest.mark.parametrize(
    ("flags", "declared", "levels", "source"),
    [
        (("--dialect", "sglang", "--slots", "8"), {}, {"1", "8", "16"}, "/get_server_info says 8"),
        (("--dialect", "llamacpp", "--slots", "2"), {}, {"1", "2", "4"}, "says 2"),
        (("--dialect", "vllm", "--slots", "64"), {"max_running": 4}, {"1", "4", "8"}, "4 declared"),
    ],
)
def test_a_small_engine_is_loaded_to_twice_its_size(
    engines: Engines, judge: Judge, flags: tuple[str, ...], declared: dict[str, int], levels: set[str], source: str
) -> None:
    url = engines(*FAST, *flags)
    said = judge("acceptance", url, profile={"checks": ["O06", "J24"]}, capability=CAPABILITY | declared)
    assert said.verdict == "pass", said.sentence
    for check in said.checks:
        if check.id in ("O06", "J24") and "levels" in check.measurements:
            assert set(check.measurements["levels"]) == levels
            assert source in check.measurements["running"]


def test_a_slow_engine_is_not_asked_for_more_than_there_is_time(engines: Engines, judge: Judge) -> None:
    url = engines("--ttft-ms", "20", "--itl-ms", "4", "--thinking", "never", "--slots", "8")
    said = judge("acceptance", url, profile={"checks": ["O06"]}, capability=CAPABILITY, deadline_s=10.0)
    load = next(check for check in said.checks if check.id == "O06" and "levels" in check.measurements)
    assert "not asked at concurrency" in load.sentence
    assert load.verdict != "fail"
    assert all(check.id != "deadline" for check in said.checks), said.sentence


def level(concurrency: int, count: int, took_s: float = 1.0, slowest_s: float = 1.0) -> Level:
    one = Try(Sample("load", 0, "s", streamed=True, greedy=True), None)
    return Level(concurrency, (("copy", one),) * count, took_s, slowest_s)


@pytest.mark.parametrize(
    ("before", "concurrency", "says"),
    [
        (level(8, 48), 32, None),
        (level(8, 48, took_s=30.0), 96, "that would take 75 s, and 60 s are left"),
        (level(32, 64, slowest_s=40.0), 64, None),
        (level(32, 64, slowest_s=70.0), 64, "an answer would take 140 s, and this run waits 120 s"),
        (level(1, 4, took_s=9.0), 8, "that would take 108 s"),
    ],
)
def test_the_next_level_is_told_from_the_last(before: Level, concurrency: int, says: str | None) -> None:
    found = too_slow({before.concurrency: before}, concurrency, 4, 60.0, 120.0)
    assert (found is None) == (says is None)
    assert says is None or (found is not None and says in found)


def test_what_was_left_out_is_said_and_shown() -> None:
    levels = {1: level(1, 48), 8: level(8, 48)}
    partly = told(against_alone(levels, ["copy"]), Load(levels, "16 run at once", "not asked at concurrency 16: …"))
    assert (partly.verdict, partly.warn) == ("pass", True)
    assert partly.sentence.endswith("not asked at concurrency 16: …")
    alone = {1: levels[1]}
    assert told(against_alone(alone, ["copy"]), Load(alone, "", "…")).verdict == "inconclusive"
    assert not told(against_alone(levels, ["copy"]), Load(levels)).warn
