"""Figures of a cell from made-up samples whose truth is known."""

from __future__ import annotations

import pytest

from gates.throughput.figures import (
    Stream,
    aggregate,
    aggregate_decoding,
    aggregate_whole,
    figures,
    quantile,
    round_values,
    without_tails,
)
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Figure
from gates.throughput.sample import Sample


def sample(
    sent_s: float = 0.0, wait_s: float = 0.5, gap_s: float = 0.01, tokens: int = 101, cached: int | None = None
) -> Sample:
    times = tuple(sent_s + wait_s + gap_s * number for number in range(tokens))
    return Sample(sent_s, times, 200, tokens, cached)


def test_a_round_of_equal_streams() -> None:
    values = round_values([Stream((sample(),)) for _ in range(4)])
    assert values[DECODE] == pytest.approx(100)
    assert values[TTFT] == pytest.approx(0.5)
    assert values[GAP] == pytest.approx(0.01)
    assert values[AGGREGATE] == pytest.approx(4 * 101 / 1.5)


def test_the_aggregate_ends_with_the_first_stream_that_is_done() -> None:
    long, short = sample(tokens=201), sample(tokens=101)
    streams = [Stream((long,)), Stream((short,))]
    assert aggregate(streams) == pytest.approx(202 / 1.5)
    assert aggregate_whole(streams) == pytest.approx(302 / 2.5)
    assert aggregate_decoding(streams) == pytest.approx(200 / 1.0)


def test_streams_that_never_decode_together_have_no_common_window() -> None:
    streams = [Stream((sample(wait_s=0.5),)), Stream((sample(wait_s=5.0),))]
    assert aggregate_decoding(streams) is None
    assert aggregate(streams) is not None


def test_a_closed_loop_has_the_waits_in_between_in_it() -> None:
    first = sample()
    second = sample(sent_s=first.last_at_s)
    assert aggregate([Stream((first, second))]) == pytest.approx(202 / 3.0)


def test_percentiles_only_where_the_sample_carries_them() -> None:
    few = figures([[Stream((sample(),))] for _ in range(71)])
    enough = figures([[Stream((sample(),))] for _ in range(72)])
    many = figures([[Stream((sample(),))] for _ in range(368)])
    assert (few["ttft_p95_s"], few["ttft_p50_s"]) == (Figure(None, 71), Figure(0.5, 71))
    assert enough["ttft_p95_s"].value == pytest.approx(0.5)
    assert enough["ttft_p99_s"].value is None
    assert many["ttft_p99_s"].value == pytest.approx(0.5)
    assert few["decode_tok_per_s_p5"].value is None
    assert enough["decode_tok_per_s_p5"].value == pytest.approx(100)


def test_gaps_of_streams_that_share_their_steps_are_one_observation() -> None:
    four = [[Stream((sample(),)) for _ in range(4)] for _ in range(3)]
    assert figures(four)["gap_p99_s"] == Figure(None, 1200)
    assert figures([[Stream((sample(),))] for _ in range(4)])["gap_p99_s"].value == pytest.approx(0.01)


def test_a_stall_shows_as_a_share_and_as_the_longest() -> None:
    even = sample(tokens=101)
    stalled = Sample(0.0, (*even.times_s[:-1], even.times_s[-1] + 1.0), 200, 101)
    seen = figures([[Stream((stalled,))]])
    assert seen["longest_stall_s"].value == pytest.approx(1.01)
    assert seen["stall_share"].value == pytest.approx(1.0)


def test_tokens_per_chunk_and_cache() -> None:
    bundled = Sample(0.0, (0.1, 0.2, 0.3, 0.4), 200, 12, cached_tokens=50)
    seen = figures([[Stream((bundled, sample(cached=None)))]])
    assert seen["tokens_per_chunk"].value == pytest.approx(113 / 105)
    assert seen["cached_share"] == Figure(0.25, 1)
    assert figures([[Stream((sample(),))]])["cached_share"] == Figure(None, 0)


def test_tails_that_the_client_had_a_share_in_are_left_out() -> None:
    known = {"gap_p50_s": Figure(0.01, 9), "gap_p99_s": Figure(0.05, 9), "longest_stall_s": Figure(0.1, 9)}
    known["stall_share"] = Figure(3.0, 9)
    assert without_tails(known, 0.2, 0.001) == known
    late = without_tails(known, 0.2, 0.003)
    assert (late["gap_p99_s"], late["gap_p50_s"]) == (Figure(None, 9), Figure(0.01, 9))
    assert late["stall_share"].value is None


def test_a_quantile_is_one_of_the_values() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert (quantile(ordered, 0.95), quantile(ordered, 0.99), quantile([7.0], 0.99)) == (95.0, 99.0, 7.0)


def test_nothing_has_no_figures() -> None:
    assert figures([]) == {}
    assert figures([[Stream(())]]) == {}
    assert round_values([Stream(())]) == {}
