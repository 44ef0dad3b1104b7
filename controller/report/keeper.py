"""Looks up what a report needs, makes it when somebody asks, and writes it by itself when a night is over."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import structlog

from .. import wholefile
from ..config import Config
from ..core.night_records import Night, NightState
from ..core.queue import why_not_yet
from ..core.records import Now, State
from ..core.retention import DAY_S
from ..core.route import Counted
from ..core.seen import Seen
from ..effects.frontdoor.counted import count
from ..errors import NotFoundError
from ..rounds import Rounds
from ..store.journal import Entry, Journal
from .build import build
from .document import from_json, to_json
from .markdown import to_markdown
from .material import Material
from .page import to_html
from .present import present
from .records import Report
from .rollouts import first_served_s, lasted
from .waits import Waits

log = structlog.get_logger("report")

LOOK_EVERY_S = 5.0
DARK_PATIENCE_S = 900.0  # what a night left in the dark is usually lit again by then
AGAIN_S = 600.0  # after which one that could not be made is tried again: a disk may have been full, or memory short
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}@\d{4}-\d{2}-\d{2}")  # a window's name, and a date
_LINES_AT_ONCE = 2000
_AFTER_S = 3600.0  # of lines behind the end of a night: live that comes back, cards that are given back
_QUIET_LINES = frozenset({"RecordSample", "SetRoute"})  # thousands of a night, and nothing here reads them


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the daemon's other parts stand, as far as a report asks them."""

    now: Callable[[], Now]
    seen: Callable[[], Seen | None]
    alarms: Callable[[], list[str]]
    gate_report: Callable[[str], Mapping[str, Any] | None]
    door_log: Path


