"""Estimates from a few noisy rounds. Everything works on logarithms, so that 5 % is the same at any speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

_MEDIAN_OF_DIFFERENCES: Final = 0.9539
"""The median of |x - y| of two normal values with standard deviation 1: 0.6745 times the square root of 2."""
_MIN_ROUND_SD: Final = 0.01
"""Rounds that agree by chance do not make the next ones agree."""
_EFFICIENCY: Final = 0.45
"""Degrees of freedom that the median of differences keeps of (n - 1) per side, by simulation: 0.45 at three rounds,
0.56 at five, 0.67 at nine. The least is taken for all."""
_SHIFT_FACTOR: Final = 1.05
"""What the Hodges-Lehmann shift of few rounds loses against the mean."""


@dataclass(frozen=True)
class RoundNoise:
    """How much one round differs from the next: `sd` of the logarithm (0.03 is 3 %), on so many degrees of freedom."""

    sd: float
    freedom: float

    def variance(self, candidate_rounds: int, baseline_rounds: int) -> float:
        """Of the shift between so many rounds on each side."""
        return (_SHIFT_FACTOR * self.sd) ** 2 * (1 / candidate_rounds + 1 / baseline_rounds)


def shift(candidate_logs: Sequence[float], baseline_logs: Sequence[float]) -> float:
    """The median of all differences between the two sides: bears 29 % of bad rounds.

    Source: J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34 (1963) 598.
    """
    return median(mine - theirs for mine in candidate_logs for theirs in baseline_logs)


def round_noise(sides: Iterable[Sequence[float]]) -> RoundNoise:
    """Pooled over `sides`, each the logarithms of one cell's rounds: the median difference of two rounds of one side.

    A side of one round says nothing about noise; without any pair the least is assumed, on one degree of freedom.
    """
    differences: list[float] = []
    freedom = 0
    for side in sides:
        differences.extend(abs(one - other) for one, other in combinations(side, 2))
        freedom += max(0, len(side) - 1)
    if not differences:
        return RoundNoise(_MIN_ROUND_SD, 1.0)
    sd = max(_MIN_ROUND_SD, median(differences) / _MEDIAN_OF_DIFFERENCES)
    return RoundNoise(sd, max(1.0, _EFFICIENCY * freedom))


def reach(z: float, round_variance: float, freedom: float, start_variance: float, start_z: float) -> float:
    """How far from the estimate the bound lies, in logarithms.

    The noise of rounds was estimated, so its share is widened as Student's t widens `z`; the spread between starts is
    taken as given, at a `start_z` of its own.
    """
    return math.sqrt(_student(z, freedom) ** 2 * round_variance + start_z**2 * start_variance)


def _student(z: float, freedom: float) -> float:
    """The quantile of Student's t that is as rare as `z` is normally.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.5, two terms.
    """
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second
