"""How often answers break the rules that a model may break: here, and on production with the same requests."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import register
from gates.acceptance.asker import SilentError
from gates.acceptance.check import Sample, Skip
from gates.acceptance.together import together
from gates.statistics import fisher_worse
from gates.trial import CannotJudgeError, DeadlineError, WrongModelError

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.trial import Answer

SAMPLE: Final = 300
"""Requests of this run that production is asked, spread evenly over it; none where nothing hangs on them."""
MAX_BYTES: Final = 64 * 1024
"""Longer requests are not for an engine that has users."""
ALPHA: Final = 0.05


@dataclass(frozen=True)
class Spoiled:
    """Of so many answers, how many broke each rule that a model may break (rule → answers; 0 where it is not named)."""

    answers: int = 0
    hits: Mapping[str, int] = field(default_factory=dict)

    def of(self, rule: str) -> int:
        return self.hits.get(rule, 0)

    def as_dict(self) -> Mapping[str, Any]:
        """For the verdict's measurements; `read_spoiled` reads it again."""
        return {"answers": self.answers, "hits": dict(self.hits)}

    def worse_than(self, base: Spoiled, rule: str) -> bool:
        """More often than `base`, beyond chance (Fisher, one-sided, 5 %)."""
        right, base_right = self.answers - self.of(rule), base.answers - base.of(rule)
        return fisher_worse(right, self.answers, base_right, base.answers) < ALPHA


def counted(answers: Iterable[Answer]) -> Spoiled:
    """What these answers show. One that never came shows nothing."""
    came = [answer for answer in answers if answer.reply.answered]
    hits: Counter[str] = Counter()
    for answer in came:
        hits.update({breach.rule for breach in answer.breaches if breach.by_model})
    return Spoiled(len(came), dict(hits))


def read_spoiled(measured: Any) -> Spoiled | None:
    """What `as_dict` wrote in an earlier run; None for anything else."""
    if not isinstance(measured, Mapping) or not isinstance(hits := measured.get("hits"), Mapping):
        return None
    answers = measured.get("answers")
    counts = {str(rule): n for rule, n in hits.items() if isinstance(n, int) and not isinstance(n, bool)}
    if not isinstance(answers, int) or isinstance(answers, bool) or answers <= 0 or len(counts) != len(hits):
        return None
    return Spoiled(answers, counts) if all(0 <= n <= answers for n in counts.values()) else None


def comparable(asker: Asker) -> list[Answer]:
    """Answers of this run whose requests production may be asked as well, in the order in which they came."""
    harmful = {check.id for check in register.checks() if check.destructive}
    chosen = {
        id(answer)
        for (check_id, _), answers in asker.by_sample.items()
        if check_id not in harmful
        for answer in answers
    }
    return [one for one in asker.trial.answers if id(one) in chosen and len(one.exchange.request_body) <= MAX_BYTES]


async def ask_production(live: Asker, answers: Sequence[Answer]) -> Spoiled | None:
    """Production's own count over an even sample of the requests behind `answers`; None where it does not answer.

    The very same requests, so that nothing but the engine differs.
    """
    count = min(SAMPLE, len(answers))
    bodies = [answers[i * len(answers) // count].body for i in range(count)]
    before = len(live.trial.answers)

    async def ask(number: int, body: Mapping[str, Any]) -> None:
        sample = Sample("rules", number, "production", streamed=bool(body.get("stream")), greedy=False)
        # Too long for production's context: one request less.
        with contextlib.suppress(Skip):
            async with live.slot():
                await live.send(sample, {**body, "model": live.model})

    # What came until then counts.
    with contextlib.suppress(SilentError, DeadlineError, CannotJudgeError, WrongModelError):
        await together(ask(number, body) for number, body in enumerate(bodies))
    shown = counted(live.trial.answers[before:])
    return shown if shown.answers else None
