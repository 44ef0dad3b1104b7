"""One cell while it is measured: what came round by round, and why it may be no measurement."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gates.load_client import ClientCost
from gates.throughput.engine_side import EngineWatch, Tally
from gates.throughput.figures import Round, Stream, cached_share, figures, round_values, without_tails
from gates.throughput.records import DECODE, Cell, CellKey, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.throughput.sample import Reading, Sample
    from gates.throughput.settings import ThroughputSettings
    from gates.throughput.workload import Workload
    from gates.wire import Exchange

UNMEASURABLE: Final = ("no usage", "stopped early", "went on")
"""Failures that say nothing against the engine: its answers are whole, and cannot be timed as they were asked for."""
_MAX_SHOWN: Final = 3


@dataclass
class CellRun:
    """`workload` with `concurrency` streams. `problem` and `over` end it early."""

    workload: Workload
    concurrency: int
    watch: EngineWatch
    problem: str | None = None
    impossible: bool = False
    """Its requests do not fit into the context: nothing was sent, and nothing is held against the engine."""
    over: bool = False
    expected_s: float = 0.0
    """How long one round takes, as far as that is known."""
    chunks_per_s: float = 0.0
    """How many chunks a second all streams bring, as far as that is known: one process reads only so many."""
    requests: int = 0
    rounds: list[Round] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    sentences: dict[str, str] = field(default_factory=dict)
    """One sentence for each kind of failure: the first that was seen."""
    shown: list[Exchange] = field(default_factory=list)
    """Evidence: the first exchange, and the first failed ones."""
    costs: list[ClientCost] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    rounds_seen: int = 0

    @property
    def key(self) -> CellKey:
        return CellKey(self.workload.name, self.concurrency)

    @property
    def untimeable(self) -> bool:
        """Are its answers such that the same requests can never be timed?"""
        unmeasurable = any(self.failures[kind] for kind in UNMEASURABLE)
        return unmeasurable or bool(self.samples and not self.failures and DECODE not in self.values)

    @property
    def samples(self) -> list[Sample]:
        return [sample for streams in self.rounds for stream in streams for sample in stream.samples]

    def take(self, readings: Sequence[Sequence[Reading]], cost: ClientCost, span: tuple[float, float]) -> Tally:
        """One round: for each stream what it got. A round's values count only when every request of it does."""
        everything = [reading for stream in readings for reading in stream]
        failed = [reading for reading in everything if reading.sample is None]
        streams = [Stream(tuple(r.sample for r in stream if r.sample is not None)) for stream in readings]
        self.rounds_seen += 1
        self.requests += len(everything)
        self.rounds.append(streams)
        self.costs.append(cost)
        self.spans.append(span)
        for reading in failed:
            kind = reading.failure or "unknown"
            self.failures[kind] += 1
            self.sentences.setdefault(kind, reading.sentence)
        if not failed:
            for name, value in round_values(streams).items():
                self.values.setdefault(name, []).append(value)
        self._show(everything, failed)
        good = [reading.sample for reading in everything if reading.sample is not None]
        return Tally(len(good), len(failed), sum(s.completion_tokens for s in good), sum(s.prompt_tokens for s in good))

    def finished(self, settings: ThroughputSettings, head_tokens: int, extra: Mapping[str, Figure]) -> Cell:
        """The record. `head_tokens`: what the chat template puts in front; `extra`: figures from elsewhere."""
        told = without_tails(figures(self.rounds), settings.max_lag_share, self.cost.lag_p99_s)
        known = {**told, **self.watch.figures(), **extra, **self._client()}
        return Cell(
            key=self.key,
            requests=self.requests,
            rounds=self.values,
            figures=known,
            failures=dict(self.failures),
            problem=self.problem or self._why_none(settings, head_tokens),
        )

    @property
    def cost(self) -> ClientCost:
        """Lateness and share of a core of the round in the middle: what one round suffered is that round's noise."""
        lag_s = statistics.median([cost.lag_p99_s for cost in self.costs] or [0.0])
        return ClientCost(lag_s, statistics.median([cost.core_share for cost in self.costs] or [0.0]))

    def _client(self) -> dict[str, Figure]:
        if not self.costs:
            return {}
        count = len(self.costs)
        return {
            "client_lag_p99_s": Figure(self.cost.lag_p99_s, count),
            "client_core_share": Figure(self.cost.core_share, count),
            "client_error_share": Figure(self.client_error, count),
        }

    def _why_none(self, settings: ThroughputSettings, head_tokens: int) -> str | None:
        """Why this is no measurement, the reason that explains the others first."""
        if not self.requests:
            return self.watch.problem or "not measured: the time was up"
        unmeasurable = next((kind for kind in UNMEASURABLE if self.failures[kind]), None)
        if unmeasurable is not None:
            count = f"{self.failures[unmeasurable]} of {self.requests} requests"
            remedy = "; ignore_eos: false measures answers of any length" if unmeasurable == "stopped early" else ""
            return f"{self.sentences[unmeasurable]} ({count}){remedy}"
        if DECODE not in self.values:
            kind, number = self.failures.most_common(1)[0] if self.failures else ("too short", 0)
            return (
                f"no round is complete: {number} of {self.requests} requests failed ({kind})"
                if number
                else ("the answers are too short to be timed")
            )
        return self.watch.problem or self._client_problem(settings) or self._cache_problem(settings, head_tokens)

    def _client_problem(self, settings: ThroughputSettings) -> str | None:
        cost = self.cost
        if cost.core_share > settings.max_core_share:
            return (
                f"the client used {cost.core_share:.0%} of a core, more than {settings.max_core_share:.0%}: it may "
                "have been the limit; measure from another machine"
            )
        if self.client_error > settings.max_client_error:
            return (
                f"the client was late by {cost.lag_p99_s * 1000:.1f} ms (p99), which may put a rate off by "
                f"{self.client_error:.1%}, more than {settings.max_client_error:.1%}: free this machine of other work, "
                "measure from another, or ask for longer answers"
            )
        return None

    @property
    def client_error(self) -> float:
        """How wrong a rate may be: a first and a last chunk may each be read late, and nothing in between counts."""
        decoding_s = statistics.median([s.last_at_s - s.first_at_s for s in self.samples] or [0.0])
        return min(1.0, self.cost.lag_p99_s / decoding_s) if decoding_s > 0 else 1.0

    def _cache_problem(self, settings: ThroughputSettings, head_tokens: int) -> str | None:
        if self.workload.prompts == "same" or self.workload.prefix == "warm":
            return None
        share = self.cached_share
        prompts = statistics.fmean([sample.prompt_tokens for sample in self.samples] or [0.0])
        if share is None or not prompts:
            return None
        allowed = max(settings.max_cached_share, head_tokens / prompts)
        if share <= allowed:
            return None
        return (
            f"{share:.1%} of the prompt tokens came out of a cache, though no prompt was sent twice (allowed: "
            f"{allowed:.1%}): this cell is not cold"
        )

    @property
    def cached_share(self) -> float | None:
        """Of the prompt tokens; by `usage` where it says so, else by the engine's counters."""
        told = cached_share(self.samples)
        if told.value is not None:
            return told.value
        hits = self.watch.figures().get("engine_prefix_hit_share")
        return hits.value if hits is not None else None

    def _show(self, everything: Sequence[Reading], failed: Sequence[Reading]) -> None:
        if not self.shown:
            self.shown.append(everything[0].exchange)
        room = _MAX_SHOWN - len(self.shown)
        self.shown += [reading.exchange for reading in failed if reading.exchange not in self.shown][:room]
