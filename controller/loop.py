"""observe → decide → journal → act → journal. The only caller of effects; one action a pass."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable

import structlog

from .core.actions import ClearStrays, Decision, Effect, Outcome, SetRoute, Wait, aim
from .core.alarms import alarms
from .core.frozen import replace
from .core.invariants import violations
from .core.policy import Policy
from .core.records import State
from .core.rules import decide
from .core.seen import Seen, Vain
from .core.table import IllegalMove
from .crashpoints import crash_point
from .effects.ports import World
from .store.journal import Journal

log = structlog.get_logger("loop")

TICK_S = 0.2
_STALE_S = 30.0  # after that nobody wants any more what failed
_OF_DISKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
_OF_THE_BOX = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})  # open files, memory, processes


class Loop:
    """Level-triggered: it wakes on a timer and on nudges; a lost nudge costs latency, never correctness."""

    def __init__(self, journal: Journal, world: World, policy: Policy) -> None:
        self.journal = journal
        self.world = world
        self.policy = policy
        self.seen: Seen | None = None
        self.why = "starting"
        self._looked: tuple[State, Seen] | None = None
        self.trouble = ""  # why nothing can be decided: the disk or the box gives nothing; empty while they do
        self.passes = 0
        self._vain: dict[tuple[str, str], Vain] = {}
        self._nudge = threading.Event()
        self._stopping = threading.Event()

    def step(self) -> bool:
        """One pass. True when something was done, so that the next pass should follow at once."""
        state = self.journal.state
        seen = self.world.observe(state)
        if self._vain:
            seen = replace(seen, vain=self._vain)
        self.seen = seen
        self._looked = (state, seen)
        decision = decide(state, seen, self.policy)
        self.why = decision.why
        self.passes += 1
        if isinstance(decision.action, Wait):
            return False
        try:
            seq = self.journal.begin(decision.action, decision.why, self.world.now())
        except IllegalMove as error:
            # Somebody filed a request between the look and the intent: the next pass sees it.
            log.debug("decision overtaken", why=decision.why, error=str(error))
            return self.journal.state is not state  # else it would be decided for ever, without a breath
        log.info("decided", action=type(decision.action).__name__, why=decision.why)
        if not isinstance(decision.action, Effect):
            return True
        crash_point("effect-before")
        outcome = self.world.act(decision.action, self.journal.state, seen)
        crash_point("effect-after")
        self.journal.finish(seq, decision.action, outcome, self.world.now())
        self._remember(decision.action, outcome)
        return self._report(decision, outcome)

    @property
    def alarms(self) -> list[str]:
        """What a human must know, as of the last pass; worked out for who asks, from any thread."""
        if self._looked is None:
            return []
        state, seen = self._looked
        return [*violations(state, seen.door), *alarms(state, seen, self.policy)]

    def _remember(self, effect: Effect, outcome: Outcome) -> None:
        """What failed, until it succeeds or nobody tries it any more."""
        now_s = self.world.now().boot_s
        kept = {on: vain for on, vain in self._vain.items() if now_s - vain.at_s < _STALE_S}
        before = kept.pop(aim(effect), None)
        if not outcome.ok:
            times = 1 if before is None else before.times + 1
            kept[aim(effect)] = Vain(now_s, outcome.sentence or "no reason given", times)
        self._vain = kept

    def _report(self, decision: Decision, outcome: Outcome) -> bool:
        if outcome.ok:
            return True
        if isinstance(decision.action, SetRoute):
            self.journal.relieve()  # a front door that dies must find the route that it served
        if isinstance(decision.action, ClearStrays):  # it has signalled them: that they are gone, a later look shows
            log.info("not ended yet", action=type(decision.action).__name__, why=outcome.sentence)
            return False
        log.warning("effect failed", action=type(decision.action).__name__, why=outcome.sentence)
        # An effect that fails is decided again: after a breath, in which the rules behind it have their turn.
        return False

    def nudge(self) -> None:
        self._nudge.set()

    def stop(self) -> None:
        self._stopping.set()
        self._nudge.set()

    def _pass(self) -> bool:
        """One pass. A disk that takes nothing is waited for, and so is a box that gives nothing more.

        What could not be written down was not done.

        An effect whose outcome could not be written is decided again, as after a crash between the two.
        """
        try:
            busy = self.step()
        except sqlite3.Error as error:
            self._trouble(f"the journal cannot be written ({error})")
        except OSError as error:
            if error.errno in _OF_DISKS:
                self._trouble(f"the disk takes nothing ({error})")
            elif error.errno in _OF_THE_BOX:
                self._trouble(f"the box gives the daemon nothing more ({error})")
            else:
                raise
        else:
            if self.trouble:
                log.info("a pass can be made again")
            self.trouble = ""
            return busy
        return False

    def _trouble(self, why: str) -> None:
        if not self.trouble:
            log.error("no pass can be made", why=why)
        self.trouble = (
            f"{why}: nothing is decided until it can be, traffic is not touched; `cutover doctor` looks at it"
        )

    def run(self, after_pass: Callable[[], None] = lambda: None) -> None:
        """Until `stop`. `after_pass` is called after every completed pass (a watchdog lives on that)."""
        while not self._stopping.is_set():
            busy = self._pass()
            after_pass()
            if not busy:
                self._nudge.wait(TICK_S)
                self._nudge.clear()
