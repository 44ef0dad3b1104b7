"""What the comparison says, and what it refuses to say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ladder_kit import Engine, Noise, cell, flat, run, seeded

from gates.contract import VerdictKind
from gates.throughput.decide.margin import rounds_needed, smallest_margin
from gates.throughput.decide.noninferiority import Decision, decide
from gates.throughput.decide.rule import Rule
from gates.throughput.decide.spread import ASSUMED, MIN_RESTARTS, Spread, measured
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Run

LADDER = (1, 2, 4, 8, 16, 32)
DECODE_ONLY = Rule(metrics=(DECODE,))


def compared(candidate: float, baseline: float, metric: str = DECODE, rule: Rule = DECODE_ONLY) -> Decision:
    rule = replace(rule, metrics=(metric,))
    return decide(flat(LADDER, metric, candidate), flat(LADDER, metric, baseline), rule)


def with_cell(base: Run, number: int, **changes: object) -> Run:
    cells = list(base.cells)
    cells[number] = replace(cells[number], **changes)
    return replace(base, cells=cells)


def noisy(seed: int, level: float = 0.0, rounds: int = 3, cells: int = 12) -> Run:
    return Engine(seeded(seed), [level] * cells, Noise(sd=0.03, starts=0.0)).measured(rounds)


def test_the_same_speed_passes_at_the_first_look() -> None:
    decision = compared(50, 50)
    assert decision.verdict is VerdictKind.PASS
    assert decision.next_look is None
    assert "decode rate per user +0.0% on 6 cells of 3 rounds" in decision.sentence
    assert "a loss beyond the allowed -5.0% is excluded" in decision.sentence


def test_clearly_slower_fails_at_the_first_look() -> None:
    decision = compared(45, 50)
    assert decision.verdict is VerdictKind.FAIL
    assert decision.next_look is None
    assert "-10.0%" in decision.sentence
    assert "slower" in decision.sentence


@pytest.mark.parametrize("metric", [TTFT, GAP])
def test_times_are_better_when_they_are_shorter(metric: str) -> None:
    slower, faster = compared(0.30, 0.25, metric), compared(0.25, 0.30, metric)
    assert slower.verdict is VerdictKind.FAIL
    assert "+20.0%" in slower.sentence
    assert faster.verdict is VerdictKind.PASS
    assert "-16.7%" in faster.sentence
    (family,) = slower.families
    assert family.low < family.ratio < family.high


def test_what_lies_within_the_uncertainty_is_asked_again_with_more_rounds() -> None:
    decision = compared(48.5, 50)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.next_look == 5
    assert "lies within the uncertainty" in decision.sentence
    assert "asked again at 5 rounds" in decision.sentence


def test_after_the_last_look_it_says_how_many_rounds_are_missing() -> None:
    rule = replace(DECODE_ONLY, spreads={DECODE: Spread(0.005, 8)})
    mine, theirs = (run(cell(8, {DECODE: [speed * 1.03, speed, speed / 1.03] * 3})) for speed in (49, 50))
    decision = decide(mine, theirs, rule)
    (family,) = decision.families
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.next_look is None
    assert family.rounds_needed is not None
    assert family.rounds_needed > 9
    assert f"{family.rounds_needed} rounds a side would be needed" in decision.sentence


def test_when_no_number_of_rounds_helps_it_says_never_and_why() -> None:
    decision = decide(flat(LADDER, DECODE, 48.3, 9), flat(LADDER, DECODE, 50, 9), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.families[0].rounds_needed is None
    assert "never" in decision.sentence
    assert "4.65 times the spread between starts" in decision.sentence


def test_it_stops_early_when_more_rounds_cannot_change_the_verdict() -> None:
    # Rounds that hardly scatter, and a loss in the middle between "excluded" and "shown".
    decision = compared(48.0, 50)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.next_look is None
    assert "never" in decision.sentence


@pytest.mark.parametrize(("rounds", "verdict"), [(3, VerdictKind.INCONCLUSIVE), (5, VerdictKind.FAIL)])
def test_a_single_cell_is_suspect_at_three_rounds_and_fails_at_five(rounds: int, verdict: VerdictKind) -> None:
    base = flat(LADDER, DECODE, 50, rounds)
    fallen = with_cell(base, 3, rounds={DECODE: [40.0] * rounds})
    decision = decide(fallen, base, replace(DECODE_ONLY, margin=0.1, cell_margin=0.1))
    assert decision.verdict is verdict
    assert "chat c8 -20.0%" in decision.sentence
    found = next(each for each in decision.families[0].cells if each.key.concurrency == 8)
    assert (found.suspect, found.failed) == ((True, False) if rounds == 3 else (False, True))


def test_a_cell_that_scatters_more_than_the_others_is_judged_by_its_own_noise() -> None:
    calm = flat(LADDER, DECODE, 50, 5)
    steady = with_cell(calm, 3, rounds={DECODE: [43.0] * 5})
    wild = with_cell(calm, 3, rounds={DECODE: [30.0, 36.0, 43.0, 51.0, 61.0]})
    rule = replace(DECODE_ONLY, margin=0.1)
    assert decide(steady, calm, rule).verdict is VerdictKind.FAIL
    assert decide(wild, calm, rule).verdict is VerdictKind.INCONCLUSIVE


def test_a_cell_cannot_fail_on_a_baseline_of_three_rounds_and_it_says_so() -> None:
    fallen = with_cell(flat(LADDER, DECODE, 50, 9), 3, rounds={DECODE: [43.0] * 9})
    decision = decide(fallen, flat(LADDER, DECODE, 50, 3), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert "the baseline needs 5 rounds of it and has 3" in decision.sentence


def test_unequal_rounds_are_used_as_they_are() -> None:
    decision = decide(noisy(3, rounds=3), noisy(4, rounds=9), DECODE_ONLY)
    (family,) = decision.families
    assert {(each.candidate_rounds, each.baseline_rounds) for each in family.cells} == {(3, 9)}
    equal = decide(noisy(3, rounds=3), noisy(4, rounds=3), DECODE_ONLY).families[0]
    assert family.high / family.low < equal.high / equal.low


def test_fewer_than_three_rounds_are_not_judged() -> None:
    decision = decide(flat(LADDER, DECODE, 50, 2), flat(LADDER, DECODE, 50, 5), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.next_look == 3
    assert "chat c1 has 2 rounds against 5; 3 on each side are needed" in decision.sentence


def test_one_failed_request_fails_the_candidate_whatever_its_speed() -> None:
    fast = with_cell(flat(LADDER, DECODE, 90), 2, failures={"http_503": 2, "cut": 1})
    decision = decide(fast, flat(LADDER, DECODE, 50), DECODE_ONLY)
    assert decision.verdict is VerdictKind.FAIL
    assert decision.next_look is None
    assert "chat c4: 3 of 24 requests failed (1 cut, 2 http_503)" in decision.sentence


def test_failures_of_the_baseline_are_said_and_its_whole_rounds_count() -> None:
    broken = with_cell(flat(LADDER, DECODE, 50), 2, failures={"http_503": 2})
    decision = decide(flat(LADDER, DECODE, 50), broken, DECODE_ONLY)
    assert decision.verdict is VerdictKind.PASS
    assert any("baseline chat c4: 2 of 24 requests failed" in note for note in decision.notes)


@pytest.mark.parametrize("side", ["candidate", "baseline"])
def test_a_cell_that_is_no_measurement_blocks_a_pass_and_is_named(side: str) -> None:
    good = flat(LADDER, DECODE, 50)
    void = with_cell(good, 1, problem="the client was the limit")
    decision = decide(*((void, good) if side == "candidate" else (good, void)), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert f"chat c2 is no measurement on the {side}: the client was the limit" in decision.sentence
    assert decision.next_look is None
    assert "more rounds do not help" in decision.sentence


def test_a_cell_that_is_no_measurement_does_not_hide_that_the_rest_is_slower() -> None:
    void = with_cell(flat(LADDER, DECODE, 40), 1, problem="foreign load")
    decision = decide(void, flat(LADDER, DECODE, 50), DECODE_ONLY)
    assert decision.verdict is VerdictKind.FAIL
    assert any("foreign load" in note for note in decision.notes)


def test_a_cell_that_only_the_baseline_has_blocks_a_pass() -> None:
    decision = decide(flat(LADDER[:-1], DECODE, 50), flat(LADDER, DECODE, 50), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert "chat c32 was measured on the baseline but not on the candidate" in decision.sentence


def test_a_cell_that_only_the_candidate_has_is_said() -> None:
    decision = decide(flat(LADDER, DECODE, 50), flat(LADDER[:-1], DECODE, 50), DECODE_ONLY)
    assert decision.verdict is VerdictKind.PASS
    assert "chat c32 was not measured on the baseline, so it is compared with nothing" in decision.notes


def test_a_metric_that_neither_side_carries_is_said_and_that_one_side_lacks_blocks() -> None:
    good = flat(LADDER, DECODE, 50)
    without = with_cell(good, 0, rounds={})
    neither = decide(without, without, DECODE_ONLY)
    assert neither.verdict is VerdictKind.PASS
    assert f"chat c1 has no {DECODE} on either side" in neither.notes
    assert decide(without, good, DECODE_ONLY).verdict is VerdictKind.INCONCLUSIVE
    assert decide(good, without, DECODE_ONLY).verdict is VerdictKind.INCONCLUSIVE


def test_a_round_of_zero_is_named_not_a_traceback() -> None:
    zero = with_cell(flat(LADDER, DECODE, 50), 0, rounds={DECODE: [50.0, 0.0, 50.0]})
    decision = decide(zero, flat(LADDER, DECODE, 50), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert "chat c1 has a round of 0" in decision.sentence
    for wrong in (float("nan"), float("inf"), -1.0):
        broken = with_cell(flat(LADDER, DECODE, 50), 0, rounds={DECODE: [50.0, wrong, 50.0]})
        assert decide(flat(LADDER, DECODE, 50), broken, DECODE_ONLY).verdict is VerdictKind.INCONCLUSIVE


def test_unlike_workloads_are_not_compared_and_the_difference_is_named() -> None:
    mine = flat(LADDER, DECODE, 50)
    theirs = replace(mine, workloads={"chat": {"prompt_tokens": 8000, "max_tokens": 256, "prompts": "same"}})
    decision = decide(mine, theirs, DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert "prompt_tokens 200 against 8000" in decision.sentence
    assert "prompts nothing against 'same'" in decision.sentence


def test_empty_runs_say_that_nothing_compares() -> None:
    decision = decide(run(), run(), DECODE_ONLY)
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert "no cell compares" in decision.sentence


def test_a_run_that_holds_a_cell_twice_is_refused() -> None:
    twice = run(cell(1, {DECODE: [1.0] * 3}), cell(1, {DECODE: [2.0] * 3}))
    with pytest.raises(ValueError, match="holds chat c1 twice"):
        decide(twice, twice, DECODE_ONLY)


def test_every_family_has_to_pass_and_the_slow_one_is_named() -> None:
    mine = run(*(cell(c, {DECODE: [50.0] * 3, AGGREGATE: [400.0] * 3, TTFT: [0.5] * 3}) for c in LADDER))
    theirs = run(*(cell(c, {DECODE: [50.0] * 3, AGGREGATE: [400.0] * 3, TTFT: [0.3] * 3}) for c in LADDER))
    decision = decide(mine, theirs)
    assert decision.verdict is VerdictKind.FAIL
    assert [family.verdict for family in decision.families] == [VerdictKind.PASS, VerdictKind.PASS, VerdictKind.FAIL]
    assert decision.sentence.startswith("time to first token +66.7%")
    assert decide(theirs, theirs).verdict is VerdictKind.PASS


def test_a_family_may_have_a_margin_and_a_spread_of_its_own() -> None:
    rule = Rule(metrics=(TTFT,), margins={TTFT: 0.4}, spreads={TTFT: Spread(0.05, 12)})
    decision = decide(flat(LADDER, TTFT, 0.33), flat(LADDER, TTFT, 0.30), rule)
    assert decision.verdict is VerdictKind.PASS
    assert any("5.0%, measured over 12 restarts" in note for note in decision.notes)


def test_the_assumed_spread_is_labelled_so() -> None:
    assert any("assumed 1.0% (until 5 restarts have measured it)" in note for note in compared(50, 50).notes)


def test_a_margin_that_the_spread_cannot_carry_is_refused_with_the_smallest_that_it_can() -> None:
    decision = compared(50, 50, rule=replace(DECODE_ONLY, margin=0.03))
    assert decision.verdict is VerdictKind.INCONCLUSIVE
    assert decision.next_look is None
    assert "a margin of 3.0% is smaller than two starts of one engine differ by chance" in decision.sentence
    assert "take a margin of 4.6% or more" in decision.sentence
    assert Rule(margin=0.046).refusal() is None
    assert Rule(margin=0.03, candidate_starts=5, baseline_starts=5).refusal() is None


def test_the_smallest_margin_is_that_of_the_research() -> None:
    assert smallest_margin(ASSUMED) == pytest.approx(0.0455, abs=2e-4)
    assert smallest_margin(Spread(0.02, 5)) == pytest.approx(0.0889, abs=2e-4)


@pytest.mark.parametrize(
    ("round_sd", "start_sd", "margin", "rounds"),
    [(0.01, 0.01, 0.05, 6), (0.03, 0, 0.05, 9), (0.03, 0.01, 0.05, 47), (0.03, 0.01, 0.03, None), (0.02, 0, 0.08, 2)],
)
def test_rounds_needed_in_one_cell(round_sd: float, start_sd: float, margin: float, rounds: int | None) -> None:
    # The table of single cells that the rule comes from: an unchanged candidate, both errors 5 %.
    assert rounds_needed(0.0, margin, 1, 2 * (1.05 * round_sd) ** 2, 2 * start_sd**2) == rounds


def test_the_spread_between_starts_is_what_the_ladder_means_scatter_by() -> None:
    runs = [flat(LADDER, DECODE, value) for value in (98, 99, 100, 101, 102)]
    assert measured(runs).sd == pytest.approx(0.0158, abs=1e-4)
    assert measured(runs).restarts == 5
    assert measured([flat(LADDER, DECODE, 100)] * 5).sd == 0.005, "five starts that agree prove no zero"


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([flat(LADDER, DECODE, 100)] * (MIN_RESTARTS - 1), "4 runs do not measure"),
        ([flat((c,), DECODE, 100) for c in (1, 2, 4, 8, 16)], "no cell with decode_tok_per_s in common"),
        (
            [flat(LADDER, DECODE, 100)] * 4 + [replace(flat(LADDER, DECODE, 100), workloads={"chat": {}})],
            "workload 'chat' is not the same in all 5 runs",
        ),
    ],
)
def test_runs_that_cannot_tell_the_spread_are_refused(runs: list[Run], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        measured(runs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": 0.0},
        {"margin": 1.5},
        {"margin": 0.1, "cell_margin": 0.05},
        {"metrics": ("speed",)},
        {"metrics": ()},
        {"candidate_starts": 0},
    ],
)
def test_a_rule_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Rule(**wrong)
