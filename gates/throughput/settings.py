"""Settings of a throughput run, as a profile has them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gates.strict import StrictModel
from gates.throughput.ladder import Asked
from gates.throughput.workload import CHAT, Workload


class Rung(StrictModel):
    """One concurrency with its floors. A floor or ceiling that is not given is not judged."""

    concurrency: int | Literal["limit", "beyond"]
    """How many streams at once; `limit`: as many as the engine runs at once, `beyond`: a quarter more."""
    workload: str | None = None
    """The floors hold for this workload only, which then has this rung; without it for every one that has it."""
    min_decode_tok_per_s: float | None = Field(default=None, gt=0)
    """Per user, after the first token."""
    min_aggregate_tok_per_s: float | None = Field(default=None, gt=0)
    max_ttft_s: float | None = Field(default=None, gt=0)

    def __str__(self) -> str:
        named = f"c{self.concurrency}" if isinstance(self.concurrency, int) else self.concurrency
        return named if self.workload is None else f"{self.workload} {named}"

    @property
    def limits(self) -> bool:
        """Is anything judged at it?"""
        return any(
            each is not None for each in (self.min_decode_tok_per_s, self.min_aggregate_tok_per_s, self.max_ttft_s)
        )

    @model_validator(mode="after")
    def _positive(self) -> Rung:
        if isinstance(self.concurrency, int) and not 0 < self.concurrency <= 4096:
            raise ValueError("concurrency is between 1 and 4096")
        return self


class Roofline(StrictModel):
    """Sizes of the model, and the bandwidth of one instance: what share of it each cell uses is then said."""

    weights_bytes: float = Field(gt=0)
    """Read in every step; of a mixture of experts without the experts."""
    expert_bytes: float = Field(default=0.0, ge=0)
    """All experts of all layers together."""
    experts: int = Field(default=0, ge=0)
    active_experts: int = Field(default=0, ge=0)
    """Of so many `experts` each token takes so many."""
    kv_bytes_per_token: float | None = Field(default=None, gt=0)
    """All layers, keys and values; or `layers`, `kv_heads`, `head_dim` and `kv_bytes_per_value` instead."""
    layers: int | None = Field(default=None, gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    kv_bytes_per_value: float = Field(default=2.0, gt=0)
    bandwidth_bytes_per_s: float = Field(gt=0)
    """Of all cards of one instance together; as measured by copying rather than from a data sheet."""

    @model_validator(mode="after")
    def _complete(self) -> Roofline:
        if self.kv_bytes_per_token is None and None in (self.layers, self.kv_heads, self.head_dim):
            raise ValueError("a roofline needs kv_bytes_per_token, or layers, kv_heads and head_dim")
        if self.expert_bytes and not 0 < self.active_experts <= self.experts:
            raise ValueError("expert_bytes needs experts, and active_experts of them")
        return self


class ThroughputSettings(StrictModel):
    """Settings of the gate `throughput` and of `cutover bench`."""

    workloads: tuple[Workload, ...] = Field(default=(CHAT,), min_length=1, strict=False)
    ladder: tuple[Rung, ...] = Field(default=(), strict=False)
    """The rungs; none: 1, 2, 4, 8 … up to the engine's own limit, one beyond it, one above each capture size."""
    max_concurrency: int = Field(default=16, gt=0, le=4096)
    """Where the ladder ends when nobody says the engine's limit."""
    limit: int | None = Field(default=None, gt=0, le=4096)
    """The engine's own most sequences at once, where neither it nor its flags say so."""
    captures: tuple[int, ...] = Field(default=(), strict=False)
    """Batch sizes with captured graphs, where neither the engine nor its flags say so."""
    rounds: tuple[int, ...] = Field(default=(3, 5, 9), min_length=1, strict=False)
    """After so many rounds the verdict is looked at; without a baseline the first look is the last."""
    requests_per_stream: int = Field(default=2, gt=0)
    """In one round, one after the other: with one, no first token is ever waited for while others decode."""
    warmups: int = Field(default=3, gt=0)
    """At most so many short rounds before the first that counts: fewer once two of them agree."""
    margin: float = Field(default=0.05, gt=0, lt=1)
    """How much slower than the baseline is still accepted, on the whole ladder; a single cell may lose twice that."""
    compared: tuple[Literal["decode_tok_per_s", "aggregate_tok_per_s", "ttft_s", "chunk_gap_s"], ...] = Field(
        default=("decode_tok_per_s", "aggregate_tok_per_s", "ttft_s"), min_length=1, strict=False
    )
    """What must not be worse than the baseline's."""
    on_cliff: Literal["warn", "fail"] = "warn"
    """A step that breaks the ladder's own trend is always named; `fail`: it also blocks."""
    session_sd: float = Field(default=0.01, ge=0, lt=1)
    """Assumed spread between two starts of the same engine, until restarts have measured it."""
    max_client_error: float = Field(default=0.02, gt=0)
    """How wrong a rate may be because the client was late (p99) with a first or a last chunk; above it, no verdict."""
    max_lag_share: float = Field(default=0.2, gt=0)
    """Tails of gaps and of waits are left out when the client was late by this share of the usual one."""
    max_core_share: float = Field(default=0.7, gt=0, le=1)
    """The client may use this share of a core."""
    max_cached_share: float = Field(default=0.01, gt=0, le=1)
    """Of a cold prompt's tokens; what the chat template puts in front of every prompt is allowed besides."""
    client_processes: int | None = Field(default=None, gt=0, le=64)
    """Processes of the client for a round; without it as many as the expected rate of chunks needs."""
    quiet_s: float = Field(default=10.0, ge=0)
    """So long requests of before, ours that timed out too, may take to leave; whoever then still runs is foreign."""
    request_timeout_s: float = Field(default=300.0, gt=0)
    roofline: Roofline | None = None
    """With it the share of the memory bandwidth that each cell uses is said; a diagnosis, nothing is judged by it."""

    # A validator for each key: a mistake is then told with the key, as everywhere.
    @field_validator("workloads")
    @classmethod
    def _named_once(cls, workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
        names = [workload.name for workload in workloads]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ValueError(f"the workload {double!r} is listed twice")
        return workloads

    @field_validator("ladder")
    @classmethod
    def _of_known_workloads(cls, ladder: tuple[Rung, ...], info: ValidationInfo) -> tuple[Rung, ...]:
        names = [workload.name for workload in info.data.get("workloads", ())]
        stray = next((rung.workload for rung in ladder if names and rung.workload not in (None, *names)), None)
        if stray is not None:
            raise ValueError(f"a rung is for the workload {stray!r}; there are {', '.join(names)}")
        return ladder

    @field_validator("rounds")
    @classmethod
    def _ascending(cls, rounds: tuple[int, ...]) -> tuple[int, ...]:
        if list(rounds) != sorted(set(rounds)) or rounds[0] < 1:
            raise ValueError("rounds are numbers from 1 on, ascending, as [3, 5, 9]")
        return rounds

    def rungs(self, workload: Workload) -> tuple[Asked, ...]:
        """Its own and those of the ladder that name it, or the whole ladder; none: as far as the engine goes."""
        if not workload.concurrency:
            return tuple(rung.concurrency for rung in self.ladder)
        named = (rung.concurrency for rung in self.ladder if rung.workload == workload.name)
        return (*workload.concurrency, *named)

    def definition(self, workload: Workload) -> dict[str, Any]:
        """All that two cells must share to be compared, as far as the settings decide it."""
        return {**workload.plain(), "requests_per_stream": self.requests_per_stream}
