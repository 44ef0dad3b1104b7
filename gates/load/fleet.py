"""Several client processes for one load: each drives a share of the streams on a core of its own.

All clocks are CLOCK_MONOTONIC, which is one clock for every process of a machine, so their times compare.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates.load.cost import worst
from gates.load.lanes import Load

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

    from gates.endpoint import Endpoint
    from gates.load.lanes import Window

LENGTH: Final = struct.Struct("<Q")
READY: Final = "ready"
_ROOT: Final = Path(__file__).resolve().parents[2]
_START_IN_S: Final = 0.05


class ClientBrokeError(RuntimeError):
    """A process of the load client ended in the middle of its work: what was measured is lost."""


@dataclass(frozen=True)
class Job:
    """A worker's share of one run."""

    payloads: Sequence[Sequence[bytes]]
    window: Window


class Fleet:
    """Worker processes that keep their connections warm between runs. Use it inside one event loop."""

    def __init__(self, endpoint: Endpoint, processes: int, limit_bytes: int) -> None:
        self.processes = processes
        self._setting = (endpoint, limit_bytes)
        self._workers: list[Process] = []

    async def streams(self, payloads: Sequence[Sequence[bytes]], window: Window) -> Load:
        """As `LoadClient.streams`. Raises `ClientBrokeError`."""
        share = replace(window, max_held_bytes=window.max_held_bytes // self.processes)
        shares = [payloads[number :: self.processes] for number in range(self.processes)]
        try:
            if not self._workers:
                self._workers = [await self._spawn() for _ in range(self.processes)]
            for worker, part in zip(self._workers, shares, strict=True):
                await _send(worker, Job(part, share))
            # READY when all its connections are made; its load already when they could not be.
            first = [await _receive(worker) for worker in self._workers]
            start_at_s = time.monotonic() + _START_IN_S
            for worker, said in zip(self._workers, first, strict=True):
                if said == READY:
                    await _send(worker, start_at_s)
            loads = [
                await _receive(worker) if said == READY else said
                for worker, said in zip(self._workers, first, strict=True)
            ]
        # uvloop has a bare RuntimeError for a pipe that was closed just now.
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError) as error:
            self.close()
            raise ClientBrokeError("a process of the load client ended in the middle of a measurement") from error
        return _together(loads, payloads)

    def close(self) -> None:
        """End the workers; also those that are in the middle of something."""
        for worker in self._workers:
            if worker.returncode is None:
                worker.kill()
        self._workers = []

    async def _spawn(self) -> Process:
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        argv = (sys.executable, "-m", "gates.load.worker")
        # A terminal's Ctrl-C goes to a whole group, and each worker would die of it in its own words: we end them.
        worker = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
        )
        # Through the pipe: an API key has no business in an argument list.
        await _send(worker, self._setting)
        return worker


def _together(loads: Sequence[Load], payloads: Sequence[Sequence[bytes]]) -> Load:
    """The shares in the order of the streams; the bodies, which did not travel back, in their places."""
    streams = []
    for number, stream in enumerate(payloads):
        exchanges = loads[number % len(loads)].streams[number // len(loads)]
        streams.append(tuple(replace(e, request_body=body) for e, body in zip(exchanges, stream, strict=False)))
    stopped = next((load.stopped for load in loads if load.stopped), None)
    return Load(tuple(streams), worst([load.cost for load in loads]), sum(load.unsent for load in loads), stopped)


async def _send(worker: Process, message: Any) -> None:
    assert worker.stdin is not None  # noqa: S101 - asked for above
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    worker.stdin.write(LENGTH.pack(len(data)) + data)
    await worker.stdin.drain()


async def _receive(worker: Process) -> Any:
    assert worker.stdout is not None  # noqa: S101 - asked for above
    [size] = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
    return pickle.loads(await worker.stdout.readexactly(size))  # noqa: S301 - our own child wrote it
