"""The parent of one gate: when the gate has ended, or we are told to end it, nothing that it started is left.

    python -S -I keeper.py REPORT_FD PARENT_PID COMMAND…

A subreaper inherits every orphan below it, whatever session, environment or parent that has made for itself. So the
kernel says when nothing is left, and nobody has to look for it. Standard library only: it starts before every gate.
REPORT_FD gets one JSON object: `code` as `subprocess` tells it, `left` (how many processes outlived the gate), or
`failed` (why the program did not start).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

SUBREAPER, DIE_WITH_PARENT = 36, 1  # prctl(2)
ROUNDS_S = 5.0
"""So long what is left is killed: a process of another user, or one stuck in the kernel, must not hold the verdict."""
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def children() -> set[int]:
    """Our living children; not waited for yet, so their numbers cannot be anybody else's."""
    found, me = set(), str(os.getpid()).encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs a quarter of the start
        with contextlib.suppress(OSError, IndexError):
            if name.isdigit():
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if parent == me and state not in (b"Z", b"X"):
                    found.add(int(name))
    return found


def reap(gate: int) -> tuple[int | None, bool]:
    """The wait status of the gate if it has just ended, and whether any child is left, alive or not."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            status = found[1] if found[0] == gate else status
        return status, True
    return status, False


def end_all(gate: int, status: int | None) -> tuple[int | None, int]:
    """Kill our children until there are none: those of the dead become ours. The gate's status, how many there were."""
    ended: set[int] = set()
    until_s = time.monotonic() + ROUNDS_S
    while True:
        now, left = reap(gate)
        status = now if status is None else status
        if not left or time.monotonic() > until_s:
            return status, len(ended - {gate})
        for pid in children():
            ended.add(pid)
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait((signal.SIGCHLD,), 0.02)


def start(command: list[str]) -> tuple[int, str]:
    """The gate's pid, and why it did not start."""
    reader, writer = os.pipe()  # closes on exec
    gate = os.fork()
    if gate == 0:
        become(command, writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        return gate, pipe.read()


def become(command: list[str], writer: int) -> NoReturn:
    try:
        os.setsid()
        prctl(DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, *WATCHED):  # Python ignores some, and exec would pass that on
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)  # noqa: S606 - a program of the profile, never a shell
    except (OSError, ValueError) as error:
        os.write(writer, (getattr(error, "strerror", None) or str(error)).encode())
    finally:
        os._exit(127)


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(report_fd: int, parent: int, command: list[str]) -> None:
    os.set_inheritable(report_fd, False)
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)  # "ignored" is inherited, and would swallow the end of a child
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    prctl(SUBREAPER, 1)
    prctl(DIE_WITH_PARENT, signal.SIGTERM)
    gate, failed = start(command)
    report: dict[str, Any] = {"failed": failed} if failed else {}
    for stream in (0, 1, 2):
        os.close(stream)  # the gate's alone: whoever reads them waits for its end, not for ours
    status = None
    while status is None and os.getppid() == parent:
        if signal.sigwait(WATCHED) != signal.SIGCHLD:
            break
        status, _ = reap(gate)
    status, left = end_all(gate, status)
    report |= {"code": None if status is None else os.waitstatus_to_exitcode(status), "left": left}
    with contextlib.suppress(OSError):
        os.write(report_fd, json.dumps(report).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
