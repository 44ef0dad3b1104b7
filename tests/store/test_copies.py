"""Backup, restore and what a journal file is: on real SQLite files, with a writer at work."""

from __future__ import annotations

import json
import sqlite3

import pytest

from controller.cli import main
from controller.core import actions as act
from controller.core.records import Instance, Kind, Now, Options, Release
from controller.errors import NotFoundError, RefusedError
from controller.store import condition, copies
from controller.store.condition import look
from controller.store.copies import Numbers
from controller.store.database import StateDirectoryLock, StoreError, known_schema
from controller.store.journal import Journal

NOW = Now("boot-1", 100.0, 1_700_000_000.0)
RELEASE = Release(
    "one@00000000", "one", "0" * 64, "emulator", ("m",), (Instance("a", "engine", 2, None, "/h", fronted=True),), "demo"
)


def propose(journal):
    action = act.Propose(Kind.PROPOSE, RELEASE, "tester", Options())
    return journal.request(None, "tester", "propose", NOW, lambda _: (action, "asked"))


@pytest.fixture
def state_dir(tmp_path):
    directory = tmp_path / "state"
    directory.mkdir()
    return directory


@pytest.fixture
def path(state_dir):
    return state_dir / "journal.sqlite"


@pytest.fixture
def cutover(tmp_path, state_dir, capsys):
    config = tmp_path / "cutover.yaml"
    config.write_text(f"state_dir: {state_dir}\n")

    def run(*words):
        capsys.readouterr()
        code = main(["--config", str(config), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def filled(path, rollouts=20):
    journal = Journal(path)
    for _ in range(rollouts):
        propose(journal)
    journal.close()


# --- backup and restore ---


def test_a_backup_is_taken_while_the_journal_is_written(path, tmp_path):
    journal = Journal(path)
    propose(journal)
    found = copies.backup(path, tmp_path / "copy")
    propose(journal)
    assert (found.kind, found.entries) == (condition.Kind.SOUND, 1)
    assert list(look(tmp_path / "copy").state.rollouts) == ["r0001"]
    assert [p.name for p in tmp_path.iterdir() if "copy" in p.name] == ["copy"], "one file, nothing beside it"
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    journal.close()


def test_a_backup_replaces_nothing_unasked(path, tmp_path):
    filled(path, 1)
    (tmp_path / "copy").write_text("precious")
    with pytest.raises(RefusedError, match="--force replaces it"):
        copies.backup(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "precious"
    with pytest.raises(RefusedError, match="the journal itself"):
        copies.backup(path, path, replace=True)
    copies.backup(path, tmp_path / "copy", replace=True)
    assert look(tmp_path / "copy").usable


def test_a_backup_of_nothing_or_to_nowhere_is_a_sentence(path, tmp_path):
    with pytest.raises(NotFoundError, match="no journal"):
        copies.backup(path, tmp_path / "copy")
    filled(path, 1)
    with pytest.raises(StoreError, match="could not be copied"):
        copies.backup(path, tmp_path / "none" / "copy")


def test_a_damaged_journal_is_not_kept_as_a_backup(path, tmp_path):
    filled(path)
    content = bytearray(path.read_bytes())
    content[4096:9000] = b"\xff" * (9000 - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError):
        copies.backup(path, tmp_path / "copy")
    assert not any("copy" in p.name for p in tmp_path.iterdir())


def test_restored_it_counts_on_and_the_old_one_lies_beside(path, tmp_path):
    filled(path, 2)
    copies.backup(path, tmp_path / "copy")
    journal = Journal(path)  # killed: its write-ahead log is still there
    propose(journal)
    old = copies.restore(tmp_path / "copy", path, Numbers(rollouts=7, attempts=12))
    again = Journal(path)
    assert list(again.state.rollouts) == ["r0001", "r0002"]
    assert again.state.attempt_seq == 12
    assert propose(again) == "r0008"
    again.close()
    assert len(look(old).state.rollouts) == 3, "with what was in its log"
    journal.close()


def test_the_commands_tell_it_as_json(cutover, path, tmp_path):
    filled(path, 3)
    code, out, _ = cutover("backup", tmp_path / "copy", "--json")
    told = json.loads(out)
    assert (code, told["entries"], told["journal_schema"], told["live"]) == (0, 3, known_schema(), None)
    code, out, _ = cutover("restore", tmp_path / "copy", "--json")
    assert (code, json.loads(out)["entries"]) == (0, 3)
    assert cutover("backup", tmp_path / "copy")[0] == 5


def test_restore_refuses_while_a_daemon_runs(cutover, state_dir, path, tmp_path):
    filled(path, 1)
    copies.backup(path, tmp_path / "copy")
    lock = StateDirectoryLock(state_dir)
    code, _, err = cutover("restore", tmp_path / "copy")
    assert code == 5
    assert "another daemon" in err
    lock.release()


@pytest.mark.parametrize(
    ("damage", "code", "says"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:5000]), 1, "is truncated: 5000 of"),
        (lambda p: p.write_text("no database at all"), 1, "is no backup, or was cut short"),
        (lambda p: sqlite3.connect(p).execute("PRAGMA user_version = 99").connection.close(), 5, "newer version"),
        (lambda p: p.unlink(), 3, "there is no backup"),
    ],
    ids=["truncated", "no database", "newer", "missing"],
)
def test_a_bad_backup_is_refused_and_changes_nothing(cutover, path, tmp_path, damage, code, says):
    filled(path)
    copies.backup(path, tmp_path / "copy")
    damage(tmp_path / "copy")
    before = path.read_bytes()
    told = cutover("restore", tmp_path / "copy")
    assert told[0] == code
    assert says in told[2]
    assert told[2].count("\n") == 1
    assert path.read_bytes() == before


