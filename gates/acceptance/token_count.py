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
"""So many odd answers, confirmed, are no chance. One is shown."""
MORE: Final = 30
"""Where only one is confirmed, its request is asked so often again, up to the second odd answer."""
LOOKED_AT: Final = 5


async def _survey(asker: Asker, surroundings: Surroundings) -> Surveyed:
    answers = list(asker.trial.answers)
    rate = token_rate.learn(answers)
    if rate is None:
        raise Skip(f"fewer than {token_rate.FEWEST} answers of the run carry a count of their tokens")
    odd = [(answer, beyond) for answer in answers if (beyond := rate.unaccounted(answer))]
    odd.sort(key=lambda one: -abs(one[1]))
    confirmed: list[tuple[Answer, float]] = []
    for answer, beyond in _apart(odd):
        if await _fits_otherwise(asker, surroundings, rate, answer):
            confirmed.append((answer, beyond))
        if len(confirmed) == CONFIRMED:
            break
    figures = {"answers": len(answers), "odd": len(odd), "confirmed": len(confirmed)}
    if not confirmed:
        return passed(f"the counted tokens fit what came in {len(answers)} answers", **figures)
    said = f"{_told(*confirmed[0])} ({len(odd)} of {len(answers)} answers do not fit; asked again most of them do)"
    if len(confirmed) < CONFIRMED and not await _again(asker, surroundings, rate, confirmed[0][0]):
        return warned(said, **figures)
    return failed(said, *(answer.exchange for answer, _ in confirmed), **figures)


def _apart(odd: list[tuple[Answer, float]]) -> list[tuple[Answer, float]]:
    """The oddest, spread over the list: where one kind of text is odd by nature, others get their turn."""
    step = max(1, len(odd) // LOOKED_AT)
    return odd[::step][:LOOKED_AT]


async def _fits_otherwise(asker: Asker, surroundings: Surroundings, rate: TokenRate, answer: Answer) -> bool:
    """Does the same request come out right when it is asked again?"""
    again = [await _ask(asker, surroundings, answer, f"again{number}") for number in range(AGAIN)]
    return 2 * sum(rate.unaccounted(other) == 0 for other in again) > AGAIN


async def _again(asker: Asker, surroundings: Surroundings, rate: TokenRate, answer: Answer) -> bool:
    """Is one answer off again, when the request that had one is asked many times more?"""
    for again in range(MORE):
        if rate.unaccounted(await _ask(asker, surroundings, answer, f"more{again}")):
            return True
    return False


async def _ask(asker: Asker, surroundings: Surroundings, answer: Answer, salt: str) -> Answer:
    """The same request, bytes and all."""
    streamed = bool(answer.body.get("stream"))
    sample = Sample("P07t", 0, surroundings.seed, streamed=streamed, greedy=False, salt=salt)
    async with asker.slot():
        return await asker.send(sample, answer.body)


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
