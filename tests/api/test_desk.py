"""The desk by itself: what it files, and what it answers. No daemon, no socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_world import FakeWorld

from controller.api.desk import Desk, Person
from controller.catalogue import Catalogue
from controller.core.policy import Policy
from controller.core.records import Freeze, Options
from controller.errors import NotAllowedError, RefusedError
from controller.store.journal import Journal

ALICE, BOB = Person("alice", 1001, "admin"), Person("bob", 1002, "propose")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    world, journal = FakeWorld(), Journal(tmp_path / "journal.sqlite")
    yield Desk(journal, Catalogue(tmp_path / "releases"), Policy(), world.now, tuple, lambda: None)
    journal.close()


def test_a_freeze_says_whose_it_takes_the_place_of_and_unfreeze_whose_it_ends(desk):
    until_s = desk.now().wall_s + 3600
    assert desk.freeze(BOB, "exam week", until_s) is None
    assert desk.freeze(ALICE, "a demonstration") == Freeze("bob", "exam week", desk.now().wall_s, until_s)
    assert desk.journal.state.freeze.by == "alice"
    assert desk.unfreeze(BOB).why == "a demonstration"
    with pytest.raises(RefusedError, match="nothing is frozen"):
        desk.unfreeze(BOB)
    said = [entry.why for entry in desk.journal.entries() if entry.action == "SetFreeze"]
    assert said == [
        "bob freezes: exam week",
        "alice freezes: a demonstration, instead of bob (exam week)",
        "bob ends the freeze of alice (a demonstration)",
    ]


@pytest.mark.parametrize("role", ["view", "propose", "approve"])
def test_a_script_is_not_read_for_who_may_not_have_it_run(desk, tmp_path, role):
    """A frozen script can be read by everybody who may look; so it must not be a file that only the daemon may read."""
    secret = tmp_path / "api-keys"
    secret.write_text("#!/bin/bash\n# a key\n")
    secret.chmod(0o700)
    text = f"name: x\nserves: [m]\nengine: script\nscript: {secret}\ninstances: {{a: {{gpus: 1}}}}\n"
    person = Person("carol", 1003, role)
    for ask in (desk.plan, lambda *words: desk.propose(*words, None)):
        with pytest.raises(NotAllowedError, match=r"needs (admin|propose)"):
            ask(person, text, "x.yaml", Options())
    assert desk.catalogue.ids() == ()