class ReportKeeper:
    """A thread of its own: the loop waits for none of this. Files lie in `reports/` of the state directory."""

    def __init__(self, config: Config, journal: Journal, sources: Sources) -> None:
        self.alarms: tuple[str, ...] = ()
        self._config = config
        self._policy = config.policy
        self._journal = journal
        self._ask = sources
        self._waits = Waits()
        self._written: set[str] = set()
        self._untold: dict[str, float] = {}  # nights that could not be told, and when that was, on the clock of the box
        self._made: dict[str, Mapping[str, str]] = {}  # what no disk has taken yet, by night: suffix → text
        self._rounds = Rounds("reports", self.look, LOOK_EVERY_S)

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        """Returns when nothing is looked at any more; the journal may be closed then."""
        self._rounds.stop()

    # --- asked for ----------------------------------------------------------------------------------------------------

    def report(self, night_id: str) -> Report:
        """Of one night. One that is over is told as it was written then, with how things stand now.

        Raises `NotFoundError` for a night that is not on record.
        """
        night = self._journal.state.nights.get(night_id)
        kept = self._kept(night_id) if night is None or night.state is not NightState.OPEN else None
        if kept is not None:  # what was written outlives what the journal has of it
            return replace(kept, present=present(self._bare(night or _night_of(kept), self._journal.state)))
        if night is None:
            raise NotFoundError(f"there is no night {night_id}: `cutover report` shows the last one")
        return build(self._material(night))

    def is_written(self, night_id: str) -> bool:
        return self._path(night_id, "json").is_file()

    def _kept(self, night_id: str) -> Report | None:
        """None where none was written yet, or not by this version."""
        if not _ID.fullmatch(night_id):
            return None
        try:
            return from_json(self._path(night_id, "json").read_bytes())
        except (OSError, ValueError):
            return None

    # --- by itself ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """One round: what is waited for is noted, and nights that are over are written. Troubles are in `alarms`."""
        state, now = self._journal.state, self._ask.now()
        nights = takewhile(lambda _: not self._rounds.is_ending, state.nights.values())
        troubles = [trouble for night in nights if (trouble := self._see_to(night, state, now))]
        for trouble in troubles:
            if trouble not in self.alarms:
                log.warning("a report is not written", why=trouble)
        self.alarms = tuple(troubles)
        self._note_waits(state, now)

    def _note_waits(self, state: State, now: Now) -> None:
        seen = self._ask.seen()
        for night in state.nights.values():
            if night.state is not NightState.OPEN or seen is None or now.wall_s >= night.closes_wall_s:
                continue
            for rollout in state.queue:
                if rollout.options.window != night.window:
                    continue
                behind = f"{state.active.id} ran" if state.active else ""
                if why := why_not_yet(rollout, state, seen, self._policy) or behind:
                    self._waits.note(night.id, rollout.id, why)

    def _see_to(self, night: Night, state: State, now: Now) -> str:
        """Write its report if it is time; a sentence where that cannot be done."""
        ended_s = night.ended_wall_s
        if night.state is NightState.OPEN or ended_s is None or night.id in self._written:
            return ""
        failed_s = self._untold.get(night.id)
        if failed_s is not None and now.boot_s - failed_s < AGAIN_S:
            return _untold(night)
        if now.wall_s - ended_s > self._config.keep.days * DAY_S or self.is_written(night.id):
            self._written.add(night.id)
            return ""
        if _is_dark(night, state) and now.wall_s - ended_s < DARK_PATIENCE_S:
            return ""
        try:
            return self._write(night)
        except Exception:  # noqa: BLE001 - one night that cannot be told must not keep the others from being
            log.error("a report cannot be made", night=night.id, why=traceback.format_exc(limit=-4))  # noqa: TRY400 - a night is large
            self._untold[night.id] = now.boot_s
            return _untold(night)

    def _write(self, night: Night) -> str:
        if night.id not in self._made:
            report = build(self._material(night))
            self._made[night.id] = {"html": to_html(report), "md": to_markdown(report), "json": to_json(report)}
        try:
            self._config.reports_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
            for suffix, text in self._made[night.id].items():  # JSON last: it says that the others are there
                wholefile.put(self._path(night.id, suffix), text)
        except OSError as error:
            return (
                f"the report of {night.id} cannot be written to {self._config.reports_dir}: {error.strerror}; "
                f"`cutover report --night {night.id}` shows it all the same"
            )
        del self._made[night.id]
        self._written.add(night.id)
        log.info("report written", night=night.id, path=str(self._path(night.id, "html")))
        return ""

    def _path(self, night_id: str, suffix: str) -> Path:
        return self._config.reports_dir / f"{night_id}.{suffix}"

    # --- looked up ----------------------------------------------------------------------------------------------------

    def _bare(self, night: Night, state: State) -> Material:
        return Material(
            state=state,
            night=night,
            now=self._ask.now(),
            policy=self._policy,
            seen=self._ask.seen(),
            waits=self._waits.of(night.id),
            alarms=tuple(self._ask.alarms()),
            gates_dir=str(self._config.gates_dir),
        )

    def _material(self, night: Night) -> Material:
        bare = self._bare(night, self._journal.state)
        bare = replace(bare, entries=self._entries(night.opens_wall_s, bare.ends_s + _AFTER_S))
        rollouts = bare.rollouts()
        spans = {rollout.id: lasted(rollout, bare) for rollout in rollouts}
        until_s = max([bare.ends_s, *(end for _, end in spans.values())])
        since_s = first_served_s(bare)
        counted, log_since = self._counted(
            {night.id: (since_s, until_s), **{name: (max(begin, since_s), end) for name, (begin, end) in spans.items()}}
        )
        runs = [result.run for rollout in rollouts for result in rollout.gates]
        return replace(
            bare,
            reports={run: self._ask.gate_report(run) for run in runs},
            counted=counted,
            log_since=log_since,
        )

    def _entries(self, since_s: float, until_s: float) -> tuple[Entry, ...]:
        found: list[Entry] = []
        after = self._journal.seq_at(since_s)
        while lines := self._journal.entries(after, limit=_LINES_AT_ONCE):
            within = list(takewhile(lambda line: line.wall_s <= until_s, lines))
            found += [line for line in within if line.action not in _QUIET_LINES]
            if len(within) < len(lines):
                break
            after = lines[-1].seq
        return tuple(found)

    def _counted(self, spans: Mapping[str, tuple[float, float]]) -> tuple[dict[str, Counted], float | None]:
        """Nothing where there is no log to count in, or it cannot be read."""
        try:
            counts, since_s = count(self._ask.door_log, list(spans.values()))
        except OSError as error:
            log.warning("the front door's log cannot be read", why=str(error))
            return {}, None
        return (dict(zip(spans, counts, strict=True)), since_s) if since_s is not None else ({}, None)


def _untold(night: Night) -> str:
    return f"the report of {night.id} cannot be made: the daemon's log says why"


def _night_of(report: Report) -> Night:
    """As far as it takes to say how things stand now."""
    told = report.night
    return Night(told.id, told.window, told.date, told.opens.timestamp(), told.closes.timestamp())


def _is_dark(night: Night, state: State) -> bool:
    return any(r.night == night.id and r.dark_since_s is not None for r in state.rollouts.values())
