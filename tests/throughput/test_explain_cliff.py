"""Cliffs that were planted are named, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from ladder_kit import cell, ladder_of_steps, run, seeded

from gates.throughput.explain.causes import draft_tokens, known_cause
from gates.throughput.explain.cliff import Kind, find, find_all
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT

SEEDS = range(100)
LADDER = (1, 2, 4, 8, 16, 32)
VLLM = {"limit": 32, "captures": [1, 2, 4, 8]}

CLEAN: dict[str, Callable[[int], float]] = {
    "hardly any cost per sequence": lambda c: 0.008 * (1 + 0.01 * c),
    "the law of a real box": lambda c: 0.0113 + 0.00483 * c,
    "a line that begins to bite late": lambda c: 0.016 + 0.001 * c,
    "no gain from batching": lambda c: 0.001 + 0.005 * c,
    "flat": lambda _: 0.010,
}


def planted(base: Callable[[int], float], factor: float, beyond: int = 8) -> Callable[[int], float]:
    return lambda c: base(c) * (factor if c > beyond else 1)


@pytest.mark.parametrize("law", ["hardly any cost per sequence", "the law of a real box", "flat"])
def test_steps_three_times_slower_beyond_eight_are_named_in_every_seed(law: str) -> None:
    for seed in SEEDS:
        measured = ladder_of_steps(planted(CLEAN[law], 3), LADDER, seeded(seed), engine=VLLM)
        (cliff,) = find(measured, "chat").cliffs
        assert (cliff.kind, cliff.below, cliff.above) == (Kind.HARD, 8, 16), f"seed {seed}: {cliff.sentence}"
        assert "graphs are captured up to size 8" in cliff.sentence


def test_a_softer_cliff_is_named_in_every_seed() -> None:
    for seed in SEEDS:
        law = planted(CLEAN["hardly any cost per sequence"], 1.7)
        (cliff,) = find(ladder_of_steps(law, LADDER, seeded(seed)), "chat").cliffs
        assert (cliff.kind, cliff.below, cliff.above) == (Kind.SOFT, 8, 16), f"seed {seed}: {cliff.sentence}"


@pytest.mark.parametrize("law", CLEAN)
def test_a_clean_ladder_has_no_cliff_in_any_seed(law: str) -> None:
    for seed in SEEDS:
        found = find(ladder_of_steps(CLEAN[law], (*LADDER, 64, 128), seeded(seed)), "chat")
        assert not found.cliffs, f"seed {seed}: {found.sentence}"
        assert found.full is None, f"seed {seed}: {found.sentence}"


@pytest.mark.parametrize("law", ["hardly any cost per sequence", "the law of a real box", "flat"])
def test_full_places_are_no_cliff_in_any_seed_and_the_limit_is_named(law: str) -> None:
    for seed in SEEDS:
        measured = ladder_of_steps(CLEAN[law], (*LADDER, 64), seeded(seed), slots=12, engine={"limit": 12})
        found = find(measured, "chat")
        assert not found.cliffs, f"seed {seed}: {found.sentence}"
        assert found.full is not None, f"seed {seed}: {found.sentence}"
        assert (found.full.below, found.full.above) == (8, 16)
        assert "at most 12 sequences at once" in found.full.sentence


@pytest.mark.parametrize(("limit", "full"), [(256, False), (64, True), (None, True)])
def test_steps_that_grew_are_no_lack_of_places_where_the_engine_has_them(limit: int | None, full: bool) -> None:
    # An emulated engine on two cores: the machine is the limit, and first tokens come late with the steps.
    seen = {16: (0.0016, 0.03, 3000.0), 64: (0.0046, 0.1, 8000.0), 256: (0.0104, 1.6, 9000.0)}
    measured = run(
        *(cell(c, {GAP: [step], TTFT: [wait], AGGREGATE: [rate]}) for c, (step, wait, rate) in seen.items()),
        engine={} if limit is None else {"limit": limit},
    )
    found = find(measured, "chat")
    assert (found.full is not None) == full, found.sentence
    assert "stay as long" not in found.sentence


def test_the_cliff_of_a_real_box_is_named_from_single_figures() -> None:
    # max-num-seqs raised to 32, graphs captured for 1, 2, 4, 8 only: from 76 to 14.5 tok/s for each user.
    rates = {1: (107.5, 107.5), 8: (76.0, 607.0), 16: (14.5, 232.0)}
    measured = run(*(cell(c, {GAP: [1 / each], AGGREGATE: [total]}) for c, (each, total) in rates.items()), engine=VLLM)
    found = find(measured, "chat")
    (cliff,) = found.cliffs
    assert (cliff.kind, cliff.below, cliff.above) == (Kind.HARD, 8, 16)
    assert cliff.factor == pytest.approx(0.382, abs=0.001)
    assert found.sentence == (
        "HARD chat c8 → c16: all streams together get ×0.38 of what c8 got; graphs are captured up to size 8, which is "
        "8 sequences; larger steps run without one: add capture sizes up to the 32 that the engine may run; rungs "
        "between c8 and c16 would place it"
    )


def test_two_cliffs_are_two() -> None:
    def law(streams: int) -> float:
        return 0.010 * (1 if streams <= 2 else 2 if streams <= 16 else 5)

    cliffs = find(ladder_of_steps(law, (1, 2, 4, 8, 16, 32, 64), seeded(1), noise=0.01), "chat").cliffs
    assert [(each.below, each.above) for each in cliffs] == [(2, 4), (16, 32)]


def test_a_cliff_on_the_first_step_shows_once_there_is_a_third_rung() -> None:
    law = planted(CLEAN["flat"], 1.7, beyond=1)
    assert not find(ladder_of_steps(law, (1, 2), seeded(1)), "chat").cliffs
    (cliff,) = find(ladder_of_steps(law, (1, 2, 4), seeded(1)), "chat").cliffs
    assert (cliff.kind, cliff.below, cliff.above) == (Kind.SOFT, 1, 2)


def test_without_an_aggregate_the_step_time_stands_in_for_it() -> None:
    steps = [cell(c, {GAP: [0.01 * (3 if c > 8 else 1)] * 3}) for c in LADDER]
    # One rung has an aggregate, in which prefill counts too: beside the others it would look like a cliff of its own.
    measured = run(*steps[:-1], replace(steps[-1], rounds={**steps[-1].rounds, AGGREGATE: [100.0] * 3}))
    (cliff,) = find(measured, "chat").cliffs
    assert (cliff.kind, cliff.above) == (Kind.HARD, 16)
    assert "no cause shows in the settings" in cliff.sentence


def test_rungs_that_are_no_measurement_are_named_and_the_gap_is_bridged() -> None:
    cells = [cell(c, {GAP: [0.01] * 3}, problem="the client was the limit" if c == 4 else None) for c in (1, 2, 4, 8)]
    found = find(run(*cells, cell(16, {DECODE: [1.0]})), "chat")
    assert found.rungs == (1, 2, 8)
    assert found.skipped == ("chat c4 is no measurement (the client was the limit)", "chat c16 has no step time")
    assert found.sentence.startswith("chat: no cliff on 3 rungs from c1 to c8; not looked at: chat c4")


def test_each_workload_has_a_ladder_of_its_own() -> None:
    short, long = (cell(1, {GAP: [0.01]}), cell(1, {GAP: [0.05]}, workload="long"))
    found = find_all(run(short, long))
    assert [each.workload for each in found] == ["chat", "long"]
    assert found[0].sentence == "chat: 1 rung measured; a cliff needs two"


def test_speculation_moves_the_end_of_the_captures_to_the_left() -> None:
    flags = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
    assert draft_tokens(flags) == 3
    assert draft_tokens(['--speculative_config={"num_speculative_tokens": 2}']) == 2
    assert draft_tokens(["--speculative-config", "not json"]) == 0
    assert draft_tokens(["--speculative-num-draft-tokens", "8"]) == 0, "SGLang counts requests, not tokens"
    engine = {"limit": 32, "captures": [1, 2, 4, 8, 16, 32], "flags": flags}
    cause = known_cause(engine, 8, 16)
    assert cause is not None
    assert "up to size 32, which is 8 sequences of 4 tokens each (speculation)" in cause
    assert known_cause(engine, 16, 24) is None


def test_settings_that_explain_nothing_are_not_made_to() -> None:
    assert known_cause({}, 8, 16) is None
    assert known_cause({"limit": 64, "captures": [1, 2, 4, 8, 16, 32, 64]}, 8, 16) is None
