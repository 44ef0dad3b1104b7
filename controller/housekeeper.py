"""What has to be looked after while nothing happens: ballast, the journal's files, and what of the past takes room."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import structlog

from .config import Config
from .core.records import Now
from .core.retention import DAY_S
from .effects.remnants import removals, remove
from .rounds import Rounds
from .store.ballast import Ballast, free_bytes, total_bytes
from .store.condition import READ_ONLY, written_by_nobody
from .store.journal import Journal

log = structlog.get_logger("housekeeper")

LOOK_EVERY_S = 2.0
PRUNE_EVERY_S = 3600.0
_LOW_SHARE = 0.05
_LOW_BYTES = 1 << 30


class Housekeeper:
    """A thread of its own: what takes long here, or hangs with a disk, delays no decision."""

    def __init__(self, config: Config, journal: Journal, ballast: Ballast, now: Callable[[], Now]) -> None:
        self.alarms: tuple[str, ...] = ()
        self._config = config
        self._journal = journal
        self._ballast = ballast
        self._now = now
        self._low_bytes = min(_LOW_BYTES, int(total_bytes(config.state_dir) * _LOW_SHARE))
        self._pruned_s: float | None = None
        self._rounds = Rounds("housekeeper", self.look, LOOK_EVERY_S)

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        """Returns when nothing is looked at any more; the journal may be closed then."""
        self._rounds.stop()

    def look(self) -> None:
        """One round. What needs somebody is in `alarms` until the next."""
        found = [self._ballast.tend(), self._journal.mend(), self._unwritable()]
        free = free_bytes(self._config.state_dir)
        if free < self._low_bytes and not found[0]:
            found.append(
                f"the disk of {self._config.state_dir} is nearly full, {free >> 20} MiB are free: make room, "
                "`cutover prune --dry-run` says what could go"
            )
        new = [sentence for sentence in found if sentence and sentence not in self.alarms]
        for sentence in new:
            log.warning("the disk needs somebody", why=sentence)
        self.alarms = tuple(sentence for sentence in found if sentence)
        self._prune()

    def _unwritable(self) -> str:
        """At rest nothing is written, and nobody would notice until somebody needs the way back."""
        why = written_by_nobody(self._config.journal)
        return f"{why}: nothing can be decided until it takes writes; {READ_ONLY}" if why else ""

    def _prune(self) -> None:
        now = self._now()
        if self._pruned_s is not None and now.boot_s - self._pruned_s < PRUNE_EVERY_S:
            return
        self._pruned_s = now.boot_s
        self._forget(now)
        for removal in removals(self._config, self._journal.state, now.wall_s):
            if self._rounds.is_ending:
                return
            if trouble := remove(removal):
                log.warning("not pruned", why=trouble)
            else:
                log.info("pruned", path=str(removal.paths[0]), size_bytes=removal.size_bytes, why=removal.why)

    def _forget(self, now: Now) -> None:
        """The journal's own past. On a full disk it waits: what is kept free there is for a way back."""
        if self._ballast.is_dropped:
            return
        try:
            told = self._journal.forget(now.wall_s - self._config.keep.days * DAY_S, now)
        except sqlite3.Error as error:
            log.warning("the past was not forgotten", why=str(error))
        else:
            if told:
                log.info("forgotten", what=told)
