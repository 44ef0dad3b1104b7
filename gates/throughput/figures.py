"""From the samples of a cell to its figures, each with the number of samples it stands on.

A percentile is given only where the sample carries it: a distribution-free 95 % interval for the p95 exists from 72
values on, for the p99 from 368 (H. A. David, Order Statistics, section 7.1). Chunks of streams that share the engine's
steps are one observation, so gaps are counted per stream.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gates.throughput.explain.stalls import stalls
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Figure
from gates.throughput.sample import Sample

MIN_FOR_P95: Final = 72
MIN_FOR_P99: Final = 368
_DECODING_SHARE: Final = 0.9
_TAILS: Final[Mapping[str, tuple[str, ...]]] = {
    "gap_p50_s": ("gap_p99_s", "longest_stall_s", "stall_share"),
    "ttft_p50_s": ("ttft_p95_s", "ttft_p99_s"),
}


@dataclass(frozen=True)
class Stream:
    """What one of the concurrent clients got in one round: one sample after the other."""

    samples: tuple[Sample, ...]


Round = Sequence[Stream]


def round_values(streams: Round) -> dict[str, float]:
    """The four metrics that rounds are compared by; one that this round does not carry is left out."""
    samples = _samples(streams)
    rates = [rate for sample in samples if (rate := sample.decode_tok_per_s) is not None]
    gaps_s = [gap for sample in samples for gap in sample.gaps_s]
    values = {
        DECODE: statistics.median(rates) if len(rates) == len(samples) and rates else None,
        AGGREGATE: aggregate(streams),
        TTFT: statistics.median(sample.ttft_s for sample in samples) if samples else None,
        GAP: statistics.median(gaps_s) if gaps_s else None,
    }
    return {name: value for name, value in values.items() if value is not None and value > 0}


def aggregate(streams: Round) -> float | None:
    """Tokens per second while every stream had a request under way: up to the first that had nothing more to ask.

    The wait for first tokens is in it: engines differ in how they share out prefill and decoding, users get the sum.
    """
    samples = _samples(streams)
    if not samples:
        return None
    begin_s = max(stream.samples[0].sent_at_s for stream in streams if stream.samples)
    end_s = min(stream.samples[-1].last_at_s for stream in streams if stream.samples)
    return sum(sample.tokens_in(begin_s, end_s) for sample in samples) / (end_s - begin_s) if end_s > begin_s else None


def aggregate_whole(streams: Round) -> float | None:
    """All tokens over the time from the first request to the last token: ramp and tail included."""
    samples = _samples(streams)
    span_s = max((s.last_at_s for s in samples), default=0.0) - min((s.sent_at_s for s in samples), default=0.0)
    return sum(sample.completion_tokens for sample in samples) / span_s if span_s > 0 else None


def aggregate_decoding(streams: Round) -> float | None:
    """Tokens per second while at least nine of ten streams decoded; None where they never did together."""
    samples = _samples(streams)
    least = math.ceil(_DECODING_SHARE * len(streams))
    edges = sorted([(s.first_at_s, 1) for s in samples] + [(s.last_at_s, -1) for s in samples])
    spans, decoding, begun_s = [], 0, 0.0
    for at_s, change in edges:
        before, decoding = decoding, decoding + change
        if before < least <= decoding:
            begun_s = at_s
        elif decoding < least <= before:
            spans.append((begun_s, at_s))
    total_s = sum(end_s - begin_s for begin_s, end_s in spans)
    tokens = sum(sample.tokens_in(*span) for span in spans for sample in samples)
    return tokens / total_s if total_s > 0 else None


def figures(rounds: Sequence[Round]) -> dict[str, Figure]:
    """Everything else about a cell by name; docs/throughput.md says what each is. `n` are requests, gaps or rounds."""
    samples = [sample for streams in rounds for sample in _samples(streams)]
    if not samples:
        return {}
    rates = [rate for sample in samples if (rate := sample.decode_tok_per_s) is not None]
    whole = [rate for sample in samples if (rate := sample.end_to_end_tok_per_s) is not None]
    return {
        **_times(samples),
        **_gaps(samples, max(len(streams) for streams in rounds)),
        "decode_tok_per_s_p50": _middle(rates),
        "decode_tok_per_s_p5": _tail(rates, 0.05),
        "decode_tok_per_s_min": Figure(min(rates, default=None), len(rates)),
        "end_to_end_tok_per_s_p50": _middle(whole),
        "end_to_end_tok_per_s_p5": _tail(whole, 0.05),
        "aggregate_whole_tok_per_s": _middle([v for r in rounds if (v := aggregate_whole(r)) is not None]),
        "aggregate_decoding_tok_per_s": _middle([v for r in rounds if (v := aggregate_decoding(r)) is not None]),
        "tokens_per_chunk": _tokens_per_chunk(samples),
        "prompt_tokens": _middle([sample.prompt_tokens for sample in samples]),
        "prompt_tokens_max": Figure(float(max(sample.prompt_tokens for sample in samples)), len(samples)),
        "completion_tokens": _middle([sample.completion_tokens for sample in samples]),
        "completion_tokens_total": Figure(float(sum(s.completion_tokens for s in samples)), len(samples)),
        "cached_share": cached_share(samples),
    }


def without_tails(figures: Mapping[str, Figure], max_lag_share: float, lag_p99_s: float) -> dict[str, Figure]:
    """The same without the tails that the client's own lateness (p99) has a share in: they are not the engine's.

    Medians stay: whoever is late once in a hundred times moves no median.
    """
    kept = dict(figures)
    for usual, tails in _TAILS.items():
        middle = kept[usual].value if usual in kept else None
        if middle is not None and lag_p99_s > max_lag_share * middle:
            kept |= {name: Figure(None, kept[name].n) for name in tails if name in kept}
    return kept


def cached_share(samples: Sequence[Sample]) -> Figure:
    """Of the prompt tokens how many the engine says came out of its prefix cache; None where it does not say."""
    told = [sample for sample in samples if sample.cached_tokens is not None]
    prompts = sum(sample.prompt_tokens for sample in told)
    return Figure(sum(s.cached_tokens or 0 for s in told) / prompts if prompts else None, len(told))


def _times(samples: Sequence[Sample]) -> dict[str, Figure]:
    waits_s = [sample.ttft_s for sample in samples]
    return {
        "ttft_p50_s": _middle(waits_s),
        "ttft_p95_s": _tail(waits_s, 0.95),
        "ttft_p99_s": _tail(waits_s, 0.99),
        "ttft_max_s": Figure(max(waits_s), len(waits_s)),
    }


def _gaps(samples: Sequence[Sample], streams: int) -> dict[str, Figure]:
    gaps_s = sorted(gap for sample in samples for gap in sample.gaps_s)
    count = len(gaps_s)
    middle = statistics.median(gaps_s) if gaps_s else None
    carried = count >= MIN_FOR_P99 * streams
    stalled = stalls([sample.gaps_s for sample in samples])
    return {
        "gap_p50_s": Figure(middle, count),
        "gap_p99_s": Figure(quantile(gaps_s, 0.99) if carried else None, count),
        "stall_share": Figure(stalled.share, count),
        "longest_stall_s": Figure(stalled.longest_s, count),
    }


def _tokens_per_chunk(samples: Sequence[Sample]) -> Figure:
    chunks = sum(len(sample.times_s) for sample in samples)
    return Figure(sum(sample.completion_tokens for sample in samples) / chunks, chunks)


def _middle(values: Sequence[float]) -> Figure:
    return Figure(float(statistics.median(values)) if values else None, len(values))


def _tail(values: Sequence[float], share: float) -> Figure:
    """The quantile `share`, where so many values carry it: the p5 needs as many as the p95."""
    least = MIN_FOR_P95 if 0.05 <= share <= 0.95 else MIN_FOR_P99
    return Figure(quantile(sorted(values), share) if len(values) >= least else None, len(values))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed; `ordered` and not empty."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def _samples(streams: Round) -> list[Sample]:
    return [sample for stream in streams for sample in stream.samples]
