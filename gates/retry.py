"""Asking the same again where nobody listens yet or a server has no room: when, after how long, and what is said then.

Nothing else is ever asked again: repeating until it works hides the very faults that are looked for.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gates.reply import Reply
    from gates.wire import Exchange

MAX_RETRIES: Final = 2
PAUSE_S: Final = 0.5
"""Between two askings at least, and where the server does not say how long."""
MOST_S: Final = 10.0
"""A server may ask for more patience; a gate has other questions."""
_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_HINT: Final = (
    "with {} requests at once it refuses some: lower `concurrency` in the settings of this gate, and for the checks "
    "under load say `max_running` in the capability"
)


def busy(exchange: Exchange) -> bool:
    """429 and 503: the server has no room now."""
    return exchange.status in (429, 503)


def unreached_or_busy(exchange: Exchange) -> bool:
    """*Connection refused*, 429 and 503."""
    return busy(exchange) or (exchange.failure is not None and exchange.failure.layer == "port")


def pause_s(
    exchange: Exchange,
    attempt: int,
    remaining_s: float,
    now: datetime,
    worth: Callable[[Exchange], bool] = unreached_or_busy,
) -> float | None:
    """So long to wait before the same is asked again; None: it is not, and this answer counts.

    `attempt` counts from 0. The server's own ``Retry-After`` is heeded, up to ten seconds and within `remaining_s`, the
    gate's own time. `now` has a time zone.
    """
    if attempt >= MAX_RETRIES or not worth(exchange):
        return None
    wanted_s = max(PAUSE_S, _retry_after_s(exchange, now) if busy(exchange) else 0.0)
    # Somebody still has to wait for the answer.
    wait_s = min(wanted_s, MOST_S, remaining_s - PAUSE_S)
    return wait_s if wait_s >= PAUSE_S else None


def with_hint(reply: Reply, exchange: Exchange, at_once: int) -> Reply:
    """`reply`; where the server kept refusing for want of room, its sentence says what to set.

    `at_once`: so many requests were under way. One alone is not refused because of the others.
    """
    crowded = exchange.status == 429 or (exchange.status == 503 and exchange.header("retry-after"))
    if not crowded or at_once < 2:
        return reply
    hint = _HINT.format(at_once)
    return replace(
        reply,
        breaches=tuple(
            replace(breach, sentence=f"{breach.sentence}; {hint}") if breach.rule == "P08" else breach
            for breach in reply.breaches
        ),
    )


def _retry_after_s(exchange: Exchange, now: datetime) -> float:
    """``Retry-After``, seconds or a date (RFC 9110); 0 where there is none, or one that says nothing."""
    said = exchange.header("retry-after")
    if _SECONDS.fullmatch(said):
        return float(said)
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    return (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
