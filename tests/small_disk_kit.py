"""A file system of a few MiB of a test's own, and how it becomes full."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
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


@contextlib.contextmanager
def breakable_disk(folder: Path, size_mib: int) -> Iterator[tuple[Path, Callable[[], None]]]:
    """An ext4 on a loop device below `folder`, and what makes the kernel find an error in it: then it takes no writes.

    Skips the test, with the reason, where there is none.
    """
    place, image = folder / "disk", folder / "disk.img"
    place.mkdir()
    image.touch()
    os.truncate(image, size_mib << 20)
    if os.geteuid():
        pytest.skip("there is no disk that could break here: it takes root")
    try:
        _run("mkfs.ext4", "-q", str(image))
        loop = _run("losetup", "-f", "--show", str(image)).strip()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no disk that could break here: {error}")
    trigger = Path("/sys/fs/ext4") / Path(loop).name / "trigger_fs_error"
    try:
        try:
            _run("mount", "-t", "ext4", "-o", "errors=remount-ro", loop, str(place))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"there is no disk that could break here: {error}")
        if not os.access(trigger, os.W_OK):
            pytest.skip(f"there is no disk that could break here: {trigger} cannot be written")
        yield place, lambda: trigger.write_text("a test")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", loop], check=False, capture_output=True)  # at the last close


@contextlib.contextmanager
def image_mounted(image: Path) -> Iterator[Path]:
    """What is on a picture of a disk: mounted, which plays its file system's own journal as after a power cut."""
    place = image.with_suffix(".mounted")
    place.mkdir(exist_ok=True)
    _run("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        _run("umount", str(place))


def end_all_in(place: Path) -> None:
    """kill -9 of everything that works below `place`: shims there wait for a disk that takes what they have to say."""
    for _ in range(20):
        found = [process for process in psutil.process_iter() if _works_in(process, place)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=5)


def _works_in(process: psutil.Process, place: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(place)
    except psutil.Error:
        return False


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout
