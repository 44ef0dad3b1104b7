"""What passes through the door, and how: at once, whole, and until somebody leaves or dies."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import pytest

from controller.core.route import Route


def test_tokens_are_not_held_back(doors, engines, slot_of, tools):
    """Without `option http-no-delay` they arrive in bursts of 200 ms (haproxy/haproxy#3447)."""
    door = doors()
    door.serve(slot_of(1, engines("blue")))
    answers = [tools.run(tools.request(door.port, tokens=40, interval_s=0.02)) for _ in range(2)]
    assert all(answer.whole for answer in answers)
    lag_s = [lag for answer in answers for lag in answer.lag_s]
    assert statistics.median(lag_s) < 0.05  # bursts: 100 ms


def test_the_options_that_were_found_the_hard_way_are_there(doors):
    door = doors()
    text = (door.settings.directory / "haproxy.cfg").read_text()
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for option in ("http-no-delay", "abortonclose", "http-buffer-request", "redispatch 1", "idle-close-on-response"):
        assert lines.count(f"option {option}") == 1, option
    assert "retry-on conn-failure empty-response" in lines
    assert "noreuseport" in lines
    assert text.count("pool-purge-delay 3s") == 2  # vLLM closes idle connections after 5 s
    assert "-W" not in json.loads((door.settings.directory / "run" / "attempt.json").read_text())["argv"]


def test_a_client_that_leaves_during_prefill_stops_the_generation(doors, engines, slot_of, tools):
    """Also before the engine has sent its headers, as SGLang does; without `option abortonclose` it goes on."""
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))

    async def leave(wish):
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        body = json.dumps({"first_s": 50, **wish}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await tools.until(lambda: blue.open)
        await asyncio.sleep(0.2)
        left_at = time.monotonic()
        writer.close()
        await tools.until(lambda: not blue.open)
        return blue.posts()[-1].left - left_at

    for late in (True, False):
        for streamed in (True, False):
            took_s = tools.run(leave({"late": late, "stream": streamed}))
            assert took_s < 3, (late, streamed)  # 2 ms on an idle box


def test_a_silent_prefill_is_waited_for(doors, engines, slot_of, tools):
    """No timeout of the door's own that a long prefill could meet: two hours, and a slow first byte passes."""
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))
    assert tools.run(tools.request(door.port, first_s=2.5, late=True)).whole
    text = (door.settings.directory / "haproxy.cfg").read_text()
    assert "timeout server 7200s" in text
    assert "timeout client 7200s" in text


@pytest.mark.parametrize("size_bytes", [100_000, 2_000_000])
def test_a_big_body_passes(doors, engines, slot_of, tools, size_bytes):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))
    answer = tools.run(tools.request(door.port, prompt="x" * size_bytes))
    assert answer.whole
    assert blue.posts()[0].body_bytes > size_bytes


def test_headers_and_body_arrive_as_sent(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))
    sent = ("Authorization: Bearer secret-key", "X-Session-Id: 7", "X-Custom: a b")
    assert tools.run(tools.request(door.port, headers=sent, path="/v1/chat/completions?x=1&y=%2f")).whole
    seen = blue.posts()[0]
    assert seen.target == "/v1/chat/completions?x=1&y=%2f"
    assert {("authorization", "Bearer secret-key"), ("x-session-id", "7"), ("x-custom", "a b")} <= set(seen.headers)
    log = door.log.read_text()
    assert '"path":"\\/v1\\/chat\\/completions"' in log  # and neither query nor headers
    assert "secret-key" not in log
    assert "%2f" not in log


def test_prefills_of_a_dead_engine_are_tried_again_on_the_other(doors, engines, slot_of, tools):
    """Only those whose headers had not gone out: a stream that has begun is cut, visibly."""
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue), slot_of(2, green))

    async def scenario():
        wishes = [{"tokens": 30, "interval_s": 0.1}, {"late": True, "first_s": 2.5}] * 4
        streams = [asyncio.create_task(tools.request(door.port, prompt="x" * 150_000, **wish)) for wish in wishes]
        await tools.until(lambda: blue.open + green.open >= len(streams))
        await asyncio.sleep(0.5)  # every stream has sent its first tokens
        await asyncio.to_thread(blue.kill)
        new = [await tools.request(door.port) for _ in range(4)]
        return await asyncio.gather(*streams), new

    answers, new = tools.run(scenario())
    begun, in_prefill = answers[::2], answers[1::2]
    assert all(answer.whole and answer.engine == "green" for answer in in_prefill + new)
    assert {answer.whole for answer in begun if answer.engine == "green"} <= {True}
    assert {answer.whole for answer in begun if answer.engine == "blue"} <= {False}
    assert len(blue.posts()) >= 2  # it had its share before it died
    assert len(green.posts()) == len(new) + len(answers) - len([a for a in begun if a.engine == "blue"])


def test_the_preview_leads_to_the_candidate_only(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue), preview=(slot_of(2, green),))
    assert {tools.run(tools.request(door.port)).engine for _ in range(4)} == {"blue"}
    assert {tools.run(tools.request(door.preview_port)).engine for _ in range(4)} == {"green"}
    assert tools.run(tools.request(door.preview_port, path="/pause")).status == 404
    door.apply(Route(2, (slot_of(1, blue),)))
    began_s = time.monotonic()
    refused = tools.run(tools.request(door.preview_port))
    assert (refused.status, refused.error["code"]) == (503, "no_engine")
    assert time.monotonic() - began_s < 10  # the preview never holds: a gate wants to know
