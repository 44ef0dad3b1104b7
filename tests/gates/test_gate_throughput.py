from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gate_kit import DONE, FIRST, Engines, Judge, RawServer, Script, chunk, failed_checks, replying

from launch.engines.emulator.testing import emulator

SMALL: dict[str, Any] = {
    "workloads": [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}],
    "ladder": [{"concurrency": 1}, {"concurrency": 4}],
    "rounds": [3],
    "warmups": 1,
    "requests_per_stream": 1,
    # A box that runs other tests beside this one is a slow client; what is asserted here is coarse.
    "max_client_error": 1.0,
    "max_core_share": 1.0,
}


def rung(**limits: float) -> dict[str, Any]:
    return SMALL | {"ladder": [{"concurrency": 1} | limits]}


def numbers(verdict: Any, check_id: str) -> Any:
    return next(check for check in verdict.checks if check.id == check_id).measurements


def test_an_engine_is_measured_at_one_and_at_four(judge: Judge, engines: Engines) -> None:
    verdict = judge("throughput", engines("--itl-ms", "10", "--ttft-ms", "30"), profile=SMALL)
    assert verdict.verdict == "pass", verdict.sentence
    one, four = numbers(verdict, "chat.c1.requests"), numbers(verdict, "chat.c4.requests")
    assert four["decode_tok_per_s"]["n"] == 3
    # The truth is 100 tok/s and 30 ms; a loaded test machine is given a wide berth.
    assert 50 < one["decode_tok_per_s"]["median"] < 200
    assert one["ttft_s"]["median"] >= 0.03
    assert one["end_to_end_tok_per_s_p50"]["value"] < one["decode_tok_per_s"]["median"]
    assert four["aggregate_tok_per_s"]["median"] > one["aggregate_tok_per_s"]["median"]
    assert one["completion_tokens"] == {"value": 16, "n": 3}
    assert four["engine_finished"] == {"value": 12, "n": 12}
    cells = verdict.measurements["run"]["cells"]
    assert [(cell["workload"], cell["concurrency"], cell["requests"]) for cell in cells] == [
        ("chat", 1, 3),
        ("chat", 4, 12),
    ]


def test_floors_and_ceilings(judge: Judge, engines: Engines) -> None:
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    fine = judge("throughput", url, profile=rung(min_decode_tok_per_s=5, max_ttft_s=20))
    slow = judge("throughput", url, profile=rung(min_decode_tok_per_s=20000))
    late = judge("throughput", url, profile=rung(max_ttft_s=0.001, min_aggregate_tok_per_s=1))
    assert fine.verdict == "pass", fine.sentence
    assert failed_checks(slow) == {"chat.c1.decode_floor"}
    assert "chat.c1.aggregate_floor" in {check.id for check in late.checks}
    assert late.verdict in ("fail", "inconclusive")


def test_four_times_slower_than_the_baseline_fails(judge: Judge, engines: Engines) -> None:
    profile = rung() | {"margin": 0.4, "compared": ["decode_tok_per_s"]}
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    before = judge("throughput", url, profile=profile)
    baseline = {"measurements": before.measurements}
    shorter = [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 12}]
    other = judge("throughput", url, profile=profile | {"workloads": shorter}, baseline=baseline)
    with emulator("--itl-ms", "10", "--fault", "slow=6", model="emu") as engine:
        slow = judge("throughput", engine.url, profile=profile, baseline=baseline)
    assert failed_checks(slow) == {"baseline.decode_tok_per_s"}, slow.sentence
    assert other.verdict == "inconclusive"
    assert "answer_tokens" in other.sentence


def test_rungs_of_the_baseline_are_measured_too(judge: Judge, engines: Engines) -> None:
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    two = SMALL | {"rounds": [1], "ladder": [{"concurrency": 1}, {"concurrency": 3}]}
    before = judge("throughput", url, profile=two)
    after = judge("throughput", url, profile=rung() | {"rounds": [1]}, baseline={"measurements": before.measurements})
    assert [cell["concurrency"] for cell in after.measurements["run"]["cells"]] == [1, 3]
    assert after.verdict == "inconclusive", "one round on each side decides nothing"
    assert "3 on each side are needed" in after.sentence


def test_a_margin_that_no_measurement_can_keep_is_refused(judge: Judge, engines: Engines) -> None:
    url = engines("--itl-ms", "10", "--ttft-ms", "30")
    before = judge("throughput", url, profile=rung())
    narrow = judge("throughput", url, profile=rung() | {"margin": 0.01}, baseline={"measurements": before.measurements})
    assert narrow.verdict == "inconclusive"
    assert "take a margin of" in narrow.sentence


