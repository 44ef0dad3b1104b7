"""Attempts that run and that the journal does not hold: a backup that was restored all the same does not know them.

Nothing is done to them: a person has chosen to have them. But on cards that were declared nobody else would see them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from launch import attempts as launched

from .processes import OWNER


def nobodys(runs: Path, held: Collection[str]) -> tuple[str, ...]:
    """Names of those with processes below `runs`. Looks at every run directory: for a start, not for every second."""
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return tuple(folder.name for folder in folders if folder.name not in held and _pids(folder))


def told(runs: Path, names: Collection[str]) -> list[str]:
    """A sentence for each that still runs: on which cards, and what ends it."""
    running = ((name, _pids(runs / name)) for name in names)
    return [
        f"{name} runs{_cards(runs / name)} and the journal does not know it, so that its cards may be taken for free: "
        f"`kill {pids[0]}` ends it"
        for name, pids in running
        if pids
    ]


def _pids(folder: Path) -> tuple[int, ...]:
    """The shim's first where it lives: it ends the rest."""
    try:
        seen = launched.observe(folder)
    except OSError:  # another user's, or no directory
        return ()
    shim = (seen.identity.pid,) if seen.identity and seen.status is launched.Status.RUNNING else ()
    return (*shim, *seen.pids)


def _cards(folder: Path) -> str:
    try:
        gpus = json.loads((folder / OWNER).read_bytes())["gpus"]
        return f" on {', '.join(map(str, gpus))}" if gpus else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""
