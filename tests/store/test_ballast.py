"""A full disk: on a small file system of its own, with the real store. Mounting one takes root."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from fake_world import Box, FakeWorld, make_release
from small_disk_kit import fill, small_disk

from controller.core import actions as act
from controller.core.policy import Policy
from controller.core.records import Kind, Options, Phase
from controller.errors import RefusedError
from controller.loop import Loop
from controller.store.ballast import Ballast, free_bytes
from controller.store.database import StoreError
from controller.store.journal import Journal

SIZE_BYTES = 2 << 20


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 12) as place:
        yield place


def fill_whole(place):
    fill(place)
    assert free_bytes(place) == 0


@contextlib.contextmanager
def a_box(place):
    ballast = Ballast(place / "ballast", SIZE_BYTES)
    assert ballast.tend() == ""
    journal = Journal(place / "journal.sqlite", ballast)
    world = FakeWorld()
    yield Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal), ballast
    journal.close()


def propose(box, name):
    """As the API files it."""
    action = act.Propose(Kind.PROPOSE, make_release(name), "tester", Options(), ({"name": "health", "deadline_s": 60},))
    return box.journal.request(None, "tester", "propose", box.world.now(), lambda _: (action, "asked"))


def until_the_log_is_full(box):
    """SQLite's log keeps its room: only when that is used up does a commit need a block of the disk."""
    for number in range(3000):
        box.ask(act.SetFreeze(None))
        if not (box.journal._path.parent / "ballast").exists():
            return number
    raise AssertionError("the disk never was full")


def test_on_a_full_disk_what_is_tried_is_aborted_and_what_was_live_comes_back(disk):
    with a_box(disk) as (box, ballast):
        first = box.propose(make_release("one"))
        assert box.finish(first) is Phase.PROMOTED
        second = box.propose(make_release("two"))
        box.run(lambda: box.phase(second) is Phase.BAKING)
        fill_whole(disk)
        until_the_log_is_full(box)
        assert ballast.is_dropped
        assert "ballast is spent" in ballast.tend()
        assert free_bytes(disk) > 0
        box.rollback()
        assert box.finish(second) is Phase.ROLLED_BACK
        assert box.state.live.release == make_release("one").id

        with pytest.raises(RefusedError, match="nothing new is begun"):
            propose(box, "three")
        (disk / "hog").unlink()
        assert ballast.tend() == ""
        assert not ballast.is_dropped
        assert box.finish(propose(box, "three")) is Phase.PROMOTED


def test_a_proposal_does_not_take_the_room_that_is_kept_for_the_way_back(disk):
    with a_box(disk) as (box, ballast):
        fill_whole(disk)
        with pytest.raises(StoreError, match="nothing was filed"):
            propose_until_refused(box)
        assert not ballast.is_dropped
        filed = list(box.journal.state.rollouts)
    again = Journal(disk / "journal.sqlite")
    assert list(again.state.rollouts) == filed
    again.close()


def propose_until_refused(box):
    for number in range(3000):
        propose(box, f"r{number}")


