"""What the door's files remember is what it has confirmed: no more, no less, and at once."""

from __future__ import annotations

import re

import pytest

from controller.core.route import Route, SlotState
from controller.effects.frontdoor.committed import committed_route
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
from controller.effects.frontdoor.errors import DoorError
from controller.effects.frontdoor.runtime import RuntimeSocket


def test_what_was_applied_is_remembered_when_the_call_returns(doors, engines, slot_of):
    door, blue, green = doors(), engines("blue"), engines("green")
    door.apply(Route(1, (slot_of(1, blue),)))
    assert committed_route(door.settings.directory) == {"blue": (1, SlotState.READY)}
    door.apply(Route(2, (slot_of(1, blue, state=SlotState.DRAIN), slot_of(2, green))))
    assert committed_route(door.settings.directory) == {
        "blue": (1, SlotState.DRAIN),
        "green": (2, SlotState.READY),
    }
    door.apply(Route(3, (slot_of(1, blue), slot_of(2, green, state=SlotState.DRAIN))))
    assert committed_route(door.settings.directory) == {
        "blue": (1, SlotState.READY),
        "green": (2, SlotState.DRAIN),
    }


def test_a_socket_whose_name_was_removed_gets_it_back(doors, engines, slot_of):
    """And with it the way back: a door that can be told nothing serves its last route for ever."""
    door, blue, green = doors(), engines("blue"), engines("green")
    door.serve(slot_of(1, blue))
    pid = door.read().pid
    for name in ("haproxy.sock", "again.sock"):
        (door.settings.directory / name).unlink()
    door.serve(slot_of(2, green))
    assert door.read().pid == pid
    assert (door.settings.directory / "again.sock").is_socket()
    door.stop()
    assert door.read().alive is False
    door.ensure()
    door.serve(slot_of(1, blue))
    assert door.read().pid != pid


def test_one_that_has_no_socket_any_more_says_how_it_is_healed(doors):
    door = doors()
    pid = door.read().pid
    for path in door.settings.directory.glob("*haproxy.sock*"):
        path.unlink()
    assert f"only a new start heals that, which ends the requests in it (`kill -TERM {pid}`)" in door.read().why


def test_a_new_daemon_remembers_what_the_door_does(doors, engines, slot_of):
    """The one before it died between a change and its saving: nothing differs, so nobody would say it again."""
    door = doors()
    door.apply(Route(1, (slot_of(1, engines("blue")),)))
    before = {path: path.read_text() for path in door.settings.directory.iterdir() if path.suffix in (".map", ".state")}
    door.apply(Route(2, (slot_of(2, engines("green")),)))
    for path, text in before.items():
        path.write_text(text)
    another = FrontDoor(door.settings)
    another.ensure()
    another.read()
    assert committed_route(door.settings.directory) == {"green": (2, SlotState.READY)}


def test_a_starter_that_was_killed_does_not_make_the_door_forget(doors, engines, slot_of):
    """Who starts it anew clears the record of the last start, and may be killed before there is another."""
    door = doors()
    door.apply(Route(1, (slot_of(1, engines("blue")),)))
    door.stop()
    for record in ("shim.json", "exit.json"):
        (door.settings.directory / "run" / record).unlink()
    door.ensure()
    assert [slot.number for slot in door.read().public] == [1]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("set server engines/s99 state ready", "No such server"),
        ("set server engines/s2 addr 127.0.0.1 port -3", "no need to change the addr, can't change <port>"),
    ],
)
def test_what_the_door_does_not_confirm_is_an_error(doors, command, answer):
    """Of two things that it was told it may do one: the answer names both."""
    door = doors()
    with (
        RuntimeSocket(door.socket_path) as runtime,
        pytest.raises(DoorError, match=f"the front door refused `{re.escape(command)}`: {re.escape(answer)}"),
    ):
        runtime.do([command])
    assert committed_route(door.settings.directory) == {}


def test_a_door_with_fewer_slots_than_this_daemon_would_give_it_says_so(doors, engines, slot_of):
    """It was started before the configuration was changed, and is left alone."""
    door = doors(slots=2)
    settings = door.settings
    larger = FrontDoor(DoorSettings(settings.directory, settings.public, settings.preview, slots=5))
    larger.ensure()
    with pytest.raises(DoorError, match=r"names slot 5; the front door that runs has slots 1 to 2"):
        larger.apply(Route(1, (slot_of(5, engines("blue")),)))
