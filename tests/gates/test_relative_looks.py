"""How often the comparison with production passes, blocks and cannot tell: exact, and as the documents say."""

from __future__ import annotations

import math
from functools import cache

import pytest

from gates.statistics import LOOK_CONFIDENCE, LOOKS, Ruling, non_inferior

MARGIN = 0.15


@cache
def binomial(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@cache
def ruling(right: int, n: int, base_right: int, base_n: int) -> Ruling:
    return non_inferior(right, n, base_right, base_n, margin=MARGIN, confidence=LOOK_CONFIDENCE)


def chances(p: float, base: float, tries: int, *, live: bool) -> tuple[float, float, float, float]:
    """Probabilities of pass, block and *cannot tell*, and the mean number of tries.

    `live`: production can be asked on as well; else it stays with its first tries.
    """
    walks: dict[tuple[int, int], float] = {(0, 0): 1.0}
    ended = dict.fromkeys(Ruling, 0.0)
    mean = n = base_n = 0.0
    for look in LOOKS:
        more = tries * look - int(n)
        more_base = more if live or look == LOOKS[0] else 0
        n, base_n = n + more, base_n + more_base
        walks = _asked_on(_asked_on(walks, 0, binomial(more, p)), 1, binomial(more_base, base))
        undecided: dict[tuple[int, int], float] = {}
        for (right, base_right), mass in walks.items():
            if mass < 1e-9:
                continue
            said = ruling(right, int(n), base_right, int(base_n))
            if said is Ruling.HOLD and look != LOOKS[-1]:
                undecided[right, base_right] = mass
            else:
                ended[said] += mass
                mean += mass * n
        walks = undecided
    return ended[Ruling.ACCEPT], ended[Ruling.REJECT], ended[Ruling.HOLD], mean


def _asked_on(walks: dict[tuple[int, int], float], side: int, more: list[float]) -> dict[tuple[int, int], float]:
    reached: dict[tuple[int, int], float] = {}
    for counts, mass in walks.items():
        for right, chance in enumerate(more):
            if mass * chance < 1e-12:
                continue
            after = (counts[0] + right, counts[1]) if side == 0 else (counts[0], counts[1] + right)
            reached[after] = reached.get(after, 0.0) + mass * chance
    return reached


# As in docs/gate-statistics.md: tries, production right in, right in, with live and with a baseline (in %, and tries).
TABLE = [
    (40, 0.95, 0.95, (100, 0, 0, 54), (100, 0, 0, 55)),
    (48, 0.95, 0.95, (100, 0, 0, 60), (100, 0, 0, 61)),
    (48, 0.95, 0.90, (94, 0, 6, 109), (87, 0, 13, 114)),
    (48, 0.95, 0.85, (41, 0, 59, 166), (35, 0, 65, 167)),
    (48, 0.95, 0.80, (5, 4, 91, 184), (5, 2, 92, 185)),
    (48, 0.95, 0.75, (0, 33, 67, 172), (1, 15, 84, 176)),
    (48, 0.95, 0.70, (0, 80, 20, 135), (0, 45, 55, 148)),
    (48, 0.95, 0.60, (0, 100, 0, 68), (0, 94, 6, 76)),
    (48, 0.90, 0.90, (100, 0, 0, 74), (98, 0, 2, 79)),
    (48, 0.90, 0.75, (6, 4, 90, 183), (6, 3, 92, 184)),
    (48, 0.90, 0.65, (0, 70, 30, 143), (0, 37, 63, 154)),
    (48, 0.90, 0.55, (0, 100, 0, 76), (0, 87, 13, 88)),
]


@pytest.mark.parametrize(("tries", "base", "p", "with_live", "with_baseline"), TABLE)
def test_the_comparison_is_as_good_as_the_documents_say(
    tries: int,
    base: float,
    p: float,
    with_live: tuple[int, ...],
    with_baseline: tuple[int, ...],
) -> None:
    for live, said in ((True, with_live), (False, with_baseline)):
        *shares, mean = chances(p, base, tries, live=live)
        for share, percent in zip(shares, said, strict=False):
            assert abs(100 * share - percent) < 0.9
        assert abs(mean - said[-1]) < 1.5


@pytest.mark.parametrize("base", [0.99, 0.95, 0.9, 0.8, 0.7])
@pytest.mark.parametrize("tries", [40, 48])
def test_three_looks_together_err_as_seldom_as_one_should(base: float, tries: int) -> None:
    accepted, *_ = chances(base - MARGIN, base, tries, live=True)
    assert accepted < 0.065  # what is worse by just the margin passes
    _, rejected, *_ = chances(base - MARGIN + 1e-9, base, tries, live=True)
    assert rejected < 0.065  # and is blocked
