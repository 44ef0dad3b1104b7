"""A whole backup: what cannot be made again comes back, and nothing that is there and sound is touched."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile

import pytest
from ledger_kit import HARDWARE, run

from controller.cli import checks, main
from controller.config import Config
from controller.core import actions as act
from controller.core.records import Instance, Kind, Now, Options, Release
from controller.store.archive import last_backup
from controller.store.condition import look
from controller.store.copies import backup as journal_alone
from controller.store.journal import Journal
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger

NOW = Now("boot-1", 100.0, 1_700_000_000.0)
RELEASE = Release(
    "one@00000000", "one", "0" * 64, "emulator", ("m",), (Instance("a", "engine", 2, None, "/h", fronted=True),), "demo"
)


def measured(state):
    ledger = Ledger(state / "ledger.sqlite")
    return len(ledger.rows(Selection())) if ledger.path.exists() else 0


def fill(state):
    journal = Journal(state / "journal.sqlite")
    action = act.Propose(Kind.PROPOSE, RELEASE, "tester", Options())
    journal.request(None, "tester", "propose", NOW, lambda _: (action, "asked"))
    journal.close()
    Ledger(state / "ledger.sqlite").record(run(), who="tester", hardware=HARDWARE)
    scripts = state / "releases" / RELEASE.id / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text("exec serve\n")
    (scripts / "a.sh").chmod(0o500)
    (scripts.parent / "manifest.json").write_text("{}")
    os.utime(scripts.parent, (1_700_000_000, 1_700_000_000))
    (state / "releases" / ".half@1.x").mkdir()
    (state / "releases" / ".half@1.x" / "manifest.json").write_text("half")
    (state / "reports").mkdir()
    for suffix in ("json", "html"):
        (state / "reports" / f"nightly@2026-11-30.{suffix}").write_text("the night")
    (state / "tokens.json").write_text('{"tokens": []}')
    (state / "runs" / "one-a-1").mkdir(parents=True)
    (state / "runs" / "one-a-1" / "engine.log").write_text("long")


@pytest.fixture
def state(tmp_path):
    directory = tmp_path / "state"
    directory.mkdir()
    fill(directory)
    return directory


@pytest.fixture
def cutover(tmp_path, state, capsys):
    config = tmp_path / "cutover.yaml"
    config.write_text(f"state_dir: {state}\n")

    def ask(*words):
        capsys.readouterr()
        code = main(["--config", str(config), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask


def test_on_a_new_disk_everything_that_cannot_be_made_again_is_back(cutover, state, tmp_path):
    code, out, _ = cutover("backup", tmp_path / "all.tar", "--json")
    told = json.loads(out)
    assert code == 0
    assert {key: told[key] for key in ("entries", "ledger", "releases", "reports", "tokens")} == {
        "entries": 1,
        "ledger": True,
        "releases": 1,
        "reports": 1,
        "tokens": True,
    }
    assert (tmp_path / "all.tar").stat().st_mode & 0o077 == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.tar", "cutover.yaml", "state"], "nothing beside it"
    rows = measured(state)
    folder = state / "releases" / RELEASE.id
    made_s = folder.stat().st_mtime
    shutil.rmtree(state)

    code, out, _ = cutover("restore", tmp_path / "all.tar", "--json")
    told = json.loads(out)
    names = ["releases/one@00000000", "reports/nightly@2026-11-30.html", "reports/nightly@2026-11-30.json"]
    assert (code, told["put_back"], told["left"]) == (0, [*names, "tokens.json", "ledger.sqlite"], [])
    assert look(state / "journal.sqlite").usable
    assert measured(state) == rows > 0
    script = state / "releases" / RELEASE.id / "scripts" / "a.sh"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("exec serve\n", 0o500)
    assert folder.stat().st_mtime == pytest.approx(made_s, abs=1.0), "the newest of a name is what the name means"
    assert (state / "tokens.json").stat().st_mode & 0o077 == 0
    assert not (state / "runs").exists(), "of the past, and large"
    assert not (state / ".restore").exists()
    assert not list((state / "releases").glob(".*"))


def test_what_is_there_and_sound_stays(cutover, state, tmp_path):
    """Newer measurements are not lost, and a token that was revoked since does not come back."""
    assert cutover("backup", tmp_path / "all.tar")[0] == 0
    Ledger(state / "ledger.sqlite").record(run(rate=90.0), who="tester", hardware=HARDWARE)
    (state / "tokens.json").write_text('{"tokens": ["later"]}')
    rows = measured(state)
    code, out, _ = cutover("restore", tmp_path / "all.tar", "--json")
    told = json.loads(out)
    assert (code, told["put_back"]) == (0, [])
    assert "is sound and stays" in told["left"][0]
    assert measured(state) == rows
    assert "later" in (state / "tokens.json").read_text()


def test_a_damaged_ledger_is_said_not_backed_up_and_put_back(cutover, state, tmp_path):
    assert cutover("backup", tmp_path / "all.tar")[0] == 0
    before, rows = (tmp_path / "all.tar").read_bytes(), measured(state)
    content = bytearray((state / "ledger.sqlite").read_bytes())
    content[4096:12_000] = b"\xff" * (12_000 - 4096)
    (state / "ledger.sqlite").write_bytes(content)

    found = checks.ledger(Config(state_dir=state, socket=state / "s"))
    assert (found.ok, "is damaged" in found.sentence) == (False, True)
    assert "cutover restore" in found.remedy
    code, _, err = cutover("backup", tmp_path / "all.tar", "--force")
    assert code == 1
    assert "ledger" in err
    assert (tmp_path / "all.tar").read_bytes() == before, "the one in which it is sound is not replaced"

    code, out, _ = cutover("restore", tmp_path / "all.tar", "--json")
    told = json.loads(out)
    assert (code, told["put_back"]) == (0, ["ledger.sqlite"])
    assert "ledger.old-1.sqlite" in told["left"][0]
    assert measured(state) == rows


def test_the_journal_alone_as_earlier_versions_wrote_it_is_restored(cutover, state, tmp_path):
    journal_alone(state / "journal.sqlite", tmp_path / "old.sqlite")
    (state / "journal.sqlite").unlink()
    code, out, _ = cutover("restore", tmp_path / "old.sqlite", "--json")
    assert (code, json.loads(out)["entries"], json.loads(out)["put_back"]) == (0, 1, [])


def cut(data):
    """At the end of a member: what is left is a sound archive, of less."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return data[: tar.getmembers()[-1].offset]


