"""What lies where a file would go. Files of ours say so in their first line, with a digest of the rest.

Whoever changed one by hand gets to see the difference before it is lost.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .. import wholefile
from ..errors import CutoverError

_SIGNATURE = re.compile(r"\A# Written by `cutover install` \(([0-9a-f]{16})\)[^\n]*\n")


class Found(StrEnum):
    NEW = "new"
    SAME = "same"
    OLDER = "older"  # ours, as we wrote it: may be replaced
    CHANGED = "changed"  # by hand, or never ours


@dataclass(frozen=True, slots=True)
class Piece:
    """One file as it is to be, and what is there now."""

    path: Path
    text: str
    found: Found
    diff: str = ""  # of one that was changed: from what is there to what is to be


def signed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"# Written by `cutover install` ({digest}); a change here is seen, and belongs into a drop-in.\n{text}"


def piece(path: Path, text: str, prefix: Path) -> Piece:
    """`prefix`: the environment of ours, into which a link of `systemctl enable` may lead."""
    text = signed(text)
    found = look(path, prefix)
    if found is Found.OLDER and not path.is_symlink() and path.read_text() == text:
        found = Found.SAME
    return Piece(path, text, found, _diff(path, text) if found is Found.CHANGED else "")


def look(path: Path, prefix: Path) -> Found:
    """NEW, OLDER or CHANGED, whatever is to come there."""
    if path.is_symlink():
        ours = path.readlink().is_relative_to(prefix)
        return Found.OLDER if ours else Found.CHANGED
    if not path.exists():
        return Found.NEW
    if not path.is_file():  # a folder, or a pipe that would be waited for
        return Found.CHANGED
    text = path.read_text(errors="replace")
    mark = _SIGNATURE.match(text)
    unchanged = mark is not None and signed(text[mark.end() :]).startswith(mark[0].partition(")")[0])
    return Found.OLDER if unchanged else Found.CHANGED


def write(piece: Piece) -> None:
    """Whole or not at all; a link that is there is replaced, never followed. Raises `CutoverError`."""
    try:
        piece.path.parent.mkdir(parents=True, exist_ok=True)
        wholefile.put(piece.path, piece.text, mode=0o644)
    except OSError as error:
        raise CutoverError(
            f"{piece.path} cannot be written: {error.strerror}; no file is half there, install again afterwards"
        ) from error


def _diff(path: Path, text: str) -> str:
    if path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}\n"  # noqa: PTH115 - a string: /dev/null is what matters
    if not path.is_file():
        return f"{path} is no file: move it away\n"
    before = path.read_text(errors="replace").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), str(path), "cutover install"))
