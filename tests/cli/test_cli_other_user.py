"""Who may ask what: another user of the box, with and without the socket's group. Needs root to become one."""

from __future__ import annotations

import grp
import json
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
import contextlib, encodings.idna, io, json, os, sys
from controller.cli import main
uid, gid, commands = (json.loads(word) for word in sys.argv[1:])
def ask(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()
for words in commands:
    ask(words)
os.setgroups([])
os.setgid(gid)
os.setuid(uid)
print(json.dumps([ask(words) for words in commands]))
"""


@pytest.fixture(scope="module")
def as_other(open_stage):
    """Run commands as another user, with the given group; (code, stdout, stderr) by command."""

    def run(*commands: str, group: int) -> dict[str, tuple[int, str, str]]:
        words = [["--config", str(open_stage.config_file), *command.split()] for command in commands]
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(NOBODY), str(group), json.dumps(words)],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return {command: tuple(answer) for command, answer in zip(commands, json.loads(done.stdout), strict=True)}

    return run


def test_a_stranger_is_told_which_group_it_takes(as_other):
    answers = as_other("status", "release list", "logs", "rollback", "doctor", group=NOBODY - 1)
    code, out, _ = answers.pop("doctor")
    assert code == 1
    assert "– journal" in out
    assert "– strays" in out
    for command, (code, out, err) in answers.items():
        assert (code, out) == (4, ""), command
        assert "this user may not talk to the daemon" in err


def test_the_group_may_look_and_propose_and_no_more(as_other):
    answers = as_other("status", "doctor", "stop --yes", "rollback", group=NOBODY)
    code, out, _ = answers["status"]
    assert code == 0
    assert "nothing serves users" in out
    _, out, _ = answers["doctor"]
    assert "✓ daemon" in out
    assert "– state directory" in out
    code, _, err = answers["stop --yes"]
    assert code == 4
    assert "has the role propose; to stop production needs approve" in err
    code, _, err = answers["rollback"]
    assert code == 5, "allowed, but there is nothing to return to"
    assert "no previous release" in err
