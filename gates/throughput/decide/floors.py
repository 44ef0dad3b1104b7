"""Absolute limits: at least so fast for each user, at least so much together, the first token after at most so long.

What the client itself may have added decides nothing: a measurement that is on the right side only with or without it
is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.contract import VerdictKind
from gates.throughput.decide.rule import SPOKEN
from gates.throughput.records import HIGHER_IS_BETTER, TTFT, Cell, Run

_UNITS: Final = {True: "tok/s", False: "s"}


@dataclass(frozen=True)
class Limit:
    """A floor for a rate (tok/s), a ceiling for a time (s), at one concurrency; `workload` None: for every workload.

    Raises `ValueError` for a limit that nothing could be held against.
    """

    metric: str
    concurrency: int
    value: float
    workload: str | None = None

    def __post_init__(self) -> None:
        if self.metric not in HIGHER_IS_BETTER:
            raise ValueError(f"a limit is on one of {', '.join(HIGHER_IS_BETTER)}; got {self.metric}")
        if not (math.isfinite(self.value) and self.value > 0):
            raise ValueError(f"a limit is a number above 0; got {self.value} for {self.metric}")

    def covers(self, cell: Cell) -> bool:
        return cell.key.concurrency == self.concurrency and self.workload in (None, cell.key.workload)

    def __str__(self) -> str:
        kind = "floor" if HIGHER_IS_BETTER[self.metric] else "ceiling"
        return f"{kind} {self.value:g} {_UNITS[HIGHER_IS_BETTER[self.metric]]}"


@dataclass(frozen=True)
class LimitDecision:
    """One limit on one cell; `measured` None when there was nothing to hold it against."""

    limit: Limit
    verdict: VerdictKind
    sentence: str
    measured: float | None = None


@dataclass(frozen=True)
class ClientError:
    """What the client may have done: put a rate off by `share` (0.01 is 1 %), either way, because a late first token
    makes the rest look faster; made a time longer by `lag_s`.
    """

    share: float = 0.0
    lag_s: float = 0.0


def judge_limits(run: Run, limits: Sequence[Limit], client: ClientError | None = None) -> tuple[LimitDecision, ...]:
    """Every limit on every cell that it covers. A limit that covers no cell is inconclusive, and says so."""
    decided: list[LimitDecision] = []
    for limit in limits:
        covered = [judge_limit(cell, limit, client) for cell in run.cells if limit.covers(cell)]
        decided.extend(covered or [_not_measured(run.cells, limit)])
    return tuple(decided)


def judge_limit(cell: Cell, limit: Limit, client: ClientError | None = None) -> LimitDecision:
    """The median of the cell's rounds against `limit`, give or take what the client may have added."""
    client = client or ClientError()
    values = cell.rounds.get(limit.metric, ())
    name = f"{cell.key}: {SPOKEN[limit.metric]}"
    if cell.problem is not None:
        return LimitDecision(limit, VerdictKind.INCONCLUSIVE, f"{name} ({limit}): no measurement: {cell.problem}")
    if not values:
        return LimitDecision(limit, VerdictKind.INCONCLUSIVE, f"{name} ({limit}): the cell holds no round of it")
    measured = median(values)
    verdict = _verdict(measured, limit, client)
    unit = _UNITS[HIGHER_IS_BETTER[limit.metric]]
    rounds = f"median of {len(values)} round{'s' * (len(values) != 1)}"
    sentence = f"{name} {measured:.4g} {unit}, {limit} ({rounds}{_worst(cell, limit)})"
    if verdict is VerdictKind.INCONCLUSIVE:
        doubt = f"error of {client.share:.1%}" if HIGHER_IS_BETTER[limit.metric] else f"lag of {client.lag_s:.4f} s"
        sentence = f"{sentence}; the client's own {doubt} decides"
    return LimitDecision(limit, verdict, sentence, measured)


def _verdict(measured: float, limit: Limit, client: ClientError) -> VerdictKind:
    if HIGHER_IS_BETTER[limit.metric]:
        kept = measured * (1 - client.share) >= limit.value
        missed = measured * (1 + client.share) < limit.value
    else:
        # A late client can only make a time look longer.
        kept = measured <= limit.value
        missed = measured - client.lag_s > limit.value
    if kept:
        return VerdictKind.PASS
    return VerdictKind.FAIL if missed else VerdictKind.INCONCLUSIVE


def _worst(cell: Cell, limit: Limit) -> str:
    """A median hides whoever queued: the longest wait for a first token is said beside it."""
    worst = cell.figures.get("ttft_max_s") if limit.metric == TTFT else None
    return "" if worst is None or worst.value is None else f"; the worst of {worst.n} requests {worst.value:.4g} s"


def _not_measured(cells: Iterable[Cell], limit: Limit) -> LimitDecision:
    measured = ", ".join(dict.fromkeys(str(cell.key) for cell in cells)) or "nothing"
    where = f"{limit.workload or 'any workload'} c{limit.concurrency}"
    sentence = f"{SPOKEN[limit.metric]} ({limit}): {where} was not measured; measured: {measured}"
    return LimitDecision(limit, VerdictKind.INCONCLUSIVE, sentence)
