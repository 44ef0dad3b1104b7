"""The locks of an attempt's cards while its engine sleeps: its shim gives them up and takes them again.

A wish is a file, so that it outlives whoever made it: ``lend`` in the run directory. The shim looks several times a
second and answers in ``cards.json`` (docs/processes.md).
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from launch.errors import LaunchError

_POLL_S = 0.05
PATIENCE_S = 10.0
"""A shim looks every 0.25 s; one of before sleep existed never answers."""
_REFUSED_S = 1.0
"""So long it may go on saying that somebody else has a card."""


def lend(run_dir: Path) -> None:
    """Return when others can have the cards. Raises `LaunchError` when the shim does not give them up."""
    (run_dir / "lend").touch()
    _await(run_dir, lent=True)


def reclaim(run_dir: Path) -> None:
    """Return when the cards are this attempt's own again. Raises `LaunchError` when somebody else has one."""
    (run_dir / "lend").unlink(missing_ok=True)
    _await(run_dir, lent=False)


def note(run_dir: Path) -> None:
    """That it sleeps, where no card of its has a lock: for whoever has lost the journal. As good as the disk is."""
    with contextlib.suppress(OSError):
        (run_dir / "lend").touch()


def strike(run_dir: Path) -> None:
    """The note: it is woken."""
    with contextlib.suppress(OSError):
        (run_dir / "lend").unlink(missing_ok=True)


def is_noted(run_dir: Path) -> bool:
    """Whether it sleeps by what was written down when it fell asleep."""
    return (run_dir / "lend").exists()


def _await(run_dir: Path, *, lent: bool) -> None:
    began_s, why = time.monotonic(), ""
    while time.monotonic() - began_s < (_REFUSED_S if why else PATIENCE_S):
        try:
            said = json.loads((run_dir / "cards.json").read_bytes())
            is_lent, why = bool(said["lent"]), str(said["why"])
        except (OSError, ValueError, KeyError):
            is_lent = False
        if is_lent is lent and not why:
            return
        time.sleep(_POLL_S)
    did = "give its cards up" if lent else "take its cards again"
    raise LaunchError(f"its shim does not {did}: {why or f'no answer within {PATIENCE_S:.0f} s'}")
