"""Where the curves of two releases cross."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from ladder_kit import cell, run, seeded

from gates.throughput.explain.crossover import crossover
from gates.throughput.records import AGGREGATE, TTFT, Run

LADDER = (1, 2, 4, 8, 16, 32, 64)


def curve(rate: Callable[[int], float], *, seed: int = 0, noise: float = 0.0, metric: str = AGGREGATE) -> Run:
    rng = seeded(seed)
    return run(*(cell(c, {metric: [rate(c) * math.exp(rng.gauss(0, noise)) for _ in range(3)]}) for c in LADDER))


def llama(streams: int) -> float:
    """Starts higher, climbs slowly; meets the other at 20 streams."""
    return 170 * streams**0.55


def vllm(streams: int) -> float:
    return 170 * 20**-0.35 * streams**0.9


def test_the_crossing_of_a_real_comparison_is_found() -> None:
    found = crossover(curve(llama), curve(vllm), "chat", names=("llama.cpp", "vLLM"))
    assert found.at == pytest.approx(20, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert 16 < found.low < 20 < found.high < 32
    assert (found.below, found.above) == ("llama.cpp", "vLLM")
    assert "the curves cross near c20 (between c" in found.sentence
    assert "llama.cpp is better below, vLLM above" in found.sentence


def test_the_order_of_the_two_only_changes_who_is_first() -> None:
    one, other = crossover(curve(llama), curve(vllm), "chat"), crossover(curve(vllm), curve(llama), "chat")
    assert other.at == pytest.approx(one.at)
    assert (one.below, one.above) == ("A", "B")
    assert (other.below, other.above) == ("B", "A")


def test_its_bounds_hold_the_truth_as_often_as_they_say() -> None:
    held = 0
    for seed in range(200):
        found = crossover(curve(llama, seed=seed, noise=0.03), curve(vllm, seed=1000 + seed, noise=0.03), "chat")
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 20 <= found.high
    assert held >= 0.9 * 200


def test_times_cross_where_the_shorter_one_changes() -> None:
    found = crossover(curve(lambda c: 0.02 * c, metric=TTFT), curve(lambda _: 0.12, metric=TTFT), "chat", metric=TTFT)
    assert found.at == pytest.approx(6, rel=0.01)
    assert found.below == "A"


def test_none_is_said_when_one_is_better_throughout() -> None:
    found = crossover(curve(lambda c: 2 * vllm(c)), curve(vllm), "chat", names=("new", "live"))
    assert (found.at, found.low, found.high) == (None, None, None)
    assert found.sentence == "chat, aggregate rate: none: new is better throughout, from c1 to c64"


def test_none_is_said_when_nobody_can_tell_them_apart() -> None:
    found = crossover(curve(vllm, seed=1, noise=0.01), curve(vllm, seed=2, noise=0.01), "chat")
    assert "none: A and B do not differ beyond the uncertainty from c1 to c64" in found.sentence


def test_a_curve_that_only_comes_near_does_not_cross() -> None:
    found = crossover(curve(lambda c: vllm(c) * (1.3 if c < 16 else 1.0)), curve(vllm), "chat")
    assert found.at is None
    assert (
        "none is shown: A is better or equal from c1 to c64; within the uncertainty at c16, c32, c64" in found.sentence
    )


def test_two_crossings_are_said() -> None:
    found = crossover(curve(lambda c: vllm(c) * (1.3 if c in (4, 8) else 0.8)), curve(vllm), "chat")
    assert found.at is not None
    assert 2 < found.at < 4
    assert "they cross 2 times, this is the first" in found.sentence


def test_rungs_that_do_not_compare_are_said() -> None:
    broken = curve(llama)
    broken = replace(broken, cells=[replace(broken.cells[0], problem="foreign load"), *broken.cells[1:]])
    found = crossover(broken, curve(vllm), "chat")
    assert found.at is not None
    assert found.notes == ("chat c1 is no measurement on the candidate: foreign load",)
    assert "0 rungs compare; a crossing needs 2" in crossover(curve(llama), run(), "chat").sentence
