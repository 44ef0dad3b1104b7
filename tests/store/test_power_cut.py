"""A power cut: what was acknowledged is there, and what was being written is there as a whole or not at all.

Twice. Anywhere: of what SQLite had not forced to disk yet, any sectors may be there. And on a disk of a test's own,
whose image lacks what was never forced to it: a journal that does not ask for that loses what it has acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fake_world import Box, FakeWorld, make_release
from small_disk_kit import breakable_disk, image_mounted

from controller.core import actions as act
from controller.core.invariants import violations
from controller.core.policy import Policy
from controller.core.records import Freeze, State
from controller.crashpoints import listen
from controller.loop import Loop
from controller.store.condition import look
from controller.store.copies import Numbers, backup, restore
from controller.store.journal import Journal

SECTOR_BYTES = 512
CUTS = 3  # of every write
IMAGES = 12


@dataclass(frozen=True)
class OnDisk:
    """The files as they are after a commit, and what it committed."""

    database: bytes
    log: bytes
    state: State


class Story:
    """A journal whose log is short, so that it is copied back into the database often; a picture of every commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pictures: list[OnDisk] = []
        journal = Journal(path)
        journal._db.execute("PRAGMA wal_autocheckpoint = 40")
        world = FakeWorld()
        box = Box(Loop(journal, world, Policy(bake_s=5.0)), world, journal)
        listen(
            lambda point: self.take(journal) if point.endswith("-after") and not point.startswith("effect") else None
        )
        try:
            for name in ("one", "two", "three"):
                box.finish(box.propose(make_release(name)))
            world.clock_s += 1.0
            journal.forget(world.now().wall_s, world.now(), act.KeepOfThePast(0, 0, 1))
        finally:
            listen(None)
        journal.close()

    def take(self, journal: Journal) -> None:
        log = self.path.with_name(f"{self.path.name}-wal")
        self.pictures.append(OnDisk(self.path.read_bytes(), log.read_bytes(), journal.state))


def torn(before: bytes, after: bytes, dice: random.Random) -> bytes:
    """Any of the sectors that were written may be there, in no order, and the file as long as either."""
    found = bytearray(before.ljust(len(after), b"\0") if dice.random() < 0.7 else before)
    for at in range(0, len(found), SECTOR_BYTES):
        sector = after[at : at + SECTOR_BYTES]
        if sector and sector != found[at : at + SECTOR_BYTES] and dice.random() < 0.5:
            found[at : at + len(sector)] = sector
    return bytes(found)


def cut(before: OnDisk, after: OnDisk, dice: random.Random) -> tuple[bytes, bytes]:
    """SQLite forces the log to disk before it touches the database."""
    if before.database != after.database and dice.random() < 0.5:
        return torn(before.database, after.database, dice), after.log
    return before.database, torn(before.log, after.log, dice)


def opened(folder: Path, database: bytes, log: bytes) -> State:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "journal.sqlite").write_bytes(database)
    (folder / "journal.sqlite-wal").write_bytes(log)
    journal = Journal(folder / "journal.sqlite")
    journal.close()
    return journal.state


def told(state: State) -> tuple[object, ...]:
    """What tells two states of a story apart."""
    return (
        state.generation,
        state.attempt_seq,
        {
            r.id: (r.phase, r.why, len(r.gates), r.bake.samples, r.gate, r.switched_at_s)
            for r in state.rollouts.values()
        },
        {a.id: (a.state, a.pid, a.stop_asked, a.why, len(a.checks)) for a in state.attempts.values()},
    )


def test_any_sectors_of_a_write_may_be_lost(tmp_path):
    story = Story(tmp_path / "journal.sqlite").pictures
    assert sum(a.database != b.database for a, b in itertools.pairwise(story)) >= 3, "the log was copied back"
    dice = random.Random(7)  # noqa: S311 - the same story again
    outcomes = {"before": 0, "after": 0}
    for before, after in itertools.pairwise(story):
        for _ in range(CUTS):
            state = opened(tmp_path / "cut", *cut(before, after, dice))
            assert told(state) in (told(before.state), told(after.state)), (
                "half of it, or what was acknowledged is gone"
            )
            assert violations(state) == []
            outcomes["after" if told(state) == told(after.state) else "before"] += 1
    assert min(outcomes.values()) > 10, outcomes


