"""Ports for what a test tells a daemon or a front door to listen on later."""

from __future__ import annotations

import itertools
from functools import cache

from controller.demo.stage import PortRange, is_bindable


def free_port() -> int:
    """A port that nobody listens on and nobody else is given.

    One that the kernel gives to whoever binds port 0 may be somebody's by the time it is used: tests run in parallel.
    """
    held, numbers = _mine()
    return next(
        port
        for number in itertools.islice(numbers, held.last - held.first + 1)
        if is_bindable(range(port := held.first + number % (held.last - held.first + 1), port + 1))
    )


@cache
def _mine() -> tuple[PortRange, itertools.count[int]]:
    """Locked for as long as this process lives."""
    return PortRange(), itertools.count()
