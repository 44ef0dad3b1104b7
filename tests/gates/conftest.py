"""Fixtures of the tests of the gates; what else they share is in `gate_kit.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gate_kit import RawServer, Script


@pytest.fixture
def raw_server() -> Iterator[Callable[[Script], RawServer]]:
    servers: list[RawServer] = []

    def start(script: Script) -> RawServer:
        servers.append(RawServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
