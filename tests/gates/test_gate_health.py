from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_kit import DONE, END, FIRST, Engines, Judge, RawServer, Script, answer, chunk, failed_checks, replying

from gates.counters import parse_counters
from gates.errors import GateUsageError
from gates.health import Counters, probe, read_counters
from launch.engines.emulator.testing import emulator

Start = Callable[[Script], RawServer]


def sse(*parts: bytes) -> Script:
    return replying("200 OK", "text/event-stream", b"".join(parts))


def test_a_probe_reads_tokens_from_an_engine(engines: Engines) -> None:
    url = engines()
    for endpoint in (url, url + "/v1"):
        seen = probe(endpoint, "emu", timeout_s=20)
        assert (seen.ok, seen.layer, seen.model) == (True, "ok", "emu")
        assert (seen.completion_tokens, seen.finish_reason) == (8, "length")
        assert 0 < (seen.ttft_s or 0) <= (seen.total_s or 0)
    assert probe(url, "emu", timeout_s=20, stream=False).ok


def test_probes_are_unique_and_run_in_threads(raw_server: Start) -> None:
    server = raw_server(sse(FIRST, chunk({"content": "Hi"}, "stop"), END))
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(probe(server.url, "m", timeout_s=20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one.ok for one in seen)
    assert len(set(server.requests)) == 8


def half_an_answer(connection: socket.socket, request: bytes) -> None:
    rest = b"x" * 99
    connection.sendall(answer("200 OK", "text/event-stream", FIRST + chunk({"content": "Hi"}) + rest)[: -len(rest)])
    connection.recv(1)


@pytest.mark.parametrize(
    ("script", "layer", "said"),
    [
        (sse(FIRST, chunk({}, "stop"), END), "generation", "no token came out"),
        (sse(FIRST, chunk({"content": " \n"}, "stop"), END), "generation", "no token came out"),
        (sse(FIRST, chunk({"content": "Hi"}), DONE), "generation", "no finish_reason"),
        (sse(FIRST, chunk({"content": "!!!!!!!!"}, "length"), END), "output", "'!' 8 times and nothing else"),
        (sse(b'data: {"error": {"message": "CUDA error"}}\n\n', DONE), "generation", "CUDA error"),
        (sse(chunk({"role": "assistant", "content": "Hi"}, "stop", model="other"), END), "identity", "'other'"),
        (replying("200 OK", "text/html", b"<html>Welcome to nginx</html>"), "http", "HTML page"),
        (replying("200 OK", "application/json", b'{"status": "ok"}'), "generation", "no chunk at all"),
        (replying("502 Bad Gateway", "text/html", b"<html>"), "http", "HTTP 502: an HTML page"),
        (replying("500 Oops", "application/json", b'{"error": {"message": "dead"}}'), "http", "HTTP 500: dead"),
        (replying("401 No", "application/json", b"{}"), "http", "wants an API key"),
        (lambda c, r: c.sendall(b"SSH-2.0-OpenSSH_9\r\n"), "http", "not HTTP"),
        (lambda c, r: None, "http", "closed the connection without an answer"),
        (lambda c, r: c.recv(1), "timeout", "no answer came within"),
        (half_an_answer, "timeout", "1 pieces of text, then the answer had not ended"),
    ],
)
def test_a_probe_names_the_layer(raw_server: Start, script: Script, layer: str, said: str) -> None:
    seen = probe(raw_server(script).url, "m", timeout_s=1 if layer == "timeout" else 20)
    assert (seen.ok, seen.layer) == (False, layer)
    assert said in seen.sentence


def test_an_answer_without_usage_is_still_alive(raw_server: Start) -> None:
    seen = probe(raw_server(sse(FIRST, chunk({"content": "Hi"}, "stop"), DONE)).url, "m", timeout_s=20)
    assert (seen.ok, seen.completion_tokens) == (True, None)


def test_a_wrong_model_name_says_which_are_served(engines: Engines) -> None:
    seen = probe(engines(), "emmu", timeout_s=20)
    assert (seen.layer, "it serves emu" in seen.sentence) == ("identity", True)


def test_nobody_listens_and_no_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert probe(f"http://127.0.0.1:{port}", "m", timeout_s=5).layer == "port"
    assert "plain http" in probe_tls_on_plain()
    with pytest.raises(GateUsageError):
        probe("localhost:8000", "m", timeout_s=5)


def probe_tls_on_plain() -> str:
    server = RawServer(replying("400 Bad Request", "text/plain", b"no"))
    try:
        return probe(f"https://127.0.0.1:{server.port}", "m", timeout_s=1).sentence
    finally:
        server.stop()


VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 1.1e+02
vllm:prompt_tokens_total{engine="0",model_name="m"} 50.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN
"""
SGLANG = """
sglang:num_running_reqs{tp_rank="0",dp_rank="0"} 2.0
sglang:num_running_reqs{tp_rank="1",dp_rank="0"} 2.0
sglang:num_running_reqs{tp_rank="0",dp_rank="1"} 5.0
sglang:num_queue_reqs{tp_rank="0"} 1.0
sglang:realtime_tokens_total{mode="decode"} 40.0
sglang:realtime_tokens_total{mode="prefill_compute"} 60.0
sglang:generation_tokens_total 30.0
"""
LLAMACPP = """
llamacpp:tokens_predicted_total 9
llamacpp:prompt_tokens_total 4
llamacpp:requests_processing 1
llamacpp:n_decode_total 5
"""


def test_three_dialects_one_shape() -> None:
    vllm, sglang, llamacpp = (parse_counters(page) for page in (VLLM, SGLANG, LLAMACPP))
    assert vllm == Counters(generation_tokens=210, prompt_tokens=50, steps=7, running=4, waiting=2, progress=267)
    assert sglang == Counters(generation_tokens=40, prompt_tokens=60, running=7, waiting=1, progress=130)
    assert llamacpp == Counters(generation_tokens=9, prompt_tokens=4, steps=5, running=1, progress=18)
    assert parse_counters("go_goroutines 7\n") is None
    assert parse_counters("") is None


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_counters_of_a_running_engine_move(engines: Engines, dialect: str) -> None:
    url = engines("--dialect", dialect)
    before = read_counters(url + "/metrics", timeout_s=20)
    probe(url, "emu", timeout_s=20)
    after = read_counters(url + "/metrics", timeout_s=20)
    assert before is not None
    assert after is not None
    assert after.moved_since(before)
    assert read_counters(url + "/nothing-here", timeout_s=20) is None


def test_the_gate_passes_with_evidence_and_counters(judge: Judge, engines: Engines) -> None:
    url = engines()
    verdict = judge("health", url, metrics_url=url + "/metrics")
    assert verdict.verdict == "pass", verdict.sentence
    checks = {check.id: check for check in verdict.checks}
    assert checks["counters"].verdict == "pass"
    assert not checks["counters"].skipped
    assert Path(checks["generates.stream.1"].evidence[0]).is_file()


def test_the_gate_fails_what_is_up_and_silent(judge: Judge) -> None:
    with emulator("--fault", "silent", model="emu") as engine:
        verdict = judge("health", engine.url, profile={"timeout_s": 0.5})
    assert failed_checks(verdict) == {"generates.stream.1"}
    assert "no byte of content" in verdict.sentence


def test_a_missing_or_wrong_key_is_not_the_engines_fault(judge: Judge, raw_server: Start) -> None:
    server = raw_server(replying("401 Unauthorized", "application/json", b'{"error": "key"}'))
    for gate in ("health", "smoke", "acceptance", "throughput"):
        verdict = judge(gate, server.url)
        assert verdict.verdict == "error", gate
        assert "wants an API key" in verdict.sentence
    absent = judge("health", server.url, api_key_env="CUTOVER_TEST_NO_SUCH_KEY")
    assert (absent.verdict, "CUTOVER_TEST_NO_SUCH_KEY" in absent.sentence) == ("error", True)
