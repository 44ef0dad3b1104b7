from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from gate_kit import RawServer, Script


@pytest.fixture
def raw_port() -> Iterator[int]:
    """A port on which this very process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def raw_server() -> Iterator[Callable[[Script], RawServer]]:
    servers: list[RawServer] = []

    def start(script: Script) -> RawServer:
        servers.append(RawServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
