"""The share of the memory bandwidth, with the figures of two real boxes."""

from __future__ import annotations

import pytest

from gates.throughput.explain.roofline import Weights, kv_bytes_per_token, mla_kv_bytes_per_token, roofline

V100_BYTES_PER_S = 900e9
RTX4090_BYTES_PER_S = 1008e9
KV_56_KIB = 56 * 1024


def test_a_single_card_that_reached_65_percent() -> None:
    # 15.13 GB of weights at 900 GB/s bound a card to 59.5 tok/s; llama.cpp reached 65 % of it.
    seen = roofline(
        Weights(15.13e9), 0, concurrency=1, context_tokens=0, step_s=1 / 38.66, bandwidth_bytes_per_s=V100_BYTES_PER_S
    )
    assert 1 / seen.floor_s == pytest.approx(59.5, abs=0.05)
    assert seen.share == pytest.approx(0.65, abs=0.001)
    assert seen.sentence == (
        "c1: a step reads 15.13 GB and takes 25.87 ms where memory alone needs 16.81 ms: 65% of 900 GB/s"
    )


def test_four_cards_that_reached_29_percent_are_said_to_be_low() -> None:
    seen = roofline(
        Weights(15.13e9),
        0,
        concurrency=1,
        context_tokens=0,
        step_s=1 / 68.2,
        bandwidth_bytes_per_s=4 * V100_BYTES_PER_S,
    )
    assert 1 / seen.floor_s == pytest.approx(238, abs=0.5)
    assert seen.share == pytest.approx(0.29, abs=0.005)
    assert "low for one stream of a dense model" in seen.sentence


@pytest.mark.parametrize(
    ("weights_bytes", "floor_ms", "step_ms", "share"),
    [(15.23e9, 15.17, 15.92, 0.953), (4.68e9, 4.71, 5.88, 0.800)],
)
def test_the_byte_ledger_of_a_4090(weights_bytes: float, floor_ms: float, step_ms: float, share: float) -> None:
    # 1,024 tokens of prompt and 256 of answer: a sequence is 1,152 long on average while it decodes.
    seen = roofline(
        Weights(weights_bytes),
        KV_56_KIB,
        concurrency=1,
        context_tokens=1024 + 128,
        step_s=step_ms / 1000,
        bandwidth_bytes_per_s=RTX4090_BYTES_PER_S,
    )
    assert seen.floor_s * 1000 == pytest.approx(floor_ms, abs=0.01)
    assert seen.share == pytest.approx(share, abs=0.002)


def test_each_further_stream_costs_its_kv() -> None:
    one, two = (
        roofline(
            Weights(15.23e9),
            KV_56_KIB,
            concurrency=c,
            context_tokens=1152,
            step_s=0.02,
            bandwidth_bytes_per_s=RTX4090_BYTES_PER_S,
        )
        for c in (1, 2)
    )
    assert (two.floor_s - one.floor_s) * 1000 == pytest.approx(0.066, abs=0.001)


def test_kv_of_grouped_heads_and_of_a_latent() -> None:
    assert kv_bytes_per_token(28, 4, 128, 2) == KV_56_KIB
    # 61 layers of a 512 latent and a 64 rotary key in 16 bits: 70 KB where 128 full heads would take 4 MB.
    assert mla_kv_bytes_per_token(61, 512, 64, 2) == 70_272


def test_a_mixture_of_experts_reads_what_its_tokens_choose() -> None:
    mixture = Weights(dense_bytes=2e9, expert_bytes=28e9, experts=128, active_experts=8)
    assert mixture.read_bytes(1) == pytest.approx(2e9 + 28e9 * 8 / 128)
    assert mixture.read_bytes(2) < 2e9 + 2 * 28e9 * 8 / 128, "two tokens share some experts"
    assert mixture.read_bytes(10_000) == pytest.approx(30e9)
    drafted = roofline(
        mixture,
        0,
        concurrency=1,
        context_tokens=0,
        step_s=0.01,
        bandwidth_bytes_per_s=1e12,
        tokens_per_sequence=4,
    )
    assert drafted.step_bytes == pytest.approx(mixture.read_bytes(4))
    assert "low for one stream" not in drafted.sentence


def test_more_than_the_roof_is_a_wrong_size_not_a_miracle() -> None:
    seen = roofline(
        Weights(15e9), 0, concurrency=1, context_tokens=0, step_s=0.005, bandwidth_bytes_per_s=V100_BYTES_PER_S
    )
    assert "above 100 %, so the sizes or the bandwidth are not those of this run" in seen.sentence


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="a step and a bandwidth above 0"):
        roofline(Weights(1e9), 0, concurrency=1, context_tokens=0, step_s=0, bandwidth_bytes_per_s=1e12)
    with pytest.raises(ValueError, match="between 1 and all of its experts"):
        Weights(1e9, 1e9, experts=8, active_experts=9)
    with pytest.raises(ValueError, match="0 bytes or more"):
        Weights(-1)
