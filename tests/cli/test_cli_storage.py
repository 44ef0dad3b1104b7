"""What `cutover doctor` says of a journal and of a disk that are not in order: one sentence, and what to do."""

from __future__ import annotations

import subprocess

import pytest
from small_disk_kit import small_disk

from controller.cli import checks
from controller.cli.backup import refuse_the_ballasts_room
from controller.config import Config
from controller.errors import RefusedError
from controller.store.journal import Journal


def config_at(directory):
    return Config(state_dir=directory, socket=directory / "s", ballast_mib=1)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 4) as place:
        yield place


DAMAGE = {
    "no database": (lambda path: path.write_text("not a database"), "is not a database", "--rebuild"),
    "empty": (lambda path: path.write_bytes(b""), "is empty", "--rebuild"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:4500]), "is truncated: 4500 of", "--rebuild"),
    "torn": (
        lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096 + path.read_bytes()[8192:]),
        "is damaged",
        "--rebuild",
    ),
    "newer": (
        lambda path: path.write_bytes(path.read_bytes()[:60] + (99).to_bytes(4, "big") + path.read_bytes()[64:]),
        "by a newer version (schema 99",
        "install the version of cutover",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_journal_that_is_not_in_order(tmp_path, case):
    config = config_at(tmp_path)
    Journal(config.journal).close()
    assert checks.journal(config).ok is True
    damage, sentence, remedy = DAMAGE[case]
    damage(config.journal)
    found = checks.journal(config)
    assert found.ok is False
    assert sentence in found.sentence
    assert remedy in found.remedy
    assert "traffic is not touched" in found.remedy


def test_a_disk_that_was_mounted_read_only(disk):
    config = config_at(disk)
    Journal(config.journal).close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    found = checks.journal(config)
    assert found.ok is False
    assert "read-only" in found.sentence
    assert "remount,rw" in found.remedy


def test_a_disk_that_is_nearly_full_and_one_that_is(disk, tmp_path):
    config = config_at(disk)
    assert "it is nearly full" in checks.disk(config).sentence
    (disk / "hog").write_bytes(b"x" * (7 << 19))
    found = checks.disk(config)
    assert (found.ok, "it is full; traffic is not touched" in found.sentence) == (False, True)
    assert "cutover prune --dry-run" in found.remedy
    Journal(config.journal).close()
    assert "no ballast" in checks.disk(config).sentence
    with pytest.raises(RefusedError, match="kept for the way back: write the backup to another disk"):
        refuse_the_ballasts_room(config, disk / "kept.tar")
    refuse_the_ballasts_room(config, tmp_path / "kept.tar")
