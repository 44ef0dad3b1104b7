"""When is it fast enough? Absolute floors, and not worse than the baseline by more than a margin.

The comparison is one of non-inferiority: not "is it significantly slower" (with few rounds hardly anything is), but
"can we exclude that it is slower than the margin allows". When the margin lies inside the uncertainty, nobody can say.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from gates.contract import VerdictKind

ONE_SIDED_95: Final = 1.645
_MIN_ROUND_SD: Final = 0.01
"""Rounds that agree by chance do not make the next ones agree."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with its sentence."""

    verdict: VerdictKind
    sentence: str


@dataclass(frozen=True)
class Shift:
    """How much faster the candidate is than the baseline, as a ratio, and between which bounds."""

    ratio: float
    low: float
    high: float


def against_floor(name: str, values: Sequence[float], floor: float, client_error: float, unit: str) -> Judgement:
    """The median of `values` against a floor, give or take what the client itself may have added."""
    measured = statistics.median(values)
    sentence = f"{name} {measured:.4g} {unit}, floor {floor:g} (median of {len(values)} rounds)"
    if measured * (1 - client_error) >= floor:
        return Judgement(VerdictKind.PASS, sentence)
    if measured * (1 + client_error) < floor:
        return Judgement(VerdictKind.FAIL, sentence)
    return Judgement(VerdictKind.INCONCLUSIVE, f"{sentence}; the client's own error of {client_error:.1%} decides")


def against_ceiling(name: str, values: Sequence[float], ceiling_s: float, lag_s: float) -> Judgement:
    """The median of `values` (seconds) against a ceiling. A late client can only make it look slower."""
    measured = statistics.median(values)
    sentence = f"{name} {measured:.4g} s, ceiling {ceiling_s:g} s (median of {len(values)} rounds)"
    if measured <= ceiling_s:
        return Judgement(VerdictKind.PASS, sentence)
    if measured - lag_s > ceiling_s:
        return Judgement(VerdictKind.FAIL, sentence)
    return Judgement(VerdictKind.INCONCLUSIVE, f"{sentence}; the client's own lag of {lag_s * 1000:.1f} ms decides")


def shift(candidate: Sequence[float], baseline: Sequence[float], session_sd: float) -> Shift:
    """Hodges-Lehmann shift of the logarithms with a 95 % one-sided bound on each side.

    `session_sd` is the spread between two starts of one engine: rounds never average it away.
    """
    logs_c, logs_b = [math.log(v) for v in candidate], [math.log(v) for v in baseline]
    middle = statistics.median(c - b for c in logs_c for b in logs_b)
    differences = [abs(a - b) for side in (logs_c, logs_b) for a, b in combinations(side, 2)]
    round_sd = max(_MIN_ROUND_SD, statistics.median(differences) / 0.9539) if differences else _MIN_ROUND_SD
    variance = (1.05 * round_sd) ** 2 * (1 / len(logs_c) + 1 / len(logs_b)) + 2 * session_sd**2
    reach = ONE_SIDED_95 * math.sqrt(variance)
    return Shift(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def against_baseline(
    name: str,
    candidate: Sequence[float],
    baseline: Sequence[float],
    *,
    margin: float,
    session_sd: float,
    client_error: float,
    rounds: int,
) -> Judgement:
    """Not worse than the baseline by more than `margin` (0.05 is 5 %). `client_error` widens the uncertainty."""
    if min(len(candidate), len(baseline)) < rounds:
        sentence = f"{name}: {len(candidate)} rounds against {len(baseline)} of the baseline; {rounds} each are needed"
        return Judgement(VerdictKind.INCONCLUSIVE, sentence)
    if min((*candidate, *baseline)) <= 0:
        return Judgement(VerdictKind.INCONCLUSIVE, f"{name}: a round of zero cannot be compared")
    seen = shift(candidate, baseline, session_sd)
    low, high = seen.low * (1 - client_error), seen.high * (1 + client_error)
    allowed = 1 - margin
    sentence = (
        f"{name} {statistics.median(candidate):.4g} against {statistics.median(baseline):.4g}: {seen.ratio - 1:+.1%} "
        f"(between {low - 1:+.1%} and {high - 1:+.1%}), allowed {-margin:.0%}"
    )
    if low > allowed:
        return Judgement(VerdictKind.PASS, sentence)
    if high < allowed:
        return Judgement(VerdictKind.FAIL, sentence)
    return Judgement(VerdictKind.INCONCLUSIVE, f"{sentence}: the margin lies within the uncertainty")
