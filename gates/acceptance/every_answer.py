"""What must hold for every answer that any check received, whatever it asked."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gates import invariants, tally
from gates.acceptance.check import Sample, Skip
from gates.contract import VerdictKind

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.toolwire import Breach
    from gates.trial import Answer, Trial

RERUNS: Final = 10
"""A breach that a model alone can commit: the same request this often again, half streamed; one more fails the gate."""
TOLERATED: Final = 0.002
"""The share of all answers that a model may spoil by itself."""


async def judge_every_answer(trial: Trial, asker: Asker | None, *, smoke: bool) -> None:
    """One check per rule. Without `asker` nothing can be asked again, and what a model may do is only shown."""
    tally.check_invariants(trial, at_once=frozenset())
    by_rule: dict[str, list[tuple[Answer, Breach]]] = defaultdict(list)
    for answer in list(trial.answers):
        for breach in answer.breaches:
            if breach.by_model:
                by_rule[breach.rule].append((answer, breach))
    for rule, guilty in sorted(by_rule.items()):
        await _judge(trial, asker, rule, guilty, smoke=smoke)


async def _judge(
    trial: Trial, asker: Asker | None, rule: str, guilty: list[tuple[Answer, Breach]], *, smoke: bool
) -> None:
    answer, breach = guilty[0]
    total = len(trial.answers)
    share = len({id(one) for one, _ in guilty}) / total
    hits = await _hits_again(asker, rule, answer) if asker is not None else 0
    # A handful of answers cannot bound a share of 0.2 %: there only the repetition decides.
    too_many = share > TOLERATED and len(guilty) > 1 and not smoke
    verdict = VerdictKind.FAIL if hits or too_many else VerdictKind.PASS
    again = f"; asked {RERUNS} times again: {hits} more" if asker is not None else ""
    trial.check(
        f"{rule}.model" if rule in {check.id for check in trial.checks} else rule,
        verdict,
        f"{breach.sentence} ({len(guilty)} of {total} answers{again})",
        rule=invariants.RULES.get(rule, rule),
        exchanges=[one.exchange for one, _ in guilty[:3]],
        measurements={"hits": len(guilty), "answers": total, "again": hits},
        warn=verdict is VerdictKind.PASS,
    )


async def _hits_again(asker: Asker, rule: str, answer: Answer) -> int:
    hits = 0
    for number in range(RERUNS):
        streamed = number % 2 == 0
        body = {key: value for key, value in answer.body.items() if key not in ("stream", "stream_options")}
        if streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        sample = Sample(f"{rule}.again", number, "again", streamed=streamed, greedy=False)
        try:
            async with asker.slot():
                again = await asker.send(sample, body)
        except Skip:
            break
        hits += any(breach.by_model and breach.rule == rule for breach in again.breaches)
        if hits:
            break
    return hits
