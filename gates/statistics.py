"""How many right answers are enough? Sequential tests, fixed plans, bounds on shares, and comparisons with live.

Everything is exact arithmetic on counts: no clock, no chance, no I/O. An outcome is True when the answer was right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final, Protocol


class Ruling(StrEnum):
    """What the counts say. `HOLD`: they cannot say it, and more of the same would not either."""

    ACCEPT = "accept"
    REJECT = "reject"
    HOLD = "hold"


class Plan(Protocol):
    """How a behaviour is judged by its outcomes, at most `cap` of them."""

    @property
    def cap(self) -> int: ...

    @property
    def fewest(self) -> int:
        """The number of outcomes, all of them right, that accepts; with fewer nothing is ever accepted."""
        ...

    def decide(self, outcomes: Sequence[bool]) -> Ruling | None: ...


@dataclass(frozen=True)
class Sprt:
    """Wald's sequential probability ratio test of "right with probability p0" (good) against "p1" (not acceptable).

    After r right and w wrong outcomes the log likelihood ratio is ``w ln((1-p1)/(1-p0)) - r ln(p0/p1)``; the test
    accepts at ``ln(beta/(1-alpha))`` and below, and rejects at ``ln((1-beta)/alpha)`` and above. `alpha` is the
    allowed probability of rejecting a good one, `beta` of accepting one that is not. It holds when there is no ruling
    after `cap` outcomes. Source: A. Wald, Sequential Analysis (1947), chapter 5.
    Raises `ValueError` for parameters that make no test.
    """

    p0: float
    p1: float
    alpha: float = 0.001
    beta: float = 0.05
    cap: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.p1 < self.p0 < 1:
            raise ValueError(f"a sequential test needs 0 < p1 < p0 < 1; got p0 = {self.p0}, p1 = {self.p1}")
        if not (self.alpha > 0 and self.beta > 0 and self.alpha + self.beta < 1):
            raise ValueError(f"alpha and beta are above 0 and below 1 together; got {self.alpha} and {self.beta}")
        if self.cap < 1:
            raise ValueError(f"a test looks at one outcome at least; got cap = {self.cap}")

    @property
    def fewest(self) -> int:
        """The number of outcomes, all of them right, that accepts."""
        return math.ceil(math.log(self.beta / (1 - self.alpha)) / math.log(self.p1 / self.p0))

    def at(self, wrong: int, seen: int) -> Ruling | None:
        """The ruling when the walk stands at `wrong` of `seen`; None: go on."""
        # From the counts, not step by step: a sum of 200 roundings could cross a boundary that the counts do not.
        against = wrong * math.log((1 - self.p1) / (1 - self.p0))
        ratio = against + (seen - wrong) * math.log(self.p1 / self.p0)
        if ratio <= math.log(self.beta / (1 - self.alpha)):
            return Ruling.ACCEPT
        if ratio >= math.log((1 - self.beta) / self.alpha):
            return Ruling.REJECT
        return Ruling.HOLD if seen >= self.cap else None

    def decide(self, outcomes: Sequence[bool]) -> Ruling | None:
        """The first ruling on the way through `outcomes`, in the order of their number; None: go on.

        What comes after a ruling never changes it, so answers that were under way may be added or left out.
        """
        return _first(self.at, outcomes)


@dataclass(frozen=True)
class FixedPlan:
    """At most `allowed` wrong of `n`: rejects with the first one too many, accepts as soon as nothing can reject.

    With `allowed` = `n` it only counts: nothing rejects, and it accepts when all `n` were seen.
    Single sampling by attributes (binomial), curtailed at both ends. Source: NIST/SEMATECH e-Handbook, 6.2.3.
    Raises `ValueError` for numbers that make no plan.
    """

    n: int
    allowed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.allowed <= self.n and self.n):
            raise ValueError(f"a plan allows between 0 and n wrong of n, which is at least 1; got {self}")

    @property
    def cap(self) -> int:
        """The number of outcomes after which there is a ruling, whatever they are."""
        return self.n

    @property
    def fewest(self) -> int:
        """The number of outcomes, all of them right, that accepts."""
        return self.n - self.allowed or self.n

    def at(self, wrong: int, seen: int) -> Ruling | None:
        """The ruling when `wrong` of `seen` were wrong; None: go on."""
        if wrong > self.allowed:
            return Ruling.REJECT
        certain = self.allowed < self.n and wrong + self.n - seen <= self.allowed
        return Ruling.ACCEPT if certain or seen >= self.n else None

    def decide(self, outcomes: Sequence[bool]) -> Ruling | None:
        """The first ruling on the way through `outcomes`, in the order of their number; None: go on."""
        return _first(self.at, outcomes)


B90: Final = Sprt(p0=0.99, p1=0.90, cap=200)
"""A behaviour that must be reliable: 32 right in a row accept, 3 wrong in the first 20 reject."""

B80: Final = Sprt(p0=0.95, p1=0.80, cap=150)
"""A behaviour that depends on the model: 18 right in a row accept, 4 wrong in the first 5 or 5 in 14 reject."""


LOOKS: Final = (1, 2, 4)
"""A comparison that is undecided is looked at again with twice, then four times as many tries."""
LOOK_CONFIDENCE: Final = 0.977
"""One-sided, for each of the three looks: together they err in 5 %.

