"""systemd, asked by its own programs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import CutoverError
from .files import SERVICES

BOOTED = Path("/run/systemd/system")  # sd_booted(3)
WITHOUT = (
    "systemd does not run this box, and nothing was written: keep `cutover serve` running with what starts things here "
    "(a container's entry point, runit, supervisord); no timer is needed, the daemon opens its windows by its own clock"
)
_PATIENCE_S = 90.0
_EXPOSURE = re.compile(r"Overall exposure level for \S+: ([\d.]+ \w+)")


def is_booted() -> bool:
    return BOOTED.is_dir()


def do(words: Sequence[str]) -> str:
    """What it said. Raises `CutoverError` with the command and its words when it fails, or is not there."""
    code, said = ask(words)
    if code:
        raise CutoverError(f"`{' '.join(words)}` ended with {code}: {said or 'it said nothing'}")
    return said


def ask(words: Sequence[str]) -> tuple[int, str]:
    """Exit code (127: not there), and its words on both streams."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        return 127, f"there is no program {words[0]}"
    except subprocess.TimeoutExpired:
        return 124, f"it took longer than {_PATIENCE_S:.0f} s"
    return done.returncode, f"{done.stdout}{done.stderr}".strip()


def verify(units: Iterable[tuple[str, str]], *, user: bool) -> str:
    """What `systemd-analyze verify` has against these units (name, text), before they are anywhere; empty: nothing."""
    with tempfile.TemporaryDirectory(prefix="cutover-units-") as folder:
        paths = []
        for name, text in units:
            paths.append(str(Path(folder) / name))
            Path(paths[-1]).write_text(text)
        code, said = ask(["systemd-analyze", *(["--user"] if user else []), "verify", *paths])
    return said.replace(f"{folder}/", "") if code else ""


def exposure() -> dict[str, str]:
    """Service → how exposed it is, as `systemd-analyze security` says: `2.6 OK`; 0 is best, 10 worst."""
    found = {}
    for name in SERVICES:
        instance = name.replace("@.", "@example.")
        level = _EXPOSURE.search(ask(["systemd-analyze", "security", "--no-pager", instance])[1])
        if level:
            found[name] = level[1]
    return found
