"""Receivers, and a box to which things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from receivers import Box, Clock, Receiver


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    """Started with the statuses that it answers with, one after the other."""
    running: list[Receiver] = []

    def start(*statuses: int, **settings: Any) -> Receiver:
        running.append(Receiver(statuses or (200,), **settings))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def box(tmp_path, clock) -> Iterator[Box]:
    made = Box(tmp_path, clock)
    yield made
    made.close()
