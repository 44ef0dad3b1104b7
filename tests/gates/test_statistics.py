from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.statistics import (
    B80,
    B90,
    FixedPlan,
    Ruling,
    Sprt,
    f1,
    fisher_worse,
    newcombe_lower,
    non_inferior,
    non_inferior_paired,
    paired_lower,
    wilson_lower,
)

ACCEPT, REJECT, HOLD = Ruling.ACCEPT, Ruling.REJECT, Ruling.HOLD
RIGHT, WRONG = [True], [False]
TWO_SIDED_95 = 0.975


def characteristic(plan: Sprt | FixedPlan, p: float) -> tuple[dict[Ruling, float], float]:
    """The exact probability of each ruling and the mean number of outcomes when each is right with probability p."""
    walks, ended, mean_n = {0: 1.0}, dict.fromkeys(Ruling, 0.0), 0.0
    for seen in range(1, plan.cap + 1):
        reached: dict[int, float] = {}
        for wrong, mass in walks.items():
            reached[wrong] = reached.get(wrong, 0.0) + mass * p
            reached[wrong + 1] = reached.get(wrong + 1, 0.0) + mass * (1 - p)
        walks = {}
        for wrong, mass in reached.items():
            ruling = plan.at(wrong, seen)
            if ruling is None:
                walks[wrong] = mass
            else:
                ended[ruling] += mass
                mean_n += mass * seen
    assert not walks
    assert math.isclose(sum(ended.values()), 1)
    return ended, mean_n


def test_the_boundaries_of_b90() -> None:
    assert B90.decide(RIGHT * 31) is None
    assert B90.decide(RIGHT * 32) is ACCEPT
    assert B90.decide(RIGHT * 24 + WRONG * 4) is REJECT
    assert B90.decide(RIGHT * 25 + WRONG * 4) is None
    assert B90.decide(WRONG * 3) is REJECT
    assert B90.decide(WRONG * 2) is None
    assert B90.decide([]) is None


def test_the_boundaries_of_b80() -> None:
    assert B80.decide(RIGHT * 17) is None
    assert B80.decide(RIGHT * 18) is ACCEPT
    assert B80.decide(WRONG * 5) is REJECT
    assert B80.decide(WRONG * 4 + RIGHT + WRONG) is None
    assert B80.decide(WRONG + RIGHT * 8 + WRONG * 5) is REJECT
    assert B80.decide(WRONG + RIGHT * 9 + WRONG * 5) is None


def test_straight_passes_that_accept() -> None:
    assert (B90.fewest, B80.fewest, Sprt(0.97, 0.85).fewest, FixedPlan(18, 2).fewest) == (32, 18, 23, 16)
    for plan in (B90, B80, Sprt(0.97, 0.85), FixedPlan(18, 2)):
        assert plan.decide(RIGHT * (plan.fewest - 1)) is None
        assert plan.decide(RIGHT * plan.fewest) is ACCEPT


@pytest.mark.parametrize(
    ("plan", "p", "accept", "reject", "hold", "mean_n"),
    [
        (B90, 0.99, 0.9986, 0.0005, 0.001, 42.6),
        (B90, 0.97, 0.83, 0.08, 0.09, 80),
        (B90, 0.95, 0.43, 0.44, 0.13, 94),
        (B90, 0.90, 0.05, 0.95, 0.0, 50),
        (B90, 0.80, 0.001, 0.999, 0.0, 21),
        (B80, 0.95, 0.997, 0.001, 0.002, 33),
        (B80, 0.90, 0.72, 0.12, 0.16, 71),
        (B80, 0.80, 0.05, 0.946, 0.01, 49),
    ],
)
def test_the_sequential_tests_rule_as_often_as_promised(
    plan: Sprt, p: float, accept: float, reject: float, hold: float, mean_n: float
) -> None:
    ended, mean = characteristic(plan, p)
    assert ended == pytest.approx({ACCEPT: accept, REJECT: reject, HOLD: hold}, abs=0.01)
    assert mean == pytest.approx(mean_n, abs=1)


def test_a_healthy_model_passes_all_behaviours_of_the_standard_tier() -> None:
    b90, b80 = characteristic(B90, 0.99)[0], characteristic(B80, 0.95)[0]
    fixed = characteristic(FixedPlan(18, 2), 0.99)[0]
    assert b90[ACCEPT] ** 16 * b80[ACCEPT] ** 9 * fixed[ACCEPT] ** 8 == pytest.approx(0.95, abs=0.005)
    assert b90[REJECT] == pytest.approx(0.0005, abs=0.0001)