def flipped(data):
    return data.replace(b"exec serve", b"exec nerve")


def climbing(data):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        about = tarfile.TarInfo("releases/../../../etc/passwd")
        about.size = 4
        tar.addfile(about, io.BytesIO(b"root"))
    return made.getvalue()


def linking(data):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        about = tarfile.TarInfo("journal.sqlite")
        about.type, about.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(about)
    return made.getvalue()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[: len(data) // 2], "cut short"),
        (cut, "cut short"),
        (flipped, "damaged"),
        (climbing, "is no backup of cutover"),
        (linking, "is no backup of cutover"),
        (lambda data: b"\0" * 10_240, "cut short"),
        (lambda data: data[:100], "is no backup, or was cut short; take another backup, nothing was changed"),
    ],
    ids=["half", "less", "flipped", "climbing", "linking", "zeroes", "a hundred bytes"],
)
def test_what_is_no_whole_backup_changes_nothing(cutover, state, tmp_path, damage, says):
    assert cutover("backup", tmp_path / "all.tar")[0] == 0
    (tmp_path / "all.tar").write_bytes(damage((tmp_path / "all.tar").read_bytes()))
    shutil.rmtree(state / "releases")
    before = (state / "journal.sqlite").read_bytes()
    code, _, err = cutover("restore", tmp_path / "all.tar")
    assert code == 1
    assert says in err
    assert err.count("\n") == 1
    assert (state / "journal.sqlite").read_bytes() == before
    assert not (state / "releases").exists()
    assert not (state / ".restore").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_never_replaced(cutover, state, tmp_path, make):
    """A fifo stands for a device: `backup /dev/null --force` of root would leave a box without one."""
    make(tmp_path / "other")
    before = (tmp_path / "other").stat()
    code, _, told = cutover("backup", tmp_path / "other", "--force")
    assert code == 5
    assert "is no file whose place a backup could take" in told
    assert (tmp_path / "other").stat().st_ino == before.st_ino


def test_it_is_never_written_over_the_daemons_own_files(cutover, state):
    for name in ("journal.sqlite", "ledger.sqlite", "tokens.json"):
        before = (state / name).read_bytes()
        assert cutover("backup", state / name, "--force")[0] == 5
        assert (state / name).read_bytes() == before


def test_doctor_says_when_the_last_one_was_made(cutover, state, tmp_path):
    config = Config(state_dir=state, socket=state / "s")
    assert checks.backup(config, NOW.wall_s).ok is None
    assert cutover("backup", tmp_path / "all.tar")[0] == 0
    made_s, file = last_backup(state)
    assert file == str(tmp_path / "all.tar")
    found = checks.backup(config, made_s + 3 * 86_400)
    assert (found.ok, "3 days ago" in found.sentence) == (True, True)
    assert checks.backup(config, made_s + 90 * 86_400).ok is None