def test_a_daemon_that_was_killed_opens_its_journal_on_a_full_disk(disk):
    """The log and its index are made beside it, and that takes room too."""
    script = (
        "import os, signal; from pathlib import Path; from controller.store.journal import Journal;"
        "from controller.core import actions as act; from controller.core.records import Now;"
        f"journal = Journal(Path({str(disk / 'journal.sqlite')!r}));"
        "[journal.begin(act.OpenDoor(), 'why', Now('b', 1.0, 1.0)) for _ in range(5)];"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    Ballast(disk / "ballast", SIZE_BYTES).tend()
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == -signal.SIGKILL
    (disk / "journal.sqlite-shm").unlink()  # as after a reboot: only the log is there
    fill_whole(disk)
    ballast = Ballast(disk / "ballast", SIZE_BYTES)
    journal = Journal(disk / "journal.sqlite", ballast)
    assert len(journal.entries()) == 5
    journal.close()


def test_a_loop_that_cannot_write_waits_and_goes_on(tmp_path):
    """What SQLite says on a disk that was mounted read-only: nothing is decided, nothing breaks, and it ends again."""
    box = Box(None, FakeWorld(), Journal(tmp_path / "journal.sqlite"))
    box.loop = Loop(box.journal, box.world, Policy())
    box.world.door_alive = False
    box.journal._db.execute("PRAGMA query_only = ON")
    assert box.loop._pass() is False
    assert "readonly database" in box.loop.trouble
    assert "traffic is not touched" in box.loop.trouble
    assert box.world.done == []
    box.journal._db.execute("PRAGMA query_only = OFF")
    assert box.loop._pass() is True
    assert box.loop.trouble == ""
    assert len(box.world.done) == 1
    box.journal.close()


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_a_loop_on_a_box_that_gives_nothing_more_waits_and_goes_on(tmp_path, lacking):
    """It does not end with its users' front door unwatched because somebody else has all open files."""

    class Starved(FakeWorld):
        def observe(self, state):
            if self.unheard:
                raise OSError(lacking, os.strerror(lacking))
            return super().observe(state)

    box = Box(None, Starved(unheard=True, door_alive=False), Journal(tmp_path / "journal.sqlite"))
    box.loop = Loop(box.journal, box.world, Policy())
    assert box.loop._pass() is False
    assert f"gives the daemon nothing more ([Errno {lacking}] {os.strerror(lacking)})" in box.loop.trouble
    box.world.unheard = False
    assert box.loop._pass() is True
    assert box.loop.trouble == ""
    box.journal.close()


def test_a_read_only_disk_is_refused_in_a_sentence(disk):
    Journal(disk / "journal.sqlite").close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreError, match="traffic is not touched"):
        Journal(disk / "journal.sqlite")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


# --- files that are removed under it ---


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    box = Box(None, FakeWorld(), journal)
    box.propose(make_release("one"))
    yield journal
    journal.close()


@pytest.mark.parametrize("names", [("-wal",), ("-shm",), ("-wal", "-shm"), ("", "-wal", "-shm"), ("",)], ids=str)
def test_files_that_were_removed_under_it_are_put_back(journal, tmp_path, names):
    assert journal.mend() == ""
    for name in names:
        (tmp_path / f"journal.sqlite{name}").unlink()
    Box(None, FakeWorld(), journal).propose(make_release("two"))
    assert journal.mend() == ""
    with sqlite3.connect(f"file:{tmp_path}/journal.sqlite?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM records WHERE kind = 'rollout'").fetchone() == (2,)
    db.close()
    Box(None, FakeWorld(), journal).propose(make_release("three"))
    journal.close()
    again = Journal(tmp_path / "journal.sqlite")
    assert len(again.state.rollouts) == 3
    again.close()


def test_a_journal_that_was_replaced_is_said_and_left_alone(journal, tmp_path):
    path = tmp_path / "journal.sqlite"
    path.rename(tmp_path / "away")
    path.write_bytes(b"something else")
    assert "was replaced under the daemon" in journal.mend()
    assert path.read_bytes() == b"something else"
    path.unlink()
    (tmp_path / "away").rename(path)
    assert journal.mend() == ""


# --- ballast itself ---


def test_ballast_is_made_once_and_again(tmp_path):
    ballast = Ballast(tmp_path / "ballast", 1 << 16)
    assert ballast.tend() == ""
    assert (tmp_path / "ballast").stat().st_size == 1 << 16
    assert ballast.drop() is True
    assert ballast.drop() is False
    assert ballast.is_dropped
    assert ballast.tend() == ""
    assert not ballast.is_dropped


def test_no_ballast_where_none_is_wanted(tmp_path):
    ballast = Ballast(tmp_path / "ballast", 0)
    assert ballast.tend() == ""
    assert list(tmp_path.iterdir()) == []


def test_other_errors_do_not_cost_the_ballast(tmp_path):
    ballast = Ballast(tmp_path / "ballast", 1 << 16)
    ballast.tend()
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(":memory:").execute("SELECT * FROM nothing")
    assert ballast.helps(caught.value) is False
