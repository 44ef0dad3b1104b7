"""Files that hold a target's secret: read where it is used, and only while nobody else can read them."""

from __future__ import annotations

import stat
from pathlib import Path

LARGEST_BYTES = 64 * 1024
SHORTEST_SECRET = 16


class FileTrouble(Exception):  # noqa: N818 - the sentence is for people; nothing of the file's content is in it
    """The file cannot be used."""


def lines_of(path: Path) -> list[str]:
    """Its lines without blank ones and remarks (`#`), at least one. Raises `FileTrouble`."""
    lines = [line.strip() for line in _text(path).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise FileTrouble(f"{path} is empty: one URL a line is expected")
    return found


def secret_of(path: Path) -> bytes:
    """Its content without the line break at its end. Raises `FileTrouble`."""
    secret = _text(path).rstrip("\r\n").encode()
    if len(secret) < SHORTEST_SECRET:
        raise FileTrouble(f"{path} holds fewer than {SHORTEST_SECRET} characters: `openssl rand -hex 32 > {path}`")
    return secret


def _text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # to open a pipe would wait for whoever writes to it
            raise FileTrouble(f"{path} is not a file")
        if mode & 0o007:
            raise FileTrouble(f"everybody may open {path}, and it holds a secret: `chmod 0640 {path}`")
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        hint = "; run this as the daemon's user" if isinstance(error, PermissionError) else ""
        raise FileTrouble(f"{path} cannot be read: {error.strerror}{hint}") from error
    if len(content) > LARGEST_BYTES:
        raise FileTrouble(f"{path} is larger than {LARGEST_BYTES >> 10} KiB: that is no list of URLs")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise FileTrouble(f"{path} is not text in UTF-8") from None
