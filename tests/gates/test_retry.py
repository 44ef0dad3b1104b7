"""Asking again: only where there is no room or nobody yet, as long as the server says, and never more than twice."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from gate_kit import END, FIRST, RawServer, Script, answer, chunk

from gates import health, load_client
from gates.acceptance.asker import Asker
from gates.acceptance.check import Sample
from gates.contract import GateRequest
from gates.reply import read_reply
from gates.retry import busy, pause_s, with_hint
from gates.trial import Answer, DeadlineError, Trial, open_trial, reserve_s
from gates.wire import Exchange, Failure, Piece

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
Start = Callable[[Script], RawServer]


def got(status: int | None = None, retry_after: str | None = None, failure: Failure | None = None) -> Exchange:
    headers = () if retry_after is None else (("Retry-After", retry_after),)
    return Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, status, headers, (), failure)


def in_s(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("exchange", "expected_s"),
    [
        (got(429), 0.5),
        (got(503), 0.5),
        (got(429, "2"), 2.0),
        (got(503, "1.5"), 1.5),
        (got(429, "0"), 0.5),
        (got(429, "3600"), 10.0),
        (got(429, "9" * 5000), 0.5),
        (got(429, "-3"), 0.5),
        (got(429, "٣"), 0.5),
        (got(429, "soon"), 0.5),
        (got(429, "Wed, 99 Nov 2026 12:00:04 GMT"), 0.5),
        (got(429, in_s(4)), 4.0),
        (got(503, in_s(-4)), 0.5),
        (got(429, in_s(4).replace("GMT", "-0000")), 4.0),
        (got(None, failure=Failure("port", "connection refused")), 0.5),
        (got(None, failure=Failure("timeout", "no answer came")), None),
        (got(None, failure=Failure("http", "it broke off")), None),
        (got(200, "2"), None),
        (got(500, "2"), None),
        (got(502), None),
    ],
)
def test_how_long_to_wait(exchange: Exchange, expected_s: float | None) -> None:
    assert pause_s(exchange, 0, 60.0, NOW) == expected_s
    assert pause_s(exchange, 1, 60.0, NOW) == expected_s
    assert pause_s(exchange, 2, 60.0, NOW) is None


def test_no_longer_than_there_is_time_for() -> None:
    assert pause_s(got(429, "8"), 0, 5.0, NOW) == 4.5
    assert pause_s(got(429, "8"), 0, 0.9, NOW) is None
    assert pause_s(got(None, failure=Failure("port", "connection refused")), 0, 60.0, NOW, busy) is None


def test_a_crowd_that_stays_refused_is_told_what_to_set() -> None:
    refused = got(429, "1")
    reply = read_reply(refused, streamed=False)
    said = with_hint(reply, refused, 8).breaches[0].sentence
    assert said.startswith("HTTP 429; with 8 requests at once it refuses some: lower `concurrency`")
    assert "`max_running` in the capability" in said
    assert with_hint(reply, refused, 1) == reply, "one alone is not refused because of the others"
    loading = got(503)
    assert with_hint(read_reply(loading, streamed=False), loading, 8).breaches[0].sentence == "HTTP 503"


@pytest.mark.parametrize(
    ("deadline_s", "expected_s"), [(2.0, 0.2), (20.0, 2.0), (40.0, 2.0), (90.0, 4.5), (300.0, 15.0), (10_800.0, 15.0)]
)
def test_the_time_kept_for_the_verdict_grows_with_the_deadline(deadline_s: float, expected_s: float) -> None:
    assert reserve_s(deadline_s) == pytest.approx(expected_s)


def crowded(times: int, status: str = "429 Too Many Requests", retry_after: str = "3") -> Script:
    """Refuses the first `times` requests for a chat, then answers as it is asked."""
    seen: list[bytes] = []

    def script(connection: Any, request: bytes) -> None:
        if request.startswith(b"GET"):
            connection.sendall(answer("200 OK", "application/json", b'{"data": [{"id": "m"}]}'))
            return
        seen.append(request)
        if len(seen) <= times:
            refused = answer(status, "application/json", b'{"error": {"message": "queue full"}}')
            connection.sendall(refused.replace(b"\r\n", f"\r\nRetry-After: {retry_after}\r\n".encode(), 1))
        elif b'"stream": true' in request:
            body = FIRST + chunk({"content": "Hi"}, "stop") + END
            connection.sendall(answer("200 OK", "text/event-stream", body))
        else:
            connection.sendall(answer("200 OK", "application/json", WHOLE))

    return script


WHOLE = (
    b'{"object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 5, "completion_tokens": 2}, "choices": '
    b'[{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}'
)


def trial_of(gate: str, url: str, folder: Path, deadline_s: float = 60.0) -> Trial:
    request = GateRequest(gate=gate, endpoint=url, model="m", deadline_s=deadline_s, evidence_dir=str(folder))
    return open_trial(request, io.StringIO())


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_health_waits_for_a_full_queue(raw_server: Start, tmp_path: Path, status: str) -> None:
    trial = trial_of("health", raw_server(crowded(2, status)).url, tmp_path)
    waited: list[float] = []
    trial.pause = waited.append
    verdict = health.run(trial)
    assert verdict.verdict == "pass", verdict.sentence
    assert (waited, verdict.measurements["retries"]) == ([3.0, 3.0], 2)


def test_health_does_not_wait_for_ever(raw_server: Start, tmp_path: Path) -> None:
    trial = trial_of("health", raw_server(crowded(99)).url, tmp_path)
    trial.pause = lambda _: None
    verdict = health.run(trial)
    assert verdict.verdict == "fail"
    assert verdict.sentence == "generates.stream.1: http: HTTP 429: queue full"
    assert verdict.measurements["retries"] == 2


def test_health_asks_a_closed_port_once(tmp_path: Path) -> None:
    trial = trial_of("health", "http://127.0.0.1:9", tmp_path)
    verdict = health.run(trial)
    assert verdict.verdict == "fail"
    assert "retries" not in verdict.measurements


def test_a_question_is_asked_again_when_the_server_has_room(raw_server: Start, tmp_path: Path) -> None:
    server = raw_server(crowded(2, retry_after="7"))
    trial = trial_of("acceptance", server.url, tmp_path)
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    async def ask() -> str:
        asker = Asker(trial, pause=pause)
        try:
            return (await asker.chat(Sample("J01", 0, "x", streamed=True, greedy=True), "hello")).reply.content
        finally:
            asker.close()

    assert load_client.run(ask) == "Hi"
    assert (waited, trial.retries, len(server.requests)) == ([7.0, 7.0], 2, 3)
    waited.clear()
    blocking = trial_of("acceptance", raw_server(crowded(1)).url, tmp_path)
    blocking.pause = waited.append
    assert blocking.ask({"model": "m", "messages": []}, timeout_s=5.0).reply.content == "Hi"
    assert (waited, blocking.retries) == ([3.0], 1)


def test_what_was_still_waited_for_at_the_deadline_is_said(tmp_path: Path) -> None:
    trial = trial_of("acceptance", "http://127.0.0.1:9", tmp_path, deadline_s=0.001)
    done = Exchange("POST", "/v1/chat/completions", b"{}", 0.0, 0.1, 200, (), (Piece(0.1, WHOLE),))
    trial.answers.append(Answer({}, done, read_reply(done, streamed=False), ()))

    async def ask() -> str:
        asker = Asker(trial)
        with pytest.raises(DeadlineError) as late:
            await asker.chat(Sample("J01", 0, "x", streamed=True, greedy=True), "hello")
        return str(late.value)

    assert load_client.run(ask) == ""
    trial.teller.now_s = lambda: time.monotonic() + 47.0
    with trial.teller.request("http://127.0.0.1:9"):
        trial.teller.now_s = lambda: time.monotonic() + 94.0
        assert load_client.run(ask) == "1 request waits for its answer, for 47 s"


def test_what_is_refused_among_many_names_the_setting(raw_server: Start, tmp_path: Path) -> None:
    trial = trial_of("acceptance", raw_server(crowded(99)).url, tmp_path)

    async def pause(seconds: float) -> None:
        del seconds

    async def ask() -> list[str | None]:
        asker = Asker(trial, pause=pause)
        samples = [Sample("J01", number, "x", streamed=False, greedy=True) for number in range(3)]
        try:
            return [answer.first_problem for answer in await asyncio.gather(*(asker.chat(s, "hello") for s in samples))]
        finally:
            asker.close()

    said = load_client.run(ask)
    assert any("at once it refuses some: lower `concurrency`" in (one or "") for one in said), said
