"""A file that somebody asked for: all of it, or what was there before."""

from __future__ import annotations

import os
from pathlib import Path

from .. import wholefile
from ..errors import CutoverError, NotAllowedError


def put(path: Path, text: str) -> None:
    """Write `text` as UTF-8; links are followed, a device or a pipe is written to as it is.

    Raises `CutoverError` or `NotAllowedError`, one sentence, for what cannot be written.
    """
    try:
        _put(path.resolve(), text)
    except OSError as error:
        kind = NotAllowedError if isinstance(error, PermissionError) else CutoverError
        raise kind(f"{path} cannot be written: {error.strerror}") from error


def _put(path: Path, text: str) -> None:
    is_one_of_a_kind = path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))
    if is_one_of_a_kind:  # no other can take its place
        path.write_text(text, encoding="utf-8")
        return
    wholefile.put(path, text)