Source: S. J. Pocock, Group sequential methods in the design and analysis of clinical trials, Biometrika 64 (1977) 191,
for looks at even distances; that it holds for these is computed in `tests/gates/test_relative_looks.py`.
"""


def wilson_lower(right: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided lower bound of the share right/n; 0 when nothing was seen.

    Wilson's score bound ``(p + z²/2n - z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)``. Source: E. B. Wilson, JASA 22 (1927).
    """
    return _wilson(right, n, confidence)[0]


def fisher_worse(right: int, n: int, base_right: int, base_n: int) -> float:
    """The probability of `right` of `n` or fewer if candidate and base were equally good: small means worse.

    Fisher's exact test, one-sided: the lower tail of the hypergeometric distribution with both margins fixed.
    Source: R. A. Fisher, The Design of Experiments (1935), chapter 2.
    """
    _check(right, n)
    _check(base_right, base_n)
    all_right = right + base_right
    fewest = max(0, all_right - base_n)
    ways = sum(math.comb(n, k) * math.comb(base_n, all_right - k) for k in range(fewest, right + 1))
    return ways / math.comb(n + base_n, all_right)


def newcombe_lower(right: int, n: int, base_right: int, base_n: int, confidence: float = 0.95) -> float:
    """The one-sided lower bound of the difference of two independent shares, candidate minus base; in -1 … 1.

    ``d - sqrt((p - l)² + (u_base - p_base)²)`` with Wilson's l and u. Source: R. G. Newcombe, Interval estimation for
    the difference between independent proportions, Statistics in Medicine 17 (1998) 873, method 10.
    """
    low, _ = _wilson(right, n, confidence)
    _, base_high = _wilson(base_right, base_n, confidence)
    if not n or not base_n:
        return -1.0
    share, base_share = right / n, base_right / base_n
    return share - base_share - math.hypot(share - low, base_high - base_share)


