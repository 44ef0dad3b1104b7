"""The run of the gate: which checks, in which order, what they decide, and what must hold for every answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from gates import load_client
from gates.acceptance import register
from gates.acceptance.asker import Asker, BlockedError, Limits, SilentError
from gates.acceptance.check import Skip, Tier
from gates.acceptance.decide import Decision
from gates.acceptance.door import knock
from gates.acceptance.every_answer import judge_every_answer
from gates.acceptance.reach import reach_of
from gates.acceptance.relative import Production, decided
from gates.acceptance.rerun import MAX_RERUNS, look_into
from gates.acceptance.spoiled import read_spoiled
from gates.acceptance.survey import Surroundings
from gates.acceptance.together import together
from gates.acceptance.tries import run_tries
from gates.contract import VerdictKind
from gates.endpoint import Endpoint
from gates.invariants import RULES
from gates.strict import StrictModel, read_model
from gates.trial import CannotJudgeError, DeadlineError, skipped_words
from gates.waivers import read_waivers

if TYPE_CHECKING:
    from gates.acceptance.check import Check
    from gates.acceptance.spoiled import Spoiled
    from gates.acceptance.tries import Tries
    from gates.contract import Verdict
    from gates.trial import Trial
    from gates.wire import Exchange

MAX_EVIDENCE: Final = 3


class AcceptanceSettings(StrictModel):
    """Settings of the gate `acceptance`."""

    tier: Literal["smoke", "standard", "extended"] = "standard"
    checks: tuple[str, ...] = Field(default=(), strict=False)
    """Only these: check ids (J01) and group letters (F). Empty: all of the tier."""
    without: tuple[str, ...] = Field(default=(), strict=False)
    """All but these."""
    concurrency: int = Field(default=8, gt=0, le=256)
    """Conversations that run at once."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for one answer."""
    max_tokens: int = Field(default=1024, gt=0)
    thinking_max_tokens: int = Field(default=4096, gt=0)
    seed: str = ""
    """The same seed asks the same questions; empty: new ones in every run."""
    waivers: tuple[Mapping[str, Any], ...] = Field(default=(), strict=False)
    """Known failures that are let through: `check`, `reason`, `expires`; `mode` and `fault` narrow one."""
    stop_early: bool = False
    """End at the first block; the tier `smoke` always does, the others gather everything."""
    accuracy_set: str | None = None
    """A JSONL file of requests with expectations, for A01 and A02 (`gates.own_set` reads it)."""
    on_production: bool = False
    """The endpoint is production: nothing that loads or may hurt it."""


class SmokeSettings(AcceptanceSettings):
    """Settings of the gate `smoke`: `acceptance` in its smallest tier."""

    tier: Literal["smoke", "standard", "extended"] = "smoke"


def run(trial: Trial) -> Verdict:
    model = SmokeSettings if trial.request.gate == "smoke" else AcceptanceSettings
    settings = read_model(model, trial.request.profile, f"settings of gate {trial.request.gate}")
    today = trial.started_at.date()
    trial.waivers = read_waivers(settings.waivers, today, f"settings of gate {trial.request.gate}")
    judgement = _Judgement(trial, settings, _chosen(trial, settings))
    try:
        if judgement.chosen:
            load_client.run(judgement.all)
    finally:
        trial.account_for_waivers()
    if not judgement.chosen:
        trial.measurements["again"] = False
    if not judgement.done:
        # The rules hold for every answer, also for that to the first plain question: alone they are no judgement.
        nothing = f"`checks` and `without` leave nothing to ask in the tier {settings.tier}"
        return trial.verdict("", nothing=skipped_words(trial.checks) if _skipped(trial) else nothing)
    return trial.verdict(f"{judgement.passed} checks passed, {judgement.asker.requests} requests")


def _skipped(trial: Trial) -> bool:
    return any(check.skipped for check in trial.checks)