def test_without_usage_there_is_no_number(judge: Judge) -> None:
    with emulator("--fault", "no-usage", model="emu") as engine:
        verdict = judge("throughput", engine.url, profile=SMALL)
    assert verdict.verdict == "inconclusive"
    assert "no usage" in verdict.sentence
    assert verdict.measurements["again"] is False


@pytest.mark.parametrize("fault", ["truncates", "error-500", "dies-under-load=4"])
def test_requests_that_fail_are_no_speed(judge: Judge, fault: str) -> None:
    with emulator("--fault", fault, model="emu") as engine:
        verdict = judge("throughput", engine.url, profile=SMALL)
    assert verdict.verdict == "fail"
    assert failed_checks(verdict) <= {"requests", "chat.c1.requests", "chat.c4.requests"}


def test_answers_that_end_where_they_like_are_named(judge: Judge, raw_server: Callable[[Script], RawServer]) -> None:
    usage = chunk(usage={"prompt_tokens": 5, "completion_tokens": 2}) + DONE
    short = FIRST + chunk({"content": "Hi"}) + chunk({"content": "!"}, "stop") + usage
    server = raw_server(replying("200 OK", "text/event-stream", short))
    verdict = judge("throughput", server.url, model="m", profile=rung())
    assert verdict.verdict == "inconclusive"
    assert "does not heed ignore_eos" in verdict.sentence
    heeded = [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16, "ignore_eos": False}]
    any_length = judge("throughput", server.url, model="m", profile=rung() | {"workloads": heeded})
    assert any_length.verdict == "inconclusive"
    assert "too short to be timed" in any_length.sentence
    assert verdict.measurements["again"] is any_length.measurements["again"] is False


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"prompt_tokens": 1_000_000}, "1000000 tokens of prompt and 16 of answer do not fit"),
        ({"concurrency": ["limit"]}, "rung 'limit' is not measured"),
    ],
)
def test_what_measured_nothing_has_not_passed(
    judge: Judge, raw_server: Callable[[Script], RawServer], engines: Engines, workload: dict[str, Any], said: str
) -> None:
    workloads = [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16, **workload}]
    url = engines() if "prompt_tokens" in workload else raw_server(replying("404 Not Found", "text/plain", b"")).url
    verdict = judge("throughput", url, profile=SMALL | {"workloads": workloads})
    assert verdict.verdict == "inconclusive"
    assert verdict.sentence.startswith("run: nothing was measured: ")
    assert said in verdict.sentence
    assert verdict.measurements["again"] is False


def test_a_late_client_says_so(judge: Judge, engines: Engines) -> None:
    url = engines("--ttft-ms", "2", "--itl-ms", "0.5")
    verdict = judge("throughput", url, profile=rung() | {"max_core_share": 1e-6})
    assert verdict.verdict == "inconclusive"
    assert "of a core" in verdict.sentence


def test_a_cliff_is_named_and_blocks_where_it_should(judge: Judge) -> None:
    ladder = [{"concurrency": c} for c in (4, 8, 10)]
    profile = SMALL | {"ladder": ladder, "rounds": [1]}
    steps = ("--step-base-ms", "6", "--step-per-seq-ms", "0.2", "--lockstep")
    with emulator(*steps, "--cliff-at", "9", "--cliff-factor", "8", model="emu") as engine:
        warned = judge("throughput", engine.url, profile=profile)
        failed = judge("throughput", engine.url, profile=profile | {"on_cliff": "fail"})
    shown = next(check for check in warned.checks if check.id == "chat.ladder")
    assert (warned.verdict, shown.warn) == ("pass", True)
    assert "c8 → c10" in shown.sentence
    assert failed_checks(failed) == {"chat.ladder"}


def test_a_clean_ladder_has_no_cliff(judge: Judge) -> None:
    ladder = [{"concurrency": c} for c in (2, 4, 8)]
    # Long steps: what a busy test machine adds to them must not look like a cliff.
    with emulator("--step-base-ms", "40", "--step-per-seq-ms", "1", "--lockstep", model="emu") as engine:
        verdict = judge("throughput", engine.url, profile=SMALL | {"ladder": ladder, "rounds": [1]})
    shown = next(check for check in verdict.checks if check.id == "chat.ladder")
    assert not shown.warn, shown.sentence
