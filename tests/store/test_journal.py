"""The journal on real SQLite files: what was acknowledged is there again, what is illegal changed nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from controller.core import actions as act
from controller.core.records import Instance, Kind, Now, Options, Release
from controller.core.table import Event, IllegalMove
from controller.crashpoints import POINTS
from controller.errors import ExitCode, RefusedError
from controller.store.database import StateDirectoryLock, StoreError
from controller.store.journal import Journal

NOW = Now("boot-1", 100.0, 1_700_000_000.0)
RELEASE = Release(
    "one@00000000",
    "one",
    "0" * 64,
    "emulator",
    ("m",),
    (Instance("a", "engine", 2, None, "/health", fronted=True),),
    "standard",
    capability={"thinking": "switch"},
)


def propose(journal, key=None):
    action = act.Propose(Kind.PROPOSE, RELEASE, "tester", Options(note="why not"), ({"name": "health"},))
    return journal.request(key, "tester", "propose", NOW, lambda _: (action, "asked"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def test_state_is_the_same_after_reopening(path):
    journal = Journal(path)
    propose(journal)
    journal.begin(act.Move("r0001", Event.ACCEPTED), "its turn", NOW)
    before = journal.state
    journal.close()
    again = Journal(path)
    assert again.state == before
    assert again.state.rollouts["r0001"].options.note == "why not"
    assert [e.action for e in again.entries(rollout="r0001")] == ["Propose", "Move"]
    again.close()


def test_an_illegal_move_changes_nothing(path):
    journal = Journal(path)
    propose(journal)
    before, seq = journal.state, journal.last_seq()
    with pytest.raises(IllegalMove):
        journal.begin(act.Move("r0001", Event.BAKED), "nonsense", NOW)
    assert journal.state is before
    assert journal.last_seq() == seq
    journal.close()


def test_a_key_of_another_request_is_refused_and_not_taken_for_done(path):
    with closing(Journal(path)) as journal:
        propose(journal, "one")
        action = act.AskAbort("r0001", "tester")
        for who, verb in (("tester", "abort"), ("somebody", "propose")):
            with pytest.raises(RefusedError, match="this key was used before, by tester to propose"):
                journal.request("one", who, verb, NOW, lambda _: (action, "asked"))


def test_a_repeated_key_does_nothing(path):
    journal = Journal(path)
    assert propose(journal, "k1") == "r0001"
    assert propose(journal, "k2") == "r0002"
    assert propose(journal, "k1") == "r0001"
    assert list(journal.state.rollouts) == ["r0001", "r0002"]
    journal.close()


def test_an_effect_without_outcome_is_seen_as_such(path):
    journal = Journal(path)
    seq = journal.begin(act.OpenDoor(), "not started", NOW)
    assert journal.entries()[-1].outcome is None
    journal.finish(seq, act.OpenDoor(), act.Outcome(False, "port taken"), NOW)
    assert journal.entries()[-1].outcome == "failed: port taken"
    journal.close()


@pytest.mark.parametrize("point", [p for p in POINTS if p.startswith(("begin", "finish"))])
def test_kill_at_every_journal_boundary(path, point):
    """kill -9 around a write: the database opens again, and has either all of it or nothing."""
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from controller.core import actions as act
        from controller.core.records import Now
        from controller.store.journal import Journal
        journal, now = Journal(Path({str(path)!r})), Now("b", 1.0, 1.0)
        seq = journal.begin(act.OpenDoor(), "why", now)
        journal.finish(seq, act.OpenDoor(), act.Outcome(True), now)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "CUTOVER_CRASH_AT": point}, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    journal = Journal(path)
    outcomes = [entry.outcome for entry in journal.entries()]
    assert outcomes == {"begin-before": [], "begin-torn": [], "finish-after": ["ok"]}.get(point, [None])
    journal.close()


def test_newer_schema_is_refused_and_untouched(path):
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer version"):
        Journal(path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)


def test_a_damaged_database_is_refused_with_a_way_out(path):
    path.write_bytes(b"this is not a database, however long one looks at it" * 100)
    with pytest.raises(StoreError, match="cutover doctor"):
        Journal(path)


def test_two_daemons_on_one_state_directory(tmp_path):
    lock = StateDirectoryLock(tmp_path)
    with pytest.raises(RefusedError, match=f"pid {os.getpid()}") as caught:
        StateDirectoryLock(tmp_path)
    assert caught.value.exit_code == ExitCode.REFUSED
    lock.release()
    StateDirectoryLock(tmp_path).release()


def test_the_lock_dies_with_its_holder(tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from controller.store.database import StateDirectoryLock as Lock;"
        f"lock = Lock(Path({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    StateDirectoryLock(tmp_path).release()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="state_dir"):
        StateDirectoryLock(file / "state")
