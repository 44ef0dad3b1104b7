"""Gate `own-set`: your own requests, with your own expectations, judged beside the rules that hold for every answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gates import load_client, own_judge, own_set
from gates.acceptance.asker import Asker, Limits, SilentError
from gates.acceptance.check import Sample
from gates.acceptance.every_answer import judge_every_answer
from gates.acceptance.together import together
from gates.contract import VerdictKind
from gates.patience import RunawayError
from gates.statistics import Ruling, wilson_lower
from gates.strict import StrictModel, read_model
from gates.trial import DeadlineError
from gates.waivers import read_waivers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.contract import Verdict
    from gates.own_set import Ask, Series
    from gates.trial import Answer, Trial

MAX_EVIDENCE: Final = 3
_EXCUSED: Final = frozenset({"O17"})
"""A Hindi question in Latin letters wants Hindi, a question about a poet his verse: whoever wrote the set knows."""


class OwnSetSettings(StrictModel):
    """Settings of the gate `own-set`."""

    file: str = Field(min_length=1)
    """The JSONL file; a path that does not depend on where the gate is started."""
    concurrency: int = Field(default=8, gt=0, le=256)
    """Requests that run at once."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for one answer."""
    judging_s: float = Field(default=own_judge.LIMIT_S, gt=0)
    """Longest computing for what is expected of one answer: a regular expression may explode."""
    max_tokens: int = Field(default=4096, gt=0)
    """For requests that do not say it themselves."""
    seed: str = ""
    """The order of requests that are judged together; empty: another in every run."""
    waivers: tuple[Mapping[str, Any], ...] = Field(default=(), strict=False)
    """Known failures that are let through: `check` is a request's id; `reason`, `expires`."""


def run(trial: Trial) -> Verdict:
    where = f"settings of gate {trial.request.gate}"
    settings = read_model(OwnSetSettings, trial.request.profile, where)
    trial.waivers = read_waivers(settings.waivers, trial.started_at.date(), where)
    items = own_set.read(Path(settings.file))
    seed = settings.seed or secrets.token_hex(4)
    trial.measurements |= {"seed": seed, "items": len(items)}
    series = own_set.series(items, seed)

    async def all_of_it() -> None:
        await _Run(trial, settings, seed).all(series)

    try:
        load_client.run(all_of_it)
    finally:
        trial.account_for_waivers()
    return trial.verdict(f"{len(items)} requests of {Path(settings.file).name} are answered as expected")


class _Run:
    """One run over all series; inside one event loop."""

    def __init__(self, trial: Trial, settings: OwnSetSettings, seed: str) -> None:
        self._trial = trial
        self._settings = settings
        self._seed = seed
        self._asker = Asker(trial, Limits(settings.timeout_s), settings.concurrency, excused=_EXCUSED)

    async def all(self, series: Sequence[Series]) -> None:
        try:
            await together(self._one(each) for each in series)
        except (SilentError, DeadlineError) as end:
            # What was seen before counts all the same.
            await judge_every_answer(self._trial, None, smoke=False)
            if isinstance(end, DeadlineError):
                raise
            self._trial.check("silent", VerdictKind.FAIL, end.sentence, exchanges=[end.exchange])
        else:
            await self._judge_every_answer()
        finally:
            self._trial.measurements["requests"] = self._asker.requests
            self._asker.close()

    async def _judge_every_answer(self) -> None:
        try:
            await judge_every_answer(self._trial, self._asker, smoke=False)
        except SilentError as end:
            self._trial.check("silent", VerdictKind.FAIL, end.sentence, exchanges=[end.exchange])

    async def _one(self, series: Series) -> None:
        """Ask as long as the plan wants more; what counts is the order of the asks, not that of the answers."""
        seen: list[tuple[Answer, str | None]] = []
        ruling: Ruling | None = None
        try:
            while ruling is None and len(seen) < len(series.asks):
                batch = series.asks[len(seen) : len(seen) + self._settings.concurrency]
                seen += await together(self._ask(series, ask, len(seen) + n) for n, ask in enumerate(batch))
                ruling = series.plan.decide([problem is None for _, problem in seen])
        except RunawayError as error:
            # The file is at fault, and only this series of it.
            self._trial.check(series.name, VerdictKind.ERROR, str(error), rule=_rule(series))
            return
        self._conclude(series, seen, ruling)

    async def _ask(self, series: Series, ask: Ask, number: int) -> tuple[Answer, str | None]:
        sample = Sample(f"own/{series.name}", number, self._seed, ask.streamed, greedy=False)
        body: dict[str, Any] = {"model": self._asker.model, **ask.item.body()}
        if "max_tokens" not in body and "max_completion_tokens" not in body:
            body["max_tokens"] = self._asker.capability.room(self._settings.max_tokens)
        if ask.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._asker.slot():
            answer = await self._asker.send(sample, body)
        problem = own_judge.judged(ask.item, answer.reply, self._settings.judging_s)
        mode = "streamed" if ask.streamed else "whole"
        return answer, None if problem is None else f"{ask.item.id}, {mode}: {problem}"

    def _conclude(self, series: Series, seen: Sequence[tuple[Answer, str | None]], ruling: Ruling | None) -> None:
        wrong = [(answer, problem) for answer, problem in seen if problem is not None]
        n, right = len(seen), len(seen) - len(wrong)
        verdict, why = _verdict(ruling)
        sentence = f"as expected in {right} of {n}{why}"
        figures: Mapping[str, Any] = {"n": n, "right": right, "lower_bound": round(wilson_lower(right, n), 4)}
        self._trial.check(
            series.name,
            verdict,
            f"{wrong[0][1]} ({sentence})" if wrong else sentence,
            rule=_rule(series),
            exchanges=[answer.exchange for answer, _ in wrong[:MAX_EVIDENCE]] or None,
            measurements=figures,
            warn=verdict is VerdictKind.PASS and bool(wrong),
        )


def _verdict(ruling: Ruling | None) -> tuple[VerdictKind, str]:
    if ruling is Ruling.ACCEPT:
        return VerdictKind.PASS, ""
    if ruling is Ruling.REJECT:
        return VerdictKind.FAIL, ""
    return VerdictKind.INCONCLUSIVE, "; more requests would be needed to tell"


def _rule(series: Series) -> str:
    if series.name in ("B90", "B80"):
        return f"the requests with must: {series.name}, judged together by a sequential test"
    return "what the file expects, streamed and whole, every time"
