"""What the access log says of each attempt."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from controller.core.route import Route, SlotState
from controller.effects.frontdoor.accesslog import Entry, Follower, parse
from controller.effects.frontdoor.door import FrontDoor
from controller.effects.frontdoor.traffic import TrafficCounter


def now_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_every_way_in_which_a_request_can_end_is_counted_for_its_attempt(doors, engines, slot_of, tools):
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue))

    async def leave_after_first_token():
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        body = json.dumps({"tokens": 500, "interval_s": 0.05}).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"|0|")
        writer.close()

    async def on_blue():
        for _ in range(3):
            assert (await tools.request(door.port)).whole
        assert (await tools.request(door.port, status=500)).status == 500
        assert (await tools.request(door.port, status=503)).status == 503
        assert (await tools.request(door.port, status=404)).status == 404
        assert not (await tools.request(door.port, tokens=9, break_after=2)).whole
        await leave_after_first_token()
        assert (await tools.request(door.port, path="/pause")).status == 404
        assert (await tools.request(door.preview_port)).status == 503

    tools.run(on_blue())
    seen = tools.wait_for(lambda: (found := door.traffic(0)).get("blue") and found["blue"].requests == 8 and found, "8")
    told = seen["blue"]
    assert (told.errors_5xx, told.truncated, told.client_left, len(told.first_byte_s)) == (2, 1, 1, 8)
    assert all(0 <= value < 10 for value in told.first_byte_s)
    assert (seen[""].requests, seen[""].errors_5xx) == (1, 0)  # the preview's requests are not users'

    switched_s = now_s()
    door.serve(slot_of(1, blue, state=SlotState.DRAIN), slot_of(2, green))
    assert tools.run(tools.request(door.port, late=True, first_s=0.6)).engine == "green"
    later = tools.wait_for(lambda: door.traffic(switched_s), "green's traffic")
    assert set(later) == {"green"}
    assert 0.5 < later["green"].first_byte_s[0] < 10
    again = FrontDoor(door.settings)  # another daemon reads the same from the file
    assert again.traffic(0)["blue"] == told
    assert again.traffic(now_s() + 1) == {}


def test_a_slot_that_changed_hands_keeps_its_old_requests_with_the_old_attempt(doors, engines, slot_of, tools):
    """The mapping of slot to attempt is taken when the answer begins, not when it ends."""
    blue, green, door = engines("blue"), engines("green"), doors()
    door.serve(slot_of(1, blue))

    async def scenario():
        begun = asyncio.create_task(tools.request(door.port, tokens=20, interval_s=0.1))
        await tools.until(lambda: blue.open)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, green),)))
        return await tools.request(door.port), await begun

    new, begun = tools.run(scenario())
    assert (new.engine, begun.engine, begun.whole) == ("green", "blue", True)
    seen = tools.wait_for(lambda: len(found := door.traffic(0)) == 2 and found, "both attempts")
    assert {name: traffic.requests for name, traffic in seen.items()} == {"blue": 1, "green": 1}


def test_a_request_that_nobody_could_take_over_is_an_error_of_the_door(doors, engines, slot_of, tools):
    """The only engine dies in prefill: tried again, in vain. HAProxy then no longer says who had it first."""
    blue, door = engines("blue"), doors(hold_s=1)
    door.serve(slot_of(1, blue))

    async def scenario():
        asked = asyncio.create_task(tools.request(door.port, late=True, first_s=20))
        await tools.until(lambda: blue.open)
        await asyncio.to_thread(blue.kill)
        return await asked

    assert tools.run(scenario()).status in (502, 503)
    counted = tools.wait_for(lambda: list(door.traffic(0).values()), "one line")
    assert sum(traffic.errors_5xx for traffic in counted) == 1
    assert sum(traffic.truncated for traffic in counted) == 0


def test_an_engine_that_hangs_up_without_an_answer_is_charged_with_it(doors, engines, slot_of, tools):
    """It passes its health check and drops the work: the attempt, not the door, has failed."""
    door = doors()
    door.serve(slot_of(1, engines("blue")))
    answer = tools.run(tools.request(door.port, late=True, break_after=0))
    assert (answer.status, answer.error["code"]) in ((502, "upstream"), (503, "upstream"))
    told = tools.wait_for(lambda: door.traffic(0), "one line")
    assert (set(told), told["blue"].errors_5xx) == ({"blue"}, 1)


def test_counting_does_not_need_the_daemon(doors, engines, slot_of, tools):
    """The log is a file that HAProxy itself appends to: nobody has to listen."""
    door = doors()
    door.serve(slot_of(1, engines("blue")))
    for _ in range(5):
        tools.run(tools.request(door.port))
    lines = [json.loads(line) for line in door.log.read_text().splitlines() if line.startswith("{")]
    assert len(lines) == 5
    assert {(line["method"], line["path"], line["status"], line["attempt"], line["end"]) for line in lines} == {
        ("POST", "/v1/chat/completions", 200, "blue", "--")
    }


def test_a_held_request_says_how_long_it_waited(doors, engines, slot_of, tools):
    blue, door = engines("blue"), doors()
    door.apply(Route(1))

    async def scenario():
        asked = asyncio.create_task(tools.request(door.port))
        await tools.until(lambda: door.read().held)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(door.apply, Route(2, (slot_of(1, blue),)))
        return await asked

    assert tools.run(scenario()).whole
    line = tools.wait_for(lambda: [text for text in door.log.read_text().splitlines() if '"released"' in text], "line")[
        0
    ]
    assert int(json.loads(line)["held_ms"]) >= 300
    assert door.traffic(0)["blue"].first_byte_s[0] < 0.3  # the engine is not charged with the wait


# ------------------------------------------------------------------------------------------- without a door

LINE = (
    '{{"end_ms":{end_ms},"door":"{door}","slot":"s1","attempt":"{attempt}","slot_attempt":"{slot_attempt}",'
    '"method":"POST","path":"\\/v1\\/completions","status":{status},"header_ms":{header_ms},"total_ms":9,'
    '"held_ms":"-","hold":"-","bytes":1,"end":"{end}","retries":"0","client":"127.0.0.1"}}\n'
)


def line_of(**changes):
    plain = {"end_ms": int(time.time() * 1000), "door": "public", "attempt": "a", "slot_attempt": "b", "status": 200}
    return LINE.format(**(plain | {"header_ms": 5, "end": "--"} | changes))


@pytest.mark.parametrize(
    ("end", "truncated", "left"),
    [
        ("--", False, False),
        ("SD", True, False),  # the engine closed while it sent
        ("sD", True, False),  # or fell silent
        ("KD", True, False),  # we cut the slot
        ("SH", False, False),  # before its headers: that is a 502
        ("sH", False, False),
        ("CD", False, True),
        ("CH", False, True),
        ("cD", False, True),
        ("PR", False, False),  # the door said no
        ("LR", False, False),
    ],
)
def test_how_a_request_ended(end, truncated, left):
    entry = parse(line_of(end=end).encode())
    assert (entry.is_truncated, entry.client_left) == (truncated, left)


def test_lines_that_are_no_requests_are_passed_over():
    for line in (b"[NOTICE] (1) : hello", b"Server engines/s1 is UP", b'{"end_ms":17,"door":"pub', b'{"other":1}', b""):
        assert parse(line) is None
    assert parse(line_of(attempt="-", slot_attempt="-").encode()).attempt == ""
    assert parse(line_of(attempt="-").encode()).attempt == "b"
    assert parse(line_of(header_ms=-1).encode()).header_s is None


def test_the_log_is_followed_across_its_cut(tmp_path):
    """The shim copies the newest part to .1 and cuts the file in place; nothing may be lost or counted twice."""
    log = tmp_path / "engine.log"
    follower = Follower(log)
    assert follower.read() == []
    numbered = [line_of(attempt=f"a{number}") for number in range(9)]
    log.write_text("noise\n" + numbered[0] + numbered[1] + numbered[2][:40])
    assert _names(follower) == ["a0", "a1"]
    with log.open("a") as file:
        file.write(numbered[2][40:] + numbered[3])
    assert _names(follower) == ["a2", "a3"]
    with log.open("a") as file:
        file.write(numbered[4])  # not yet seen when the cut comes
    (tmp_path / "engine.log.1").write_text(log.read_text()[30:])
    log.write_text(numbered[5])
    assert _names(follower) == ["a4", "a5"]
    log.write_text("x" * 5000 + "\n" + numbered[6])  # cut again, and longer than before at once
    (tmp_path / "engine.log.1").write_text(numbered[5])
    assert _names(follower) == ["a6"]
    assert _names(follower) == []


def _names(follower):
    return [entry.attempt for entry in follower.read()]


def test_a_new_reader_looks_back_only_so_far(tmp_path):
    log = tmp_path / "engine.log"
    size_bytes = len(line_of(attempt="a0"))
    (tmp_path / "engine.log.1").write_text("".join(line_of(attempt=f"a{number}") for number in range(5)))
    log.write_text("".join(line_of(attempt=f"a{number}") for number in range(5, 8)))
    assert _names(Follower(log)) == [f"a{number}" for number in range(8)]
    assert _names(Follower(log, history_bytes=4 * size_bytes)) == ["a4", "a5", "a6", "a7"]
    assert _names(Follower(log, history_bytes=2 * size_bytes)) == ["a6", "a7"]


def test_a_step_of_the_wall_clock_does_not_move_what_was_counted(tmp_path):
    """HAProxy stamps with the wall clock; the question is asked in boot time."""
    log = tmp_path / "engine.log"
    log.write_text(line_of())
    counter = TrafficCounter(Follower(log))
    before_s = now_s() - 60
    assert counter.since(before_s)["a"].requests == 1
    looked_s = now_s()
    with log.open("a") as file:
        file.write(line_of(end_ms=int((time.time() - 3600) * 1000)))  # written after the clock was set back an hour
        file.write(line_of(end_ms=int((time.time() + 3600) * 1000)))
    counted = counter.since(before_s)
    assert counted["a"].requests == 3
    assert counter.since(looked_s - 0.5)["a"].requests >= 2
    assert counter.since(now_s() + 0.001) == {}


def test_only_the_newest_first_bytes_are_kept(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("".join(line_of(header_ms=number) for number in range(700)))
    told = TrafficCounter(Follower(log)).since(0)["a"]
    assert told.requests == 700
    assert told.first_byte_s == tuple(number / 1000 for number in range(188, 700))


def test_an_entry_is_a_record():
    entry = parse(line_of(end_ms=1500).encode())
    assert entry == Entry(1.5, "public", "a", 200, "--", 0.005, "/v1/completions")
