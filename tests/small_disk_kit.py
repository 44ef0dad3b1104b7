"""A file system of a few MiB of a test's own, and how it becomes full."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A tmpfs below `folder`; skips the test, with the reason, where none can be mounted."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here: it takes root")
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):  # a test may have made it read-only
            (place / "hog").unlink(missing_ok=True)
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Somebody else takes all that is left, to the last byte."""
    with contextlib.suppress(OSError), (place / "hog").open("ab", buffering=0) as hog:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while hog.write(b"x" * size) == size:
                    pass
