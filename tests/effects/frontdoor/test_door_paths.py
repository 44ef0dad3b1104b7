"""What the public address passes, in which spelling, and what everybody else is told."""

from __future__ import annotations

import asyncio
import json

import httpx
import openai
import pytest

from controller.core.route import Route

PASSED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/rerank"),
    ("POST", "/v1/score"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/version"),
    ("POST", "/v1/chat/completions?api-version=1"),
    ("GET", "/v1/models?x=/../y"),
]
NOT_SERVED = [
    "/",
    "/v1",
    "/v1/",
    "/v1/%6coad_lora_adapter",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v1/rl/pause",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/chat/completions/../../pause",
    "/v1/../pause",
    "/v1/x/../chat/completions",
    "/./v1/chat/completions",
    "/v1/chat%2fcompletions",
    "/v1/chat/completion%73",
    "/v1/chat/completions%00",
    "/v1/chat/completions;x=1",
    "/V1/chat/completions",
    "/v1\\chat\\completions",
    "/pause",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/pause_generation",
    "/collective_rpc",
    "/update_weights",
    "/abort_requests",
    "/invocations",
    "/metrics",
    "/workers",
    "/ping",
    "/docs",
    "/health/",
    "/healthz",
    "http://door/v1/chat/completions",
    "http://door/pause",
]
WRONG_METHOD = [
    ("GET", "/v1/chat/completions"),
    ("HEAD", "/v1/models"),
    ("POST", "/v1/models"),
    ("DELETE", "/v1/models"),
    ("OPTIONS", "/v1/chat/completions"),
    ("PUT", "/tokenize"),
    ("POST", "/health"),
    ("PATCH", "/v1/completions"),
    ("post", "/v1/completions"),
]


@pytest.fixture
def served(doors, engines, slot_of):
    engine, door = engines("blue"), doors()
    door.serve(slot_of(1, engine), preview=(slot_of(1, engine),))
    return door, engine


def test_exactly_the_listed_requests_pass(served, tools):
    door, engine = served
    for method, path in PASSED:
        assert tools.run(tools.request(door.port, method, path)).status == 200, (method, path)
    assert [(seen.method, seen.target) for seen in engine.seen] == PASSED


def test_no_other_path_and_no_other_spelling_reaches_an_engine(served, tools):
    door, engine = served

    async def scenario():
        asked = [
            (port, method, path)
            for port in (door.port, door.preview_port)
            for path in NOT_SERVED
            for method in ("POST", "GET")
        ]
        return [(ask, await tools.request(*ask)) for ask in asked]

    for ask, answer in tools.run(scenario()):
        assert answer.status in (400, 404), ask
        assert answer.error["type"] == "invalid_request_error", ask
    assert engine.seen == []


def test_no_other_method_reaches_an_engine(served, tools):
    door, engine = served
    for method, path in WRONG_METHOD:
        answer = tools.run(
            _headers_only(door.port, method, path) if method == "HEAD" else tools.request(door.port, method, path)
        )
        assert answer.status in (400, 405), (method, path)
    assert engine.seen == []


async def _headers_only(port, method, path):
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, f"http://127.0.0.1:{port}{path}")
    return type("Answer", (), {"status": answer.status_code})


def test_paths_can_be_added_by_name(doors, engines, slot_of, tools):
    engine, door = engines("blue"), doors(extra_paths=(("POST", "/v1/audio/speech"), ("GET", "/metrics")))
    door.serve(slot_of(1, engine))
    assert tools.run(tools.request(door.port, "POST", "/v1/audio/speech")).status == 200
    assert tools.run(tools.request(door.port, "GET", "/metrics")).status == 200
    assert tools.run(tools.request(door.port, "POST", "/metrics")).status == 405
    assert tools.run(tools.request(door.port, "GET", "/v1/audio")).status == 404


def test_the_door_answers_health_itself(doors, engines, slot_of, tools):
    engine, door = engines("blue", "/health"), doors()
    nothing = tools.run(tools.request(door.port, "GET", "/health"))
    assert (nothing.status, nothing.error["code"], "retry-after" in nothing.headers) == (503, "no_engine", True)
    door.serve(slot_of(1, engine))
    answer = tools.run(tools.request(door.port, "GET", "/health?x"))
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})
    assert tools.run(tools.request(door.preview_port, "GET", "/health")).status == 503
    assert engine.seen == []


