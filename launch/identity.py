"""Which process is ours: pid, start time, boot and working directory together; never a name, a port or an age.

Retitled engines lose their environment, daemonised ones their session; what survives is the working directory and the
log on fd 1 and 2. Needs the same uid as the processes, or root: others' directories cannot be read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch import shim

TABLE_FRESH_S = 1.0  # one scan of /proc a second (600 processes: 15 ms) serves everybody who only reads
LOOKS = 50


@dataclass(frozen=True, slots=True)
class Identity:
    """Of a shim. ``start_ticks``: clock ticks after boot; ``run_dir``: its working directory, absolute.

    ``run_dir`` None: remembered by whoever started it, and not read from a file that anybody may have put there.
    Number, start time and boot say enough then, also of one whose directory was removed or moved.
    """

    pid: int
    start_ticks: int
    boot_id: str
    run_dir: str | None

    def is_alive(self) -> bool:
        """Whether this very process runs now; a later owner of the pid, or a pid of another boot, is not it."""
        if self.boot_id != this_boot():
            return False
        stat = shim.stat_of(self.pid)
        return stat is not None and stat.alive and stat.start_ticks == self.start_ticks and self._is_at_home()

    def _is_at_home(self) -> bool:
        if self.run_dir is None:
            return True
        with contextlib.suppress(OSError):
            return str(Path(f"/proc/{self.pid}/cwd").readlink()) == self.run_dir
        return False

    def send(self, number: signal.Signals) -> bool:
        """Signal it, and nobody else: the pidfd is opened first and the identity checked then. False: it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except (OSError, OverflowError):  # gone, or a damaged record that names no possible pid
            return False
        try:
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


@functools.cache
def this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class _Table:
    """The process table as of at most ``TABLE_FRESH_S`` ago."""

    def __init__(self) -> None:
        self._seen: tuple[float, dict[int, shim.Stat]] = (float("-inf"), {})

    def read(self, *, fresh: bool) -> dict[int, shim.Stat]:
        if fresh or time.monotonic() - self._seen[0] > TABLE_FRESH_S:
            self._seen = (time.monotonic(), shim.all_processes())
        return self._seen[1]


_table = _Table()


def tree_of(identity: Identity, including: int | None = None, *, fresh: bool = False) -> tuple[int, ...]:
    """The living descendants of a living shim, at most a second old; looks again when ``including`` is not there."""
    pids = shim.tree_below(identity.pid, _table.read(fresh=fresh))
    if including is not None and including not in pids and not fresh:
        return tree_of(identity, fresh=True)
    return tuple(sorted(pids))


def strays_in(run_dir: str, since_ticks: int) -> dict[int, int]:
    """Processes (pid → start time) that live in ``run_dir`` or write there, started not before ``since_ticks``.

    Whoever has a terminal is a person looking at the files, not a leftover: a shim and its tree have none.
    """
    return dict(each_stray(run_dir, since_ticks))


def each_stray(run_dir: str, since_ticks: int) -> Iterator[tuple[int, int]]:
    """The same one by one, so that it can be ended as soon as it is seen.

    A process that forks and ends is gone before a look at a full /proc comes to it, its successor is in no list yet:
    98 of 100 looks saw nobody. So when somebody was gone too soon, those that are new are looked at again at once,
    which is quick, until each that was listed was looked at.
    """
    known, somebody_left = {str(os.getpid())}, True
    for _ in range(LOOKS):
        if not somebody_left:
            return
        new = [name for name in os.listdir("/proc") if name.isdigit() and name not in known]  # noqa: PTH208
        known.update(new)
        somebody_left = False
        for name in new:
            lives_there = _lives_in(name, run_dir)
            stat = shim.stat_of(name) if lives_there else None
            if stat and stat.alive and not stat.has_terminal and stat.start_ticks >= since_ticks:
                yield int(name), stat.start_ticks
            somebody_left |= lives_there is None or (lives_there and stat is None)


def _lives_in(pid: str, run_dir: str) -> bool | None:
    """None when it has ended, whether or not somebody has waited for it yet."""
    try:
        return _is_marked(pid, run_dir)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    with contextlib.suppress(OSError):  # its first thread has ended, and another one can tell
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                return _is_marked(f"{pid}/task/{thread}", run_dir)
    return None


def _is_marked(task: str, run_dir: str) -> bool:
    """Whether this thread has its working directory or its output there. `OSError` where it has no directory at all."""
    places = [os.readlink(f"/proc/{task}/cwd")]  # noqa: PTH115  # thousands of times a look
    for mark in ("fd/1", "fd/2"):
        with contextlib.suppress(OSError):
            places.append(os.readlink(f"/proc/{task}/{mark}"))  # noqa: PTH115
    own = (run_dir, f"{run_dir} (deleted)")  # as proc_pid_cwd(5) tells of a directory that was removed
    return any(place in own or place.startswith(f"{run_dir}/") for place in places)