@pytest.mark.parametrize(
    ("n", "allowed", "blocked_of_15_checks", "accepted_at_80"),
    [(20, 2, 0.015, 0.21), (30, 2, 0.049, 0.044), (40, 3, 0.010, 0.028), (60, 4, 0.005, 0.004), (30, 1, 0.42, 0.011)],
)
def test_the_fixed_plans_rule_as_often_as_promised(
    n: int, allowed: int, blocked_of_15_checks: float, accepted_at_80: float
) -> None:
    plan = FixedPlan(n, allowed)
    good, bad = characteristic(plan, 0.99)[0], characteristic(plan, 0.80)[0]
    assert 1 - good[ACCEPT] ** 15 == pytest.approx(blocked_of_15_checks, rel=0.05)
    assert bad[ACCEPT] == pytest.approx(accepted_at_80, rel=0.05)
    # Stopping early changes the price, not the ruling: the plain binomial says the same.
    binomial = sum(math.comb(n, k) * 0.2**k * 0.8 ** (n - k) for k in range(allowed + 1))
    assert bad[ACCEPT] == pytest.approx(binomial)


def test_a_fixed_plan_stops_when_nothing_can_change() -> None:
    plan = FixedPlan(10, 2)
    assert plan.decide(RIGHT * 7) is None
    assert plan.decide(RIGHT * 8) is ACCEPT
    assert plan.decide(WRONG * 2 + RIGHT * 7) is None
    assert plan.decide(WRONG * 2 + RIGHT * 8) is ACCEPT
    assert plan.decide(WRONG * 3) is REJECT
    assert FixedPlan(3).decide([True, True, True]) is ACCEPT
    assert FixedPlan(3).decide([True, False]) is REJECT


def test_a_plan_that_allows_everything_counts_to_its_end() -> None:
    assert FixedPlan(3, 3).decide([False, True]) is None
    assert FixedPlan(3, 3).decide([False, False, False]) is ACCEPT
    assert FixedPlan(3, 3).fewest == 3


def test_a_sequential_test_holds_at_its_cap_and_not_before() -> None:
    # One wrong in fifteen keeps the walk of B90 between its boundaries.
    undecided = ([False] + [True] * 24) * 8
    assert B90.decide(undecided[:-1]) is None
    assert B90.decide(undecided) is HOLD
    assert Sprt(0.99, 0.90, cap=32).decide(RIGHT * 32) is ACCEPT
    assert Sprt(0.99, 0.90, cap=31).decide(RIGHT * 31) is HOLD


@given(
    plan=st.sampled_from([B90, B80, Sprt(0.97, 0.85, cap=60), FixedPlan(20, 2), FixedPlan(6), FixedPlan(6, 6)]),
    share=st.floats(0, 1),
    draws=st.lists(st.floats(0, 1, exclude_max=True), max_size=210),
)
def test_a_ruling_stands_whatever_comes_after_it(plan: Sprt | FixedPlan, share: float, draws: list[float]) -> None:
    outcomes = [draw < share for draw in draws]
    ruling = None
    for seen in range(len(outcomes) + 1):
        now = plan.decide(outcomes[:seen])
        assert ruling in (None, now)
        ruling = now
    assert ruling is not None or len(outcomes) < plan.cap


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Sprt(0.9, 0.99),
        lambda: Sprt(1.0, 0.9),
        lambda: Sprt(0.99, 0.9, alpha=0),
        lambda: Sprt(0.99, 0.9, alpha=0.6, beta=0.4),
        lambda: Sprt(0.99, 0.9, cap=0),
        lambda: FixedPlan(3, 4),
        lambda: FixedPlan(0, 0),
        lambda: FixedPlan(3, -1),
        lambda: wilson_lower(4, 3),
        lambda: fisher_worse(1, 2, 3, 2),
        lambda: newcombe_lower(-1, 2, 1, 2),
        lambda: paired_lower(2, 2, 3),
        lambda: paired_lower(-1, 2, 3),
        lambda: non_inferior(1, 2, 1, 2, margin=0),
        lambda: non_inferior_paired(1, 2, 3, margin=10),
        lambda: f1([True], []),
    ],
)
def test_numbers_that_make_no_test_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".{15}"):
        wrong()


@pytest.mark.parametrize(
    ("right", "n", "bound"),
    [(20, 20, 0.881), (30, 30, 0.917), (28, 30, 0.817), (40, 40, 0.937), (57, 60, 0.881), (100, 100, 0.974)],
)
def test_wilson_lower_bounds_of_the_report(right: int, n: int, bound: float) -> None:
    assert wilson_lower(right, n) == pytest.approx(bound, abs=0.0005)


def test_what_a_clean_run_can_claim() -> None:
    def needed(share: float) -> int:
        return next(n for n in range(1, 1000) if wilson_lower(n, n) >= share)

    assert [needed(share) for share in (0.90, 0.95, 0.98, 0.99)] == [25, 52, 133, 268]
    assert wilson_lower(0, 0) == wilson_lower(0, 30) == 0


