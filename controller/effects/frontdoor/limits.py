"""How many connections the front door may hold, from what the system allows it."""

from __future__ import annotations

import os
import resource

from .errors import DoorError

_MOST_CONNECTIONS = 4096
_FEWEST_CONNECTIONS = 16
_FEWEST_RESERVED = 8
_OWN_DESCRIPTORS = 100  # listeners, runtime socket, pollers, log, Lua
_MOST_THREADS = 2  # 128 streams at 50 tokens/s cost 0.1 core; Lua has one lock for all threads


def max_connections(slots: int, hard_limit: int | None = None) -> int:
    """Client connections at a time: two descriptors each, one more per slot and backend for the health checks.

    HAProxy refuses to start with a ``maxconn`` that its hard limit of open files cannot carry.
    """
    if hard_limit is None:
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard_limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    connections = (hard_limit - _OWN_DESCRIPTORS - 2 * slots) // 2
    if connections < _FEWEST_CONNECTIONS:
        needed = 2 * _FEWEST_CONNECTIONS + _OWN_DESCRIPTORS + 2 * slots
        raise DoorError(
            f"the limit of open files is {hard_limit} (`ulimit -Hn`), the front door with {slots} slots needs at least "
            f"{needed}; raise the limit (LimitNOFILE= in the unit) or configure fewer slots"
        )
    return min(connections, _MOST_CONNECTIONS)


def public_connections(connections: int) -> int:
    """Of all connections, those that users may have: the rest lets gates through while users wait."""
    return connections - max(_FEWEST_RESERVED, connections // 8)


def threads() -> int:
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))
