"""Tells people: one thread reads the journal and the alarms, one per destination carries. None of them decides."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from tenacity import Retrying, retry_if_result, stop_when_event_set, wait_exponential, wait_random
from tenacity.nap import sleep_using_event

from ..core.records import Now, State
from ..store.journal import Journal
from .courier import DEADLINE_S, Courier
from .destination import Destination
from .events import event_of
from .outbox import Outbox
from .standing import Standing

log = structlog.get_logger("notify")

UNREACHED_S = 3600.0
_GRACE_S = 2.0  # at the end: what is nearly told need not come twice
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """Between tries: twice as long after each, never longer than `longest_s`, and a little more or less."""

    first_s: float = 5.0
    longest_s: float = 300.0
    look_s: float = 1.0  # between two looks at the journal


class Notifier:
    """`stop` returns within seconds whatever a receiver or a plugin does: what is sending is ended."""

    def __init__(
        self,
        to: Sequence[Destination],
        journal: Journal,
        file: Path,
        alarms: Callable[[], Sequence[str]],
        now: Callable[[], Now],
        *,
        pauses: Pauses = Pauses(),
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`file`: where it is kept what was told. `deadline_s`: of one try."""
        self._journal = journal
        self._asked_alarms = alarms
        self._now = now
        self._look_s = pauses.look_s
        self._ending = threading.Event()
        self._to = to
        if to:
            self._outbox = Outbox(file, to, journal.seq, now)
            self._standing = Standing(self._outbox.told_alarms, now())
            self._carriers = tuple(
                Carrier(Courier(destination, deadline_s), self._outbox, pauses, self._ending) for destination in to
            )
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Who has not been reached for an hour."""
        return self._outbox.unreached(UNREACHED_S) if self._to else ()

    def start(self) -> None:
        if self._to:
            for carrier in self._carriers:
                carrier.start()
            self._thread.start()

    def stop(self) -> None:
        """Returns when the journal is not read any more."""
        self._ending.set()
        if not self._to:
            return
        if self._thread.is_alive():
            self._thread.join()
        ends_s = time.monotonic() + _GRACE_S
        for carrier in self._carriers:
            carrier.finish(max(0.0, ends_s - time.monotonic()))
        for carrier in self._carriers:
            carrier.stop()
        self._outbox.close()

    def _run(self) -> None:
        said = ""
        while not self._ending.is_set():
            try:
                self.look()
                said = ""
            except sqlite3.Error as error:
                if said != str(error):
                    log.warning("the journal cannot be read", why=str(error))
                said = str(error)
            except Exception:
                log.exception("what happened could not be looked at")
            self._ending.wait(self._look_s)

    def look(self) -> None:
        """One round: what the journal says since the last, and the alarms that are new."""
        while True:
            lines = self._journal.lines(self._outbox.cursor) if self._journal.seq != self._outbox.cursor else []
            state = self._journal.state  # after the lines, so that it is as new as they are
            events = [event for line in lines if (event := event_of(line, state)) is not None]
            cursor = lines[-1].seq if lines else self._outbox.cursor
            if not lines:
                events += self._standing.look(self._alarms(state), self._now())
            self._outbox.put(events, cursor, self._standing.told)
            for carrier in self._carriers if events else ():
                carrier.nudge()
            if not lines:
                return

    def _alarms(self, state: State) -> list[str]:
        """Without those that the journal tells as events of their own."""
        quarantined = tuple(f"{gpu} is quarantined" for gpu, closed in state.closed.items() if not closed.by)
        return [text for text in self._asked_alarms() if not text.startswith(quarantined)]


class Carrier:
    """The thread of one destination: the oldest message again and again until it is taken, or a day old."""

    def __init__(self, courier: Courier, outbox: Outbox, pauses: Pauses, ending: threading.Event) -> None:
        self._courier = courier
        self._outbox = outbox
        self._name = courier.destination.name
        self._ending = ending
        self._nudge = threading.Event()
        self._pause_s = pauses.first_s
        self._again = Retrying(
            retry=retry_if_result(lambda taken: not taken),
            wait=wait_exponential(pauses.first_s, pauses.longest_s) + wait_random(0, pauses.first_s / 10),
            sleep=sleep_using_event(ending),
            stop=stop_when_event_set(ending),
            retry_error_callback=lambda _: None,
        )
        self._thread = threading.Thread(target=self._run, name=f"notify {self._name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        self._nudge.set()

    def finish(self, within_s: float) -> None:
        """After `ending` is set: the try that is under way may come to its end."""
        self._nudge.set()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def stop(self) -> None:
        self._courier.stop()
        self.finish(_STOP_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                while not self._ending.is_set() and self._outbox.next(self._name) is not None:
                    self._again(self._try)
                self._nudge.wait()
                self._nudge.clear()
            except Exception:
                log.exception("a message could not be carried", target=self._name)
                self._ending.wait(self._pause_s)

    def _try(self) -> bool:
        """True when nothing is left to be tried again."""
        found = self._outbox.next(self._name)
        if found is None:
            return True
        event, dropped = found
        answer = self._courier.send(event, dropped)
        if answer.ok:
            self._outbox.taken(self._name, event, dropped)
            log.info("told", target=self._name, message=event.id)
        elif not self._ending.is_set() and self._outbox.failed(self._name, answer.sentence):
            log.warning("not taken, tried again", target=self._name, message=event.id, why=answer.sentence)
        return answer.ok
