"""The key that the door brings to engines: to all of them, in the place of whatever a client brought, and for long."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from own_ports import free_port

from controller.core.route import Route, Slot
from controller.effects.frontdoor.door import DoorSettings, FrontDoor

OURS, CLIENT, WRONG = "ek-0123456789abcdef-_x", "sk-client-0123456789abcdef", "sk-wrong-0123456789abcdef"
BROUGHT = ("Authorization: Bearer theirs", "X-Api-Key: theirs", "X-Custom: a b")


@pytest.fixture
def keyed(tmp_path, tools, engines):
    """Start a door that brings a key, with an engine on both of its sides; returns both."""
    started = []

    def begin(key=OURS, client_key=None):
        keys = None
        if client_key is not None:
            keys = tmp_path / "keys"
            keys.write_text(f"{client_key}\n")
            keys.chmod(0o600)
        ports = {name: f"127.0.0.1:{free_port()}" for name in ("public", "preview", "inner")}
        settings = DoorSettings(tmp_path / "door", **ports, slots=2, api_keys_file=keys)
        door = FrontDoor(settings, choose_key=lambda: key)
        started.append(door)
        door.ensure()
        engine = engines("blue")
        slot = Slot(1, engine.port, health_path="/health", release="r@1", attempt="a-1")
        door.apply(Route(1, (slot,), (slot,)))
        tools.wait_for(lambda: all(s.up for s in (*door.read().public, *door.read().preview)), "the slots are up")
        return door, engine

    yield begin
    for door in started:
        with contextlib.suppress(FileNotFoundError):
            door.stop()


def told(engine):
    """The credentials of the last request, and a header that is nobody's business."""
    headers = engine.seen[-1].headers
    return [pair for pair in headers if pair[0] in ("authorization", "x-api-key", "x-custom")]


def ask(tools, address, *headers):
    return tools.run(tools.request(address.port, headers=headers, stream=False))


def test_an_engine_hears_our_key_and_no_clients(keyed, tools):
    door, engine = keyed()
    ours = ("authorization", f"Bearer {OURS}")
    for address in (door.settings.public_address, door.settings.preview_address):
        assert ask(tools, address).status == 200
        assert told(engine) == [ours]
        assert ask(tools, address, *BROUGHT).status == 200
        assert sorted(told(engine)) == [ours, ("x-custom", "a b")]
    assert door.engine_key == OURS
    assert OURS not in door.log.read_text()


def test_without_one_what_a_client_brings_is_passed_on_as_ever(keyed, tools):
    door, engine = keyed(key=None)
    assert ask(tools, door.settings.public_address, *BROUGHT).status == 200
    assert len(told(engine)) == 3
    assert door.engine_key is None


def test_with_client_keys_the_daemons_ways_in_want_one_too(keyed, tools):
    """Else every user of the box would get around the list of keys by another port."""
    door, engine = keyed(client_key=CLIENT)
    names = ("public", "inner", "preview")
    public, inner, preview = (getattr(door.settings, f"{name}_address") for name in names)
    for address in (public, inner, preview):
        for headers in ((), (f"Authorization: Bearer {WRONG}",), (f"x-api-key: {OURS[:-1]}",)):
            answer = ask(tools, address, *headers)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert ask(tools, address, f"Authorization: Bearer {CLIENT}").status == 200
    for address in (inner, preview):
        assert ask(tools, address, f"Authorization: Bearer {OURS}").status == 200
    assert ask(tools, public, f"Authorization: Bearer {OURS}").status == 401, "it is no client's"
    assert {value for seen in engine.seen for name, value in seen.headers if name == "authorization"} == {
        f"Bearer {OURS}"
    }
    assert OURS not in door.log.read_text()


def test_without_a_key_of_ours_the_ways_in_want_none(keyed, tools):
    """Its daemon has nothing to bring: `engine_keys: off`."""
    door, _ = keyed(key=None, client_key=CLIENT)
    for address in (door.settings.inner_address, door.settings.preview_address):
        assert ask(tools, address).status == 200
    assert ask(tools, door.settings.public_address).status == 401


def test_a_door_that_dies_comes_back_with_it(keyed, tools):
    door, engine = keyed()
    before = door.read().pid
    os.kill(before, signal.SIGKILL)
    tools.wait_for(lambda: (now := door.read()).alive and now.pid != before, "the door is back")
    tools.wait_for(lambda: ask(tools, door.settings.public_address).status == 200, "it serves")
    assert told(engine) == [("authorization", f"Bearer {OURS}")]


def test_one_of_an_earlier_version_brings_none(keyed):
    """It runs on after an upgrade, and engines that are started meanwhile must not want what it does not bring."""
    door, _ = keyed()
    file = door.settings.directory / "haproxy.cfg"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "engine.map" not in line))
    assert door.engine_key is None
    assert (door.settings.directory / "engine.map").stat().st_mode & 0o077 == 0
