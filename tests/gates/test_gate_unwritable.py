"""An answer that cannot be written is one sentence and exit code 1, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("words", [("list", "--json"), ("list",), ("explain", "J07"), ("health",)])
@pytest.mark.parametrize("place", ["/dev/full", "closed"])
def test_an_answer_that_cannot_be_written(words, place):
    to = ">&-" if place == "closed" else f"> {place}"
    ran = subprocess.run(
        ["bash", "-c", f'exec "$0" -m gates "$@" {to}', sys.executable, *words],
        input="{}",
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("gates: the answer could not be written: ")
    assert "Traceback" not in ran.stderr
