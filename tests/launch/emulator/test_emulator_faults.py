"""Faults of life, timing and connections, how a fault is spelled, and whom it hits.

What faults make of answers is in `test_emulator_vocabulary.py`.
"""

import signal
from pathlib import Path

import httpx
import pytest
from emulator_asking import Asking, ask_and_read_truth, until

from launch.engines.emulator.faults import (
    CONDITIONS,
    FAULTS,
    FaultError,
    FaultPlan,
    FaultSetting,
    Situation,
    describe_faults,
)


def test_truncates_closes_in_the_middle(start):
    engine = start("--fault", "truncates=3")
    with engine.raw_chat(stream=True) as connection:
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    assert data.count(b'"delta":{"content":') == 3
    assert b"[DONE]" not in data
    assert not data.endswith(b"0\r\n\r\n")
    with pytest.raises(httpx.RemoteProtocolError):
        engine.chat()


def test_silent_looks_healthy_and_sends_no_token(start):
    engine = start("--fault", "silent")
    with engine.raw_chat(stream=True) as connection:
        assert b"200 OK" in connection.recv(65536)
        until(lambda: engine.metric("vllm:num_requests_running") == 1)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(65536)
    assert engine.http.get("/health").status_code == 200
    assert engine.http.get("/v1/models").status_code == 200
    assert engine.metric("vllm:generation_tokens_total") == 0


def ttft_and_gap_ms(engine: Asking, path) -> tuple[float, float]:
    first, *chunks, _ = ask_and_read_truth(engine, path, max_tokens=4, ignore_eos=True)
    due = [chunk["due_ns"] for chunk in chunks]
    return (due[0] - first["arrived_ns"]) / 1e6, (due[1] - due[0]) / 1e6


def test_slow_stretches_every_time(start, tmp_path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "10", "--itl-ms", "2", "--fault", "slow=4", "--truth", str(truth))
    assert ttft_and_gap_ms(engine, truth) == (40, 8)


def test_slow_after_requests_is_good_first(start, tmp_path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "10", "--itl-ms", "2", "--fault", "slow-after-requests=2:5", "--truth", str(truth))
    assert [ttft_and_gap_ms(engine, truth) for _ in range(3)] == [(10, 2), (10, 2), (50, 10)]


def test_slow_after_seconds_is_good_first(start, tmp_path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "10", "--itl-ms", "2", "--fault", "slow-after-s=4:5", "--truth", str(truth))
    assert ttft_and_gap_ms(engine, truth) == (10, 2)
    until(lambda: ttft_and_gap_ms(engine, truth) == (50, 10))


def test_dies_under_load(start):
    engine = start("--fault", "dies-under-load=3", "--itl-ms", "50")
    with engine.raw_chat(stream=True), engine.raw_chat(stream=True):
        until(lambda: engine.metric("vllm:num_requests_running") == 2)
        assert engine.engine.process.poll() is None
        with engine.raw_chat(stream=True):
            assert engine.engine.process.wait(30) == 1
    assert "illegal memory access" in engine.engine.log()


def test_dies_after_requests_even_with_exit_code_zero(start):
    engine = start("--fault", "dies-after-requests=2", "--fault", "exits-zero-on-crash")
    engine.chat()
    with pytest.raises(httpx.HTTPError):
        engine.chat()
    assert engine.engine.process.wait(30) == 0


def test_never_ready_answers_503(start):
    engine = start("--fault", "never-ready", wait=False)
    answer = until(lambda: _answered(engine, "/health"))
    assert answer.status_code == 503
    assert engine.http.get("/v1/models").status_code == 503


def test_never_listens_refuses_connections(start):
    engine = start("--fault", "never-listens", wait=False)
    until(lambda: "100% Completed" in engine.engine.log())
    with pytest.raises(httpx.ConnectError):
        engine.http.get("/health")
    assert engine.engine.process.poll() is None


