"""What the ladder of one side shows by itself, in the words of the gate: cliffs, and the law of its step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gates.ledger.rows import Row
from gates.ledger.table import workload_key
from gates.throughput.explain import cliff, step_time
from gates.throughput.records import GAP, CellKey, Run


@dataclass(frozen=True)
class Shape:
    """Of one workload on one side. `cliff`: a step breaks the trend of those below it."""

    workload: str
    cliff: bool
    sentence: str


def one_run(rows: Sequence[Row], words: Sequence[str]) -> Run:
    """Rows as if one run had measured them all, their workloads called by `words`."""
    called = list(zip(words, rows, strict=True))
    configuration = rows[-1].configuration
    engine: dict[str, Any] = {**configuration.facts, "flags": list(configuration.flags)}
    return Run(
        started_at=rows[-1].started_at,
        duration_s=sum(row.duration_s for row in rows),
        model=configuration.model,
        workloads={word: row.definition for word, row in called},
        cells=[replace(row.cell, key=CellKey(word, row.cell.key.concurrency)) for word, row in called],
        engine=engine,
    )


def shapes(rows: Sequence[Row], names: Mapping[str, str]) -> tuple[Shape, ...]:
    """Of every workload with at least two rungs that have rounds. `names`: by `workload_key`."""
    measured = [row for row in rows if row.counts and row.cell.rounds.get(GAP)]
    if not measured:
        return ()
    run = one_run(measured, [names[workload_key(row)] for row in measured])
    found = []
    for ladder in cliff.find_all(run):
        if len(ladder.rungs) > 1:
            law = step_time.fit(run, ladder.workload)
            # Beyond a cliff no law of the step time holds.
            told = ladder.cliffs or law.base_s is None
            sentence = ladder.sentence if told else f"{ladder.sentence}; {law.words}"
            found.append(Shape(ladder.workload, bool(ladder.cliffs), sentence))
    return tuple(found)
