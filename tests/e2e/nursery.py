"""Daemons that need not import anything: forked from a process that has done so, and real daemons from there on.

Where a daemon is killed dozens of times, nine tenths of each start would be imports (a second of processor time).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from controller.demo.stage import Stage

PROGRAM = """
import gc, json, os, sys
import controller.cli.app, controller.cli.serve, controller.daemon
import uvicorn.lifespan.off, uvicorn.loops.auto, uvicorn.protocols.http.httptools_impl
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(file, number)
        os.environ.update(order["environment"])
        sys.exit(controller.cli.main(order["argv"]))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """One daemon at a time: the next one is born when the one before it is dead."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def bear(self, argv: list[str], environment: dict[str, str], log: Path) -> Daemon:
        self._process.stdin.write(json.dumps({"argv": argv, "environment": environment, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return Daemon(int(self._process.stdout.readline()), self._process.stdout)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


class Daemon:
    """What `subprocess.Popen` is of a child, of a grandchild."""

    def __init__(self, pid: int, words) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._words = words  # of the nursery: how it ended
        self._handle = os.pidfd_open(pid)  # before it is waited for: it cannot be anybody else's yet

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout_s: float | None = None) -> int:
        if self._ended(timeout_s) is None:
            raise subprocess.TimeoutExpired("cutover serve", timeout_s or 0.0)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], timeout_s)[0]:
            self.returncode = int(self._words.readline())
            os.close(self._handle)
        return self.returncode


class QuickStage(Stage):
    """A stage whose daemons come from a nursery."""

    def __init__(self, directory: Path, settings: dict) -> None:
        self._nursery = Nursery()
        super().__init__(directory, settings)

    def begin_daemon(self, **environment: str) -> None:
        argv = ["--config", str(self.config_file), "serve"]
        self.daemon = self._nursery.bear(argv, {**self.environment, **environment}, self.directory / "daemon.log")

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._nursery.close()