def paired_lower(only_base_right: int, only_candidate_right: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided lower bound of the difference of two shares on the same `n` items, candidate minus base; in -1 … 1.

    Only the items on which the two disagree tell them apart (McNemar). The bound is the difference d at which the score
    statistic ``(c - b - nd) / sqrt(n(2q + d(1-d)))`` equals z, with q the share of "only base right" that is most
    likely under d. Unlike Wald's it does not collapse to a point when the two never disagree.
    Source: T. Tango, Statistics in Medicine 17 (1998) 891.
    """
    _check(only_base_right + only_candidate_right, n)
    _check(only_base_right, n)
    if not n:
        return -1.0
    z = NormalDist().inv_cdf(confidence)
    low, high = -1.0, (only_candidate_right - only_base_right) / n
    # The statistic falls as d rises, from far above z at -1 to 0 at the difference that was observed.
    for _ in range(60):
        middle = (low + high) / 2
        if _tango(only_base_right, only_candidate_right, n, middle) > z:
            low = middle
        else:
            high = middle
    return low


def non_inferior(
    right: int, n: int, base_right: int, base_n: int, *, margin: float, confidence: float = 0.95
) -> Ruling:
    """Is the candidate worse than the base by no more than `margin` (0.1 is ten points)? Different items.

    Accepts when a difference beyond the margin is excluded (one-sided `confidence`, Newcombe), rejects when one within
    the margin is, and holds when the margin lies inside the uncertainty.
    """
    low = newcombe_lower(right, n, base_right, base_n, confidence)
    high = -newcombe_lower(base_right, base_n, right, n, confidence)
    return _against_margin(low, high, margin)


def non_inferior_paired(
    only_base_right: int, only_candidate_right: int, n: int, *, margin: float, confidence: float = 0.95
) -> Ruling:
    """The same question when both answered the same `n` items (one-sided `confidence`, Tango)."""
    low = paired_lower(only_base_right, only_candidate_right, n, confidence)
    high = -paired_lower(only_candidate_right, only_base_right, n, confidence)
    return _against_margin(low, high, margin)


def f1(candidate: Iterable[bool], base: Iterable[bool]) -> float:
    """How far two agree on when to call a tool, item by item: 1 is always, 0 is never. True: a tool was called.

    ``2 TP / (2 TP + FP + FN)`` with the base as the truth; 1 when neither ever called. Agreement on *not* calling does
    not count, or a set that rarely needs a tool would flatter everybody. Source: C. J. van Rijsbergen, Information
    Retrieval (1979), chapter 7; used so by the Kimi K2 vendor verifier. Raises `ValueError` for unequal lengths.
    """
    pairs = list(zip(candidate, base, strict=True))
    both = sum(mine and theirs for mine, theirs in pairs)
    disagreed = sum(mine != theirs for mine, theirs in pairs)
    return 2 * both / (2 * both + disagreed) if both or disagreed else 1.0


class _At(Protocol):
    def __call__(self, wrong: int, seen: int) -> Ruling | None: ...


def _first(at: _At, outcomes: Sequence[bool]) -> Ruling | None:
    wrong = 0
    for seen, right in enumerate(outcomes, 1):
        wrong += not right
        ruling = at(wrong, seen)
        if ruling is not None:
            return ruling
    return None


def _wilson(right: int, n: int, confidence: float) -> tuple[float, float]:
    _check(right, n)
    if not n:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(confidence)
    share = right / n
    centre = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the bound is the end itself; rounding must not push it past.
    low = 0.0 if right == 0 else (centre - reach) / scale
    high = 1.0 if right == n else (centre + reach) / scale
    return low, high


def _tango(only_base: int, only_candidate: int, n: int, difference: float) -> float:
    linear = (2 * n - only_candidate + only_base) * difference - only_base - only_candidate
    constant = -only_base * difference * (1 - difference)
    share = (math.sqrt(max(0.0, linear * linear - 8 * n * constant)) - linear) / (4 * n)
    variance = n * (2 * share + difference * (1 - difference))
    distance = only_candidate - only_base - n * difference
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def _against_margin(low: float, high: float, margin: float) -> Ruling:
    if not 0 < margin < 1:
        raise ValueError(f"a margin is a share between 0 and 1 (0.1 is ten points); got {margin}")
    if low > -margin:
        return Ruling.ACCEPT
    return Ruling.REJECT if high < -margin else Ruling.HOLD


def _check(right: int, n: int) -> None:
    if not 0 <= right <= n:
        raise ValueError(f"{right} of {n} is no count")
