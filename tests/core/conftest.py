"""Boxes for tests of the core: see `fake_world`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_world import Box, FakeWorld, make_release

from controller.core.policy import Policy
from controller.loop import Loop
from controller.store.journal import Journal


@pytest.fixture
def box(tmp_path: Path):
    journal = Journal(tmp_path / "journal.sqlite")
    world = FakeWorld()
    yield Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    journal.close()


@pytest.fixture
def release():
    return make_release
