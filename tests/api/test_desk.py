"""The desk by itself: what it files, and what it answers. No daemon, no socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import FakeWorld, make_release

from controller.api.desk import Desk, Person
from controller.catalogue import Catalogue
from controller.core import actions as act
from controller.core.policy import Policy
from controller.core.records import Freeze, Kind, Options, Phase
from controller.core.seen import Gpu
from controller.core.table import Event
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


def test_a_request_that_is_sent_again_is_answered_as_before_and_a_key_serves_one(desk):
    """A client whose connection broke off asks again: what was done then is no refusal now."""
    now = desk.now()
    for name in ("one", "two"):
        action = act.Propose(Kind.PROPOSE, make_release(name), "bob", Options(), ())
        desk.journal.request(None, "bob", "propose", now, lambda _, action=action: (action, "asked"))
    assert desk.withdraw(BOB, "r0001", "key").abort_by == "bob"
    desk.journal.begin(act.Move("r0001", Event.ABORTED), "asked", now)
    assert desk.withdraw(BOB, "r0001", "key").phase is Phase.ABORTED
    with pytest.raises(RefusedError, match="this key was used before, for r0001"):
        desk.withdraw(BOB, "r0002", "key")
    assert desk.journal.state.rollouts["r0002"].phase is Phase.QUEUED
    with pytest.raises(RefusedError, match="r0001 is over"):
        desk.withdraw(BOB, "r0001", "another")


@pytest.mark.parametrize(
    ("proposer", "approver", "refused"),
    [
        ("alice", "alice", True),
        ("alice", "alice (token t0a1b2c)", True),
        ("alice (token t0a1b2c)", "alice (token td3e4f5)", True),
        ("alice", "bob (token t0a1b2c)", False),
        ("ci (token t0a1b2c)", "alice", False),
    ],
)
def test_one_person_through_two_doors_is_one_person(desk, proposer, approver, refused):
    desk = replace(desk, approval_by_another=True)
    action = act.Propose(Kind.PROPOSE, make_release("one"), proposer, Options(), ())
    desk.journal.request(None, proposer, "propose", desk.now(), lambda _: (action, "asked"))
    for event in (Event.ACCEPTED, Event.PLANNED, Event.LEASED, Event.READY, Event.ASK):
        desk.journal.begin(act.Move("r0001", event), "as it goes", desk.now())
    person = Person(approver, -1, "approve")
    if refused:
        with pytest.raises(NotAllowedError, match="somebody else has to approve it"):
            desk.approve(person, "r0001", None)
    else:
        assert desk.approve(person, "r0001", None).approved_by == approver


def test_a_plan_keeps_nothing(tmp_path):
    """Who may only look must not fill the disk, one release after the other."""
    cards = (Gpu("gpu-0", 0),)
    world, journal = FakeWorld(), Journal(tmp_path / "journal.sqlite")
    desk = Desk(journal, Catalogue(tmp_path / "releases"), Policy(), world.now, lambda: cards, lambda: None)
    text = "name: x\nserves: [m]\nengine: emulator\ngates: demo\ninstances: {a: {gpus: 1}}\n"
    assert desk.plan(Person("carol", 1003, "view"), text, "x.yaml", Options())["release"].startswith("x@")
    assert desk.catalogue.ids() == ()
    assert desk.propose(BOB, text, "x.yaml", Options(), None).rollout.release == desk.catalogue.ids()[0]
    journal.close()
