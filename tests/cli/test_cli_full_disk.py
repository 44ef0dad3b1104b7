"""An answer that cannot be written is said in a sentence on stderr."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli import main

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("more", [["--json"], []])
def test_a_full_disk_behind_stdout_is_a_sentence(more: list[str]) -> None:
    with FULL.open("w") as full:
        command = [sys.executable, "-m", "controller", "gate", "list", *more]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "cutover: the answer could not be written: No space left on device\n"


def test_closed_descriptors_are_like_the_null_device() -> None:
    """A wrapper or a unit may close what it does not want; the first file that is opened must not become stdout."""
    command = ["bash", "-c", 'exec "$0" -m controller gate list <&- >&-', sys.executable]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_character_set_costs_an_answer(encoding: str) -> None:
    """`LC_ALL=POSIX`, an old terminal, or a file name that is no UTF-8."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    with contextlib.redirect_stdout(stream):
        assert main(["--help"]) == 0
        sys.stdout.write("✓ ✗ – \udcff 時\n")
        stream.flush()
    assert written.getvalue().endswith(
        {"utf-8": "✓ ✗ – ? 時\n", "latin-1": "+ x - ? ?\n", "ascii": "+ x - ? ?\n"}[encoding].encode(encoding)
    )
