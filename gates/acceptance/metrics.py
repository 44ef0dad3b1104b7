"""The engine's counters, for checks that have to know what the engine did and not only what it said."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gates.counters import Counters, read_counters

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings

_WAIT_S: Final = 10.0


async def counters(asker: Asker, around: Surroundings) -> Counters | None:
    """What the metrics page says now; None where there is none or it cannot be read."""
    if around.metrics_url is None:
        return None
    timeout_s = max(0.5, min(_WAIT_S, asker.remaining_s()))
    return await asyncio.to_thread(read_counters, around.metrics_url, timeout_s=timeout_s)
