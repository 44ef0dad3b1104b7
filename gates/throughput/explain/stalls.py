"""How much of the decode time is stalls: time that single steps take beyond the usual one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

_NOTABLE: Final = 0.10
_RESOLUTION_S: Final = 0.002
"""Below it a chunk that is read a scheduler's turn late makes one gap of two, and the usual gap is not the engine's."""


@dataclass(frozen=True)
class Stalls:
    """`share`: (mean time per token - median gap) / median gap, 0.22 is 22 %; None without gaps, and for steps
    below 2 ms, where nobody can tell stalls from late reads. `longest_s`: one gap.

    `n`: how many gaps it stands on.
    """

    share: float | None
    longest_s: float | None
    n: int
    sentence: str


def stalls(gaps_s: Sequence[Sequence[float]]) -> Stalls:
    """From the gaps between chunks, one sequence per request. A request's time per token is the mean of its gaps.

    Prefill of others and preemption show here and nowhere else: the median gap cannot see them.
    """
    requests = [gaps for gaps in gaps_s if gaps]
    everything = [gap for gaps in requests for gap in gaps]
    usual_s = median(everything) if everything else 0.0
    if usual_s <= 0:
        return Stalls(None, None, len(everything), f"{len(everything)} gaps carry no stall share")
    if usual_s < _RESOLUTION_S:
        sentence = (
            f"stalls cannot be told: the usual step of {usual_s * 1000:.1f} ms is below {_RESOLUTION_S * 1000:g} ms"
        )
        return Stalls(None, max(everything), len(everything), sentence)
    mean_s = fmean(fmean(gaps) for gaps in requests)
    share, longest_s = stall_share(mean_s, usual_s), max(everything)
    word = "stalls take" if share >= _NOTABLE else "hardly any stalls: they take"
    sentence = (
        f"{word} {share:.1%} on top of the usual step of {usual_s * 1000:.1f} ms; the longest is "
        f"{longest_s * 1000:.0f} ms ({len(everything)} gaps of {len(requests)} requests)"
    )
    return Stalls(share, longest_s, len(everything), sentence)


def stall_share(mean_time_per_token_s: float, median_gap_s: float) -> float:
    """(mean time per token - median gap) / median gap."""
    return (mean_time_per_token_s - median_gap_s) / median_gap_s
