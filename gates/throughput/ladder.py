"""Which concurrencies are measured: powers of two, the engine's own limit, one beyond it, one above each capture size.

Ladders of powers of two alone miss the cliffs: graphs captured for 1, 2, 4, 8 serve 9 sequences without any, and only
a rung above the scheduler's limit shows what waiting costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

Asked = int | Literal["limit", "beyond"]
MOST_CAPTURE_RUNGS: Final = 6
"""Engines capture dozens of sizes: the smallest ones, where users are, and the largest are looked at."""


def beyond(limit: int) -> int:
    """One rung above the limit: a quarter more, so that some wait and none waits for long."""
    return limit + max(1, limit // 4)


def ladder(limit: int | None, *, most: int, captures: Iterable[int] = ()) -> list[int]:
    """The rungs, ascending. `limit`: the engine's own most sequences at once; `most`: where to end when it is unknown.

    `captures`: batch sizes for which the engine has captured graphs.
    """
    end = limit if limit is not None else most
    rungs = {1, *_powers(end), end}
    if limit is not None:
        rungs.add(beyond(limit))
    above = sorted({size + 1 for size in captures if 1 < size + 1 <= end})
    if len(above) > MOST_CAPTURE_RUNGS:
        half = MOST_CAPTURE_RUNGS // 2
        above = [*above[:half], *above[-half:]]
    return sorted({*rungs, *above})


def resolved(asked: Sequence[Asked], limit: int | None) -> tuple[list[int], list[str]]:
    """Rungs by number, ascending, and a sentence for each that nobody can place."""
    rungs: set[int] = set()
    lost = []
    for one in asked:
        if isinstance(one, int):
            rungs.add(one)
        elif limit is None:
            lost.append(f"rung {one!r} is not measured: the engine does not say how many sequences it runs at once")
        else:
            rungs.add(limit if one == "limit" else beyond(limit))
    return sorted(rungs), lost


def _powers(end: int) -> list[int]:
    powers = []
    power = 1
    while power <= end:
        powers.append(power)
        power *= 2
    return powers
