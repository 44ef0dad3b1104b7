"""The tries of one check: asked at once as far as there is room, judged in the order of their numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gates.acceptance.check import (
    SMOKE_REJECTS,
    SMOKE_TRIES,
    Behaviour,
    Deterministic,
    Overall,
    Relative,
    Report,
    Sample,
    Skip,
    Tier,
)
from gates.acceptance.together import together
from gates.statistics import FixedPlan, Ruling, Sprt

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Check, Rule
    from gates.trial import Answer

_SMOKE_VARIANTS = 2


@dataclass(frozen=True)
class Try:
    """One try and what was wrong with it; `answers` in the order in which they came."""

    sample: Sample
    problem: str | None
    answers: tuple[Answer, ...] = ()

    @property
    def lost(self) -> bool:
        """Nothing was answered at all: the way there failed, and the behaviour was not seen."""
        return self.problem is not None and bool(self.answers) and not self.answers[-1].reply.answered


@dataclass
class Tries:
    """What came of one check so far."""

    check: Check
    done: list[Try] = field(default_factory=list)
    ruling: Ruling | None = None
    skipped: str | None = None

    @property
    def failures(self) -> list[Try]:
        return [one for one in self.done if one.problem is not None]

    @property
    def right(self) -> int:
        return len(self.done) - len(self.failures)

    def outcomes(self) -> list[bool]:
        return [one.problem is None for one in self.done]


def plan_of(rule: Rule, tier: Tier, modes: int) -> FixedPlan | Behaviour:
    """How many tries decide: a plan with a fixed number, or the sequential one."""
    match rule:
        case Deterministic():
            tries = rule.tries if tier is not Tier.SMOKE else rule.smoke_tries or min(rule.tries, _SMOKE_VARIANTS)
            return FixedPlan(tries * modes, 0)
        case Behaviour():
            # Five tries cannot accept anything: they only see what is plainly broken.
            return FixedPlan(SMOKE_TRIES, SMOKE_REJECTS - 1) if tier is Tier.SMOKE else rule
        case Relative() | Report():
            tries = rule.tries if tier is not Tier.SMOKE else min(rule.tries, SMOKE_TRIES)
            return FixedPlan(tries, tries)
        case Overall():
            raise AssertionError("a survey decides by itself and is no series of tries")


async def run_tries(check: Check, asker: Asker, seed: str, tier: Tier) -> Tries:
    """Ask until the rule has decided. A `Skip` in any try skips the check."""
    tries = Tries(check)
    planned = plan_of(check.rule, tier, len(check.modes))
    plan = planned.plan if isinstance(planned, Behaviour) else planned
    most = plan.n if isinstance(plan, FixedPlan) else plan.cap
    while tries.ruling is None and len(tries.done) < most and tries.skipped is None:
        for one in await _next(tries, asker, seed, len(tries.done) + _at_least(plan, tries)):
            tries.done.append(one)
            tries.ruling = plan.decide(tries.outcomes())
            if tries.ruling is not None and isinstance(check.rule, Behaviour):
                break
    return tries


async def more_tries(tries: Tries, asker: Asker, seed: str, most: int) -> None:
    """Go on where the tries ended until there are `most`; what ruled until now rules no more."""
    while len(tries.done) < most and tries.skipped is None:
        tries.done += await _next(tries, asker, seed, most)


async def _next(tries: Tries, asker: Asker, seed: str, most: int) -> list[Try]:
    """As many of the next tries as there is room for at once; none when the check does not apply after all."""
    check, number = tries.check, len(tries.done)
    samples = [check.sample(number + i, seed, asker.capability) for i in range(min(asker.concurrency, most - number))]
    try:
        asked = await together(attempt(check, asker, sample) for sample in samples)
        return [await _persisting(check, asker, one) for one in asked]
    except Skip as skip:
        tries.skipped = str(skip)
        return []


def _at_least(plan: Sprt | FixedPlan, tries: Tries) -> int:
    """So many more decide when all of them are right. What is asked beyond that at once would only burn time."""
    wrong, seen = len(tries.failures), len(tries.done)
    if isinstance(plan, FixedPlan):
        return plan.n - seen
    return next((more for more in range(1, plan.cap - seen) if plan.at(wrong, seen + more)), plan.cap - seen)


async def attempt(check: Check, asker: Asker, sample: Sample) -> Try:
    """One try, in its own place among the conversations that run at once."""
    assert check.attempt is not None  # noqa: S101 - surveys are run elsewhere
    async with asker.slot():
        before = len(asker.by_sample[sample.check, sample.number])
        problem = await check.attempt(asker, sample)
        return Try(sample, problem, tuple(asker.by_sample[sample.check, sample.number][before:]))


async def _persisting(check: Check, asker: Asker, one: Try) -> Try:
    """Where the rule says so, a failure counts only when two of three tries fail."""
    if one.problem is None or not (isinstance(check.rule, Deterministic) and check.rule.persists):
        return one
    again = [await attempt(check, asker, one.sample.asked(salt=f"again{i}")) for i in (1, 2)]
    return one if any(other.problem for other in again) else Try(one.sample, None, one.answers)
