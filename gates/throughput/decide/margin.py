"""Which margin can be kept at all, and how many rounds it takes."""

from __future__ import annotations

import math
from typing import Final

from gates.throughput.decide.spread import Spread

ONE_SIDED_95: Final = 1.645
_BOTH_ERRORS: Final = 2 * ONE_SIDED_95
"""5 % for passing one that is slower by the margin, 5 % for not passing one that is not slower."""


def log_margin(margin: float) -> float:
    """How far the logarithm may fall: 0.05 → 0.0513."""
    if not 0 < margin < 1:
        raise ValueError(f"a margin is a share between 0 and 1 (0.05 is 5 %); got {margin}")
    return -math.log1p(-margin)


def start_variance(spread: Spread, candidate_starts: int = 1, baseline_starts: int = 1) -> float:
    """Of the difference between two engines, each measured over so many starts."""
    if min(candidate_starts, baseline_starts) < 1:
        raise ValueError(f"each side was started at least once; got {candidate_starts} and {baseline_starts}")
    return spread.sd**2 * (1 / candidate_starts + 1 / baseline_starts)


def smallest_margin(spread: Spread, candidate_starts: int = 1, baseline_starts: int = 1) -> float:
    """The smallest margin that any number of rounds can keep, as a share: 4.65 spreads with one start a side."""
    return -math.expm1(-_BOTH_ERRORS * math.sqrt(start_variance(spread, candidate_starts, baseline_starts)))


def refusal(margin: float, spread: Spread, candidate_starts: int = 1, baseline_starts: int = 1) -> str | None:
    """Why this margin cannot be kept, or None when it can. To be asked before anything is measured."""
    least = smallest_margin(spread, candidate_starts, baseline_starts)
    if margin >= least:
        return None
    # Rounded up: the margin that the sentence names must be one that is then accepted.
    offered = math.ceil(least * 1000) / 1000
    return (
        f"a margin of {margin:.1%} is smaller than two starts of one engine differ by chance, and no number of rounds "
        f"helps: {spread.sentence}; take a margin of {offered:.1%} or more, or measure each side over more starts"
    )


def rounds_needed(shift: float, margin: float, cells: int, unit_variance: float, between_starts: float) -> int | None:
    """Rounds on each side that would show a `shift` (logarithm, negative is slower) to be within `margin`; None: never.

    `unit_variance`: of the shift of one cell with one round a side. `between_starts`: as from `start_variance`.
    Solves ``(delta + shift) = 3.29 sqrt(unit / (n cells) + between_starts)`` for n.
    """
    room = log_margin(margin) + shift
    if room <= 0:
        return None
    left = (room / _BOTH_ERRORS) ** 2 - between_starts
    return None if left <= 0 else max(1, math.ceil(unit_variance / (cells * left)))
