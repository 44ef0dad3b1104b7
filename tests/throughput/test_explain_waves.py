"""Waves and stalls, from the times of single requests."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest
from ladder_kit import seeded

from gates.throughput.explain.stalls import stall_share, stalls
from gates.throughput.explain.waves import Request, find_waves


def batched(count: int, size: int, length_s: Callable[[], float], *, pause_s: float = 0.0) -> list[Request]:
    """A whole batch in, a whole batch out; everything was sent at the start, or each wave after a pause."""
    requests, now_s = [], 0.0
    for first in range(0, count, size):
        sent_s = now_s if pause_s else 0.0
        start_s = now_s + 0.05
        wave = [Request(sent_s, start_s + 0.001 * i, start_s + length_s()) for i in range(min(size, count - first))]
        requests += wave
        now_s = max(each.end_s for each in wave) + pause_s
    return requests


def continuous(count: int, places: int, length_s: Callable[[], float]) -> list[Request]:
    """Whoever waits takes the place of whoever ends."""
    ends, requests = [0.0] * places, []
    for _ in range(count):
        start_s = heapq.heappop(ends) + 0.05
        requests.append(Request(0.0, start_s, start_s + length_s()))
        heapq.heappush(ends, requests[-1].end_s)
    return requests


def lengths(seed: int, low_s: float = 1.0, high_s: float = 4.0) -> Callable[[], float]:
    rng = seeded(seed)
    return lambda: rng.uniform(low_s, high_s)


def test_eleven_waves_of_exactly_32_are_seen() -> None:
    found = find_waves(batched(352, 32, lengths(1)))
    assert found.synchronous is True
    assert found.sizes == (32,) * 11
    assert found.sentence.startswith("11 waves of exactly 32 requests: nobody starts before the whole wave has ended")
    assert "not continuous batching" in found.sentence


def test_the_order_of_the_requests_does_not_matter() -> None:
    requests = batched(352, 32, lengths(1))
    seeded(1).shuffle(requests)
    assert find_waves(requests).sizes == (32,) * 11


def test_a_last_wave_that_is_not_full_is_a_wave_too() -> None:
    found = find_waves(batched(340, 32, lengths(2)))
    assert found.synchronous is True
    assert found.sizes == (32,) * 10 + (20,)
    assert "11 waves of 20 to 32 requests" in found.sentence


def test_continuous_batching_is_none_in_any_seed() -> None:
    for seed in range(100):
        found = find_waves(continuous(120, 8, lengths(seed)))
        assert found.synchronous is False, f"seed {seed}: {found.sentence}"
        assert "joined while others were running" in found.sentence


def test_answers_of_one_length_cannot_tell() -> None:
    # Every stream of a homogeneous load ends in the same step, and the next ones begin together in any engine.
    found = find_waves(batched(320, 32, lengths(3, 2.0, 2.01)))
    assert found.synchronous is None
    assert "end together in any engine; vary the lengths" in found.sentence


def test_a_load_that_pauses_cannot_tell() -> None:
    found = find_waves(batched(320, 32, lengths(4), pause_s=1.0))
    assert found.synchronous is None
    assert "it was the load that paused" in found.sentence


def test_one_after_another_cannot_tell() -> None:
    found = find_waves(batched(10, 1, lengths(5)))
    assert found.synchronous is None
    assert "one after another" in found.sentence


def test_too_few_cannot_tell() -> None:
    assert find_waves([]).synchronous is None
    found = find_waves(batched(64, 32, lengths(6)))
    assert found.synchronous is None
    assert found.sentence == "64 requests in 2 groups; 3 groups or more show waves"


@pytest.mark.parametrize(("mean_ms", "median_ms", "share"), [(12.26, 10.0, 0.226), (14.94, 10.0, 0.494)])
def test_the_stall_share_of_a_real_comparison(mean_ms: float, median_ms: float, share: float) -> None:
    assert stall_share(mean_ms / 1000, median_ms / 1000) == pytest.approx(share)


def test_stalls_are_what_the_median_cannot_see() -> None:
    usual = [0.010] * 99
    found = stalls([[*usual, 0.370], [*usual, 0.010]])
    assert found.longest_s == 0.370
    assert found.share == pytest.approx(0.18)
    assert found.n == 200
    assert found.sentence == (
        "stalls take 18.0% on top of the usual step of 10.0 ms; the longest is 370 ms (200 gaps of 2 requests)"
    )
    assert stalls([usual]).sentence.startswith("hardly any stalls: they take 0.0%")


def test_steps_of_a_millisecond_tell_no_stalls() -> None:
    found = stalls([[*[0.001] * 20, 0.2]])
    assert (found.share, found.longest_s) == (None, 0.2)
    assert found.sentence == "stalls cannot be told: the usual step of 1.0 ms is below 2 ms"


def test_without_gaps_there_is_no_share() -> None:
    assert stalls([]).share is None
    assert stalls([[], []]).sentence == "0 gaps carry no stall share"