# --- on a disk whose cache is lost ---


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fake_world import Box, FakeWorld, make_release
from controller.core.policy import Policy
from controller.loop import Loop
from controller.store.journal import Journal
journal, world = Journal(Path(sys.argv[1])), FakeWorld()
journal._db.execute("PRAGMA wal_autocheckpoint = 40")
for pragma in sys.argv[3:]:
    journal._db.execute(f"PRAGMA {pragma}")
box = Box(Loop(journal, world, Policy(bake_s=5.0)), world, journal)
number = 0
while True:
    number += 1
    rollout = box.propose(make_release(f"n{number}"))
    print(rollout, flush=True)
    while box.state.rollouts[rollout].ended_wall_s is None:
        if not box.loop.step():
            world.clock_s += 5.0
"""


@contextlib.contextmanager
def writing(path: Path, log: Path, *pragmas: str):
    """A process that writes a journal as fast as it can, and tells what was acknowledged."""
    tests = str(Path(__file__).parent.parent)
    with log.open("wb") as out:
        command = [sys.executable, "-c", WRITER, str(path), tests, *pragmas]
        writer = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield writer
    finally:
        writer.kill()
        writer.wait()


def acknowledged(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines(keepends=False) if line.startswith("r")]


def pictured(writer: subprocess.Popen[bytes], image: Path, picture: Path) -> None:
    """The image as it is at one instant: while nobody writes, and until two looks at it show the same."""
    os.kill(writer.pid, signal.SIGSTOP)
    try:
        before = b""
        while (now := image.read_bytes()) != before:
            before = now
        picture.write_bytes(now)
    finally:
        os.kill(writer.pid, signal.SIGCONT)


def lost_in(picture: Path, log_then: list[str]) -> list[str]:
    """What was acknowledged and is not there; the journal has to open, and to hold."""
    with image_mounted(picture) as place:
        state = look(place / "journal.sqlite").state
        assert state is not None, look(place / "journal.sqlite").sentence
        assert violations(state) == []
        return [rollout for rollout in log_then if rollout not in state.rollouts]


def more_of(log: Path, than: int, patience_s: float = 60.0) -> list[str]:
    end_s = time.monotonic() + patience_s
    while len(found := acknowledged(log)) <= than and time.monotonic() < end_s:
        time.sleep(0.02)
    return found


def test_what_was_acknowledged_is_on_the_disk_whatever_its_cache_loses(tmp_path):
    with breakable_disk(tmp_path, 32) as (place, _), writing(place / "journal.sqlite", tmp_path / "log") as writer:
        known: list[str] = []
        for _ in range(IMAGES):
            known = more_of(tmp_path / "log", len(known))
            pictured(writer, tmp_path / "disk.img", tmp_path / "picture.img")
            assert lost_in(tmp_path / "picture.img", known) == []
        assert len(known) >= IMAGES


def test_a_journal_that_did_not_ask_for_it_would_lose_what_it_has_acknowledged(tmp_path):
    """Or the test above would show nothing."""
    with breakable_disk(tmp_path, 32) as (place, _):
        with writing(place / "journal.sqlite", tmp_path / "log", "synchronous=OFF") as writer:
            known = more_of(tmp_path / "log", 3)
            pictured(writer, tmp_path / "disk.img", tmp_path / "picture.img")
        with image_mounted(tmp_path / "picture.img") as seen:
            state = look(seen / "journal.sqlite").state
        assert state is None or set(known) - set(state.rollouts)


def test_a_journal_that_was_restored_is_the_restored_one_after_a_power_cut(tmp_path):
    with breakable_disk(tmp_path, 32) as (place, _):
        path = place / "journal.sqlite"
        journal = Journal(path)
        box = Box(None, FakeWorld(), journal)
        box.propose(make_release("one"))
        backup(path, tmp_path / "kept.sqlite")
        box.ask(act.SetFreeze(Freeze("boss", "after the backup", 0.0)))
        journal.close()
        restore(tmp_path / "kept.sqlite", path, Numbers(7, 9))
        (tmp_path / "picture.img").write_bytes((tmp_path / "disk.img").read_bytes())
        with image_mounted(tmp_path / "picture.img") as seen:
            state = look(seen / "journal.sqlite").state
        assert (state.rollout_seq, state.freeze) == (7, None)