# --- what a file is ---


def test_a_torn_page_is_damage(path):
    filled(path, 60)
    content = bytearray(path.read_bytes())
    content[3 * 4096 : 3 * 4096 + 512] = b"\0" * 512
    path.write_bytes(content)
    found = look(path)
    assert found.kind is condition.Kind.DAMAGED
    assert "--rebuild" in found.remedy


def test_a_record_that_is_none_is_damage_and_the_daemon_says_so(path):
    """SQLite has no checksums: the page is in order, what it holds is not."""
    filled(path, 1)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE records SET body = '{\"id\": 3}' WHERE kind = 'rollout'")
    db.close()
    assert look(path).kind is condition.Kind.DAMAGED
    with pytest.raises(StoreError, match="cutover doctor"):
        Journal(path)


def test_other_files_are_told_apart(path):
    assert look(path).kind is condition.Kind.ABSENT
    path.touch()
    assert look(path).kind is condition.Kind.EMPTY
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    assert look(path).kind is condition.Kind.STRANGE
    path.unlink()
    path.mkdir()
    assert look(path).kind is condition.Kind.UNREADABLE


# --- schemas ---


@pytest.mark.parametrize("schema", [0, 1])
def test_a_journal_of_a_schema_before_is_brought_to_this_one(path, schema):
    """What is before the first is a database that has no table yet; the second has the tables of the first."""
    assert known_schema() == 2
    if schema:
        filled(path, 1)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    db.close()
    assert not schema or look(path).kind is condition.Kind.OLDER
    journal = Journal(path)
    assert propose(journal) == f"r{schema + 1:04d}"
    journal.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (known_schema(),)
    db.close()


def test_a_journal_whose_version_is_wrong_is_refused_in_a_sentence(path):
    """Its version is that of an empty database, its tables those of today: the migration is undone, nothing is lost."""
    filled(path, 2)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 0")
    db.close()
    with pytest.raises(StoreError, match="could not be brought to schema 1"):
        Journal(path)
    assert look(path).kind is condition.Kind.DAMAGED
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
        db.execute(f"PRAGMA user_version = {known_schema()}")
    db.close()
    assert len(look(path).state.rollouts) == 2