def _chosen(trial: Trial, settings: AcceptanceSettings) -> list[Check]:
    """The checks that apply; the others of the tier are reported as skipped, never as passed."""
    reached = reach_of(trial.request.gate, settings).of(settings.checks)
    chosen = []
    for check in register.checks():
        if check.id not in reached:
            continue
        why_not = check.needs(trial.capability)
        if settings.on_production and (check.destructive or check.exclusive):
            why_not = "never asked of production: it loads the engine or may hurt it"
        if why_not is None:
            chosen.append(check)
        else:
            trial.skip(check.id, why_not)
    return chosen


@dataclass
class _Judgement:
    trial: Trial
    settings: AcceptanceSettings
    chosen: list[Check]
    figures: dict[str, Any] = field(default_factory=dict)
    failing: list[tuple[Check, Tries, Decision]] = field(default_factory=list)
    looked_into: int = 0
    passed: int = 0
    done: int = 0

    async def all(self) -> None:
        """Everything, each group's checks side by side, then those that want the engine for themselves."""
        settings = self.settings
        self.tier = Tier(settings.tier)
        self.seed = settings.seed or secrets.token_hex(4)
        limits = Limits(settings.timeout_s, settings.max_tokens, settings.thinking_max_tokens)
        # Ended at a waived failure, a run would never ask what is not waived.
        self.stop_early = (settings.stop_early or self.tier is Tier.SMOKE) and not self.trial.waivers
        self.asker = Asker(self.trial, limits, settings.concurrency)
        self.live = self._live()
        self.production = Production(self.live, self.seed)
        before = self.trial.request.baseline or {}
        shown = before.get("measurements")
        self.surroundings = Surroundings(
            self.seed,
            self.tier,
            settings.concurrency,
            shown if isinstance(shown, Mapping) else {},
            self.live,
            self.trial.request.metrics_url,
        )
        self.trial.measurements |= {"seed": self.seed, "tier": settings.tier}
        try:
            if await self._shut():
                return
            await self._measure_production()
            await self._ask()
        except SilentError as silent:
            rule = "an engine that fails at some questions still answers a plain one, and its answers have an end"
            self.trial.check("silent", VerdictKind.FAIL, silent.sentence, rule=rule, exchanges=[silent.exchange])
        finally:
            self.trial.measurements |= {"checks": self.figures, "requests": self.asker.requests}
            if self.production.tries:
                self.trial.measurements["production"] = self.production.figures()
            self.asker.close()
            if self.live is not None:
                self.live.close()

    async def _shut(self) -> bool:
        """Nothing is asked of an endpoint that does not answer a plain question: one sentence says why it does not."""
        shut = await knock(self.asker, self.seed)
        if shut is not None:
            self.trial.check("P08", VerdictKind.FAIL, shut.sentence, rule=RULES["P08"], exchanges=shut.exchanges)
            if self.trial.checks[-1].waived:
                # Who waives single lost answers does not waive that there are none.
                raise CannotJudgeError(shut.sentence)
        self.asker.stop_early = self.stop_early
        return shut is not None

    async def _measure_production(self) -> None:
        """The same questions to production first, where nothing is known of it: what is only relative needs them."""
        if self.live is None or self.surroundings.baseline or self.tier is Tier.SMOKE:
            return
        why_not = await self.production.measure(self.chosen)
        if why_not is not None:
            self.trial.skip("production", why_not)
            return
        self.surroundings = replace(self.surroundings, baseline={"checks": self.production.figures()})

    async def _ask(self) -> None:
        smoke = self.tier is Tier.SMOKE
        try:
            for group in _batches(self.chosen):
                await together(self._one(check) for check in group)
                await self._look_into_failures()
        except BlockedError:
            self.asker.stop_early = False
            await self._look_into_failures()
            await judge_every_answer(self.trial, self.asker, smoke=smoke, blocked=True, live=self.live)
        except (SilentError, DeadlineError):
            # What was seen before counts all the same.
            for check, tries, decision in self.failing:
                self._conclude(check, decision, _evidence(tries))
            await judge_every_answer(self.trial, None, smoke=smoke)
            raise
        else:
            self.asker.stop_early = False
            before = self._spoiled_before()
            await judge_every_answer(self.trial, self.asker, smoke=smoke, live=self.live, before=before)

    def _spoiled_before(self) -> Spoiled | None:
        """What production showed in an earlier run; another tier asks in other proportions."""
        shown = self.surroundings.baseline
        return read_spoiled(shown.get("rules")) if shown.get("tier") == self.settings.tier else None

    async def _one(self, check: Check) -> None:
        if check.survey is not None:
            try:
                found = await check.survey(self.asker, self.surroundings)
            except Skip as skip:
                self.trial.skip(check.id, str(skip))
                return
            if found.skipped:
                self.figures[check.id] = dict(found.measurements)
                self.trial.skip(check.id, found.sentence)
                return
            decision = Decision(found.verdict, found.sentence, found.measurements, found.warn)
            if check.warns and found.verdict is VerdictKind.FAIL:
                decision = replace(decision, verdict=VerdictKind.PASS, warn=True)
            self._conclude(check, decision, list(found.exchanges))
            if self.stop_early and decision.verdict is VerdictKind.FAIL:
                raise BlockedError
            return
        tries = await run_tries(check, self.asker, self.seed, self.tier)
        if tries.skipped is not None:
            self.trial.skip(check.id, tries.skipped)
            return
        earlier = self.surroundings.before(check.id)
        decision = await decided(tries, self.asker, self.tier, self.production, earlier)
        if decision.verdict is VerdictKind.FAIL:
            # Looked into when the checks beside it are through: one of the questions is asked with nothing else there.
            self.failing.append((check, tries, decision))
            if self.stop_early:
                raise BlockedError
        else:
            self._conclude(check, decision, _evidence(tries))

    async def _look_into_failures(self) -> None:
        """Failing checks with the layer at fault, as five more questions tell it."""
        while self.failing:
            check, tries, decision = self.failing[0]
            if self.looked_into < MAX_RERUNS:
                self.looked_into += 1
                reruns, layer = await look_into(check, tries.failures[0], self.asker, self.live)
                figures = {**decision.measurements, "reruns": [r.as_dict() for r in reruns], "layer": layer}
                sentence = f"{decision.sentence}; at fault: {layer}"
                decision = replace(decision, sentence=sentence, measurements=figures)
            self.failing.pop(0)
            self._conclude(check, decision, _evidence(tries))

    def _conclude(self, check: Check, decision: Decision, exchanges: list[Exchange]) -> None:
        self.done += 1
        self.passed += decision.verdict is VerdictKind.PASS
        self.figures[check.id] = dict(decision.measurements)
        shown = exchanges if decision.warn or decision.verdict is not VerdictKind.PASS else None
        self.trial.check(
            check.id,
            decision.verdict,
            decision.sentence,
            rule=f"{check.holds} ({check.rule_words})",
            exchanges=shown,
            measurements=decision.measurements,
            warn=decision.warn,
        )
        self.trial.progress_line({"done": self.done, "of": len(self.chosen), "requests": self.asker.requests})

    def _live(self) -> Asker | None:
        endpoint = self.trial.request.live_endpoint
        if endpoint is None:
            return None
        request = self.trial.request.model_copy(
            update={"endpoint": endpoint, "model": self.trial.request.live_model or self.trial.request.model}
        )
        there = replace(
            self.trial,
            request=request,
            endpoint=Endpoint.at(endpoint, self.trial.endpoint.api_key),
            answers=[],
            checks=[],
            measurements={},
        )
        return self.asker.elsewhere(there)


def _evidence(tries: Tries) -> list[Exchange]:
    return [answer.exchange for one in tries.failures[:MAX_EVIDENCE] for answer in one.answers]


def _batches(chosen: list[Check]) -> list[list[Check]]:
    """What may run side by side: each group, then one by one what runs alone, then what may hurt."""
    together = [c for c in chosen if not (c.exclusive or c.destructive or c.looks_back)]
    batches = [[c for c in together if c.group == group] for group in register.GROUPS]
    smoke_first = [[c for c in batch if c.tier is Tier.SMOKE] for batch in batches]
    later = [[c for c in batch if c.tier is not Tier.SMOKE] for batch in batches]
    alone = [[c] for c in chosen if c.exclusive and not c.destructive]
    last = [[c] for c in chosen if c.destructive]
    back = [c for c in chosen if c.looks_back]
    return [batch for batch in (*smoke_first, *later, *alone, *last, back) if batch]
