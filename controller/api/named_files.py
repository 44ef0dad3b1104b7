"""Files that a person names and the daemon reads: it may read more than they may, and runs what a profile says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateUsageError

from ..errors import NotAllowedError

MAX_PROFILE_BYTES = 256 * 1024
SECRETS = Path("/etc/cutover")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """`ours`: it belongs to root or the daemon's user, and nobody else can write it."""

    text: str
    ours: bool


def read_for(uid: int, path: Path) -> NamedFile:
    """A profile, for whoever could read it without us.

    What an error quotes of a file is told to the person; so a file is opened first, and then judged by its descriptor
    and by the folders that lead to it: nobody can put another in its place in between.

    Raises `NotAllowedError`, and `GateUsageError` for what is no such file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise GateUsageError(f"{path}: is not a file.")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError:
        raise GateUsageError(f"{str(path)!r} is no path.") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        where = Path(f"/proc/self/fd/{file.fileno()}").readlink()
        readable = _is_open(found, uid, stat.S_IROTH) and all(
            _is_open(folder, uid, stat.S_IXOTH) for folder in _folders(where)
        )
        if not readable:
            raise NotAllowedError(
                f"{path}: not everybody may read this file, so who names it has to be its owner or an admin; "
                "`chmod o+r` it, or ask an administrator"
            )
        data = file.read(MAX_PROFILE_BYTES + 1)
    if len(data) > MAX_PROFILE_BYTES:
        raise GateUsageError(f"{path}: a profile of more than {MAX_PROFILE_BYTES} bytes is not read.")
    ours = found.st_uid in {0, os.geteuid()} and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    try:
        return NamedFile(data.decode(), ours)
    except UnicodeDecodeError:
        raise GateUsageError(f"{path}: is not UTF-8 text.") from None


def is_kept_for_secrets(path: str) -> bool:
    """Whether an `env_file` lies where administrators put them: every start reads it, and it may be quoted in a log."""
    return Path(path).resolve().is_relative_to(SECRETS)


def _is_open(found: os.stat_result, uid: int, bit: int) -> bool:
    return bool(found.st_mode & bit) or found.st_uid == uid


def _folders(path: Path) -> Iterator[os.stat_result]:
    """A folder that is gone leads nowhere: whoever moved it may name the file again."""
    try:
        yield from [folder.stat() for folder in path.parents]
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None
