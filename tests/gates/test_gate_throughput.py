from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from gate_kit import DONE, FIRST, Engines, Judge, RawServer, Script, chunk, failed_checks, replying, streamed

from gates.throughput.judge import against_baseline, against_ceiling, against_floor, shift
from gates.throughput.measure import read_request
from gates.throughput.prompts import unique_prompt
from launch.engines.emulator.testing import emulator

SMALL: dict[str, Any] = {
    "max_tokens": 32,
    "prompt_words": 20,
    "ladder": [{"concurrency": 1, "rounds": 3}, {"concurrency": 4, "rounds": 3}],
    # A box that runs other tests beside this one is a slow client; what is asserted here is coarse.
    "max_client_error": 0.6,
}


def rung(**limits: float) -> dict[str, Any]:
    return SMALL | {"ladder": [{"concurrency": 1, "rounds": 3} | limits]}


def test_an_engine_is_measured_at_one_and_at_four(judge: Judge, engines: Engines) -> None:
    verdict = judge("throughput", engines("--itl-ms", "10", "--ttft-ms", "30"), profile=SMALL)
    assert verdict.verdict == "pass", verdict.sentence
    one, four = verdict.measurements["c1"], verdict.measurements["c4"]
    assert (one["requests"], four["requests"], four["counted"]) == (3, 12, 12)
    assert len(four["decode_tok_per_s"]["rounds"]) == 3
    # The truth is 100 tok/s and 30 ms; a loaded test machine is given a wide berth.
    assert 60 < one["decode_tok_per_s"]["median"] < 140
    assert one["ttft_s"]["median"] >= 0.03
    assert one["end_to_end_tok_per_s"]["median"] < one["decode_tok_per_s"]["median"]
    assert four["aggregate_tok_per_s"]["median"] > one["aggregate_tok_per_s"]["median"]
    assert one["completion_tokens"] == {"min": 32, "median": 32, "max": 32}


def test_floors_and_ceilings(judge: Judge, engines: Engines) -> None:
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    fine = judge("throughput", url, profile=rung(min_decode_tok_per_s=20, max_ttft_s=5))
    slow = judge("throughput", url, profile=rung(min_decode_tok_per_s=2000))
    late = judge("throughput", url, profile=rung(max_ttft_s=0.001, min_aggregate_tok_per_s=1))
    assert fine.verdict == "pass", fine.sentence
    assert failed_checks(slow) == {"c1.decode_floor"}
    assert "c1.aggregate_floor" in {check.id for check in late.checks}
    assert late.verdict in ("fail", "inconclusive")


def test_four_times_slower_than_the_baseline_fails(judge: Judge, engines: Engines) -> None:
    profile = rung() | {"margin": 0.3}
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    before = judge("throughput", url, profile=profile)
    baseline = {"measurements": before.measurements}
    other = judge("throughput", url, profile=profile | {"max_tokens": 24}, baseline=baseline)
    with emulator("--itl-ms", "10", "--fault", "slow=4", model="emu") as engine:
        slow = judge("throughput", engine.url, profile=profile, baseline=baseline)
    assert "c1.decode_tok_per_s.baseline" in failed_checks(slow)
    assert other.verdict == "inconclusive"
    assert "'max_tokens': 24" in other.sentence


def test_without_usage_there_is_no_number(judge: Judge) -> None:
    with emulator("--fault", "no-usage", model="emu") as engine:
        verdict = judge("throughput", engine.url, profile=SMALL)
    assert verdict.verdict == "inconclusive"
    assert "no usage" in verdict.sentence
    assert verdict.measurements["c1"]["decode_tok_per_s"]["median"] is None


@pytest.mark.parametrize("fault", ["truncates", "error-500", "dies-under-load=4"])
def test_requests_that_fail_are_no_speed(judge: Judge, fault: str) -> None:
    with emulator("--fault", fault, model="emu") as engine:
        verdict = judge("throughput", engine.url, profile=SMALL)
    assert verdict.verdict == "fail"
    assert failed_checks(verdict) <= {"c1.requests", "c4.requests"}


def test_too_short_answers_are_not_timed(judge: Judge, raw_server: Callable[[Script], RawServer]) -> None:
    usage = chunk(usage={"prompt_tokens": 5, "completion_tokens": 2}) + DONE
    short = FIRST + chunk({"content": "Hi"}) + chunk({"content": "!"}, "stop") + usage
    server = raw_server(replying("200 OK", "text/event-stream", short))
    verdict = judge("throughput", server.url, model="m", profile=rung())
    assert verdict.verdict == "inconclusive"
    assert [check.id for check in verdict.checks if check.verdict == "inconclusive"] == ["c1.measurement"]


