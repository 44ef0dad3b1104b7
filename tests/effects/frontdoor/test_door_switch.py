"""Moving users from one release to another, and what they notice: nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from controller.core.route import Mode, Route, SlotState
from controller.effects.frontdoor.door import DoorError
from controller.effects.frontdoor.runtime import RuntimeSocket


def test_a_switch_under_16_streams_loses_nothing(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue))

    async def scenario():
        done, answers = asyncio.Event(), []

        async def user():
            while not done.is_set():
                answers.append(await tools.request(door.port, tokens=10, interval_s=0.01))

        users = [asyncio.create_task(user()) for _ in range(16)]
        long = [asyncio.create_task(tools.request(door.port, tokens=100, interval_s=0.05)) for _ in range(4)]
        await tools.until(lambda: len(blue.posts()) >= 40)
        switched = Route(2, (slot_of(2, green), slot_of(1, blue, state=SlotState.DRAIN)))
        await asyncio.to_thread(door.apply, switched)
        seen_by_blue = len(blue.posts())  # the command has returned: from here on nothing new may come
        still_on_blue = {slot.number: slot.in_flight for slot in door.read().public}[1]
        await tools.until(lambda: len(green.posts()) >= 60)
        done.set()
        await asyncio.gather(*users)
        return answers, await asyncio.gather(*long), seen_by_blue, still_on_blue

    answers, long, seen_by_blue, still_on_blue = tools.run(scenario())
    assert [answer for answer in answers + long if not answer.whole or answer.status != 200] == []
    assert len(blue.posts()) == seen_by_blue
    assert {answer.engine for answer in long} == {"blue"}
    assert still_on_blue >= 4
    assert {answer.engine for answer in answers} == {"blue", "green"}
    tools.wait_for(lambda: door.read().public[0].in_flight == 0, "blue is drained")
    door.apply(Route(3, (slot_of(2, green),)))
    assert [slot.number for slot in door.read().public] == [2]


def test_in_flight_is_the_truth(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue), slot_of(2, green))

    async def scenario():
        streams = [
            asyncio.create_task(tools.request(door.port, tokens=4, first_s=1.0, interval_s=0.2)) for _ in range(9)
        ]
        await tools.until(lambda: blue.open + green.open >= 9)
        busy = {slot.number: slot.in_flight for slot in door.read().public}, {1: blue.open, 2: green.open}
        await asyncio.gather(*streams)
        return busy

    told, truth = tools.run(scenario())
    assert told == truth
    assert abs(told[1] - told[2]) <= 1  # least connections
    tools.wait_for(lambda: [slot.in_flight for slot in door.read().public] == [0, 0], "counters back at zero")


def test_a_second_apply_sends_nothing(doors, engines, slot_of):
    door = doors()
    route = door.serve(slot_of(1, engines("blue")), preview=(slot_of(2, engines("green", "/readiness")),))
    log, state = door.log.read_text(), (door.settings.directory / "haproxy.state").stat().st_mtime_ns
    connections = _slot_changes(log)
    door.apply(route)
    assert _slot_changes(door.log.read_text()) == connections
    assert (door.settings.directory / "haproxy.state").stat().st_mtime_ns == state
    door.apply(Route(9, route.public, route.preview, route.mode))  # a generation alone is nothing to do
    assert (door.settings.directory / "haproxy.state").stat().st_mtime_ns == state


def _slot_changes(log):
    return [line for line in log.splitlines() if "Server engines/" in line or "Server preview/" in line]


def test_a_slot_that_gets_another_process_is_not_up_by_the_old_ones_health(doors, engines, slot_of, tools):
    """HAProxy shows a ready slot as "UP 1/2" with the last check of its former address, also when nobody listens."""
    blue, door = engines("blue"), doors()
    door.serve(slot_of(1, blue))
    dead = slot_of(1, blue, port=tools.free_port(), attempt="dead")
    door.apply(Route(2, (dead,)))
    deadline_s = time.monotonic() + 1.5
    while time.monotonic() < deadline_s:
        assert [slot.up for slot in door.read().public] == [False]
        time.sleep(0.01)
    reborn = engines("reborn", port=dead.port)
    tools.wait_for(lambda: door.read().public[0].up, "up once somebody listens")
    assert reborn.checks


def test_a_slot_on_a_dead_port_is_never_up(doors, engines, slot_of, tools):
    door = doors()
    door.apply(Route(1, (slot_of(3, engines("blue"), port=tools.free_port()),)))
    deadline_s = time.monotonic() + 1.5
    while time.monotonic() < deadline_s:
        assert [slot.up for slot in door.read().public] == [False]
        time.sleep(0.01)


def test_each_slot_is_checked_at_its_own_health_path(doors, engines, slot_of, tools):
    """smg says /health 200 without a worker; only its /readiness means something."""
    vllm, smg, door = engines("vllm", "/health"), engines("smg", "/readiness"), doors()
    door.serve(slot_of(1, vllm), slot_of(2, smg), preview=(slot_of(2, smg),))
    assert set(vllm.checks) == {"/health"}
    assert set(smg.checks) == {"/readiness"}
    assert [seen.target for seen in vllm.seen + smg.seen] == []  # neither was ever asked at the other's path
    smg.healthy = False
    tools.wait_for(lambda: [slot.up for slot in door.read().public] == [True, False], "smg is seen down")


def test_a_drained_slot_that_serves_is_still_up(doors, engines, slot_of, tools):
    """The way back: rollback asks whether its target serves before it switches."""
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue))
    route = door.serve(slot_of(1, blue, state=SlotState.DRAIN), slot_of(2, green))
    time.sleep(0.5)
    assert [(slot.state, slot.up) for slot in door.read().public] == [(SlotState.DRAIN, True), (SlotState.READY, True)]
    blue.kill()
    tools.wait_for(lambda: not door.read().public[0].up, "a dead drained slot is not up")
    assert door.read().public[0].state is SlotState.DRAIN
    door.apply(route)


def test_a_slot_can_be_cut(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue), slot_of(2, green))

    async def scenario():
        streams = [asyncio.create_task(tools.request(door.port, tokens=100, interval_s=0.05)) for _ in range(6)]
        await tools.until(lambda: blue.open + green.open >= 6 and blue.open)
        open_on_blue = blue.open
        cut = await asyncio.to_thread(door.cut, 1)
        return open_on_blue, cut, await asyncio.gather(*streams)

    open_on_blue, cut, answers = tools.run(scenario())
    assert cut == open_on_blue
    assert sorted(answer.whole for answer in answers) == [False] * cut + [True] * (6 - cut)
    assert {answer.engine for answer in answers if not answer.whole} <= {"blue", ""}  # "": before its first token


def test_kill_9_comes_back_with_the_committed_route(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green", "/readiness"), doors()
    door.serve(slot_of(1, blue))
    route = Route(2, (slot_of(2, green), slot_of(1, blue, state=SlotState.DRAIN)), (slot_of(1, blue),), Mode.OPEN, 17)
    door.apply(route)
    tools.wait_for(lambda: door.all_up(route), "all up")
    before = door.read()
    os.kill(before.pid, signal.SIGKILL)
    tools.wait_for(lambda: door.read().alive and door.read().pid != before.pid, "another process answers")
    tools.wait_for(lambda: door.all_up(route), "its slots are up")
    after = door.read()
    assert (after.public, after.preview, after.mode) == (before.public, before.preview, before.mode)
    assert after.started_at_s >= before.started_at_s
    assert {tools.run(tools.request(door.port)).engine for _ in range(4)} == {"green"}
    assert [
        line for line in (door.settings.directory / "ctl.map").read_text().split("\n") if "retry_after" in line
    ] == ["retry_after 17"]
    changes_before = len(_slot_changes(door.log.read_text()))
    door.apply(route)  # the loop's next word finds nothing to change
    assert len(_slot_changes(door.log.read_text())) == changes_before


def test_a_door_without_a_route_comes_back_without_one(doors, tools):
    door = doors()
    pid = door.read().pid
    os.kill(pid, signal.SIGKILL)
    tools.wait_for(lambda: (seen := door.read()).alive and seen.pid != pid, "another process answers")
    assert (door.read().public, door.read().mode) == ((), Mode.REFUSE)


def test_a_lost_state_is_written_again_by_the_next_word(doors, engines, slot_of):
    """The daemon died between the change and its saving: nothing differs at the door, but its memory must."""
    door = doors()
    route = door.serve(slot_of(1, engines("blue")))
    path = door.settings.directory / "haproxy.state"
    text = path.read_text()
    path.write_text("")
    door.apply(route)
    assert path.read_text() == text


def test_a_state_that_cannot_be_saved_is_told_and_the_route_served(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    (door.settings.directory / ".haproxy.state.new").mkdir()
    with pytest.raises(DoorError, match="the front door's state cannot be saved in"):
        door.apply(Route(1, (slot_of(1, blue),)))
    assert tools.run(tools.request(door.port)).whole


def test_what_an_older_door_does_not_know_is_added(doors, engines, slot_of, tools):
    """A daemon that was upgraded may speak of keys that the maps of the running door lack."""
    door = doors()
    with RuntimeSocket(door.socket_path) as runtime:
        runtime.do(["del map ../ctl.map reason", "del map ../attempt.map s1"])
    door.serve(slot_of(1, engines("blue")), mode=Mode.REFUSE)
    assert tools.run(tools.request(door.port)).error["code"] == "switching"
