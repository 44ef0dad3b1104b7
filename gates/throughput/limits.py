"""Floors and ceilings of the ladder: which of them hold for a cell, and those that hold for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.contract import VerdictKind
from gates.throughput.decide.floors import Limit
from gates.throughput.ladder import resolved
from gates.throughput.records import AGGREGATE, DECODE, TTFT, Cell, Run

if TYPE_CHECKING:
    from gates.throughput.settings import Rung, ThroughputSettings
    from gates.trial import Trial

_LIMITS: Final = (
    ("min_decode_tok_per_s", DECODE, "decode_floor"),
    ("min_aggregate_tok_per_s", AGGREGATE, "aggregate_floor"),
    ("max_ttft_s", TTFT, "ttft_ceiling"),
)


def limits_on(settings: ThroughputSettings, cell: Cell, run_: Run) -> list[tuple[Limit, str]]:
    """The floors and ceilings of the rungs that are this cell."""
    limits = []
    for rung in settings.ladder:
        if not _is(rung, cell, run_):
            continue
        for setting, metric, check_id in _LIMITS:
            value = getattr(rung, setting)
            if value is not None:
                limits.append((Limit(metric, cell.key.concurrency, value, cell.key.workload), check_id))
    return limits


def judge_limits_on_nothing(trial: Trial, settings: ThroughputSettings, run_: Run) -> None:
    """A floor or ceiling whose rung no workload has was kept by nobody: it blocks, and says what was measured."""
    measured = ", ".join(str(cell.key) for cell in run_.cells if cell.requests) or "nothing"
    for rung in settings.ladder:
        if any(_is(rung, cell, run_) for cell in run_.cells):
            continue
        named = f"c{rung.concurrency}" if isinstance(rung.concurrency, int) else rung.concurrency
        known = isinstance(rung.concurrency, int) or run_.engine.get("limit")
        why = "is a rung of no workload" if known else "is not known: nobody says the engine's limit, give it"
        for setting, _metric, check_id in _LIMITS:
            value = getattr(rung, setting)
            if value is not None:
                trial.check(
                    f"{rung.workload or 'ladder'}.{named}.{check_id}",
                    VerdictKind.INCONCLUSIVE,
                    f"{setting} {value:g}: {named} {why}, so it was not measured; measured: {measured}",
                    rule="every limit of the ladder is held against a measurement",
                    measurements={"again": False},
                )


def _is(rung: Rung, cell: Cell, run_: Run) -> bool:
    here, _ = resolved([rung.concurrency], run_.engine.get("limit"))
    return cell.key.concurrency in here and rung.workload in (None, cell.key.workload)
