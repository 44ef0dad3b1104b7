"""What a throughput run leaves behind: cells with their figures. Everything that judges, keeps or draws reads these.

A figure is a number with the size of the sample that carries it. A number that the sample does not carry is None, and
nobody may fill it in later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

DECODE: Final = "decode_tok_per_s"
"""Per user, after the first token: (N - f) / (last token - first token), N from `usage`; median over a round."""
AGGREGATE: Final = "aggregate_tok_per_s"
"""All streams together, over the window in which all of them were alive."""
TTFT: Final = "ttft_s"
"""Median of a round."""
GAP: Final = "chunk_gap_s"
"""Median time between two chunks of one stream: one engine step, however many tokens it brought."""
HIGHER_IS_BETTER: Final[Mapping[str, bool]] = {DECODE: True, AGGREGATE: True, TTFT: False, GAP: False}
"""The four metrics that rounds are compared by."""


@dataclass(frozen=True)
class Figure:
    """A number and how many samples it stands on; `value` None: the sample does not carry it."""

    value: float | None
    n: int


@dataclass(frozen=True)
class CellKey:
    """Which cell of the matrix: a workload's name and how many streams at once."""

    workload: str
    concurrency: int

    def __str__(self) -> str:
        return f"{self.workload} c{self.concurrency}"


@dataclass(frozen=True)
class Cell:
    """One workload at one concurrency.

    `rounds`: metric → one value per round in which every request counts (rounds are independent, streams of one round
    are not). `figures`: everything else by name, see docs/throughput.md. `failures`: kind → how many requests.
    `problem`: why this cell is no measurement (the client was the limit, foreign load, no usage, …), None when it is.
    """

    key: CellKey
    requests: int
    rounds: Mapping[str, Sequence[float]]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of the ladder against one endpoint. `workloads`: name → everything that makes it what it is, as plain
    data; two cells compare only when theirs are equal. `started_at`: ISO 8601, UTC.
    """

    started_at: str
    duration_s: float
    model: str
    workloads: Mapping[str, Mapping[str, Any]]
    cells: Sequence[Cell]
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the engine: name, version, limit (its own most sequences at once), release, flags, kv_format."""
