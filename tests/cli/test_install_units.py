"""`cutover install` and `uninstall` below a directory that is nobody's system: nothing of this box is changed."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from small_disk_kit import fill, small_disk

from controller.cli.service import target_of
from controller.units import manager

UNITS = "etc/systemd/system"
NAMES = {
    "cutover.service",
    "cutover-attempt.socket",
    "cutover-attempt@.service",
    "cutover-frontdoor.socket",
    "cutover-frontdoor.service",
    "cutover.slice",
    "cutover-nightly.service",
    "cutover-nightly.timer",
}


@pytest.fixture
def image(tmp_path):
    """The root of an image, and a configuration for its service."""
    root = tmp_path / "image"
    root.mkdir()
    return root


@pytest.fixture
def install(cutover, image, config_file):
    def run(*words, command="install", config=config_file):
        return cutover("--config", config, command, "--root", image, *words)

    return run


def found(done):
    return {Path(file["path"]).name: file["found"] for file in done.json["files"]}


def text_of(image, name):
    return (image / UNITS / name).read_text()


def test_it_writes_every_unit_for_this_environment(install, image, config_file):
    done = install("--json")
    assert done.code == 0
    assert found(done) == dict.fromkeys([*NAMES, "cutover.conf"], "new")
    assert {path.name for path in (image / UNITS).iterdir()} == NAMES
    daemon = text_of(image, "cutover.service")
    start = re.search(r"^ExecStart=(\S+) --config (\S+) serve$", daemon, re.MULTILINE)
    assert start is not None
    assert (Path(start[1]).is_file(), start[2]) == (True, str(config_file))
    program = re.search(r"^ExecStart=(\S+) -S -I (\S+)$", text_of(image, "cutover-attempt@.service"), re.MULTILINE)
    assert program is not None
    assert (os.access(program[1], os.X_OK), Path(program[2]).name) == (True, "own_unit.py")
    assert f"ReadWritePaths=-{config_file.parent}/state " in daemon
    assert "u cutover - " in (image / "etc/sysusers.d/cutover.conf").read_text()
    everything = "".join(path.read_text() for path in image.rglob("cutover*") if path.is_file())
    assert not re.search(r"@[A-Z_]+@", everything), "a place that nobody filled in"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (image / UNITS).iterdir()} == {0o644}


def test_the_sockets_are_where_the_daemon_asks(install, image):
    install()
    asked = re.search(r"^Environment=CUTOVER_UNITS=(\S+)$", text_of(image, "cutover.service"), re.MULTILINE)
    assert asked
    for name in ("attempt", "frontdoor"):
        assert f"ListenSequentialPacket={asked[1]}/{name}.sock\n" in text_of(image, f"cutover-{name}.socket")


def test_again_changes_nothing(install, image):
    install()
    before = {path: path.stat().st_mtime_ns for path in image.rglob("*") if path.is_file()}
    assert set(found(install("--json")).values()) == {"same"}
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_older_one_of_ours_is_replaced_and_a_drop_in_stays(install, image, config_file):
    install()
    drop_in = image / UNITS / "cutover.service.d" / "mine.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nNice=5\n")
    config_file.write_text(
        config_file.read_text()
        + 'schedule: {start: "02:30", duration: 4h, timezone: Asia/Taipei, days: weekdays}\n'
        + 'schedules: {noon: {start: "12:00", duration: 1h, timezone: Europe/Berlin}}\n'
    )
    done = install("--json")
    assert found(done)["cutover-nightly.timer"] == "older"
    timer = text_of(image, "cutover-nightly.timer")
    assert re.findall(r"^OnCalendar=(.*)$", timer, re.MULTILINE) == [
        "Mon,Tue,Wed,Thu,Fri *-*-* 02:30:00 Asia/Taipei",
        "*-*-* 12:00:00 Europe/Berlin",
    ]
    assert any("enable --now cutover-nightly.timer" in line for line in done.json["next"])
    assert drop_in.read_text() == "[Service]\nNice=5\n"


def test_what_was_changed_by_hand_is_shown_and_kept(install, image):
    install()
    unit = image / UNITS / "cutover.service"
    mine = unit.read_text().replace("WatchdogSec=60", "WatchdogSec=600")
    unit.write_text(mine)
    (image / UNITS / "cutover.slice").unlink()
    done = install()
    assert done.code == 5
    assert f"changed by hand: {unit}; nothing was written" in done.err
    assert "-WatchdogSec=600\n+WatchdogSec=60\n" in done.err
    assert unit.read_text() == mine
    assert not (image / UNITS / "cutover.slice").exists(), "not half of it, either"
    assert install("--force").code == 0
    assert "WatchdogSec=60\n" in unit.read_text()
    assert (image / UNITS / "cutover.slice").exists()


def test_a_unit_that_is_masked_is_somebodys_decision(install, image):
    (image / UNITS).mkdir(parents=True)
    (image / UNITS / "cutover-nightly.timer").symlink_to("/dev/null")
    done = install()
    assert done.code == 5
    assert "cutover-nightly.timer is a link to /dev/null" in done.err


def test_what_is_no_file_is_left_alone_and_named(install, image):
    folder, pipe = image / UNITS / "cutover.service", image / UNITS / "cutover.slice"
    folder.mkdir(parents=True)
    os.mkfifo(pipe)
    for words in ((), ("--force",)):
        done = install(*words)
        assert "Traceback" not in done.err
        assert folder.is_dir()
        assert done.code == (1 if words else 5)
        said = "cannot be written: Is a directory" if words else "is no file: move it away"
        assert f"{folder} {said}" in done.err


def test_a_full_disk_gets_no_half_unit(install, image, tmp_path):
    with small_disk(tmp_path, 1) as disk:
        (image / "etc").symlink_to(disk)
        fill(disk)
        done = install()
        assert done.code == 1
        assert "cutover.service cannot be written: No space left on device; no file is half there" in done.err
        assert [path for path in disk.rglob("*") if path.is_file() and path.name != "hog"] == []
        (disk / "hog").unlink()
        assert install().code == 0


def test_a_link_into_this_environment_is_replaced(install, image):
    """As `systemctl enable /opt/cutover/lib/systemd/system/cutover.service` once made it."""
    (image / UNITS).mkdir(parents=True)
    unit = image / UNITS / "cutover.service"
    unit.symlink_to(Path(sys.prefix) / "lib/systemd/system/cutover.service")
    assert install().code == 0
    assert not unit.is_symlink()


def test_dry_run_prints_everything_and_changes_nothing(cutover, install, image, config_file):
    done = install("--dry-run")
    assert done.code == 0
    assert list(image.iterdir()) == []
    assert "Type=notify" in done.out
    # Of the box itself, which it neither asks nor changes: with what it would run.
    done = cutover("--config", config_file, "install", "--dry-run", "--json")
    assert done.json["dry_run"] is True
    assert ["systemctl", "daemon-reload"] in done.json["commands"]
    assert ["systemd-sysusers", "/etc/sysusers.d/cutover.conf"] in done.json["commands"]


@pytest.mark.parametrize("named", ["", "here", "./.config"])
def test_a_place_for_a_users_units_that_depends_on_where_one_stands_is_none(named, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", named)
    monkeypatch.setenv("HOME", "/home/alice")
    assert target_of(None, user=True).units == Path("/home/alice/.config/systemd/user")


def test_for_a_user_nothing_is_roots(cutover, image, config_file, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/alice/.config")
    done = cutover("--config", config_file, "install", "--user", "--root", image, "--json")
    assert done.code == 0
    units = image / "home/alice/.config/systemd/user"
    assert {path.name for path in units.iterdir()} == NAMES
    assert not (image / "etc").exists()
    for path in units.iterdir():
        text = path.read_text()
        assert not re.search(r"^(User|SocketUser|Capability|Protect|OOMScoreAdjust)\w*=", text, re.MULTILINE), path
        assert "/run/cutover" not in text
    assert "WantedBy=default.target" in (units / "cutover.service").read_text()
    assert "KillMode=process" in (units / "cutover.service").read_text()
    assert done.json["next"][0].startswith("loginctl enable-linger")


@pytest.mark.skipif(manager.is_booted(), reason="systemd runs this box")
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_systemd_one_sentence_says_how_else(cutover, config_file, command):
    done = cutover("--config", config_file, command)
    assert done.code == 5
    assert "systemd does not run this box" in done.err
    assert "`cutover serve`" in done.err
    assert done.err.count("\n") == 1


def test_an_environment_that_the_services_user_cannot_read_is_named(cutover, config_file, tmp_path):
    """The test's own environment, reached by a directory that is closed to others."""
    closed = tmp_path / "home" / "alice"
    closed.mkdir(parents=True)
    (closed / "venv").mkdir()
    closed.chmod(0o700)
    look = (
        "from pathlib import Path; import sys; from controller.units.place import closed_to_the_service;"
        "print(closed_to_the_service(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, closed / "venv" / "bin" / "cutover"], capture_output=True, text=True, check=True
    )
    first_closed = next(p for p in (*reversed(closed.parents), closed) if not p.stat().st_mode & stat.S_IXOTH)
    assert f"may not read {first_closed} (drwx------)" in done.stdout
    assert "/usr/bin/python3 -m venv /opt/cutover" in done.stdout


