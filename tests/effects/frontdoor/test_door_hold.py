"""Requests while nothing can serve them: they wait, a bounded time and a bounded number, or are told to come back."""

from __future__ import annotations

import asyncio
import time

import openai
import pytest

from controller.core.route import Mode, Route, SlotState


async def _held(door, wanted):
    while door.read().held != wanted:  # noqa: ASYNC110  # counted in another process
        await asyncio.sleep(0.02)


def test_a_swap_holds_requests_and_loses_none(doors, engines, slot_of, tools):
    """Stop-then-start on the same cards: hold, drain, stop, start another, open."""
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))

    async def scenario():
        before = [asyncio.create_task(tools.request(door.port, tokens=20, interval_s=0.05)) for _ in range(4)]
        await tools.until(lambda: blue.open >= 4)
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue, state=SlotState.DRAIN),), mode=Mode.HOLD))
        during = [asyncio.create_task(tools.request(door.port, prompt="x" * 60_000)) for _ in range(12)]
        await _held(door, 12)
        first = await asyncio.gather(*before)
        await asyncio.to_thread(blue.kill)
        await asyncio.to_thread(door.apply, Route(3, mode=Mode.HOLD))
        green = engines("green")
        opened = Route(4, (slot_of(1, green),))
        await asyncio.to_thread(door.apply, opened)
        return first, await asyncio.gather(*during)

    before, during = tools.run(scenario())
    assert all(answer.whole and answer.engine == "blue" for answer in before)
    assert all(answer.whole and answer.engine == "green" for answer in during)
    assert door.read().held == 0


def test_hold_mode_holds_also_while_a_server_is_up(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.HOLD)

    async def scenario():
        waiting = asyncio.create_task(tools.request(door.port))
        await _held(door, 1)
        assert blue.posts() == []
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await waiting

    assert tools.run(scenario()).whole


def test_a_request_waits_when_the_only_engine_died_and_is_served_by_the_next(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))
    blue.kill()
    tools.wait_for(lambda: tools.run(tools.request(door.port, "GET", "/health")).status == 503, "its death is seen")

    async def scenario():
        waiting = asyncio.create_task(tools.request(door.port))
        await _held(door, 1)
        await asyncio.to_thread(engines, "blue again", port=blue.port)
        return await waiting

    assert tools.run(scenario()).engine == "blue again"


def test_holding_ends_in_a_503_that_says_when_to_come_back(doors, tools):
    door = doors(hold_s=1)
    door.apply(Route(1, retry_after_s=7))
    began_s = time.monotonic()
    answer = tools.run(tools.request(door.port))
    assert time.monotonic() - began_s >= 1
    assert (answer.status, answer.headers["retry-after"], answer.error["code"]) == (503, "7", "hold_timeout")
    assert door.read().held == 0


def test_only_so_many_wait(doors, tools):
    door = doors(hold_s=4, hold_max=3)
    door.apply(Route(1))

    async def scenario():
        waiting = [asyncio.create_task(tools.request(door.port)) for _ in range(3)]
        await _held(door, 3)
        began_s = time.monotonic()
        one_too_many = await tools.request(door.port)
        at_once = time.monotonic() - began_s < 3
        return one_too_many, at_once, await asyncio.gather(*waiting)

    one_too_many, at_once, waiting = tools.run(scenario())
    assert (one_too_many.status, one_too_many.error["code"], at_once) == (503, "hold_full", True)
    assert "retry-after" in one_too_many.headers
    assert {answer.error["code"] for answer in waiting} == {"hold_timeout"}


def test_a_new_limit_needs_no_new_door(doors, tools):
    """Limits travel with the next route: the door that runs is not touched by a changed configuration."""
    door = doors(hold_s=60)
    door.apply(Route(1))
    changed = type(door)(
        type(door.settings)(door.settings.directory, door.settings.public, door.settings.preview, hold_s=1)
    )
    changed.ensure()
    changed.apply(Route(2))
    assert tools.run(tools.request(door.port)).status == 503


@pytest.mark.parametrize("with_servers", [False, True])
def test_refuse_is_at_once(doors, engines, slot_of, tools, with_servers):
    blue, door = engines("blue"), doors()
    door.serve(*[slot_of(1, blue)] * with_servers, mode=Mode.REFUSE)
    began_s = time.monotonic()
    answer = tools.run(tools.request(door.port))
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert answer.error["code"] == ("switching" if with_servers else "no_model_live")
    assert time.monotonic() - began_s < 10
    assert blue.posts() == []


def test_holding_for_a_switch_ends_in_a_503_too(doors, tools):
    door = doors(hold_s=1)
    door.apply(Route(1, mode=Mode.HOLD))
    answer = tools.run(tools.request(door.port))
    assert (answer.status, answer.error["code"], "retry-after" in answer.headers) == (503, "hold_timeout", True)


def test_refuse_sends_those_away_who_wait_already(doors, tools):
    door = doors()
    door.apply(Route(1, mode=Mode.HOLD))

    async def scenario():
        waiting = asyncio.create_task(tools.request(door.port))
        await _held(door, 1)
        await asyncio.to_thread(door.apply, Route(2, mode=Mode.REFUSE))
        return await waiting

    assert tools.run(scenario()).status == 503


def test_a_door_that_was_never_told_a_route_says_that_nothing_is_live(doors, tools):
    answer = tools.run(tools.request(doors().port))
    assert (answer.status, answer.error["code"]) == (503, "no_model_live")
    assert answer.error["message"].startswith("no model is live")


def test_questions_do_not_wait(doors, tools):
    """GET /v1/models tells a client at once that it must come back; only work is worth holding."""
    door = doors()
    door.apply(Route(1))
    answer = tools.run(tools.request(door.port, "GET", "/v1/models"))
    assert (answer.status, answer.error["code"]) == (503, "no_engine")


def test_sdks_get_a_retry_after_they_obey(doors, engines, slot_of, tools):
    """The OpenAI client ignores a Retry-After above a minute or two: 60 is the most that is sent."""
    door = doors()
    door.apply(Route(1, mode=Mode.REFUSE, retry_after_s=600))
    client = openai.OpenAI(api_key="x", base_url=f"http://127.0.0.1:{door.port}/v1", max_retries=0)
    with pytest.raises(openai.InternalServerError) as refused, client:
        client.chat.completions.create(model="m", messages=[])
    assert refused.value.response.headers["retry-after"] == "60"
    assert (refused.value.status_code, refused.value.code) == (503, "no_model_live")
    assert "no model is live" in refused.value.message


def test_the_openai_client_retries_a_refusal_and_succeeds(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue), mode=Mode.REFUSE)
    door.apply(Route(2, (slot_of(1, blue),), mode=Mode.REFUSE, retry_after_s=1))
    with openai.OpenAI(api_key="x", base_url=f"http://127.0.0.1:{door.port}/v1", max_retries=20) as client:

        async def scenario():
            asked = asyncio.create_task(
                asyncio.to_thread(client.chat.completions.create, model="m", messages=[], extra_body={"stream": False})
            )
            await tools.until(lambda: "switching" in door.log.read_text() or _refused(door))
            await asyncio.to_thread(door.apply, Route(3, (slot_of(1, blue),)))
            return await asked

        assert tools.run(scenario()).choices[0].message.content == "blue"


def _refused(door):
    return any(traffic.errors_5xx for traffic in door.traffic(0).values())
