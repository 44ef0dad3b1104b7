"""From exchanges to numbers. Tokens are what the engine's `usage` counted, never chunks and never our own count."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from gates.reply import read_reply

if TYPE_CHECKING:
    from gates.load_client import ClientCost
    from gates.wire import Exchange

_MIN_TOKENS: Final = 8
_MIN_GAPS_FOR_P99: Final = 100
_ROUNDED: Final = 6


@dataclass(frozen=True)
class Sample:
    """One request that counts: it ended as it should and says how many tokens it was."""

    ttft_s: float
    decode_s: float
    total_s: float
    sent_at_s: float
    last_token_at_s: float
    completion_tokens: int
    prompt_tokens: int
    cached_tokens: int | None
    chunks: int
    gaps_s: tuple[float, ...]

    @property
    def decode_tok_per_s(self) -> float | None:
        """(completion - 1) / (last token - first token); None when there are too few tokens to time."""
        if self.completion_tokens < _MIN_TOKENS or self.decode_s <= 0:
            return None
        return (self.completion_tokens - 1) / self.decode_s

    @property
    def end_to_end_tok_per_s(self) -> float:
        """With the wait for the first token in it."""
        return self.completion_tokens / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True)
class Request:
    """An exchange and either its sample, or why it does not count. `no_usage`: complete, but not countable."""

    exchange: Exchange
    sample: Sample | None = None
    problem: str | None = None
    no_usage: bool = False


def read_request(exchange: Exchange) -> Request:
    """A request counts only with status 200, no error in the stream, an end, [DONE], and usage."""
    reply = read_reply(exchange, streamed=True)
    broken = next((b.sentence for b in reply.breaches if b.rule in ("P01", "P03", "P08")), None)
    if broken or not reply.answered:
        return Request(exchange, problem=broken or reply.breaches[0].sentence)
    if reply.usage is None or reply.usage.completion_tokens is None:
        return Request(exchange, problem="the stream carries no usage", no_usage=True)
    if not reply.token_times_s:
        return Request(exchange, problem="no token came")
    first_s, last_s = reply.token_times_s[0], reply.token_times_s[-1]
    sample = Sample(
        ttft_s=first_s - exchange.sent_at_s,
        decode_s=last_s - first_s,
        total_s=last_s - exchange.sent_at_s,
        sent_at_s=exchange.sent_at_s,
        last_token_at_s=last_s,
        completion_tokens=reply.usage.completion_tokens,
        prompt_tokens=reply.usage.prompt_tokens or 0,
        cached_tokens=reply.usage.cached_tokens,
        chunks=len(reply.token_times_s),
        gaps_s=tuple(after - before for before, after in pairwise(reply.token_times_s)),
    )
    return Request(exchange, sample)


@dataclass(frozen=True)
class Cell:
    """One rung: all requests at one concurrency, round by round."""

    concurrency: int
    rounds: tuple[tuple[Request, ...], ...]
    cost: ClientCost

    @property
    def requests(self) -> list[Request]:
        return [request for round_ in self.rounds for request in round_]

    @property
    def samples(self) -> list[Sample]:
        return [request.sample for request in self.requests if request.sample]

    @property
    def client_error(self) -> float:
        """How wrong a rate may be through the client's own lateness: its lag against the time a request decoded."""
        decode_s = statistics.median([s.decode_s for s in self.samples] or [0.0])
        return self.cost.lag_p99_s / decode_s if decode_s > 0 else 1.0

    def per_round(self, metric: str) -> list[float]:
        """One value per round in which every request counts. Rounds are independent; streams of a round are not."""
        values = []
        for round_ in self.rounds:
            samples = [request.sample for request in round_ if request.sample]
            if len(samples) == len(round_):
                value = _value(metric, samples)
                values += [value] if value is not None else []
        return values


def _mean_decode(samples: Sequence[Sample]) -> float | None:
    rates = [rate for sample in samples if (rate := sample.decode_tok_per_s) is not None]
    return statistics.fmean(rates) if len(rates) == len(samples) else None


def _aggregate(samples: Sequence[Sample]) -> float | None:
    wall_s = max(s.last_token_at_s for s in samples) - min(s.sent_at_s for s in samples)
    return sum(s.completion_tokens for s in samples) / wall_s if wall_s > 0 else None


METRICS: Final = ("decode_tok_per_s", "end_to_end_tok_per_s", "aggregate_tok_per_s", "ttft_s")


def _value(metric: str, samples: Sequence[Sample]) -> float | None:
    match metric:
        case "decode_tok_per_s":
            return _mean_decode(samples)
        case "aggregate_tok_per_s":
            return _aggregate(samples)
        case "end_to_end_tok_per_s":
            return statistics.fmean(s.end_to_end_tok_per_s for s in samples)
        case _:
            return statistics.median(s.ttft_s for s in samples)


def summary(cell: Cell) -> dict[str, Any]:
    """The cell as measurements: every number with its samples, percentiles only where the sample carries them."""
    samples = cell.samples
    numbers: dict[str, Any] = {
        "concurrency": cell.concurrency,
        "requests": len(cell.requests),
        "counted": len(samples),
        "rounds": len(cell.rounds),
        "client": {
            "lag_p99_s": round(cell.cost.lag_p99_s, _ROUNDED),
            "core_share": round(cell.cost.core_share, 3),
            "error_share": round(cell.client_error, 4),
        },
    }
    for metric in METRICS:
        values = cell.per_round(metric)
        middle = round(statistics.median(values), _ROUNDED) if values else None
        numbers[metric] = {"median": middle, "rounds": [round(v, _ROUNDED) for v in values]}
    if samples:
        numbers |= _shape(samples)
    return numbers


def _shape(samples: Sequence[Sample]) -> dict[str, Any]:
    tokens = [s.completion_tokens for s in samples]
    prompts = sum(s.prompt_tokens for s in samples)
    told = [s.cached_tokens for s in samples if s.cached_tokens is not None]
    gaps = sorted(gap for s in samples for gap in s.gaps_s)
    shape: dict[str, Any] = {
        "completion_tokens": {"min": min(tokens), "median": statistics.median(tokens), "max": max(tokens)},
        "prompt_tokens": {"median": statistics.median(s.prompt_tokens for s in samples)},
        "tokens_per_chunk": round(sum(tokens) / max(1, sum(s.chunks for s in samples)), 3),
        "cached_share": round(sum(told) / prompts, 4) if told and prompts else None,
        "ttft_max_s": round(max(s.ttft_s for s in samples), _ROUNDED),
    }
    if gaps:
        p99 = gaps[int(len(gaps) * 0.99)] if len(gaps) >= _MIN_GAPS_FOR_P99 else None
        shape["chunk_gap_s"] = {
            "count": len(gaps),
            "p50": round(statistics.median(gaps), _ROUNDED),
            "p99": round(p99, _ROUNDED) if p99 is not None else None,
        }
    return shape
