"""A front door whose files cannot be written serves all the same, and is written down as soon as there is room."""

from __future__ import annotations

import pytest
from small_disk_kit import fill, small_disk

from controller.core.route import Route, Slot
from controller.demo.stage import PortRange
from controller.effects.frontdoor.committed import committed_route
from controller.effects.frontdoor.door import DoorError, DoorSettings, FrontDoor


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 4) as place:
        yield place


def test_a_route_that_could_not_be_saved_is_saved_when_there_is_room(disk):
    ports = PortRange()
    public, preview = (f"127.0.0.1:{ports.first + n}" for n in (0, 1))
    door = FrontDoor(DoorSettings(directory=disk / "door", public=public, preview=preview, slots=4))
    try:
        door.ensure()
        fill(disk)
        with pytest.raises(DoorError, match="cannot be saved"):
            door.apply(Route(1, public=(Slot(2, ports.first + 9, "/health", "one@1", "one-a-1"),)))
        assert [slot.number for slot in door.read().public] == [2], "it serves it"
        assert committed_route(door.settings.directory) == {}
        (disk / "hog").unlink()
        assert door.read().alive
        assert list(committed_route(door.settings.directory)) == ["one-a-1"]
    finally:
        (disk / "hog").unlink(missing_ok=True)
        door.stop()
        ports.release()