def test_a_configuration_that_cannot_be_read_is_told_before_anything_is_written(cutover, image, config_file):
    config_file.write_text("public: nowhere\n")
    done = cutover("--config", config_file, "install", "--root", image)
    assert done.code == 2
    assert f"{config_file}:1: `public`" in done.err
    assert list(image.iterdir()) == []


def test_a_path_that_systemd_would_read_otherwise_is_refused(cutover, image, tmp_path):
    odd = tmp_path / "100%h.yaml"
    odd.write_text("gpus: {kind: none, count: 2}\n")
    done = cutover("--config", odd, "install", "--root", image)
    assert done.code == 2
    assert "choose one of plain characters" in done.err


def test_uninstall_leaves_state_and_drop_ins_and_what_is_not_ours(install, image, config_file):
    install()
    state = config_file.parent / "state"
    state.mkdir()
    drop_in = image / UNITS / "cutover.service.d"
    drop_in.mkdir()
    (image / UNITS / "other.service").write_text("[Unit]\n")
    dry = install("--dry-run", "--json", command="uninstall")
    assert {Path(path).name for path in dry.json["removed"]} == {*NAMES, "cutover.conf"}
    assert (image / UNITS / "cutover.service").exists()
    done = install(command="uninstall")
    assert done.code == 0
    assert f"{state} stays" in done.out
    assert f"{drop_in} stays" in done.out
    assert {path.name for path in (image / UNITS).iterdir()} == {"cutover.service.d", "other.service"}
    assert state.is_dir()
    assert install("--json", command="uninstall").json["removed"] == []


