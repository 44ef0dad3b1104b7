"""Idle child processes in the shape of vLLM's workers: own titles, and they outlive a killed parent."""

import contextlib
import ctypes
import os
import signal
import socket

from .settings import Dialect

_PR_SET_NAME = 15


def spawn_workers(count: int, dialect: Dialect, listener: socket.socket) -> tuple[int, ...]:
    """Fork `count` idle children; returns their pids. They do not hold the port."""
    return tuple(_spawn(_title(number, dialect), listener) for number in range(count))


def stop_workers(pids: tuple[int, ...]) -> None:
    """End and reap the children."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _title(number: int, dialect: Dialect) -> str:
    if dialect.is_vllm:
        return f"VLLM::Worker_TP{number}"
    return f"sglang::scheduler_TP{number}"


def _spawn(title: str, listener: socket.socket) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        listener.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _retitle(title)
        while True:
            signal.pause()
    finally:
        os._exit(0)


def _retitle(title: str) -> None:
    """Change the name in /proc/PID/comm and, like setproctitle, the command line in /proc/PID/cmdline."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title[:15].encode(), 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123 - no imports in a fresh fork
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, ValueError, IndexError):
        return  # a kernel that hides the addresses: the short name has to do
    if end > start > 0:
        ctypes.memmove(start, title.encode().ljust(end - start, b"\0")[: end - start], end - start)
