"""A front door whose files cannot be written serves all the same, and is written down as soon as there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from controller.core.route import Route, Slot
from controller.demo.stage import PortRange
from controller.effects.frontdoor.committed import committed_route
from controller.effects.frontdoor.door import DoorError, DoorSettings, FrontDoor


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here: it takes root")
    yield place
    (place / "hog").unlink(missing_ok=True)
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_route_that_could_not_be_saved_is_saved_when_there_is_room(small_disk):
    ports = PortRange()
    public, preview = (f"127.0.0.1:{ports.first + n}" for n in (0, 1))
    door = FrontDoor(DoorSettings(directory=small_disk / "door", public=public, preview=preview, slots=4))
    try:
        door.ensure()
        with contextlib.suppress(OSError), (small_disk / "hog").open("ab", buffering=0) as hog:
            while hog.write(b"x" * 4096):
                pass
        with pytest.raises(DoorError, match="cannot be saved"):
            door.apply(Route(1, public=(Slot(2, ports.first + 9, "/health", "one@1", "one-a-1"),)))
        assert [slot.number for slot in door.read().public] == [2], "it serves it"
        assert committed_route(door.settings.directory) == {}
        (small_disk / "hog").unlink()
        assert door.read().alive
        assert list(committed_route(door.settings.directory)) == ["one-a-1"]
    finally:
        (small_disk / "hog").unlink(missing_ok=True)
        door.stop()
        ports.release()
