"""Do requests run in waves, a whole batch in and a whole batch out? Then it is not continuous batching.

In a wave nobody starts before the last of the wave before has ended, although places have been free and requests have
been waiting. Answers of one length end together in any engine; they prove nothing, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

_MIN_WAVES: Final = 3
_HELD_SHARE: Final = 0.10
"""Waiting beside a free place for so much of a request's decoding is no accident of scheduling."""


@dataclass(frozen=True)
class Request:
    """When one request was sent, when its first token came and when its last; seconds on one clock."""

    sent_s: float
    first_token_s: float
    end_s: float


@dataclass(frozen=True)
class Waves:
    """`synchronous`: True, requests ran in waves; False, they did not; None, these requests cannot tell.

    `sizes`: how many ran in each wave, in order. `held_share`: the median wait of a request beside a free place, as a
    share of the median decode time; None where nobody waited.
    """

    synchronous: bool | None
    sizes: tuple[int, ...]
    held_share: float | None
    sentence: str


def find_waves(requests: Sequence[Request]) -> Waves:
    """From the times of all requests of one cell, in any order."""
    waves = _split(requests)
    sizes = tuple(len(wave) for wave in waves)
    if len(waves) < _MIN_WAVES:
        return Waves(*_few(requests, sizes))
    least, most = min(sizes), max(sizes)
    listed = f"{len(sizes)} waves of {f'exactly {most}' if least == most else f'{least} to {most}'} requests"
    held = _held_share(waves)
    if most == 1:
        return Waves(None, sizes, None, f"{listed}: they came one after another, which says nothing of batching")
    if held is None:
        return Waves(None, sizes, None, f"{listed}, but hardly anybody waited for a place: it was the load that paused")
    if held < _HELD_SHARE:
        sentence = f"{listed} of equal length, which end together in any engine; vary the lengths to know more"
        return Waves(None, sizes, held, sentence)
    sentence = (
        f"{listed}: nobody starts before the whole wave has ended, and each waits {held:.0%} of a request's time while "
        f"places are free; this is not continuous batching"
    )
    return Waves(True, sizes, held, sentence)


def _few(requests: Sequence[Request], sizes: tuple[int, ...]) -> tuple[bool | None, tuple[int, ...], None, str]:
    if not requests:
        return None, sizes, None, "no requests, so nothing is known of waves"
    overtaken = sum(1 for each in requests if _joins(each, requests))
    if overtaken:
        return False, sizes, None, f"no waves: {overtaken} of {len(requests)} requests joined while others were running"
    return None, sizes, None, f"{len(requests)} requests in {len(sizes)} groups; {_MIN_WAVES} groups or more show waves"


def _joins(request: Request, requests: Sequence[Request]) -> bool:
    """Did it start after one had ended, while another that had started before that end still ran?"""
    ends = [other.end_s for other in requests if other.end_s <= request.first_token_s]
    if not ends:
        return False
    freed_s = max(ends)
    return any(other.first_token_s < freed_s and other.end_s > request.first_token_s for other in requests)


def _split(requests: Sequence[Request]) -> list[list[Request]]:
    """Cut wherever a request starts after all that started before it have ended."""
    waves: list[list[Request]] = []
    last_end_s = float("-inf")
    for request in sorted(requests, key=lambda each: each.first_token_s):
        if request.first_token_s >= last_end_s:
            waves.append([])
        waves[-1].append(request)
        last_end_s = max(last_end_s, request.end_s)
    return waves


def _held_share(waves: Sequence[Sequence[Request]]) -> float | None:
    """The median wait beside a free place; None when fewer than half of those after the first wave waited at all."""
    held_s: list[float] = []
    later = 0
    for before, wave in pairwise(waves):
        free_s, last_end_s = min(each.end_s for each in before), max(each.end_s for each in before)
        held_s.extend(last_end_s - max(each.sent_s, free_s) for each in wave if each.sent_s < last_end_s)
        later += len(wave)
    decode_s = median(each.end_s - each.first_token_s for wave in waves for each in wave)
    return median(held_s) / decode_s if 2 * len(held_s) >= later and decode_s > 0 else None
