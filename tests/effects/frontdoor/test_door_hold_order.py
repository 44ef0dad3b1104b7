"""Who waits at the front door goes on in the order of arrival, and who left is not asked for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

from controller.core.route import HoldSeen, Mode, Route
from controller.effects.frontdoor.runtime import RuntimeSocket


def _totals(door):
    with RuntimeSocket(door.socket_path) as runtime:
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", runtime.ask("show held"))}


async def _until_held(door, wanted):
    while door.read().held != wanted:  # noqa: ASYNC110  # counted in another process
        await asyncio.sleep(0.02)


async def _arrive(door, tools, tags, **wish):
    """Requests that are held one after another, so that their order of arrival is known."""
    asked = []
    for tag in tags:
        before = _totals(door)["held_total"]
        asked.append(asyncio.create_task(tools.request(door.port, tag=tag, **wish)))
        await tools.until(lambda before=before: _totals(door)["held_total"] > before)
    return asked


def _post(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_they_go_on_in_the_order_of_arrival(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.HOLD)
    tags = [f"t{number}" for number in range(40)]

    async def scenario():
        asked = await _arrive(door, tools, tags)
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asyncio.gather(*asked)

    assert all(answer.whole for answer in tools.run(scenario()))
    assert [seen.tag for seen in blue.posts()] == tags
    assert (_totals(door)["released"], _totals(door)["held"]) == (40, 0)


def test_who_left_gives_its_place_back_and_is_never_forwarded(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors(hold_max=3)
    door.serve(slot_of(1, blue), mode=Mode.HOLD)

    async def scenario():
        stays = await _arrive(door, tools, ["stays"])
        leavers = []
        for reset in (False, True):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(_post({"tag": "leaves"}))
            leavers.append((reader, writer, reset))
        await _until_held(door, 3)
        assert (await tools.request(door.port)).error["code"] == "hold_full"
        for _, writer, reset in leavers:
            writer.transport.abort() if reset else writer.close()
        await _until_held(door, 1)
        late = await _arrive(door, tools, ["late"])
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asyncio.gather(*stays, *late)

    assert all(answer.whole for answer in tools.run(scenario()))
    assert [seen.tag for seen in blue.posts()] == ["stays", "late"]
    seen = door.read()
    assert (seen.held, seen.hold) == (0, HoldSeen(released=2, full=1, left=2))
    assert door.log.read_text().count('"hold":"left"') == 2


def test_no_other_limit_cuts_the_wait(doors, engines, slot_of, tools):
    """Neither the time for the request to arrive nor that of silence: both pass while it waits."""
    blue, door = engines("blue"), doors(request_timeout_s=1, stream_timeout_s=1)
    door.serve(slot_of(1, blue), mode=Mode.HOLD)

    async def scenario():
        asked = await _arrive(door, tools, ["small", "large"], prompt="x" * 400_000)
        await asyncio.sleep(3)
        assert not any(task.done() for task in asked)
        assert (await asyncio.to_thread(door.read)).hold.oldest_s >= 3
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asyncio.gather(*asked)

    assert all(answer.whole for answer in tools.run(scenario()))


def test_a_large_body_is_held_and_arrives_whole(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.HOLD)

    async def scenario():
        asked = await _arrive(door, tools, ["a", "b"], prompt="x" * (2 << 20), tokens=30, interval_s=0.005)
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asyncio.gather(*asked)

    assert all(answer.whole and answer.tokens == 30 for answer in tools.run(scenario()))
    assert all(seen.body_bytes > 2 << 20 for seen in blue.posts())


def test_a_connection_that_was_held_is_kept(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.HOLD)

    async def scenario():
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        answers = []
        for generation in (2, 3):
            writer.write(_post({"stream": False}))
            await _until_held(door, 1)
            await asyncio.to_thread(door.apply, Route(generation, (slot_of(1, blue),)))
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            answers.append(head.split()[1])
            length = re.search(r"(?i)content-length: (\d+)", head)
            assert length
            await reader.readexactly(int(length[1]))
            await asyncio.to_thread(door.apply, Route(9, (slot_of(1, blue),), mode=Mode.HOLD))
        writer.close()
        return answers

    assert tools.run(scenario()) == ["200", "200"]


def test_the_preview_is_reached_while_the_public_address_holds(doors, engines, slot_of, tools):
    green, door = engines("green"), doors()
    door.serve(preview=(slot_of(1, green),), mode=Mode.HOLD)

    async def scenario():
        asked = await _arrive(door, tools, ["public"])
        judged = await tools.request(door.preview_port, tag="gate")
        health = await tools.request(door.port, "GET", "/health")
        assert not asked[0].done()
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, green),)))
        return judged, health, await asked[0]

    judged, health, public = tools.run(scenario())
    assert (judged.whole, judged.engine, public.whole) == (True, "green", True)
    assert (health.status, health.error["code"], json.loads(health.body)["status"]) == (503, "holding", "holding")
    assert "retry-after" in health.headers


def test_the_mode_survives_kill_9(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.HOLD)
    pid = door.read().pid
    os.kill(pid, signal.SIGKILL)
    tools.wait_for(lambda: (seen := door.read()).alive and seen.pid != pid, "another process answers")
    assert door.read().mode is Mode.HOLD

    async def scenario():
        asked = await _arrive(door, tools, ["after"])
        assert blue.posts() == []
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asked[0]

    assert tools.run(scenario()).whole


def test_requests_that_a_dead_engine_refuses_wait_for_the_next(doors, engines, slot_of, tools):
    """Nobody has noticed the death yet: what was refused goes back and waits, also those that the engine had begun."""
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))

    async def scenario():
        begun = [asyncio.create_task(tools.request(door.port, tag="begun", late=True, first_s=30))]
        await tools.until(lambda: blue.open)
        await asyncio.to_thread(blue.kill)
        asked = [asyncio.create_task(tools.request(door.port, prompt="x" * 400_000)) for _ in range(8)]
        asked.append(asyncio.create_task(tools.request(door.port, tokens=40)))
        await _until_held(door, 10)
        assert (await tools.request(door.port, "GET", "/health")).status == 503
        assert (await tools.request(door.port, "GET", "/v1/models")).error["code"] == "no_engine"
        begun[0].cancel()
        await _until_held(door, 9)
        await asyncio.to_thread(engines, "green", port=blue.port)
        return await asyncio.gather(*asked)

    answers = tools.run(scenario())
    assert all(answer.whole and answer.engine == "green" for answer in answers)
    tools.wait_for(lambda: (told := door.traffic(0).get("blue")) and told.requests == 9, "a line of each request")


def test_a_request_goes_back_to_wait_once_only(doors, engines, slot_of, tools):
    """It may be the request that ends the engine: it does not get every engine that comes after."""
    killer, door = engines("killer"), doors()
    door.serve(slot_of(1, killer))

    async def scenario():
        asked = asyncio.create_task(tools.request(door.port, late=True, first_s=30))
        for number in (1, 2):
            engine = killer if number == 1 else await asyncio.to_thread(engines, "next", port=killer.port)
            await tools.until(lambda engine=engine: engine.open)
            await asyncio.to_thread(engine.kill)
            if number == 1:
                await _until_held(door, 1)
        return await asked

    answer = tools.run(scenario())
    assert (answer.status, answer.error["code"], "retry-after" in answer.headers) == (503, "upstream", True)