def test_fisher_against_textbooks() -> None:
    # The lady tasting tea: three of four cups named rightly, or worse, from the other side.
    assert fisher_worse(1, 4, 3, 4) == pytest.approx(17 / 70)
    assert fisher_worse(0, 4, 4, 4) == pytest.approx(1 / 70)
    # Fisher's convicted twins: 2 of 17 against 10 of 13 (`fisher.test` in R: p = 0.0004652).
    assert fisher_worse(2, 17, 10, 13) == pytest.approx(0.0004652, abs=5e-8)
    assert fisher_worse(5, 5, 3, 5) == pytest.approx(1)
    assert fisher_worse(0, 0, 3, 5) == 1
    assert 0 < fisher_worse(1690, 1700, 1699, 1700) < 0.01


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_against_his_own_table(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    right, n, base_right, base_n = counts
    assert newcombe_lower(right, n, base_right, base_n, TWO_SIDED_95) == pytest.approx(low, abs=5e-5)
    assert -newcombe_lower(base_right, base_n, right, n, TWO_SIDED_95) == pytest.approx(high, abs=5e-5)


def test_tango_against_a_textbook() -> None:
    # Hyper-responsive before and after a transplantation: 1 of 21 only after, 7 only before (Bentur 2009, in Fagerland,
    # Lydersen and Laake, Statistical Analysis of Contingency Tables, chapter 8): -0.517 to -0.026.
    assert paired_lower(7, 1, 21, TWO_SIDED_95) == pytest.approx(-0.517, abs=5e-4)
    assert -paired_lower(1, 7, 21, TWO_SIDED_95) == pytest.approx(-0.026, abs=5e-4)
    # Without a disagreement the bound is n's alone: -z²/(n + z²).
    z_squared = 1.6448536**2
    assert paired_lower(0, 0, 50) == pytest.approx(-z_squared / (50 + z_squared), abs=1e-6)
    assert paired_lower(50, 0, 50) == -1
    assert paired_lower(0, 0, 0) == newcombe_lower(0, 0, 1, 2) == -1


@pytest.mark.parametrize(("n", "power"), [(200, 0.88), (400, 0.99)])
def test_the_power_of_the_comparison_with_live(n: int, power: float) -> None:
    # Exact over all pairs of counts that are likely at all.
    chance = [math.comb(n, k) * 0.85**k * 0.15 ** (n - k) for k in range(n + 1)]
    likely = [k for k in range(n + 1) if chance[k] > 1e-5]
    accepted = sum(
        chance[mine] * chance[base]
        for mine in likely
        for base in likely
        if non_inferior(mine, n, base, n, margin=0.10) is ACCEPT
    )
    assert accepted == pytest.approx(power, abs=0.01)


def test_the_comparison_with_live_has_three_answers() -> None:
    assert non_inferior(170, 200, 172, 200, margin=0.10) is ACCEPT
    assert non_inferior(150, 200, 170, 200, margin=0.10) is HOLD
    assert non_inferior(2, 200, 190, 200, margin=0.10) is REJECT
    assert non_inferior(10, 10, 10, 10, margin=0.10) is HOLD, "ten answers exclude nothing"
    assert non_inferior_paired(3, 2, 200, margin=0.05) is ACCEPT
    assert non_inferior_paired(12, 2, 200, margin=0.05) is HOLD
    assert non_inferior_paired(60, 2, 200, margin=0.05) is REJECT
    # The same shares: answers to the same items tell more than answers to different ones.
    assert non_inferior(170, 200, 174, 200, margin=0.07) is HOLD
    assert non_inferior_paired(4, 0, 200, margin=0.07) is ACCEPT


@given(n=st.integers(1, 300), data=st.data())
def test_bounds_lie_under_what_was_seen(n: int, data: st.DataObject) -> None:
    right, base = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    shared = data.draw(st.integers(max(0, right + base - n), min(right, base)))
    difference = (right - base) / n
    assert 0 <= wilson_lower(right, n) <= right / n
    assert -1 <= newcombe_lower(right, n, base, n) <= difference
    assert -1 <= paired_lower(base - shared, right - shared, n) <= difference + 1e-9
    assert 0 < fisher_worse(right, n, base, n) <= 1


def test_agreement_on_calling_a_tool() -> None:
    assert f1([True, True, False], [True, True, False]) == 1
    assert f1([True, False, True, False], [True, True, False, False]) == 0.5
    assert f1([False] * 3, [True, True, False]) == 0
    assert f1([False] * 3, [False] * 3) == 1
    assert f1([True] + [False] * 99, [False] * 100) == 0
