"""When tokens are due. Due times are arithmetic and compared exactly; sending is only compared generously."""

import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from emulator_asking import Asking, ask_and_read_truth, truth_of, until

from launch.engines.emulator.settings import Timing

NS_PER_MS = 1_000_000


def gaps_ms(lines: list[dict[str, Any]]) -> list[float]:
    due = [line["due_ns"] for line in lines if "due_ns" in line]
    return [(after - before) / NS_PER_MS for before, after in pairwise(due)]


def test_chunks_are_due_at_exact_distances_and_never_sent_early(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "40", "--itl-ms", "3", "--truth", str(truth))
    first, *chunks, last = ask_and_read_truth(engine, truth, max_tokens=20, ignore_eos=True)
    assert chunks[0]["due_ns"] - first["arrived_ns"] == 40 * NS_PER_MS
    assert gaps_ms(chunks) == [3.0] * 19
    assert [chunk["chunk"] for chunk in chunks] == list(range(20))
    assert all(chunk["sent_ns"] >= chunk["due_ns"] for chunk in chunks)
    assert last == {"request": first["request"], "finish": "length", "completion_tokens": 20}


def test_many_streams_all_leave_near_their_time(start, tmp_path: Path):
    """Half of all chunks, even on a busy machine; `benchmarks/emulator_accuracy.py` has the real figures."""
    truth = tmp_path / "truth"
    engine = start("--itl-ms", "10", "--truth", str(truth))
    threads = [
        threading.Thread(target=engine.events, kwargs={"text": f"{n}", "max_tokens": 30, "ignore_eos": True})
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests = until(lambda: len(truth_of(truth)) == 16 and truth_of(truth))
    late_ms = sorted(
        (line["sent_ns"] - line["due_ns"]) / NS_PER_MS
        for lines in requests.values()
        for line in lines
        if "due_ns" in line
    )
    assert len(late_ms) == 16 * 30
    assert late_ms[len(late_ms) // 2] < 50


def test_several_tokens_ride_on_one_chunk(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--itl-ms", "2", "--tokens-per-chunk", "4", "--truth", str(truth))
    _, *chunks, _ = ask_and_read_truth(engine, truth, max_tokens=18, ignore_eos=True)
    assert [chunk["tokens"] for chunk in chunks] == [4, 4, 4, 4, 2]
    assert gaps_ms(chunks) == [8, 8, 8, 4]


def test_prefill_takes_time_for_tokens_that_are_not_cached(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "10", "--prefill-tok-per-s", "10000", "--truth", str(truth))
    text = "a long prompt that is asked twice " * 30
    waits = []
    for _ in range(2):
        first, *chunks, _ = ask_and_read_truth(engine, truth, text=text, max_tokens=2)
        waits.append((chunks[0]["due_ns"] - first["arrived_ns"]) / NS_PER_MS)
    assert waits[0] == 10 + first["prompt_tokens"] / 10
    assert 10 < waits[1] < 13


def test_the_second_request_starts_when_the_only_slot_is_free(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--slots", "1", "--truth", str(truth))
    threads = [threading.Thread(target=engine.events, kwargs={"text": f"{n}"}) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def spans() -> list[tuple[int, int]] | None:
        """First and last chunk of both requests, once the file has all of them."""
        dues = [[x["due_ns"] for x in lines if "due_ns" in x] for lines in truth_of(truth).values()]
        return sorted((min(due), max(due)) for due in dues) if len(dues) == 2 and all(dues) else None

    first, second = until(spans)
    assert first[1] < second[0]


def test_a_whole_answer_takes_as_long_as_its_stream_would(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--ttft-ms", "20", "--itl-ms", "4", "--truth", str(truth))
    engine.chat(max_tokens=11, ignore_eos=True)
    ((first, whole, _),) = until(lambda: list(truth_of(truth).values()))
    assert whole["tokens"] == 11
    assert whole["due_ns"] - first["arrived_ns"] == (20 + 10 * 4) * NS_PER_MS


@pytest.mark.parametrize(
    ("flags", "early"), [((), True), (("--dialect", "sglang"), False), (("--headers", "late"), False)]
)
def test_headers_leave_at_once_or_with_the_first_token(start, flags: tuple[str, ...], early: bool):
    engine = start("--ttft-ms", "20000", *flags)
    with engine.raw_chat(stream=True) as connection:
        until(lambda: _requests_running(engine) == 1)
        connection.settimeout(10 if early else 0.3)
        if early:
            assert b"text/event-stream" in connection.recv(65536)
        else:
            with pytest.raises(TimeoutError):
                connection.recv(65536)


def _requests_running(engine: Asking) -> float:
    dialect = "vllm" if "vllm:" in engine.http.get("/metrics").text else "sglang"
    return engine.metric({"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}[dialect])


def test_the_step_law_and_its_cliff():
    law = Timing(ttft_ms=1, itl_ms=99, step_base_ms=11.3, step_per_seq_ms=4.83, cliff_at=9, cliff_factor=4)
    assert law.gap_ns(4, tokens=1) == round((11.3 + 4 * 4.83) * NS_PER_MS)
    assert law.gap_ns(8, tokens=5) == round((11.3 + 8 * 4.83) * NS_PER_MS)
    assert law.gap_ns(9, tokens=1) == round((11.3 + 9 * 4.83) * 4 * NS_PER_MS)


def test_a_stream_keeps_to_the_step_law(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--step-base-ms", "2", "--step-per-seq-ms", "1.5", "--truth", str(truth))
    _, *chunks, _ = ask_and_read_truth(engine, truth, max_tokens=5, ignore_eos=True)
    assert gaps_ms(chunks) == [3.5] * 4


def test_realtime_scheduling_is_taken_or_refused_in_one_sentence(start):
    engine = start("--realtime", wait=False)
    until(lambda: "startup complete" in engine.engine.log() or engine.engine.process.poll() is not None)
    if engine.engine.process.poll() is None:
        assert os.sched_getscheduler(engine.engine.pid) == os.SCHED_RR
    else:
        assert engine.engine.process.returncode == 1
        assert "CAP_SYS_NICE" in engine.engine.log()


def test_in_lockstep_the_chunks_of_all_streams_are_due_together(start, tmp_path: Path):
    truth = tmp_path / "truth"
    engine = start("--lockstep", "--ttft-ms", "30", "--itl-ms", "10", "--truth", str(truth))
    threads = [
        threading.Thread(target=engine.events, kwargs={"text": f"{n}", "max_tokens": 30 + n, "ignore_eos": True})
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests = until(lambda: len(truth_of(truth)) == 6 and truth_of(truth))
    dues = [[line["due_ns"] for line in lines if "due_ns" in line] for lines in requests.values()]
    steps = sorted({due for stream in dues for due in stream})
    # Whoever runs takes part in every step: a stream's chunks are neighbours among all steps there were.
    for stream in dues:
        begin = steps.index(stream[0])
        assert stream == steps[begin : begin + len(stream)]
    assert all(after - before >= 10 * NS_PER_MS for before, after in pairwise(steps))
    assert all(
        first >= lines[0]["arrived_ns"] + 30 * NS_PER_MS
        for lines, (first, *_) in zip(requests.values(), dues, strict=True)
    )
