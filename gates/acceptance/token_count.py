"""Group P: do the tokens that an engine counted fit what came? Over all answers of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates import token_rate
from gates.acceptance.check import Check, Overall, Sample, Skip
from gates.acceptance.survey import Surveyed, failed, passed, warned

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.token_rate import TokenRate
    from gates.trial import Answer

AGAIN: Final = 3
"""An answer that does not fit is asked for so often again. If most of these fit, it is not the kind of text."""
CONFIRMED: Final = 2
"""So many answers of their own, each confirmed, are no chance. One is shown."""
LOOKED_AT: Final = 5


async def _survey(asker: Asker, surroundings: Surroundings) -> Surveyed:
    answers = list(asker.trial.answers)
    rate = token_rate.learn(answers)
    if rate is None:
        raise Skip(f"fewer than {token_rate.FEWEST} answers of the run carry a count of their tokens")
    odd = [(answer, beyond) for answer in answers if (beyond := rate.unaccounted(answer))]
    odd.sort(key=lambda one: -abs(one[1]))
    confirmed: list[tuple[Answer, float]] = []
    for number, (answer, beyond) in enumerate(_apart(odd)):
        if await _fits_otherwise(asker, surroundings, rate, answer, number):
            confirmed.append((answer, beyond))
        if len(confirmed) == CONFIRMED:
            break
    figures = {"answers": len(answers), "odd": len(odd), "confirmed": len(confirmed)}
    if not confirmed:
        return passed(f"the counted tokens fit what came in {len(answers)} answers", **figures)
    said = f"{_told(*confirmed[0])} ({len(odd)} of {len(answers)} answers do not fit; asked again most of them do)"
    if len(confirmed) < CONFIRMED:
        return warned(said, **figures)
    return failed(said, *(answer.exchange for answer, _ in confirmed), **figures)


def _apart(odd: list[tuple[Answer, float]]) -> list[tuple[Answer, float]]:
    """The oddest, spread over the list: where one kind of text is odd by nature, others get their turn."""
    step = max(1, len(odd) // LOOKED_AT)
    return odd[::step][:LOOKED_AT]


async def _fits_otherwise(
    asker: Asker, surroundings: Surroundings, rate: TokenRate, answer: Answer, number: int
) -> bool:
    """Does the same request come out right when it is asked again?"""
    fits = 0
    for again in range(AGAIN):
        streamed = bool(answer.body.get("stream"))
        asked = Sample("P07t", number, surroundings.seed, streamed=streamed, greedy=False, salt=f"again{again}")
        async with asker.slot():
            fits += rate.unaccounted(await asker.send(asked, answer.body)) == 0
    return 2 * fits > AGAIN


def _told(answer: Answer, beyond: float) -> str:
    reply = answer.reply
    count = reply.usage.completion_tokens if reply.usage is not None else None
    came = f"{len(reply.calls)} calls, {len(reply.content)} characters of content, {len(reply.reasoning)} of reasoning"
    if beyond > 0:
        return f"{count} tokens were counted and some {beyond:.0f} of them never came: {came}"
    return f"{count} tokens were counted and some {-beyond:.0f} more came, as if something came twice: {came}"


CHECKS: Final = (
    Check(
        id="P07t",
        name="counted tokens came",
        asks="Nothing at first: learns from all answers what a word, a call, a thought cost; asks odd ones again.",
        holds="the tokens that usage counts fit what came",
        catches="calls, thoughts or text that the server loses now and then, and answers that it sends twice",
        rule=Overall(
            f"no two answers that are off by a quarter and {token_rate.UNSEEN_TOKENS} tokens, and fit when asked again"
        ),
        survey=_survey,
        looks_back=True,
    ),
)
