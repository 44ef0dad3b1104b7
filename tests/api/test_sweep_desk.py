"""The desk for sweeps by itself: what it says of arms before one of them is filed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_world import Box, FakeWorld, make_release
from structlog.testing import capture_logs

from controller.api.desk import Desk, Person
from controller.api.sweep_desk import SweepDesk, SweepSheet, Wish
from controller.catalogue import Catalogue
from controller.core.night_records import OnSuccess
from controller.core.policy import Policy
from controller.core.records import Options
from controller.loop import Loop
from controller.store.journal import Journal

FILE = """
name: steps
serves: [m]
engine: emulator
flags: [--itl-ms, 14]
instances: {a: {gpus: 2}}
gates: demo
sweep: {instances: [{a: {gpus: 2}}, {a: {gpus: 4}}]}
"""
ADMIN = Person("alice", 0, "admin")


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Callable[..., SweepSheet]]:
    """Look at the sweep where two of four cards serve, and a swap may be chosen."""
    journal, world = Journal(tmp_path / "journal.sqlite"), FakeWorld()
    policy = Policy(bake_s=1.0, strategies=("blue-green", "rolling", "swap"))
    box = Box(Loop(journal, world, policy), world, journal)
    with capture_logs():
        box.finish(box.propose(make_release("first")))
    desk = Desk(
        journal,
        Catalogue(tmp_path / "releases"),
        policy,
        world.now,
        lambda: world.observe(box.state).gpus,
        lambda: None,
    )
    yield lambda on_success: SweepDesk(desk).look(ADMIN, FILE, "/steps.yaml", Wish(Options(), OnSuccess(on_success)))
    journal.close()


def test_who_would_be_asked_in_the_dark_is_told_before_the_arms_are_filed(look):
    sheet = look("ask")
    assert sheet.refused == ()
    (said,) = [note for note in sheet.notes if "on_success: ask" in note]
    assert said.startswith(f"{sheet.arms[1].name}: on_success: ask does not go with a swap"), (
        "the other fits beside live"
    )
    assert "the pick would be refused when all arms are over" in said
    assert not any("on_success" in note for note in look("switch").notes)
