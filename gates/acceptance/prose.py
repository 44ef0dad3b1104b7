"""Group O: plain English where plain English was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gates import textrules
from gates.acceptance.check import B80, Check
from gates.acceptance.words import said, unanswered

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.trial import Answer

MIN_CHARS: Final = 120
PLACES: Final = ("a harbour", "an old library", "a market", "a mountain hut", "a railway station", "a village school")
TIMES: Final = ("at dawn", "in autumn", "after the rain", "on a Sunday", "in winter", "a hundred years ago", "at night")


def topic(sample: Sample) -> str:
    """Something to write about: `a market in autumn`."""
    rng = sample.rng("topic")
    return f"{rng.choice(PLACES)} {rng.choice(TIMES)}"


def problem(answer: Answer) -> str | None:
    """Why the answer is no English prose, or None."""
    missing = unanswered(answer)
    return missing or textrules.prose_problem(said(answer), MIN_CHARS)


async def write(asker: Asker, sample: Sample, **keys: Any) -> str | None:
    """Ask for two paragraphs; what is wrong with them."""
    asked = f"Write two short paragraphs in plain English about {topic(sample)}."
    return problem(await asker.chat(sample, asked, **keys))


CHECKS: Final = (
    Check(
        id="O02p",
        name="English prose",
        asks="Two short paragraphs of plain English about something, another thing in every try.",
        holds="it is language: letters, and the small words that make a tenth of any English text",
        catches="token salad and endless counting, which never repeat themselves and so pass every rule on repetition",
        rule=B80,
        attempt=write,
    ),
)
