"""The ledger as a measurement uses it: what live showed, how far starts lie apart, a place for what was measured.

Whatever goes wrong with it is said, and changes no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gates.contract import Deployment
from gates.ledger.rows import DRIVER, GPUS, HOST, Kind, Row, canonical
from gates.ledger.store import Ledger
from gates.ledger.words import counted
from gates.throughput.decide.spread import Spread, of_restarts
from gates.throughput.records import Cell, CellKey, Run

if TYPE_CHECKING:
    from gates.contract import GateRequest
    from gates.ledger.store import Recorded
    from gates.throughput.settings import ThroughputSettings
    from gates.throughput.workload import Workload

Result = TypeVar("Result")
_Start = Mapping[tuple[CellKey, str], Row]
"""What one start showed, by cell and workload."""
_ONE_TIME: Final = timedelta(weeks=1)
"""What was measured longer before is another time: the box may have changed since."""
_PATIENCE_S: Final = 5.0
"""A gate has a deadline: another process that holds the file longer than this is not waited for."""
_BOX: Final = (GPUS, DRIVER, HOST)
_OF_THE_ENGINE: Final = "limit_tokens"
"""How long the longest prompt is depends on the engine; where it differs the comparison says so."""


@dataclass
class Book:
    """`ledger` None: nothing is known, and nothing is kept. `notes`: what is to be said about it."""

    ledger: Ledger | None = None
    candidate: Deployment = field(default_factory=Deployment)
    live: Deployment | None = None
    keeping: bool = True
    """False: whoever asked for the measurement keeps it."""
    notes: list[str] = field(default_factory=list)
    why_none: str = "no baseline measurement was given"
    """Why there is nothing to compare with."""
    problem: str | None = None
    """The first thing that went wrong with the file."""
    starts: int = 1
    """Over how many starts of live its baseline was measured."""
    runs: tuple[str, ...] = ()
    """The runs of the ledger that its baseline is."""

    def baseline(self, settings: ThroughputSettings) -> Run | None:
        """What live showed last on the cards it has, without users: of these workloads, whole enough to be compared."""
        live = self.live
        if self.ledger is None or live is None or not live.digest:
            return None
        ledger, box = self.ledger, {key: live.hardware[key] for key in _BOX if live.hardware.get(key)}
        rows = self._read(lambda: ledger.latest(live.digest, hardware=box, rounds=settings.rounds[0]))
        found = [row for row in rows or () if _is_asked(row, settings)]
        if not found:
            self.why_none = (
                f"{live.release} was not measured by these workloads on the cards it has; in quiet hours "
                "`cutover bench --live --profile` with this profile does"
            )
            return None
        starts = self._read(lambda: ledger.starts(live.digest, hardware=box, rounds=settings.rounds[0]))
        alike = _alike(found, starts or {})
        self.starts = max(1, len(alike))
        shown = [row for start in alike for row in start.values()] or found
        self.runs = tuple(dict.fromkeys(row.run for row in shown))
        over = f", over {counted(len(alike), 'start')}" if len(alike) > 1 else ""
        runs = ", ".join(self.runs)
        self.notes.append(
            f"baseline: what {live.release} showed on {found[-1].started_at[:10]}{over} (ledger, run {runs})"
        )
        return _over(as_run(found), alike)

    def spreads(
        self, engine: str | None, hardware: Mapping[str, Any], settings: ThroughputSettings
    ) -> dict[str, Spread]:
        """Of every metric for which starts of this engine on such a box are there; assumed where they are too few."""
        if self.ledger is None or not engine or not hardware.get(HOST):
            return {}
        ledger, box = self.ledger, {key: hardware[key] for key in (GPUS, HOST) if hardware.get(key)}
        found: dict[str, Spread] = {}
        for metric in settings.compared:
            tau = self._read(partial(ledger.tau, engine, hardware=box, metric=metric))
            if tau is not None:
                measured = of_restarts(tau.sd, tau.restarts)
                found[metric] = measured or Spread(settings.session_sd, seen=tau.restarts)
        return found

    def keep(self, run: Run, hardware: Mapping[str, Any], *, who: str) -> Recorded | None:
        """The run as rows of the ledger, under the start of the engines that was measured."""
        if self.ledger is None or not self.keeping or not run.cells:
            return None
        ledger, start = self.ledger, self.candidate.start
        kind = Kind.RESTART if start else Kind.CELL
        recorded = self._asked(
            lambda: ledger.record(run, who=who, hardware=hardware, kind=kind, start=start), "written"
        )
        if recorded is not None:
            self.notes.append(f"ledger: run {recorded.run}, {counted(len(recorded.rows), 'row')}")
        return recorded

    def _read(self, do: Callable[[], Result]) -> Result | None:
        """Not once more after it went wrong: a file that is held would be waited for at every question."""
        return None if self.problem is not None else self._asked(do, "read")

    def _asked(self, do: Callable[[], Result], what: str) -> Result | None:
        try:
            return do()
        except Exception as error:  # noqa: BLE001 - a book that breaks must not take a verdict with it
            if self.problem is None:
                self.problem = f"the ledger could not be {what}, and nothing else hangs on that: {error}"
                self.notes.append(self.problem)
            return None


def open_book(request: GateRequest, *, keeping: bool = True) -> Book:
    """The ledger that the request names, for what it says is judged."""
    ledger = Ledger(Path(request.ledger), patience_s=_PATIENCE_S) if request.ledger else None
    return Book(ledger, request.candidate or Deployment(), request.live, keeping)


def as_run(rows: list[Row]) -> Run:
    """Rows as the run they could have been: of each workload only what was measured by its newest definition."""
    newest = rows[-1]
    definitions = {row.cell.key.workload: row.definition for row in rows}
    cells = [row.cell for row in rows if canonical(row.definition) == canonical(definitions[row.cell.key.workload])]
    return Run(newest.started_at, newest.duration_s, newest.configuration.model, definitions, cells)


def _alike(newest: Sequence[Row], starts: Mapping[str, Sequence[Row]]) -> list[_Start]:
    """The starts that showed every cell of `newest`, within a week of it.

    None where a row of `newest` is of no such start: it is then not known to which start it belongs.
    """
    since = max(datetime.fromisoformat(row.started_at) for row in newest) - _ONE_TIME
    found: dict[str, _Start] = {}
    for name, rows in starts.items():
        mine = {_cell(row): row for row in rows if datetime.fromisoformat(row.started_at) >= since}
        if all(set(row.cell.rounds) <= set(mine[_cell(row)].cell.rounds) for row in newest if _cell(row) in mine):
            found[name] = {_cell(row): mine[_cell(row)] for row in newest if _cell(row) in mine}
    whole = {name: start for name, start in found.items() if len(start) == len(newest)}
    return [*whole.values()] if {row.start for row in newest} <= set(whole) else []


def _over(run: Run, starts: Sequence[_Start]) -> Run:
    """`run` with the rounds of all `starts`, as many of each: then their mean varies as that of so many starts."""
    if len(starts) < 2:
        return run
    return replace(run, cells=[_together(cell, run.workloads[cell.key.workload], starts) for cell in run.cells])


def _together(cell: Cell, definition: Mapping[str, Any], starts: Sequence[_Start]) -> Cell:
    shown = [start[cell.key, canonical(definition)].cell for start in starts]
    rounds = {}
    for metric in cell.rounds:
        values = [each.rounds[metric] for each in shown]
        fewest = min(map(len, values))
        rounds[metric] = [value for each in values for value in each[:fewest]]
    return replace(cell, rounds=rounds, requests=sum(each.requests for each in shown))


def _cell(row: Row) -> tuple[CellKey, str]:
    return row.cell.key, canonical(row.definition)


def elsewhere(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """How the hardware of a measurement differs from that of today, where both are known; None: it does not.

    Of cards the kinds count: a run through a front door may name all cards of the box.
    """
    for key in _BOX:
        before, today = (sorted(set(v)) if isinstance(v := each.get(key), list | tuple) else v for each in (then, now))
        if before and today and before != today:
            return f"{key} {before} then, {today} now"
    return None


def unlike(baseline: Run, settings: ThroughputSettings, live: Deployment | None) -> str | None:
    """Why `baseline` was measured by other workloads than these, a sentence for each, and what helps; else None.

    Known before anything is sent: no round could make them comparable.
    """
    said = []
    for workload in settings.workloads:
        then, now = baseline.workloads.get(workload.name), settings.definition(workload)
        if then is None:
            continue
        keys = [key for key in (*now, *(set(then) - {*now, _OF_THE_ENGINE})) if _plain(now, key) != _plain(then, key)]
        if keys:
            listed = ", ".join(f"{key} {_plain(now, key)} here, {_plain(then, key)} then" for key in keys[:2])
            more = f", {len(keys) - 2} more" if len(keys) > 2 else ""
            said.append(f"workload {workload.name} is not the baseline's ({listed}{more})")
    if not said:
        return None
    remedy = (
        "compare runs of one profile"
        if live is None
        else "in a quiet hour `cutover bench --live --profile` with this profile measures live for it"
    )
    return f"{'; '.join(said)}: {remedy}"


def _plain(definition: Mapping[str, Any], key: str) -> str:
    return canonical(definition[key]) if key in definition else "nothing"


def _is_asked(row: Row, settings: ThroughputSettings) -> bool:
    workload = next((each for each in settings.workloads if each.name == row.cell.key.workload), None)
    if workload is None:
        return False
    mine = {key: value for key, value in row.definition.items() if key != _OF_THE_ENGINE}
    rungs = _rungs(settings, workload)
    return canonical(mine) == canonical(settings.definition(workload)) and (
        rungs is None or row.cell.key.concurrency in rungs
    )


def _rungs(settings: ThroughputSettings, workload: Workload) -> set[int] | None:
    """The rungs of a ladder that names them all; None where the engine's limit decides."""
    asked = settings.rungs(workload)
    numbers = {rung for rung in asked if isinstance(rung, int)}
    return numbers if asked and len(numbers) == len(set(asked)) else None
