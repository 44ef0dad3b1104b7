"""The processes of the load client: one that is gone is always the same error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

import psutil
import pytest
from gate_kit import END, FIRST, RawServer, Script, answer, chunk

from gates.endpoint import Endpoint
from gates.load.fleet import ClientBrokeError, Fleet
from gates.load.lanes import Window
from gates.load_client import run

GOOD = answer("200 OK", "text/event-stream", FIRST + chunk({"content": "Hi"}, "stop") + END)


def window() -> Window:
    end_s = time.monotonic() + 30.0
    return Window(end_s, end_s, None, 1 << 20)


def end_workers() -> None:
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "gates.load.worker" in process.cmdline():
                process.kill()


def test_a_worker_that_ended_between_two_measurements_is_named_as_one_that_ended_in_the_middle(
    raw_server: Callable[[Script], RawServer],
) -> None:
    async def twice(url: str) -> None:
        fleet = Fleet(Endpoint.at(url), 1, 1 << 20)
        try:
            await fleet.streams([[b"{}"]], window())
            end_workers()
            await asyncio.sleep(0.5)
            await fleet.streams([[b"{}"]], window())
        finally:
            fleet.close()

    url = raw_server(lambda connection, _: connection.sendall(GOOD)).url
    with pytest.raises(ClientBrokeError, match="ended in the middle"):
        run(lambda: twice(url))


def test_ctrl_c_of_a_terminal_does_not_reach_the_workers(raw_server: Callable[[Script], RawServer]) -> None:
    """It goes to a whole process group; whoever measures ends them, and says what was measured."""

    async def groups(url: str) -> set[int]:
        fleet = Fleet(Endpoint.at(url), 2, 1 << 20)
        try:
            await fleet.streams([[b"{}"], [b"{}"]], window())
            mine = [p for p in psutil.Process().children() if "gates.load.worker" in p.cmdline()]
            return {os.getpgid(p.pid) for p in mine}
        finally:
            fleet.close()

    url = raw_server(lambda connection, _: connection.sendall(GOOD)).url
    found = run(lambda: groups(url))
    assert len(found) == 2
    assert os.getpgid(0) not in found
