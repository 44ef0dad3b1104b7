"""Group J: the candidate and production on the same questions, and how many calls of the whole run fit their schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gates.acceptance.calls import shape_problem
from gates.acceptance.check import Check, Overall, Skip, Tier, needs
from gates.acceptance.choice import OFFERED
from gates.acceptance.questions import GENERAL, tempting
from gates.acceptance.survey import Surveyed, failed, passed
from gates.acceptance.together import together
from gates.acceptance.tools import named
from gates.callrules import cut, not_an_object
from gates.contract import VerdictKind
from gates.statistics import f1

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer

# --- J19 --------------------------------------------------------------------------------------------------------------

QUESTIONS: Final = 200
MARGIN: Final = 0.05


async def _agreement(asker: Asker, surroundings: Surroundings) -> Surveyed:
    live = surroundings.live
    if live is None:
        raise Skip("no live endpoint is known, so there is nothing to agree with")
    candidate = await _decisions(asker, surroundings, "candidate")
    # Twice, because production does not always agree with itself.
    production = [await _decisions(live, surroundings, salt) for salt in ("production", "production again")]
    mine, theirs, again = ([bool(answer.reply.calls) for answer in side] for side in (candidate, *production))
    found = agreement(mine, theirs, again)
    if found.verdict is VerdictKind.PASS:
        return found
    differing = [a.exchange for a, called, there in zip(candidate, mine, theirs, strict=True) if called != there]
    return replace(found, exchanges=tuple(differing[:3]))


def agreement(candidate: Sequence[bool], production: Sequence[bool], again: Sequence[bool]) -> Surveyed:
    """Who called a tool, question by question: the candidate, production, and production a second time."""
    with_candidate, with_itself = f1(candidate, production), f1(again, production)
    sentence = (
        f"candidate and production agree on when to call a tool with F1 {with_candidate:.3f}, "
        f"production with itself {with_itself:.3f}"
    )
    figures = {"f1": round(with_candidate, 4), "f1_of_production": round(with_itself, 4), "n": len(candidate)}
    good = with_candidate >= with_itself - MARGIN
    return passed(sentence, **figures) if good else failed(sentence, **figures)


async def _decisions(asker: Asker, surroundings: Surroundings, salt: str) -> list[Answer]:
    """The answers to all questions, in their order. Half of the questions beg for a tool."""
    check = CHECKS[0]

    async def one(number: int) -> Answer:
        sample = check.sample(number, surroundings.seed, asker.capability).asked(salt=salt)
        rng = sample.rng()
        text = tempting(rng)[1] if number % 4 < 2 else rng.choice(GENERAL)
        async with asker.slot():
            return await asker.chat(sample, text, tools=OFFERED)

    return await together(one(number) for number in range(QUESTIONS))


# --- J20s -------------------------------------------------------------------------------------------------------------

TOLERATED: Final = 0.02
WORSE: Final = 0.01
"""A point more than production."""


async def _schema_share(asker: Asker, surroundings: Surroundings) -> Surveyed:
    return schema_share(asker.trial.answers, surroundings.before("J20s"))


def schema_share(answers: Sequence[Answer], before: Mapping[str, Any]) -> Surveyed:
    """How many calls break the schema of their tool, of those that were whole, JSON, and of a tool on offer."""
    seen = [(answer, problem) for answer in answers for problem in _judged(answer)]
    wrong = [(answer, problem) for answer, problem in seen if problem is not None]
    share = len(wrong) / len(seen) if seen else 0.0
    limit = max(TOLERATED, _share_before(before) + WORSE)
    figures = {"n": len(seen), "right": len(seen) - len(wrong)}
    sentence = f"{len(wrong)} of {len(seen)} calls break the schema of their tool"
    # One call of few is a large share, and says nothing.
    if len(wrong) > 1 and share > limit:
        first, problem = wrong[0]
        return failed(f"{sentence}, more than {limit:.1%}: {problem}", first.exchange, **figures)
    return passed(sentence, **figures)


def _judged(answer: Answer) -> list[str | None]:
    tools = answer.body.get("tools") or []
    known = {named(offered) for offered in tools}
    return [
        shape_problem(call, tools)
        for position, call in enumerate(answer.reply.calls)
        if call.name in known and not cut(answer.reply, position) and not not_an_object(call.arguments)
    ]


def _share_before(before: Mapping[str, Any]) -> float:
    n, right = before.get("n"), before.get("right")
    return (n - right) / n if isinstance(n, int) and isinstance(right, int) and n > 0 else 0.0


CHECKS: Final = (
    Check(
        id="J19",
        name="agreement on when to call",
        asks=f"{QUESTIONS} questions, half of which need a tool, of both instances; of production twice.",
        holds="the candidate agrees with production as production does with itself, less five points of F1",
        catches="templates, quantisation or parsers that change when a model calls",
        rule=Overall(f"F1 of calling, not more than {MARGIN:.2f} below that of production with itself"),
        survey=_agreement,
        tier=Tier.EXTENDED,
        needs=needs(tools=True),
    ),
    Check(
        id="J20s",
        name="calls that fit their schema",
        asks="Nothing: looks at every call of the run.",
        holds="few calls break their schema, and hardly more than on production",
        catches="types and required parameters that get lost between model and client",
        rule=Overall(f"at most {TOLERATED:.0%}, or production's share and {WORSE:.0%}"),
        survey=_schema_share,
        needs=needs(tools=True),
        looks_back=True,
    ),
)
