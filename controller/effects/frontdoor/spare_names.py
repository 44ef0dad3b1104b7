"""A second name for each socket of a door, so that one whose name was removed can be told a route again.

HAProxy binds its sockets when it starts and never again: without a name the door would serve its last route for ever,
and nobody could switch or go back but by starting it anew, which ends every request in it.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SOCKETS = ("haproxy.sock", "again.sock")


def keep_names(directory: Path) -> None:
    """Give back a name that is missing, and a second one to each socket that has none; what fails, next time."""
    for name in _SOCKETS:
        with contextlib.suppress(OSError):
            _keep(directory / name, directory / f".{name}.kept")


def _keep(path: Path, spare: Path) -> None:
    kept, there = _inode(spare), _inode(path)
    if there is None:
        if kept is not None and _somebody_listens(spare):
            path.hardlink_to(spare)
    elif there != kept:  # of a door that was started since
        spare.unlink(missing_ok=True)
        spare.hardlink_to(path)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def _somebody_listens(path: Path) -> bool:
    """Not at one of a door that has ended."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.1)
        with contextlib.suppress(OSError):
            client.connect(str(path))
            return True
    return False