def test_a_late_client_says_so(judge: Judge, engines: Engines) -> None:
    url = engines("--ttft-ms", "2", "--itl-ms", "0.5")
    verdict = judge("throughput", url, profile=rung() | {"max_client_error": 1e-9})
    measured = next(check for check in verdict.checks if check.id == "c1.measurement")
    assert measured.verdict == "inconclusive" or verdict.measurements["c1"]["client"]["error_share"] == 0


def test_tokens_are_what_usage_says_and_time_ends_at_the_last_token() -> None:
    usage = chunk(usage={"prompt_tokens": 5, "completion_tokens": 30})
    request = read_request(
        streamed(FIRST, *[chunk({"content": "ab"}) for _ in range(10)], chunk({}, "stop"), usage, DONE)
    )
    assert request.sample is not None
    assert (request.sample.ttft_s, request.sample.chunks) == (0.001, 10)
    assert request.sample.decode_tok_per_s == pytest.approx(29 / 0.009)


@pytest.mark.parametrize(
    "parts",
    [
        [FIRST, chunk({"content": "ab"}), chunk({}, "stop"), chunk(usage={"prompt_tokens": 1, "completion_tokens": 9})],
        [FIRST, chunk({"content": "ab"}), chunk(usage={"prompt_tokens": 1, "completion_tokens": 9}), DONE],
        [FIRST, chunk({"content": "ab"}), b'data: {"error": {"message": "x"}}\n\n', DONE],
    ],
)
def test_a_request_counts_only_when_it_ended_as_it_should(parts: list[bytes]) -> None:
    request = read_request(streamed(*parts))
    assert (request.sample, request.no_usage) == (None, False)
    assert request.problem


def test_prompts_are_unique_from_the_first_tokens_on() -> None:
    prompts = [unique_prompt(60) for _ in range(50)]
    assert len({prompt[:22] for prompt in prompts}) == 50
    assert all(60 <= len(prompt.split()) <= 100 for prompt in prompts)


def compare(candidate: list[float], baseline: list[float], **more: Any) -> str:
    settings = {"margin": 0.05, "session_sd": 0.01, "client_error": 0.0, "rounds": 3} | more
    return str(against_baseline("decode", candidate, baseline, **settings).verdict)


def test_the_comparison_has_three_answers() -> None:
    base = [100.0, 101.0, 99.0, 100.0, 100.5]
    assert compare([100.2, 99.5, 100.9, 99.8, 100.0], base) == "pass"
    assert compare([120.0, 121.0, 119.0, 120.0, 120.0], base) == "pass"
    assert compare([80.0, 81.0, 79.0, 80.0, 80.0], base) == "fail"
    assert compare([95.0, 95.5, 94.5, 95.0, 95.0], base) == "inconclusive"
    assert compare([100.0, 100.0], base) == "inconclusive"
    assert compare([], base) == "inconclusive"
    assert compare([100.0, 101.0, 99.0], base, client_error=0.2) == "inconclusive"
    assert compare([100.0, 0.0, 99.0], base) == "inconclusive"


def test_the_comparison_keeps_its_promise_of_error() -> None:
    """With 2 % noise per round: unchanged hardly ever fails, 12 % slower never passes."""
    generator = random.Random(7)  # noqa: S311 - the same draws every time

    def rounds(mean: float) -> list[float]:
        return [mean * generator.lognormvariate(0, 0.02) for _ in range(5)]

    unchanged = [compare(rounds(100), rounds(100)) for _ in range(300)]
    slower = [compare(rounds(88), rounds(100)) for _ in range(300)]
    assert unchanged.count("fail") == 0
    assert slower.count("pass") == 0
    assert slower.count("fail") > 200


def test_one_slow_round_does_not_move_the_shift() -> None:
    seen = shift([100.0, 100.0, 100.0, 100.0, 40.0], [100.0] * 5, 0.01)
    assert seen.ratio == pytest.approx(1.0)
    assert seen.low < 1.0 < seen.high


def test_the_clients_own_error_blunts_both_sides() -> None:
    assert against_floor("x", [101.0], 100, 0.0, "tok/s").verdict == "pass"
    assert against_floor("x", [99.0], 100, 0.0, "tok/s").verdict == "fail"
    assert against_floor("x", [101.0], 100, 0.05, "tok/s").verdict == "inconclusive"
    assert against_floor("x", [99.0], 100, 0.05, "tok/s").verdict == "inconclusive"
    assert against_ceiling("x", [0.5], 0.6, 0.01).verdict == "pass"
    assert against_ceiling("x", [0.7], 0.6, 0.01).verdict == "fail"
    assert against_ceiling("x", [0.7], 0.6, 0.2).verdict == "inconclusive"
