from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def raw_port() -> Iterator[int]:
    """A port on which this very process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
