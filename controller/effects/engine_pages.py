"""The metrics page of an engine of ours, asked with the key that it wants where it wants one."""

from __future__ import annotations

from gates.counters import Counters, parse_counters
from gates.endpoint import Endpoint
from gates.wire import parse_location

_MAX_PAGE_BYTES = 16 * 1024 * 1024


def metrics_page(port: int, key: str | None, timeout_s: float) -> str | None:
    """What the engine on this port of the loopback address shows; None when it shows nothing."""
    target, path = parse_location(f"http://127.0.0.1:{port}/metrics")
    answer = Endpoint(target, key).get(path, timeout_s=timeout_s, limit_bytes=_MAX_PAGE_BYTES)
    if answer.status != 200 or answer.failure is not None:
        return None
    return answer.body.decode("utf-8", "replace")


def counters_of(port: int, key: str | None, timeout_s: float) -> Counters | None:
    """The counters on that page; None when it is not one of an engine that we know."""
    page = metrics_page(port, key, timeout_s)
    return None if page is None else parse_counters(page)
