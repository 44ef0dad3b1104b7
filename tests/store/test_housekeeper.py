"""Who looks after the house has the journal forget its past once an hour, and not on a full disk."""

from __future__ import annotations

import pytest
from fake_world import Box, FakeWorld, make_release

from controller.config import Config
from controller.core.forgetting import KEEP
from controller.core.policy import Policy
from controller.core.retention import DAY_S
from controller.housekeeper import PRUNE_EVERY_S, Housekeeper
from controller.loop import Loop
from controller.store.ballast import Ballast
from controller.store.journal import Journal

TRIED = KEEP.newest + 5


@pytest.fixture
def house(tmp_path):
    """A box with more failed proposals than are kept for their own sake; none was ever started."""
    config = Config(state_dir=tmp_path, socket=tmp_path / "s", ballast_mib=1, keep={"days": 30})
    ballast = Ballast(tmp_path / "ballast", 1 << 20)
    journal, world = Journal(config.journal, ballast), FakeWorld()
    box = Box(Loop(journal, world, Policy()), world, journal)
    for number in range(TRIED):
        box.finish(box.propose(make_release(f"n{number}", gpus=9)))  # more than there are
    yield Housekeeper(config, journal, ballast, world.now), box, ballast
    journal.close()


def test_the_past_is_forgotten_once_an_hour(house):
    housekeeper, box, _ = house
    housekeeper.look()
    assert len(box.state.rollouts) == TRIED, "nothing is old"
    box.world.clock_s += 31 * DAY_S
    housekeeper.look()
    assert next(iter(box.state.rollouts)) == "r0006"
    assert len(box.state.rollouts) == KEEP.newest
    lines = box.journal.entries(limit=10_000)
    assert lines[-1].why == "nobody needs it any more: 5 rollouts, 5 releases"
    housekeeper.look()
    assert box.journal.last_seq() == lines[-1].seq
    box.world.clock_s += PRUNE_EVERY_S
    housekeeper.look()
    assert box.journal.last_seq() == lines[-1].seq, "and there is nothing more"


def test_on_a_full_disk_the_past_waits(house):
    housekeeper, box, ballast = house
    box.world.clock_s += 31 * DAY_S
    ballast._size_bytes = 1 << 60  # there never is room for that
    ballast.tend()
    ballast._path.write_bytes(b"x")
    assert ballast.drop()
    housekeeper.look()
    assert len(box.state.rollouts) == TRIED
