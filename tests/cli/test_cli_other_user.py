"""Who may ask what: another user of the box, with and without the socket's group. Needs root to become one."""

from __future__ import annotations

import grp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controller.demo.stage import Stage

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def open_stage():
    """A daemon whose socket belongs to a group, in a directory that others may enter."""
    try:
        group = grp.getgrgid(NOBODY).gr_name
    except KeyError:
        pytest.skip(f"this box has no group {NOBODY}")
    directory = Path(tempfile.mkdtemp(prefix="cutover-other-"))
    directory.chmod(0o755)
    try:
        settings = {"socket": str(directory / "run" / "c.sock"), "socket_group": group, "gpus": {"kind": "none"}}
        with Stage(directory, settings) as stage:
            yield stage
    finally:
        shutil.rmtree(directory)


# Asked once as root, so that everything is loaded that another user may not be able to read; then once more as them.
# Nothing is live here, so that root's asking changes nothing.
DRIVER = """
import contextlib, encodings.idna, io, os, sys
from controller.cli import main
uid, gid, *words = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(words)
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
sys.exit(main(words))
"""


@pytest.fixture
def as_other(open_stage):
    """Run a command as another user, with the given group."""

    def run(*words: str, group: int = NOBODY - 1) -> tuple[int, str, str]:
        config = ("--config", str(open_stage.config_file))
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(NOBODY), str(group), *config, *words],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("words", ["status", "release list", "logs", "rollback"])
def test_a_stranger_is_told_which_group_it_takes(as_other, words):
    code, out, err = as_other(*words.split())
    assert (code, out) == (4, "")
    assert "this user may not talk to the daemon" in err


def test_doctor_of_a_stranger_says_what_it_could_not_look_at(as_other):
    code, out, _ = as_other("doctor")
    assert code == 1
    assert "– journal" in out
    assert "– strays" in out


def test_the_group_may_look_and_propose_and_no_more(as_other):
    code, out, _ = as_other("status", group=NOBODY)
    assert code == 0
    assert "nothing serves users" in out
    _, out, _ = as_other("doctor", group=NOBODY)
    assert "✓ daemon" in out
    assert "– state directory" in out
    code, _, err = as_other("stop", group=NOBODY)
    assert code == 4
    assert "has the role propose; to stop production needs approve" in err
    code, _, err = as_other("rollback", group=NOBODY)
    assert code == 5, "allowed, but there is nothing to return to"
    assert "no previous release" in err
