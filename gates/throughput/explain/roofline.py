"""How much of the memory bandwidth a decoding step uses. A diagnosis, not a gate: a bound only while memory is it.

Bytes per step: the weights that are read, and the KV of every sequence. A step is the time between two chunks, so
speculation needs no correction. Bandwidth is summed over the ranks of tensor parallelism; a measured copy bandwidth is
better than the data sheet's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_LOW_ALONE: Final = 0.40
"""Below this share at one stream, something other than the weights takes the time of a dense model."""


@dataclass(frozen=True)
class Weights:
    """Bytes of weights. `dense_bytes` are read in every step; of `expert_bytes` (all experts of all layers together)
    only the chosen: `active_experts` of `experts` for each token. A dense model has no experts.
    """

    dense_bytes: float
    expert_bytes: float = 0.0
    experts: int = 0
    active_experts: int = 0

    def __post_init__(self) -> None:
        if self.dense_bytes < 0 or self.expert_bytes < 0:
            raise ValueError(f"weights have a size of 0 bytes or more; got {self}")
        if self.expert_bytes and not 0 < self.active_experts <= self.experts:
            raise ValueError(f"a mixture of experts chooses between 1 and all of its experts; got {self}")

    def read_bytes(self, tokens: float) -> float:
        """Bytes read in a step of so many tokens: ``dense + experts (1 - (1 - active/all)^tokens)``.

        The expectation when every token chooses its experts independently and evenly.
        """
        if not self.expert_bytes:
            return self.dense_bytes
        return self.dense_bytes + self.expert_bytes * (1 - math.pow(1 - self.active_experts / self.experts, tokens))


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: float) -> float:
    """Keys and values of one token, all layers: ``2 layers kv_heads head_dim bytes``."""
    return 2 * layers * kv_heads * head_dim * bytes_per_value


def mla_kv_bytes_per_token(layers: int, latent_dim: int, rope_dim: int, bytes_per_value: float) -> float:
    """Multi-head latent attention keeps a latent and a rotary key for all heads: ``layers (latent + rope) bytes``."""
    return layers * (latent_dim + rope_dim) * bytes_per_value


@dataclass(frozen=True)
class Roofline:
    """`share`: of the bandwidth (0.65 is 65 %); `floor_s`: what a step would take if memory were all; `step_bytes`."""

    share: float
    floor_s: float
    step_bytes: float
    sentence: str


def roofline(
    weights: Weights,
    kv_bytes: float,
    *,
    concurrency: int,
    context_tokens: float,
    step_s: float,
    bandwidth_bytes_per_s: float,
    tokens_per_sequence: float = 1.0,
) -> Roofline:
    """The share that steps of `step_s` reach: ``(W + c L kv) / (bandwidth step)``.

    `kv_bytes` per token; `context_tokens`: the mean length of a sequence while it decodes, prompt + answer / 2;
    `tokens_per_sequence` that a step computes: 1, and with speculation the drafted ones too (it decides how many
    experts are read). Raises `ValueError` for sizes that cannot be.
    """
    if min(concurrency, step_s, bandwidth_bytes_per_s) <= 0 or min(kv_bytes, context_tokens) < 0:
        raise ValueError(
            f"a roofline needs sequences, a step and a bandwidth above 0; got c{concurrency}, {step_s} s, "
            f"{bandwidth_bytes_per_s} bytes/s, {kv_bytes} bytes of KV for {context_tokens} tokens"
        )
    step_bytes = weights.read_bytes(concurrency * tokens_per_sequence) + concurrency * context_tokens * kv_bytes
    floor_s = step_bytes / bandwidth_bytes_per_s
    share = floor_s / step_s
    sentence = (
        f"c{concurrency}: a step reads {step_bytes / 1e9:.2f} GB and takes {step_s * 1000:.2f} ms where memory alone "
        f"needs {floor_s * 1000:.2f} ms: {share:.0%} of {bandwidth_bytes_per_s / 1e9:.0f} GB/s"
    )
    if share > 1:
        sentence += "; above 100 %, so the sizes or the bandwidth are not those of this run"
    elif concurrency == 1 and not weights.expert_bytes and share < _LOW_ALONE:
        sentence += "; low for one stream of a dense model: something other than memory takes the time"
    return Roofline(share, floor_s, step_bytes, sentence)
