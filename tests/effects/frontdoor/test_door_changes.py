"""The commands between what is and what should be, without a HAProxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.core.route import HoldSeen, Mode, Route, Slot, SlotSeen, SlotState
from controller.effects.frontdoor.changes import changes, control_values
from controller.effects.frontdoor.config import first_files, render
from controller.effects.frontdoor.errors import DoorSettingsError
from controller.effects.frontdoor.settings import DoorSettings
from controller.effects.frontdoor.snapshot import Snapshot, admin_state

SETTINGS = DoorSettings(Path("/nowhere"), slots=4)
READY, DRAIN, MAINT = SlotState.READY, SlotState.DRAIN, SlotState.MAINT


def slot(number, port=0, state=READY, attempt=""):
    return Slot(number, port or 18000 + number, "/health", "r@1", attempt or f"a{number}", state)


def seen(public=(), preview=(), mode=Mode.OPEN):
    wished = {("engines", one.number): one for one in public} | {("preview", one.number): one for one in preview}
    slots = {}
    for backend in ("engines", "preview"):
        for number in range(1, 5):
            one = wished.get((backend, number))
            slots[backend, number] = SlotSeen(number, one.port if one else 9, one.state if one else MAINT, True, 0)
    attempts = {f"s{number}": "-" for number in range(1, 5)} | {
        f"s{one.number}": one.attempt for one in wished.values()
    }
    control = control_values(Route(1, tuple(public), tuple(preview), mode), SETTINGS)
    health = {f"s{number}": "/health" for number in range(1, 5)}
    return Snapshot(1, slots, {"ctl": control, "attempt": attempts, "health": health}, 0, "", HoldSeen())


def test_nothing_to_do_is_nothing_sent():
    public, preview = (slot(1), slot(2, state=DRAIN)), (slot(3),)
    assert changes(Route(5, public, preview), seen(public, preview), SETTINGS) == []


def test_the_new_slot_is_ready_before_the_old_one_stops():
    route = Route(2, (slot(1, state=DRAIN), slot(2)))
    assert changes(route, seen((slot(1),), (slot(2),)), SETTINGS) == [
        "set server engines/s2 addr 127.0.0.1 port 18002",
        "set server engines/s2 state ready",
        "set server engines/s1 state drain",
        "set server preview/s2 state maint",
    ]


def test_the_way_back_is_two_words():
    back = Route(3, (slot(1), slot(2, state=DRAIN)))
    assert changes(back, seen((slot(1, state=DRAIN), slot(2))), SETTINGS) == [
        "set server engines/s1 state ready",
        "set server engines/s2 state drain",
    ]


def test_a_slot_changes_hands_only_through_maintenance():
    route = Route(2, (slot(1, port=18777, attempt="other"),))
    assert changes(route, seen((slot(1),)), SETTINGS) == [
        "set server engines/s1 state maint",
        "set map ../attempt.map s1 other",
        "set server engines/s1 addr 127.0.0.1 port 18777",
        "set server engines/s1 state ready",
    ]
    same_port = Route(2, (slot(1, attempt="other"),))
    assert changes(same_port, seen((slot(1),)), SETTINGS)[0] == "set server engines/s1 state maint"


def test_doors_close_first_and_open_last():
    before = seen((slot(1),))
    closing = changes(Route(2, (slot(1, state=DRAIN),), mode=Mode.HOLD), before, SETTINGS)
    assert closing == ["set map ../ctl.map mode hold", "set server engines/s1 state drain"]
    held = seen((slot(1, state=DRAIN),), mode=Mode.HOLD)
    opening = changes(Route(3, (slot(1),), mode=Mode.OPEN), held, SETTINGS)
    assert opening == ["set server engines/s1 state ready", "set map ../ctl.map mode open"]


@pytest.mark.parametrize(
    ("public", "preview", "complaint"),
    [
        ((slot(1), slot(1)), (), "names a slot of `engines` twice"),
        ((slot(5),), (), "slot 5; the front door has slots 1 to 4"),
        ((slot(1, port=70_000),), (), "slot 1: port 70000"),  # HAProxy takes it for 4464
        ((slot(1),), (slot(1, port=2),), "gives slot 1 to a1 and to a1"),
        ((slot(1, attempt="a; shutdown sessions server engines/s2"),), (), "slot 1: attempt"),
        ((Slot(1, 2, "/h x", "r", "a"),), (), "slot 1: health path"),
    ],
)
def test_a_route_that_cannot_be_is_refused_whole(public, preview, complaint):
    with pytest.raises(DoorSettingsError, match=complaint):
        changes(Route(1, public, preview), seen(), SETTINGS)


def test_administrative_bits_are_read_as_haproxy_means_them():
    """0x04 is "disabled in the file": every slot is, and stays marked so when the socket made it ready."""
    assert [admin_state(bits) for bits in (0x05, 0x04, 0x00, 0x0C, 0x08, 0x10, 0x20, 0x01)] == [
        MAINT, READY, READY, DRAIN, DRAIN, DRAIN, MAINT, MAINT,
    ]  # fmt: skip


def test_the_same_settings_give_the_same_bytes():
    assert render(SETTINGS) == render(DoorSettings(Path("/elsewhere"), slots=4))
    assert render(SETTINGS) != render(DoorSettings(Path("/nowhere"), slots=5))
    assert first_files(SETTINGS)["ctl.map"].startswith("mode refuse\nreason none_live\n")
