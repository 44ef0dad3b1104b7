"""The fake world with engines that sleep, that only say so, that wake up mad, and cards that show their memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fake_world import FakeProcess, FakeWorld

from controller.core import actions as act
from controller.core.records import State
from controller.core.seen import Life, ProbeSeen, SleepSeen

ENGINE_MIB = FakeProcess.memory_mib
LEFTOVER_MIB = 1_000  # a sleeper's CUDA context

HEALTHY = ""
KEEPS_MEMORY, HANGS, REFUSES = "keeps memory", "hangs", "refuses"  # when it is put to sleep
WAKES_MAD, WAKES_EMPTY, STAYS_ASLEEP = "wakes mad", "wakes empty", "stays asleep"  # when it is woken
TROUBLES = (KEEPS_MEMORY, HANGS, REFUSES, WAKES_MAD, WAKES_EMPTY, STAYS_ASLEEP)


@dataclass
class Engine:
    """What an engine that can sleep really does; `trouble` is one of the words above."""

    asleep: bool = False
    trouble: str = HEALTHY


@dataclass
class SleepyWorld(FakeWorld):
    """Sleeping and waking take `sleep_s` and `wake_s`. A controller that died knows nothing of what it had asked."""

    sleep_s: float = 2.0
    wake_s: float = 1.0
    engines: dict[str, Engine] = field(default_factory=dict)
    asked: dict[str, tuple[str, float]] = field(default_factory=dict)  # attempt → wanted, when it will be so
    trouble: str = HEALTHY  # of engines that start from now on

    def controller_died(self) -> None:
        self.asked.clear()

    def reboot(self) -> None:
        super().reboot()
        self.asked.clear()

    def _sleeps(self) -> dict[str, SleepSeen]:
        return {name: self._heard(name, *asked) for name, asked in self.asked.items()}

    def _heard(self, name: str, wanted: str, at_s: float) -> SleepSeen:
        if self.clock_s < at_s:
            return SleepSeen(wanted)
        engine, process = self.engines[name], self.processes[name]
        if engine.trouble == (REFUSES if wanted == "sleep" else STAYS_ASLEEP):
            return SleepSeen(wanted, False, f"its engine answers 500 to {wanted}")
        if engine.asleep is (wanted == "sleep"):
            return SleepSeen(wanted, True)  # and what it is since then, it is by itself
        engine.asleep = wanted == "sleep"
        given_back = engine.asleep and engine.trouble != KEEPS_MEMORY
        if not engine.asleep:
            process.garbage, given_back = engine.trouble == WAKES_MAD, engine.trouble == WAKES_EMPTY
        process.memory_mib = LEFTOVER_MIB if given_back else ENGINE_MIB
        return SleepSeen(wanted, True)

    def _probe(self, name: str | None) -> ProbeSeen:
        engine = self.engines.get(name or "")
        if engine is not None and engine.asleep:  # the request waits
            streak, since_s = self._in_a_row(1, 0.0)
            return ProbeSeen(
                False,
                self.clock_s,
                self.clock_s - 1,
                "generation",
                "no token",
                streak=streak,
                streak_since_s=since_s,
            )
        return super()._probe(name)

    def _StartAttempt(self, action: act.StartAttempt, state: State) -> act.Outcome:  # noqa: N802
        outcome = super()._StartAttempt(action, state)
        if outcome.ok and action.attempt not in self.engines:
            self.engines[action.attempt] = Engine(trouble=self.trouble)
        return outcome

    def _SleepAttempt(self, action: act.SleepAttempt, state: State) -> act.Outcome:  # noqa: N802
        return self._ask(action.attempt, "sleep", self.sleep_s)

    def _WakeAttempt(self, action: act.WakeAttempt, state: State) -> act.Outcome:  # noqa: N802
        return self._ask(action.attempt, "wake", self.wake_s)

    def _ask(self, name: str, wanted: str, takes_s: float) -> act.Outcome:
        engine, process = self.engines[name], self.processes.get(name)
        if process is None or process.life is not Life.RUNNING:
            return act.Outcome(False, f"{name} is gone: it cannot be asked to {wanted}")
        if engine.asleep is (wanted == "sleep"):
            takes_s = 0.0  # found, not done again
        elif engine.trouble == HANGS and wanted == "sleep":
            takes_s = math.inf
        self.asked[name] = (wanted, self.clock_s + takes_s)
        return act.Outcome(True)

    def die(self, name: str) -> None:
        process: FakeProcess = self.processes[name]
        process.life, process.sentence = Life.EXITED, "it died"
