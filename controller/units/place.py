"""Where the running product lies, and whether the service's user could run it from there."""

from __future__ import annotations

import os
import pwd
import stat
import sys
import sysconfig
from pathlib import Path

from launch import own_unit

from ..errors import RefusedError

USER = "cutover"


def command() -> Path:
    """The `cutover` of this environment. Raises `RefusedError` where there is none."""
    found = Path(sysconfig.get_path("scripts")) / "cutover"
    if not found.exists():
        raise RefusedError(
            f"there is no command {found} that a unit could start: install the package into an environment "
            "(`python3 -m venv /opt/cutover && /opt/cutover/bin/pip install ...`), and use that one's `cutover install`"
        )
    return found


def python() -> Path:
    return Path(sys.executable)


def shim_program() -> Path:
    return Path(own_unit.__file__).resolve()


def closed_to_the_service(*paths: Path) -> str:
    """Why the service's user cannot read one of these, in one sentence with its remedy; empty when it can."""
    for path in (*paths, python(), python().resolve(), Path(os.__file__), shim_program(), Path(__file__)):
        for part in (*reversed(path.parents), path):
            if not _is_open(part):
                mode = stat.filemode(part.stat().st_mode)
                return (
                    f"the service's user {USER} may not read {part} ({mode}), and this cutover needs {path}: make an "
                    "environment of a python of the system where everybody may read (`/usr/bin/python3 -m venv "
                    "/opt/cutover && /opt/cutover/bin/pip install ...`), and run `/opt/cutover/bin/cutover install`"
                )
    return ""


def _is_open(path: Path) -> bool:
    """To the service's user, who may not exist yet."""
    found = path.stat()
    needs = stat.S_IXOTH if stat.S_ISDIR(found.st_mode) else stat.S_IROTH
    if _uid() == found.st_uid:
        needs <<= 6
    return bool(found.st_mode & needs)


def _uid() -> int | None:
    try:
        return pwd.getpwnam(USER).pw_uid
    except KeyError:
        return None


def is_roots_alone(folder: Path) -> bool:
    """Whether only root may make a file there: so systemd makes /run/lock; Debian opens it for everybody."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == 0 and not found.st_mode & stat.S_IWOTH
