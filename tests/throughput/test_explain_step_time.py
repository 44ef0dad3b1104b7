"""The law of the step time, with the figures of a real box."""

from __future__ import annotations

import pytest
from ladder_kit import cell, ladder_of_steps, run, seeded

from gates.throughput.explain.step_time import fit, fit_points
from gates.throughput.records import GAP


def test_the_law_of_a_real_box_predicts_what_was_measured_there() -> None:
    # 27B IQ4_XS on four V100: 30.7 ms at four and 50.0 ms at eight sequences, as predicted.
    law = fit_points("chat", [(c, (11.3 + 4.83 * c) / 1000) for c in (1, 2, 4, 8)])
    assert law.base_s == pytest.approx(0.0113)
    assert law.per_sequence_s == pytest.approx(0.00483)
    assert law.predicted_s(4) == pytest.approx(0.0307, abs=1e-4)
    assert law.predicted_s(8) == pytest.approx(0.0500, abs=1e-4)
    assert law.residual == pytest.approx(0, abs=1e-9)
    assert law.sentence == "chat: step time = 11.30 ms + 4.83 ms × sequences, residual 0.0% over 4 rungs"


def test_a_step_time_that_stays_flat_at_the_end_is_no_such_law() -> None:
    # The same box with Q4_0: flat from four to eight.
    law = fit_points("chat", [(1, 0.0133), (2, 0.0193), (4, 0.0284), (8, 0.0285)])
    assert law.residual is not None
    assert law.residual > 0.10
    assert law.worst is not None
    assert law.sentence.startswith("chat: step times of 4 rungs are no fixed time"), law.sentence
    assert "step time =" not in law.sentence, "a law that is denied is not printed"


def test_noise_leaves_the_law_readable() -> None:
    measured = ladder_of_steps(lambda c: 0.0113 + 0.00483 * c, (1, 2, 4, 8, 16), seeded(1), rounds=5)
    law = fit(measured, "chat")
    assert law.n == 5
    assert law.base_s == pytest.approx(0.0113, rel=0.2)
    assert law.per_sequence_s == pytest.approx(0.00483, rel=0.1)
    assert law.residual is not None
    assert law.residual < 0.05


def test_rungs_beyond_the_engines_limit_do_not_bend_the_line() -> None:
    law_of = lambda c: 0.010 + 0.001 * c  # noqa: E731 - said twice, short
    ladder = (1, 2, 4, 8, 16, 32)
    measured = ladder_of_steps(law_of, ladder, seeded(2), noise=0, slots=8, engine={"limit": 8})
    law = fit(measured, "chat")
    assert law.n == 4
    assert law.per_sequence_s == pytest.approx(0.001)


def test_rungs_without_a_step_time_are_left_out_and_two_make_no_law() -> None:
    measured = run(
        cell(1, {GAP: [0.01]}), cell(2, {GAP: [0.02]}), cell(4, {GAP: [0.03]}, problem="foreign load"), cell(8, {})
    )
    law = fit(measured, "chat")
    assert (law.n, law.base_s, law.predicted_s(4)) == (2, None, None)
    assert law.sentence == "chat: 2 rungs carry a step time; a law needs 3"
