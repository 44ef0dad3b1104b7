"""What must hold for every answer that any check received, whatever it asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates import invariants, tally
from gates.acceptance.asker import SilentError
from gates.acceptance.check import Sample, Skip
from gates.acceptance.rerun import MAX_RERUNS, in_mode, look_into_answer
from gates.acceptance.spoiled import Spoiled, ask_production, comparable, counted
from gates.contract import VerdictKind
from gates.parts import part_of
from gates.trial import DeadlineError

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.toolwire import Breach
    from gates.trial import Answer, Trial

RERUNS: Final = 10
"""A breach that a model alone can commit: the same request this often again, half streamed; one more fails the gate."""
TOLERATED: Final = 0.002
"""The share of all answers that a model may spoil by itself."""


async def judge_every_answer(
    trial: Trial,
    asker: Asker | None,
    *,
    smoke: bool,
    blocked: bool = False,
    live: Asker | None = None,
    before: Spoiled | None = None,
) -> None:
    """One check per rule.

    Without `asker` nothing can be asked again, and what a model may do is only shown unless it came often. `blocked`:
    something blocks already, and only what tells the layer at fault is asked. `before` is what production showed in an
    earlier run of the same gate; without it `live` is asked, if something hangs on it.
    Raises what `Asker` raises, after every rule is judged by what is known.
    """
    await _EveryAnswer(trial, asker, smoke, blocked, live, before).judge()


@dataclass
class _Suspect:
    """A rule that a model may break, and was broken. `asked_again`: so often; `again`: the last broke it too."""

    rule: str
    guilty: list[tuple[Answer, Breach]]
    total: int
    smoke: bool
    asked_again: int = 0
    again: bool = False

    @property
    def suspicious(self) -> bool:
        """Fails, where nothing is known of production."""
        # A handful of answers cannot bound a share of 0.2 %: there only the repetition decides.
        too_many = len(self.guilty) > max(1.0, TOLERATED * self.total) and not self.smoke
        return self.again or too_many


@dataclass
class _EveryAnswer:
    trial: Trial
    asker: Asker | None
    smoke: bool
    blocked: bool
    live: Asker | None
    before: Spoiled | None
    looked_into: int = 0
    ended: SilentError | DeadlineError | None = None

    async def judge(self) -> None:
        certain: dict[str, Answer] = {}
        suspects: dict[str, _Suspect] = {}
        answers = list(self.trial.answers)
        for answer in answers:
            for breach in answer.breaches:
                if breach.by_model:
                    suspect = suspects.setdefault(breach.rule, _Suspect(breach.rule, [], len(answers), self.smoke))
                    suspect.guilty.append((answer, breach))
                else:
                    certain.setdefault(breach.rule, answer)
        # Counted before anything is asked again, or the guilty requests would count eleven times.
        comparing = comparable(self.asker) if self.asker is not None else answers
        here = counted(comparing)
        self.trial.measurements["rules"] = here.as_dict()
        if not self.blocked:
            for rule in sorted(suspects):
                await self._ask_again(suspects[rule])
            await self._ask_production(list(suspects.values()), comparing)
        reruns = {rule: await self._look_into(rule, certain[rule]) for rule in sorted(certain)}
        tally.check_invariants(self.trial, at_once=frozenset(), reruns=reruns)
        for rule in sorted(suspects):
            await self._conclude(suspects[rule], here)
        if self.ended is not None:
            raise self.ended

    async def _ask_production(self, suspects: list[_Suspect], answers: list[Answer]) -> None:
        """Only where it can change a verdict: production has users."""
        matters = any(suspect.suspicious or len(suspect.guilty) > 1 for suspect in suspects)
        if self.before is None and self.live is not None and matters and not self.smoke:
            self.trial.say("production: the same requests, for the rules that a model may break")
            self.before = await ask_production(self.live, answers)

    async def _conclude(self, suspect: _Suspect, here: Spoiled) -> None:
        rule, guilty = suspect.rule, suspect.guilty
        base = None if self.smoke else self.before
        worse = base is not None and here.worse_than(base, rule)
        # Production that never did it excuses nothing: then a breach that comes again is the candidate's own.
        shared = base is not None and base.of(rule) > 0 and not worse
        failed = worse or (suspect.suspicious and not shared)
        figures: dict[str, Any] = {"hits": len(guilty), "answers": suspect.total, "again": int(suspect.again)}
        figures["asked_again"] = suspect.asked_again
        words = [f"{len(guilty)} of {suspect.total} answers"]
        if suspect.asked_again:
            words.append(again_in_words(suspect.asked_again, broke=suspect.again))
        if base is not None:
            figures["production"] = {"n": base.answers, "right": base.answers - base.of(rule)}
            how = ", less often than here" if worse else ", no less often than here" if shared else ""
            words.append(f"production: {base.of(rule)} of {base.answers}{how}")
        if failed:
            figures |= await self._look_into(rule, guilty[0][0])
        at_fault = f"; at fault: {figures['layer']}" if "layer" in figures else ""
        self.trial.check(
            part_of(rule) if rule in {check.id for check in self.trial.checks} else rule,
            VerdictKind.FAIL if failed else VerdictKind.PASS,
            f"{guilty[0][1].sentence} ({'; '.join(words)}){at_fault}",
            rule=invariants.RULES.get(rule, rule),
            exchanges=[one.exchange for one, _ in guilty[:3]],
            measurements=figures,
            warn=not failed,
        )

    async def _look_into(self, rule: str, answer: Answer) -> dict[str, Any]:
        """The five re-runs and the layer at fault, as measurements; empty where nothing can be asked."""
        if self.asker is None or self.ended is not None or self.looked_into >= MAX_RERUNS:
            return {}
        self.looked_into += 1
        try:
            reruns, layer = await look_into_answer(rule, answer, self.asker, self.live)
        except (SilentError, DeadlineError) as end:
            self.ended = end
            return {}
        return {"reruns": [one.as_dict() for one in reruns], "layer": layer}

    async def _ask_again(self, suspect: _Suspect) -> None:
        """The same request again until one answer breaks the rule too, at most `RERUNS` times."""
        if self.asker is None or self.ended is not None:
            return
        rule, answer = suspect.rule, suspect.guilty[0][0]
        for number in range(RERUNS):
            streamed = number % 2 == 0
            sample = Sample(f"{rule}.again", number, "again", streamed=streamed, greedy=False)
            try:
                async with self.asker.slot():
                    again = await self.asker.send(sample, in_mode(answer.body, streamed=streamed))
            except Skip:
                return
            except (SilentError, DeadlineError) as end:
                self.ended = end
                return
            suspect.asked_again += 1
            suspect.again = any(breach.by_model and breach.rule == rule for breach in again.breaches)
            if suspect.again:
                return


def again_in_words(asked: int, *, broke: bool) -> str:
    """How often it was asked again, and what came of it; asking ends with the first answer that breaks the rule too."""
    if broke:
        return f"asked again: the {_ordinal(asked)} of at most {RERUNS} broke it too"
    return f"asked {asked} times again: none broke it" if asked > 1 else "asked once again: it did not break it"


def _ordinal(number: int) -> str:
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number, "th")