def test_ignores_term(start):
    engine = start("--fault", "ignores-term")
    engine.engine.process.send_signal(signal.SIGTERM)
    until(lambda: "SIGTERM ignored" in engine.engine.log())
    assert engine.chat()["usage"]


def test_sleeps_but_keeps_memory(start):
    engine = start("--fault", "sleeps-but-keeps-memory", "--vram-mib", "20000")
    assert engine.http.post("/sleep").status_code == 200
    assert engine.http.get("/is_sleeping").json() == {"is_sleeping": True}
    assert engine.http.get("/server_info").json()["vram_mib"] == 20000


def _answered(engine: Asking, path: str) -> httpx.Response | None:
    try:
        return engine.http.get(path)
    except httpx.ConnectError:
        return None


def situation(number: int, **fields: object) -> Situation:
    return Situation(number, **fields)


def test_a_fraction_hits_its_share_the_same_way_every_time():
    plans = [FaultPlan((FaultSetting.parse("garbage@0.25"),), seed=3) for _ in range(2)]
    hits = [[bool(plan.strike(situation(n))) for n in range(4000)] for plan in plans]
    assert hits[0] == hits[1]
    assert 800 < sum(hits[0]) < 1200


def test_a_fraction_does_not_follow_streaming_by_turns():
    plan = FaultPlan((FaultSetting.parse("garbage@0.5"),), seed=0)
    hits = [bool(plan.strike(situation(n))) for n in range(2000)]
    assert 400 < sum(hits[::2]) < 600


@pytest.mark.parametrize(
    ("text", "hit", "missed"),
    [
        ("garbage+stream", {"streamed": True}, {"streamed": False}),
        ("garbage+no-stream", {"streamed": False}, {"streamed": True}),
        ("garbage+thinking+tools", {"thinking": True, "has_tools": True}, {"thinking": True}),
        ("garbage+turn=3", {"turn": 3}, {"turn": 2}),
        ("garbage+running=8", {"running": 9}, {"running": 7}),
        ("garbage+after-s=5", {"since_ready_s": 5.5}, {"since_ready_s": 4.5}),
        ("garbage+woken", {"woken": True}, {"woken": False}),
        ("loses-tool-result", {"after_tool_result": True}, {"after_tool_result": False}),
    ],
)
def test_conditions_choose_requests(text: str, hit: dict[str, object], missed: dict[str, object]):
    plan = FaultPlan((FaultSetting.parse(text),), seed=0)
    assert plan.strike(situation(1, **hit))
    assert not plan.strike(situation(1, **missed))


def test_after_requests_counts_from_the_first():
    plan = FaultPlan((FaultSetting.parse("garbage+after-requests=2"),), seed=0)
    assert [bool(plan.strike(situation(n))) for n in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("garbag", "did you mean 'garbage'"),
        ("Slow", "not spelled"),
        ("slow=fast", "must be a number"),
        ("slow=0", "above 0"),
        ("slow=1:2", "too many values"),
        ("slow-after-s", "needs a value for seconds"),
        ("garbage@2", "fraction"),
        ("garbage+streem", "did you mean 'stream'"),
        ("garbage+turn", "+turn=N"),
        ("garbage+stream=2", "+stream"),
        ("ignores-term@0.5", "whole engine"),
    ],
)
def test_a_misspelled_fault_is_refused_with_its_remedy(text: str, says: str):
    with pytest.raises(FaultError) as refusal:
        FaultSetting.parse(text)
    assert says in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_every_fault_is_listed():
    listed = describe_faults()
    assert all(fault.name in listed and fault.what in listed for fault in FAULTS)


def test_every_fault_and_condition_is_documented():
    text = (Path(__file__).parents[3] / "docs" / "emulator.md").read_text()
    assert all(f"`{fault.spelling}`" in text for fault in FAULTS)
    assert all(f"`+{name}" in text for name in CONDITIONS)
