"""A text file that is there as a whole or as it was before: whoever reads it never sees half of it."""

from __future__ import annotations

import os
from pathlib import Path


def put(path: Path, text: str, *, mode: int | None = None, durable: bool = True) -> None:
    """Write `text` as UTF-8 in the place of `path`; half a surrogate pair becomes a question mark.

    `mode`: its rights, from the first moment on; None: as the umask has it. `durable`: it outlives a power cut from
    when this returns. A link is replaced, not followed. Raises `OSError`: then the old file is there, and no other.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # of somebody who was killed here, with rights of his own
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or 0o666), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8", errors="replace"))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)  # half of it takes room that others need
