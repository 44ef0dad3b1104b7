"""What an engine counts, and sleep: in the names of both dialects."""

import pytest
from emulator_asking import Asking, until

NAMES = {
    "vllm": {
        "prompt": "vllm:prompt_tokens_total",
        "generated": "vllm:generation_tokens_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "cached": "vllm:prefix_cache_hits_total",
        "preempted": "vllm:num_preemptions_total",
        "ended": "vllm:request_success_total",
    },
    "sglang": {
        "prompt": "sglang:prompt_tokens_total",
        "generated": "sglang:generation_tokens_total",
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "cached": "sglang:cached_tokens_total",
        "preempted": "sglang:num_retracted_requests_total",
        "ended": "sglang:num_requests_total",
    },
}


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_counters_equal_what_the_answers_reported(dialect: str, start):
    engine: Asking = start("--dialect", dialect)
    names = NAMES[dialect]
    usages = [engine.chat(f"Tell me of number {n}.")["usage"] for n in range(3)]
    assert engine.metric(names["prompt"]) == sum(usage["prompt_tokens"] for usage in usages)
    assert engine.metric(names["generated"]) == sum(usage["completion_tokens"] for usage in usages)
    assert engine.metric(names["ended"]) == 3
    assert engine.metric(names["running"]) == engine.metric(names["waiting"]) == 0
    assert engine.metric(names["preempted"]) == 0


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_what_waits_for_a_slot_is_counted_and_served_later(dialect: str, start):
    engine: Asking = start("--dialect", dialect, "--slots", "1", "--itl-ms", "20")
    names = NAMES[dialect]
    with engine.raw_chat(stream=True, max_tokens=4000, ignore_eos=True) as first, engine.raw_chat("Hi") as second:
        until(lambda: engine.metric(names["running"]) == 1 and engine.metric(names["waiting"]) == 1)
        first.close()
        data = b""
        while b"I am ready to help" not in data:
            data += second.recv(65536)
    until(lambda: engine.metric(names["running"]) == 0)


def test_a_client_that_leaves_frees_its_slot_and_counts_as_abort(start):
    engine: Asking = start("--itl-ms", "20")
    with engine.raw_chat(stream=True, max_tokens=4000, ignore_eos=True) as connection:
        until(lambda: engine.metric("vllm:generation_tokens_total") > 0)
        connection.close()
    until(lambda: engine.metric("vllm:num_requests_running") == 0)
    assert 'finished_reason="abort"} 1.0' in engine.http.get("/metrics").text


def test_tokens_of_a_long_prefill_are_seen_before_the_first_token(start):
    engine: Asking = start("--prefill-tok-per-s", "1000")
    with engine.raw_chat("word " * 20_000, stream=True, max_tokens=5):
        seen = until(lambda: engine.metric("vllm:iteration_tokens_total_sum"))
        until(lambda: engine.metric("vllm:iteration_tokens_total_sum") > seen)
        assert engine.metric("vllm:generation_tokens_total") == 0


def test_a_repeated_prompt_comes_from_the_cache(start):
    engine: Asking = start("--cache-report")
    text = "The same long beginning of a conversation. " * 40
    first, second = (engine.chat(text)["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < second["prompt_tokens"]
    assert engine.metric("vllm:prefix_cache_hits_total") == cached


def test_vllm_sleeps_and_wakes(start):
    engine: Asking = start("--vram-mib", "20000")
    assert engine.http.post("/sleep?level=1").status_code == 200
    assert engine.http.get("/is_sleeping").json() == {"is_sleeping": True}
    assert engine.http.get("/server_info").json()["vram_mib"] < 2000
    with engine.raw_chat("Hi") as waiting:
        until(lambda: engine.metric("vllm:num_requests_waiting") == 1)
        assert engine.http.post("/wake_up").status_code == 200
        assert waiting.recv(65536).startswith(b"HTTP/1.1 200")
    assert engine.http.get("/is_sleeping").json() == {"is_sleeping": False}
    assert engine.http.get("/server_info").json()["vram_mib"] == 20000


def test_vllm_knows_two_sleep_levels(start):
    engine: Asking = start()
    assert engine.http.post("/sleep?level=2").status_code == 200
    assert 'sleep_state="discard_all"} 1.0' in engine.http.get("/metrics").text
    assert engine.http.post("/sleep?level=9").status_code == 400


def test_sglang_releases_and_resumes_memory(start):
    engine: Asking = start("--dialect", "sglang", "--vram-mib", "20000", "--tp", "2")
    assert engine.http.get("/get_server_info").json()["tp_size"] == 2
    assert engine.http.post("/release_memory_occupation", json={}).status_code == 200
    assert engine.http.get("/get_server_info").json()["vram_mib"] < 2000
    assert engine.http.post("/resume_memory_occupation", json={}).status_code == 200
    assert engine.http.get("/get_server_info").json()["vram_mib"] == 20000
    assert engine.http.post("/sleep").status_code == 404
