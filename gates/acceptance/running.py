"""How many requests does the engine run at once? As declared, else as it says itself, else a number that is common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker

USUAL: Final = 64
"""Where nobody says otherwise. What an engine says can only lower it: a gate is no stress test."""
MOST: Final = 128
"""A declared number counts up to here; twice as many are the most that a gate ever asks at once."""
_PAGES: Final = ("/get_server_info", "/server_info", "/props")
_WAIT_S: Final = 10.0


class Running(NamedTuple):
    """`number` of requests at once, and in words where it is known from."""

    number: int
    source: str


async def max_running(asker: Asker) -> Running:
    """What load levels are made of; asked once in a run."""
    known: Running | None = asker.shared.get("max_running")
    if known is None:
        known = asker.shared["max_running"] = await _known(asker)
    return known


async def told(asker: Asker) -> Running | None:
    """What the engine says: SGLang on its page of server information, llama.cpp among its properties; vLLM nowhere."""
    for page in _PAGES:
        exchange = await asker.raw("GET", page, timeout_s=_WAIT_S)
        if exchange.status != 200:
            continue
        try:
            number = number_in(json.loads(exchange.body))
        except (ValueError, RecursionError):
            number = None
        if number is not None:
            return Running(number, f"{page} says {number}")
    return None


def number_in(page: Any) -> int | None:
    """The number on one of these pages, or None.

    SGLang's own decision per data-parallel rank comes before its flag, which is null where nobody gave it.
    """
    if not isinstance(page, Mapping):
        return None
    states = page.get("internal_states")
    ranks = [
        _count(state.get("effective_max_running_requests_per_dp"))
        for state in (states if isinstance(states, list) else ())
        if isinstance(state, Mapping)
    ]
    return sum(ranks) or _count(page.get("max_running_requests")) or _count(page.get("total_slots")) or None


async def _known(asker: Asker) -> Running:
    declared = asker.capability.max_running
    if declared is not None:
        return Running(min(declared, MOST), f"{declared} declared")
    said = await told(asker)
    if said is not None:
        return Running(min(said.number, USUAL), said.source)
    return Running(USUAL, "nobody says how many, and this is common")


def _count(value: Any) -> int:
    """A number of requests; 0 for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
