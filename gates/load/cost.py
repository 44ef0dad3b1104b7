"""What the client itself was like while it measured, and when it was the limit rather than the engine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CORE_SHARE: Final = 0.7
"""Above this share of a core bytes wait for the client."""
MAX_LAG_SHARE: Final = 0.2
"""So much of a chunk gap may the event loop be late; both limits are our own choice."""
CHUNKS_PER_S_PER_PROCESS: Final = 40_000
"""A process takes about 8 µs per chunk on the machine that it was measured on; this leaves as much for a slower one."""
_LAG_PERIOD_S: Final = 0.01
# What a timer of one millisecond shows even on an idle loop.
_IDLE_LAG_S: Final = 0.0011


@dataclass(frozen=True)
class ClientCost:
    """`lag_p99_s`: lateness of the event loop, less what an idle one shows; `core_share`: CPU per wall time.

    Of several processes both are those of the worst one.
    """

    lag_p99_s: float
    core_share: float
    processes: int = 1

    def limit(self, median_gap_s: float | None) -> str | None:
        """Why this was no measurement of the engine, in a sentence, or None. `median_gap_s`: between two chunks."""
        if self.core_share > MAX_CORE_SHARE:
            share = f"the client used {self.core_share:.0%} of a core; from {MAX_CORE_SHARE:.0%} on it may be the limit"
            return f"{share} (measure with more client processes, or from another machine)"
        if median_gap_s is not None and self.lag_p99_s > MAX_LAG_SHARE * median_gap_s:
            late = f"the client's event loop was {self.lag_p99_s * 1e3:.1f} ms late (p99)"
            gap = f"more than {MAX_LAG_SHARE:.0%} of the {median_gap_s * 1e3:.1f} ms between two chunks"
            return f"{late}, {gap}; free the machine of other work, or measure from another"
        return None


def worst(costs: Sequence[ClientCost]) -> ClientCost:
    """The cost of processes side by side."""
    return ClientCost(
        max((cost.lag_p99_s for cost in costs), default=0.0),
        max((cost.core_share for cost in costs), default=0.0),
        sum(cost.processes for cost in costs),
    )


def processes_for(chunks_per_s: float, cores: int) -> int:
    """How many client processes an offered rate needs; at most one per core."""
    return max(1, min(cores, math.ceil(chunks_per_s / CHUNKS_PER_S_PER_PROCESS)))


def processes_after(cost: ClientCost, cores: int) -> int:
    """How many for the same load after a cell that cost this: as many as it had, or more if a core was saturated.

    Aims at half of what `ClientCost.limit` allows.
    """
    if cost.core_share <= MAX_CORE_SHARE:
        return cost.processes
    wanted = math.ceil(cost.processes * cost.core_share / (MAX_CORE_SHARE / 2))
    return max(cost.processes, min(cores, wanted))


class SelfCheck:
    """Measures the lateness of the client's own event loop and the share of a core that it used."""

    def __init__(self) -> None:
        self._late_s: list[float] = []

    async def __aenter__(self) -> Self:
        self._started_s = time.monotonic()
        self._cpu_s = time.process_time()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._wall_s = time.monotonic() - self._started_s
        self._cpu_s = time.process_time() - self._cpu_s

    def cost(self) -> ClientCost:
        """After the block."""
        late = sorted(self._late_s) or [0.0]
        p99 = late[min(len(late) - 1, int(len(late) * 0.99))]
        return ClientCost(max(0.0, p99 - _IDLE_LAG_S), self._cpu_s / max(self._wall_s, 1e-9))

    async def _watch(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(_LAG_PERIOD_S)
            self._late_s.append(max(0.0, time.monotonic() - before_s - _LAG_PERIOD_S))