def test_uninstall_asks_before_it_loses_what_was_changed_by_hand(install, image):
    install()
    unit = image / UNITS / "cutover.service"
    unit.write_text(unit.read_text() + "# mine\n")
    done = install(command="uninstall")
    assert done.code == 5
    assert str(unit) in done.err
    assert unit.exists()
    assert install("--force", command="uninstall").code == 0
    assert not unit.exists()


def test_json_of_both_is_one_document(install):
    assert json.loads(install("--json").out)["schema"] == 1
    assert json.loads(install("--json", command="uninstall").out)["schema"] == 1


def test_locks_of_cards_get_a_place_where_run_lock_is_roots_alone(install, image, config_file, tmp_path):
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o755)
    if locks.stat().st_uid != 0:
        pytest.skip("only root has a directory of root's")
    config_file.write_text(f"{config_file.read_text()}lock_dir: {locks}\n")
    install()
    assert f"a+ {locks} - - - - user:cutover:rwx\n" in (image / "etc/tmpfiles.d/cutover.conf").read_text()
    assert f" -{locks} " in text_of(image, "cutover-attempt@.service")
    install(command="uninstall")
    locks.chmod(0o1777)
    install()
    assert not (image / "etc/tmpfiles.d/cutover.conf").exists()


def test_doctor_says_when_the_units_are_behind(install, image, config_file):
    look = partial(_doctor, image)
    assert look(config_file) == []
    install()
    [said] = look(config_file)
    assert "cutover-attempt.socket cutover-frontdoor.socket does not listen" in said
    sockets = image / "run/cutover-units"
    sockets.mkdir(parents=True)
    for name in ("attempt", "frontdoor"):
        (sockets / f"{name}.sock").touch()
    [said] = look(config_file)
    assert "as `cutover install` writes them" in said
    text = config_file.read_text()
    config_file.write_text(f'{text}schedule: {{start: "02:00", duration: 4h, timezone: Asia/Taipei}}\n')
    [said] = look(config_file)
    assert said.endswith("cutover-nightly.timer")


def _doctor(image, config_file):
    from controller.cli.check_service import service
    from controller.config import load_config

    return [check.sentence for check in service(load_config(config_file), image)]
