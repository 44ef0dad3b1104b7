"""The whole run against emulated engines: what is measured, and what is named instead of being measured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_kit import DONE, FIRST, RawServer, Script, answer, chunk, replying

from gates import load_client
from gates.capability import read_capability
from gates.endpoint import Endpoint
from gates.strict import read_model
from gates.throughput.bench import Measured, ProbeFailedError, Progress, Subject, measure
from gates.throughput.plain import plain_run, read_run
from gates.throughput.settings import ThroughputSettings
from launch.engines.emulator.hosted import hosted
from launch.engines.emulator.testing import emulator

QUICK = ("--ttft-ms", "2", "--itl-ms", "3")  # an answer that is over within one slice of a busy core cannot be timed
CHAT: dict[str, Any] = {"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}
SMALL: dict[str, Any] = {
    "workloads": [CHAT],
    "ladder": [{"concurrency": 2}],
    "rounds": [1],
    "warmups": 1,
    "requests_per_stream": 1,
    # What is tested here is no timing, and the box may be slow.
    "max_client_error": 1.0,
    "max_core_share": 1.0,
}


def bench(url: str, *, deadline_s: float = 60.0, heard: list[Progress] | None = None, **settings: Any) -> Measured:
    capability = read_capability(settings.pop("capability", {}))
    flags = tuple(settings.pop("flags", ()))
    subject = Subject(Endpoint.at(url), "emu", capability, flags=flags)
    chosen = read_model(ThroughputSettings, SMALL | settings, "settings")
    listen = (heard if heard is not None else []).append
    return load_client.run(lambda: measure(subject, chosen, ends_at_s=time.monotonic() + deadline_s, listen=listen))


def only(measured: Measured) -> Any:
    [cell] = measured.run.cells
    return cell


def test_a_run_leaves_rounds_figures_and_counts_that_agree() -> None:
    heard: list[Progress] = []
    # Long enough that the two streams overlap on a busy box: a round in which they do not has no rate of both together.
    with hosted("--ttft-ms", "2", "--itl-ms", "15", "--cache-report") as engine:
        measured = bench(engine.url, rounds=[2], requests_per_stream=2, heard=heard)
    cell = only(measured)
    assert (cell.requests, dict(cell.failures), cell.problem) == (8, {}, None)
    assert {len(values) for values in cell.rounds.values()} == {2}
    assert cell.figures["engine_finished"].value == 8
    assert cell.figures["engine_generation_tokens"].value == 8 * 16 == cell.figures["completion_tokens_total"].value
    assert cell.figures["cached_share"].value == 0
    assert cell.figures["prompt_tokens"].value == pytest.approx(60, abs=2)
    assert (heard[-1].of, heard[-1].left_s is not None) == (2, True)
    assert measured.run.engine["limit"] > 0
    again = read_run(json.loads(json.dumps(plain_run(measured.run))))
    assert [cell.key for cell in again.cells] == [cell.key]
    assert again.workloads == measured.run.workloads


@pytest.mark.parametrize("tokens", [200, 2000])
@pytest.mark.parametrize("scene", ["chronicle", "code", "prose_zh"])
def test_prompts_are_as_long_as_the_server_counts(tokens: int, scene: str) -> None:
    with hosted(*QUICK) as engine:
        cell = only(bench(engine.url, workloads=[CHAT | {"prompt_tokens": tokens, "scene": scene}]))
    assert cell.figures["prompt_tokens"].value == pytest.approx(tokens, rel=0.03)


def test_a_prompt_near_the_limit_fits() -> None:
    with hosted(*QUICK, "--max-model-len", "3000") as engine:
        cell = only(bench(engine.url, workloads=[CHAT | {"prompt_tokens": "limit"}]))
    assert (cell.problem, dict(cell.failures)) == (None, {})
    assert 2700 < cell.figures["prompt_tokens_max"].value <= 3000 - 16


def test_what_does_not_fit_is_said_and_nothing_is_sent() -> None:
    with hosted(*QUICK, "--max-model-len", "500") as engine:
        measured = bench(engine.url, workloads=[CHAT, CHAT | {"name": "long", "prompt_tokens": 4000}])
    chat, long = measured.run.cells
    assert chat.problem is None
    assert (long.requests, "do not fit into the context of 500" in long.problem) == (0, True)


def test_a_prompt_that_the_engine_finds_too_long_costs_its_own_cells_alone(
    raw_server: Callable[[Script], RawServer],
) -> None:
    """Nobody said beforehand how long the context is."""
    usage = chunk(usage={"prompt_tokens": 60, "completion_tokens": 16}) + DONE
    body = FIRST + b"".join(chunk({"content": "ab"}) for _ in range(16)) + chunk({}, "length") + usage
    good = answer("200 OK", "text/event-stream", body)
    refusal = b'{"error": {"message": "the maximum context length is 3000 tokens"}}'

    def script(connection: Any, request: bytes) -> None:
        too_long = len(request) > 12_000
        connection.sendall(answer("400 Bad Request", "application/json", refusal) if too_long else good)

    workloads = [CHAT, CHAT | {"name": "long", "prompt_tokens": 20_000}]
    server = raw_server(script)
    chat, long = bench(server.url, workloads=workloads).run.cells
    assert (chat.requests, dict(chat.failures)) == (2, {})
    assert (long.requests, dict(long.failures)) == (0, {})
    assert "do not fit into the context: HTTP 400: the maximum context length is 3000 tokens" in (long.problem or "")
    assert sum(len(request) > 12_000 for request in server.requests) == 1


def test_a_warm_up_that_the_deadline_ends_is_not_held_against_the_engine(
    raw_server: Callable[[Script], RawServer],
) -> None:
    usage = chunk(usage={"prompt_tokens": 60, "completion_tokens": 8}) + DONE
    good = answer("200 OK", "text/event-stream", FIRST + chunk({"content": "ab"}) + chunk({}, "length") + usage)

    def script(connection: Any, request: bytes) -> None:
        if b'"max_tokens":16' in request.replace(b": ", b":"):
            time.sleep(10)  # the short rounds of a warm-up, beyond the end of the run
        connection.sendall(good)

    measured = bench(raw_server(script).url, deadline_s=3.0)
    assert "chat c2: the time was up while it warmed up; a longer --deadline measures it" in measured.notes
    assert not any("failed while warming up" in note for note in measured.notes)


def test_the_same_prompt_and_a_warm_one_are_cells_of_their_own() -> None:
    long = CHAT | {"prompt_tokens": 400}
    with hosted("--ttft-ms", "10", "--itl-ms", "5", "--cache-report") as engine:
        measured = bench(
            engine.url,
            workloads=[
                long,
                long | {"name": "same", "prompts": "same"},
                long | {"name": "warm", "prefix": "warm"},
            ],
        )
    cold, same, warm = measured.run.cells
    assert [cell.problem for cell in measured.run.cells] == [None, None, None]
    assert cold.figures["cached_share"].value == 0
    assert same.figures["cached_share"].value > 0.4
    assert warm.figures["cached_share"].value > 0.9


def test_mixed_answers_have_the_lengths_that_were_asked() -> None:
    with hosted(*QUICK) as engine:
        measured = bench(
            engine.url, workloads=[CHAT | {"answer_tokens": 10, "answer_tokens_max": 60}], ladder=[{"concurrency": 8}]
        )
    tokens = [sample.completion_tokens for sample in measured.cells[0].samples]
    assert (min(tokens) >= 10, max(tokens) <= 60, len(set(tokens)) > 5) == (True, True, True)


def test_the_ladder_goes_up_to_and_beyond_the_limit() -> None:
    with hosted(*QUICK, "--slots", "3") as engine:
        told = bench(engine.url, ladder=[])
        flagged = bench(engine.url, ladder=[{"concurrency": "beyond"}], limit=4)
        captured = bench(engine.url, ladder=[], flags=["--cuda-graph-bs", "1", "2"])
    assert [cell.key.concurrency for cell in told.run.cells] == [1, 2, 3, 4]
    assert [cell.key.concurrency for cell in flagged.run.cells] == [5]
    assert captured.run.engine["captures"] == [1, 2]


def test_cached_tokens_in_a_cold_cell_void_it(raw_server: Callable[[Script], RawServer]) -> None:
    cached = {"prompt_tokens": 60, "completion_tokens": 16, "prompt_tokens_details": {"cached_tokens": 59}}

    def script(connection: Any, request: bytes) -> None:
        tiny = b'"content": "Hi"' in request
        usage = {"prompt_tokens": 3, "completion_tokens": 1} if tiny else cached
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + FIRST)
        for _ in range(16):
            connection.sendall(chunk({"content": "ab"}))
            time.sleep(0.005)
        connection.sendall(chunk({}, "length") + chunk(usage=usage) + DONE)

    cell = only(bench(raw_server(script).url))
    assert "this cell is not cold" in (cell.problem or "")


def test_requests_of_somebody_else_make_it_no_measurement() -> None:
    with hosted("--ttft-ms", "2", "--itl-ms", "2") as engine:
        stop = threading.Event()

        def somebody() -> None:
            body = {
                "model": "emu",
                "messages": [{"role": "user", "content": "x"}],
                "max_tokens": 40,
                "ignore_eos": True,
            }
            while not stop.is_set():
                Endpoint.at(engine.url).chat(body, timeout_s=30)

        other = threading.Thread(target=somebody)
        other.start()
        try:
            measured = bench(engine.url, quiet_s=0.5)
        finally:
            stop.set()
            other.join()
    assert "foreign load" in (only(measured).problem or "")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("http500@0.5", "HTTP 500"),
        ("stream-cut@0.5", "broken off"),
        ("err-in-stream@0.5", "error in the stream"),
        ("no-done@0.5", "broken off"),
        ("done-only@0.5", "broken off"),
    ],
)
def test_failures_are_counted_by_kind_and_never_as_speed(fault: str, kind: str) -> None:
    with hosted(*QUICK, "--fault", fault) as engine:
        cell = only(bench(engine.url, ladder=[{"concurrency": 16}]))
    assert set(cell.failures) == {kind}
    assert 0 < cell.failures[kind] < 16
    assert cell.rounds == {}, "a round with a failed request is no round"
    assert cell.figures["ttft_p50_s"].n == 16 - cell.failures[kind]


def test_an_endpoint_that_refuses_above_a_limit_is_named(raw_server: Callable[[Script], RawServer]) -> None:
    here = threading.Semaphore(3)
    usage = chunk(usage={"prompt_tokens": 60, "completion_tokens": 16}) + DONE
    body = FIRST + b"".join(chunk({"content": "ab"}) for _ in range(16)) + chunk({}, "length") + usage
    good = answer("200 OK", "text/event-stream", body)

    def script(connection: Any, request: bytes) -> None:
        if not here.acquire(blocking=False):
            connection.sendall(answer("429 Too Many Requests", "application/json", b'{"error": {"message": "limit"}}'))
            return
        try:
            time.sleep(0.2)
            connection.sendall(good)
        finally:
            here.release()

    cell = only(bench(raw_server(script).url, ladder=[{"concurrency": 8}]))
    assert set(cell.failures) == {"HTTP 429"}


def test_an_engine_that_dies_ends_the_run_and_the_rest_is_said() -> None:
    with emulator(*QUICK, "--fault", "dies-under-load=4", model="emu") as engine:
        measured = bench(engine.url, ladder=[{"concurrency": c} for c in (1, 4, 8)], warmups=1, deadline_s=30)
    cells = {cell.key.concurrency: cell for cell in measured.run.cells}
    assert cells[8].problem is not None
    assert any("died during the run" in note for note in measured.notes) or cells[4].failures
    assert any(note.startswith("chat c4: 4 of 4 requests failed while warming up") for note in measured.notes)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (replying("200 OK", "application/json", b'{"choices": []}'), "not streamed"),
        (replying("500 Internal Server Error", "text/plain", b"x"), "HTTP 500"),
        (replying("200 OK", "text/event-stream", FIRST + chunk({"content": "a"}, "stop") + DONE), "no usage"),
    ],
)
def test_an_endpoint_that_answers_no_short_question_is_not_measured(
    raw_server: Callable[[Script], RawServer], script: Script, kind: str
) -> None:
    with pytest.raises(ProbeFailedError) as failed:
        bench(raw_server(script).url)
    assert failed.value.reading.failure == kind


def test_a_deadline_leaves_what_was_measured_and_says_what_was_not() -> None:
    with hosted("--ttft-ms", "2", "--itl-ms", "30") as engine:
        measured = bench(engine.url, ladder=[{"concurrency": 1}], rounds=[50], deadline_s=6)
    cell = only(measured)
    assert 0 < len(cell.rounds["ttft_s"]) < 50
    assert any("the time was up" in note for note in measured.notes)


def test_prompts_of_a_warm_up_never_come_back(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    with emulator(*QUICK, "--truth", str(truth), "--cache-report", model="emu") as engine:
        measured = bench(engine.url, rounds=[2])
    assert only(measured).figures["cached_share"].value == 0
    assert sum("arrived_ns" in line for line in truth.read_text().splitlines()) >= 3 + 2 + 4
