"""Floors for rates, ceilings for times."""

from __future__ import annotations

import pytest
from ladder_kit import cell, run

from gates.contract import VerdictKind
from gates.throughput.decide.floors import ClientError, Limit, judge_limits
from gates.throughput.records import AGGREGATE, DECODE, TTFT

FLOOR = Limit(DECODE, 8, 30.0)
CEILING = Limit(TTFT, 8, 2.0)
NEAR = ClientError(share=0.05, lag_s=0.2)


def judged(limit: Limit, value: float, client: ClientError | None = None) -> tuple[VerdictKind, str]:
    (decided,) = judge_limits(run(cell(8, {limit.metric: [value, value * 0.9, value * 1.1]})), [limit], client)
    return decided.verdict, decided.sentence


@pytest.mark.parametrize(
    ("limit", "value", "verdict"),
    [
        (FLOOR, 32.0, VerdictKind.PASS),
        (FLOOR, 30.5, VerdictKind.INCONCLUSIVE),
        (FLOOR, 29.5, VerdictKind.INCONCLUSIVE),
        (FLOOR, 28.0, VerdictKind.FAIL),
        (Limit(AGGREGATE, 8, 200.0), 250.0, VerdictKind.PASS),
        (CEILING, 1.9, VerdictKind.PASS),
        (CEILING, 2.0, VerdictKind.PASS),
        (CEILING, 2.1, VerdictKind.INCONCLUSIVE),
        (CEILING, 2.3, VerdictKind.FAIL),
    ],
)
def test_the_median_decides_give_or_take_the_client(limit: Limit, value: float, verdict: VerdictKind) -> None:
    assert judged(limit, value, NEAR)[0] is verdict


def test_without_an_error_of_the_client_nothing_is_in_doubt() -> None:
    assert judged(FLOOR, 30.0)[0] is VerdictKind.PASS
    assert judged(FLOOR, 29.99)[0] is VerdictKind.FAIL


def test_the_sentence_names_cell_figure_limit_and_sample() -> None:
    assert judged(FLOOR, 28.0)[1] == "chat c8: decode rate per user 28 tok/s, floor 30 tok/s (median of 3 rounds)"
    assert "ceiling 2 s" in judged(CEILING, 2.1, NEAR)[1]
    assert "the client's own lag of 0.2000 s decides" in judged(CEILING, 2.1, NEAR)[1]


def test_a_limit_covers_every_workload_unless_it_names_one() -> None:
    measured = run(cell(8, {DECODE: [40.0]}), cell(8, {DECODE: [20.0]}, workload="long"))
    assert [each.verdict for each in judge_limits(measured, [FLOOR])] == [VerdictKind.PASS, VerdictKind.FAIL]
    (only,) = judge_limits(measured, [Limit(DECODE, 8, 30.0, "chat")])
    assert only.verdict is VerdictKind.PASS


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([cell(4, {DECODE: [40.0]})], "any workload c8 was not measured; measured: chat c4"),
        ([], "measured: nothing"),
        ([cell(8, {})], "the cell holds no round of it"),
        ([cell(8, {DECODE: [40.0]}, problem="no usage")], "no measurement: no usage"),
    ],
)
def test_what_was_not_measured_is_inconclusive_and_said(cells: list, says: str) -> None:
    (decided,) = judge_limits(run(*cells), [FLOOR])
    assert decided.verdict is VerdictKind.INCONCLUSIVE
    assert decided.measured is None
    assert says in decided.sentence


@pytest.mark.parametrize(("metric", "value"), [("speed", 1.0), (DECODE, 0.0), (DECODE, float("nan"))])
def test_a_limit_that_is_none_is_refused(metric: str, value: float) -> None:
    with pytest.raises(ValueError, match="a limit is"):
        Limit(metric, 8, value)
