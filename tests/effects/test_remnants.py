"""Old run directories, gate runs and logs on a real disk; nothing that lives is touched."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

import pytest
from fake_world import make_release

from controller.catalogue import Catalogue
from controller.cli import main
from controller.config import Config, Keep
from controller.core import actions as act
from controller.core.records import Kind, Now, Options, State
from controller.effects.remnants import removals, remove, stray_evidence
from controller.store.journal import Journal
from launch import attempts
from launch.topology import parse

EMULATED = "name: x\nserves: [m]\nengine: emulator\ninstances: {a: {gpus: 0}}\n"

DAY_S = 86_400


@pytest.fixture
def config(tmp_path):
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    return Config(state_dir=state_dir, socket=state_dir / "s", keep=Keep(days=10))


@pytest.fixture(autouse=True)
def own_tmp(tmp_path):
    """Nobody's evidence but this test's is at stake."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    yield tmp_path / "tmp"
    tempfile.tempdir = before


def lay(folder, days, size_bytes=100):
    folder.mkdir(parents=True)
    file = folder / "engine.log"
    file.write_bytes(b"x" * size_bytes)
    then_s = time.time() - days * DAY_S
    os.utime(file, (then_s, then_s))
    os.utime(folder, (then_s, then_s))
    return folder


def gone(config, state=None):
    found = removals(config, state or State(), time.time())
    assert [remove(removal) for removal in found] == [""] * len(found)
    return {path.name for removal in found for path in removal.paths}


def test_old_runs_gates_and_log_parts_go(config):
    lay(config.runs_dir / "one-a-1", 20)
    lay(config.runs_dir / "one-a-2", 5)
    lay(config.gates_dir / "r0001-smoke-0", 20)
    (config.gates_dir / "r0001-smoke-0.request.json").write_text("{}")
    lay(config.runs_dir / "somebody else's", 90)
    run = lay(config.door_dir / "run", 1)
    for name in ("engine.log.1", "engine.log.head"):
        (run / name).write_text("old")
    os.utime(run / "engine.log.1", (1, 1))
    assert gone(config) == {"one-a-1", "r0001-smoke-0", "r0001-smoke-0.request.json", "engine.log.1"}
    assert sorted(p.name for p in config.runs_dir.iterdir()) == ["one-a-2", "somebody else's"]
    assert (run / "engine.log.head").exists()
    assert (run / "engine.log").exists()


def test_too_much_goes_oldest_first(config):
    for number in range(4):
        lay(config.runs_dir / f"one-a-{number}", 4 - number / 2, 1 << 20)
    small = config.model_copy(update={"keep": Keep(runs_gib=2.5 / 1024)})
    assert gone(small) == {"one-a-0", "one-a-1"}


def test_a_link_is_not_followed(config, tmp_path):
    precious = lay(tmp_path / "precious", 90)
    config.runs_dir.mkdir()
    (config.runs_dir / "one-a-1").symlink_to(precious)
    folder = lay(config.runs_dir / "one-a-2", 90)
    (folder / "link").symlink_to(precious)
    os.utime(folder / "link", (1, 1), follow_symlinks=False)
    os.utime(folder, (1, 1))
    assert gone(config) == {"one-a-2"}
    assert (precious / "engine.log").exists()


def test_where_something_lives_nothing_is_removed(config):
    folder = config.runs_dir / "one-a-1"
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    attempts.start(attempts.AttemptSpec(attempt_id="one-a-1", run_dir=folder, argv=argv, grace_s=1))
    try:
        for file in (*folder.iterdir(), folder):
            os.utime(file, (1, 1))
        (removal,) = removals(config, State(), time.time())
        assert "processes live in it" in remove(removal)
        assert folder.is_dir()
    finally:
        attempts.request_stop(folder)
        end_s = time.monotonic() + 30
        while attempts.observe(folder).pids or attempts.observe(folder).status is attempts.Status.RUNNING:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_evidence_in_the_temporary_directory_goes_when_it_is_this_users(config, own_tmp, tmp_path):
    lay(own_tmp / "cutover-evidence-abc", 20)
    lay(own_tmp / "cutover-evidence-new", 1)
    (own_tmp / "cutover-evidence-link").symlink_to(tmp_path)
    found = stray_evidence(config, time.time())
    assert [path.name for removal in found for path in removal.paths] == ["cutover-evidence-abc"]


@pytest.fixture
def cutover(config, tmp_path, capsys):
    file = tmp_path / "cutover.yaml"
    file.write_text(f"state_dir: {config.state_dir}\nkeep: {{days: 10}}\n")

    def run(*words):
        capsys.readouterr()
        code = main(["--config", str(file), *words])
        return code, capsys.readouterr()

    return run


def test_the_command_says_and_does_it(config, cutover):
    journal = Journal(config.journal)
    action = act.Propose(Kind.PROPOSE, make_release("one"), "tester", Options())
    now = Now("b", 1.0, 1.0)
    assert journal.request(None, "t", "propose", now, lambda _: (action, "asked")) == "r0001"
    journal.close()
    lay(config.gates_dir / "r0001-smoke-0", 90)  # of an open rollout
    lay(config.gates_dir / "r0000-smoke-0", 90)
    code, said = cutover("prune", "--dry-run", "--json")
    told = json.loads(said.out)
    assert (code, told["dry_run"]) == (0, True)
    mine = [r for r in told["removed"] if str(config.state_dir) in r["path"]]
    assert [r["path"].rpartition("/")[2] for r in mine] == ["r0000-smoke-0"]
    assert (config.gates_dir / "r0000-smoke-0").exists()
    code, said = cutover("prune")
    assert (code, said.err) == (0, "")
    assert sorted(p.name for p in config.gates_dir.iterdir()) == ["r0001-smoke-0"]


def test_without_a_journal_that_can_be_read_nothing_is_removed(config, cutover):
    lay(config.runs_dir / "one-a-1", 90)
    config.journal.write_text("no database")
    code, said = cutover("prune")
    assert code == 1
    assert "nothing was removed" in said.err
    assert (config.runs_dir / "one-a-1").exists()


def test_releases_that_nothing_names_go_by_age(config):
    """Refused proposals and arms that were only planned leave one each, night after night."""
    state = State(releases={"kept@aaaaaaaaaaaa": make_release("kept")})
    for name, days in (
        ("kept@aaaaaaaaaaaa", 400),
        ("old@bbbbbbbbbbbb", 20),
        ("new@cccccccccccc", 5),
        (".old@dddddddddddd", 20),
    ):
        lay(config.releases_dir / name, days)
    lay(config.releases_dir / "mine", 400)
    assert gone(config, state) == {"old@bbbbbbbbbbbb"}
    assert {folder.name for folder in config.releases_dir.iterdir()} >= {
        "kept@aaaaaaaaaaaa",
        "new@cccccccccccc",
        "mine",
    }


def test_a_release_that_is_frozen_again_is_as_young_as_a_new_one(config, tmp_path):
    catalogue = Catalogue(config.releases_dir)
    frozen = catalogue.keep(parse(EMULATED, source="x.yaml"))
    folder = config.releases_dir / frozen.id
    old_s = time.time() - 20 * DAY_S
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (old_s, old_s))
    (old,) = removals(config, State(), time.time())
    assert old.paths == (folder,)
    catalogue.keep(parse(EMULATED, source="x.yaml"))
    assert "just now" in remove(old)
    assert removals(config, State(), time.time()) == ()