def test_no_tunnel_past_the_list(served, tools):
    """An engine that answers 101 would get a raw connection to whoever asked to upgrade."""
    door, engine = served
    upgrade = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        "X-Cutover-Attempt: forged",
    )
    assert tools.run(tools.request(door.port, headers=upgrade)).whole
    names = {name for name, _ in engine.seen[0].headers}
    assert not names & {"upgrade", "x-cutover-attempt"}
    preface = tools.run(tools.raw(door.port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    assert preface.status in (0, 400, 404)
    assert len(engine.seen) == 1


NOT_HTTP = {
    "two lengths": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "negative length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
    "unknown coding": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
    "space in a name": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\nContent-Length: 2\r\n\r\n{}",
    "no version": b"POST /v1/completions\r\n\r\n",
    "huge header": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
}


def test_what_is_not_clean_http_reaches_no_engine(served, tools):
    door, engine = served
    for what, sent in NOT_HTTP.items():
        assert tools.run(tools.raw(door.port, sent)).status == 400, what
    assert engine.seen == []


def test_length_and_chunks_together_cannot_smuggle(served, tools):
    """The engine sees one framing only: chunks win, the length is dropped, and what follows is a request of its own."""
    door, engine = served
    smuggled = b"GET /pause HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\n\r\n"
    tools.run(tools.raw(door.port, head % (len(body) + len(smuggled)) + body + smuggled))
    assert [seen.target for seen in engine.seen] in ([], ["/v1/completions"])
    for seen in engine.seen:
        assert not {"content-length", "transfer-encoding"} <= {name for name, _ in seen.headers}


def test_a_body_beyond_the_limit_is_refused(doors, engines, slot_of, tools):
    engine, door = engines("blue"), doors(max_body_bytes=1_000_000)
    door.serve(slot_of(1, engine))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000001\r\n\r\n"
    answer = tools.run(tools.raw(door.port, head + b"x" * 400_000))
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert engine.seen == []


def test_a_slow_request_is_told_so(doors, engines, slot_of, tools):
    engine, door = engines("blue"), doors(request_timeout_s=1)
    door.serve(slot_of(1, engine))
    slow_body = tools.run(
        tools.raw(door.port, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{")
    )
    assert (slow_body.status, slow_body.error["code"]) == (408, "request_timeout")
    slow_header = tools.run(tools.raw(door.port, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le"))
    assert slow_header.status == 408  # below our rules: in HAProxy's own words
    assert engine.seen == []


def test_an_engine_that_goes_away_or_is_silent_gives_errors_of_openais_shape(doors, engines, slot_of, tools):
    engine, door = engines("blue"), doors(stream_timeout_s=1, hold_s=0.5)
    door.serve(slot_of(1, engine))
    silent = tools.run(tools.request(door.port, late=True, first_s=30))
    assert (silent.status, silent.error["code"]) == (504, "upstream_timeout")

    async def scenario():
        asked = asyncio.create_task(tools.request(door.port, late=True, first_s=0.8))
        await tools.until(lambda: engine.open)
        await asyncio.to_thread(engine.kill)
        return await asked

    gone = tools.run(scenario())
    assert gone.status in (502, 503)
    assert gone.error["code"] in ("upstream", "hold_timeout")


def test_the_openai_client_understands_every_error(served):
    door, _ = served
    base_url = f"http://127.0.0.1:{door.port}/v1"
    with openai.OpenAI(api_key="x", base_url=base_url, max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.files.list()
        assert (unknown.value.code, unknown.value.type) == ("not_found", "invalid_request_error")
        door.apply(Route(2))
        with pytest.raises(openai.InternalServerError) as nothing:
            client.models.list()
        assert (nothing.value.code, nothing.value.type) == ("no_engine", "service_unavailable")


def test_what_the_engine_says_passes_through(served, tools):
    door, _ = served
    answer = tools.run(tools.request(door.port, status=422))
    assert (answer.status, answer.error) == (422, {"message": "engine says no"})
    busy = tools.run(tools.request(door.port, status=503))
    assert (busy.status, busy.error) == (503, {"message": "engine says no"})
