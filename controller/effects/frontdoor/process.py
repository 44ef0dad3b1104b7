"""The front door's process: under a shim that starts it again when it dies, and that outlives the daemon."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from launch import attempts
from launch.attempts import AttemptSpec, Status
from launch.errors import LaunchError

from .errors import DoorError

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTEMPT_ID = "frontdoor"
_GRACE_S = 5.0
_STOP_TIMEOUT_S = 20.0
_CLEAR_TIMEOUT_S = 2.0
_LOOK_BACK_BYTES = 16384
# Not what it says of a client that resets its connection while it is held: "yield not allowed" is how that wait ends.
_ALERT = re.compile(r"\[ALERT\]\s+\((?P<pid>\d+)\) : (?P<says>(?!Lua function 'hold').*)")


class DoorProcess:
    """``run`` below the door's directory is the run directory; HAProxy finds its files one level up."""

    def __init__(self, directory: Path, manager: Path | None = None) -> None:
        self.run_dir = directory / "run"
        self._manager = manager
        self.log = attempts.log_path(self.run_dir)

    def is_running(self) -> bool:
        """Whether a shim takes care of it; one that is just being started again counts."""
        return attempts.observe(self.run_dir).status is Status.RUNNING

    def is_between_starts(self) -> bool:
        """Whether its shim lives and nothing else of it: it died, and is started again in a moment."""
        seen = attempts.observe(self.run_dir)
        return seen.status is Status.RUNNING and not seen.pids

    def pid(self) -> int | None:
        """Of the HAProxy that its shim has started; None between two of them."""
        return attempts.observe(self.run_dir).child_pid

    def without_shim(self) -> tuple[int, ...]:
        """Its processes where its shim is dead and they live on; empty in any other case."""
        seen = attempts.observe(self.run_dir)
        return seen.pids if seen.status is Status.STRAYS else ()

    def last_boot(self) -> str:
        """Id of the boot in which it was last started; "" where no start is on record."""
        return attempts.observe(self.run_dir).boot_id

    def start(self, argv: Sequence[str]) -> None:
        """For a door whose addresses are free: a keeper that lives on in a directory that was removed serves nobody."""
        deadline_s = time.monotonic() + _CLEAR_TIMEOUT_S
        while attempts.kill_unrecorded(self.run_dir) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        try:
            attempts.start(
                AttemptSpec(
                    attempt_id=ATTEMPT_ID,
                    run_dir=self.run_dir,
                    argv=tuple(argv),
                    grace_s=_GRACE_S,
                    keep=True,
                    manager=self._manager,
                )
            )
        except LaunchError as error:
            raise DoorError(f"the front door cannot be started: {error}") from error

    def stop(self) -> None:
        """Returns when nothing of it is left."""
        attempts.request_stop(self.run_dir)
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while (seen := attempts.observe(self.run_dir)).status in (Status.RUNNING, Status.STRAYS) or seen.pids:
            if seen.status is Status.STRAYS:  # its shim is dead: nobody else would end it
                attempts.kill_strays(self.run_dir, force=False)
            if time.monotonic() > deadline_s:
                raise DoorError(
                    f"the front door did not end within {_STOP_TIMEOUT_S:.0f} s; its processes: {seen.pids}"
                )
            time.sleep(0.02)

    def last_complaint(self) -> str:
        """The errors that the newest HAProxy to complain has named; "" when there is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOOK_BACK_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        alerts = [found for line in lines if (found := _ALERT.match(line))]
        return " ".join(found["says"] for found in alerts if found["pid"] == alerts[-1]["pid"])


def started_at_s(pid: int) -> float | None:
    """When a process began, seconds of the boot time clock; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    ticks = int(stat.rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")
