"""Small problems that want a thought, with answers that are known; and questions that want some sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance.answers import Question, number_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMES: Final = ("Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas")
_TOPICS: Final = (
    "why the sky is blue", "how a bicycle stays upright", "why bread rises", "how a lock on a canal works",
    "why ice floats on water", "how a compass finds north", "why leaves turn red in autumn", "how soap removes grease",
    "why the sea is salty", "how a refrigerator cools", "why we have leap years", "how an echo comes about",
    "why planes can fly", "how a candle burns", "why metal feels colder than wood", "how tides come about",
)  # fmt: skip


def problem(rng: Random) -> Question:
    """One of the kinds below; its answer is not in it."""
    return rng.choice(_KINDS)(rng)


def explanation(rng: Random) -> str:
    """A question whose answer is long enough to be compared with a thought."""
    return f"Explain in three sentences {rng.choice(_TOPICS)}."


def _sum(rng: Random) -> Question:
    a, b = rng.randrange(120, 900), rng.randrange(120, 900)
    return Question(f"Calculate {a} + {b}.", number_of(a + b))


def _difference(rng: Random) -> Question:
    a, b = rng.randrange(500, 900), rng.randrange(120, 480)
    return Question(f"Calculate {a} - {b}.", number_of(a - b))


def _product(rng: Random) -> Question:
    a, b = rng.randrange(13, 40), rng.randrange(6, 13)
    return Question(f"Calculate {a} × {b}.", number_of(a * b))


def _row(rng: Random) -> Question:
    start, step = rng.randrange(2, 30), rng.randrange(3, 17)
    given = ", ".join(str(start + step * n) for n in range(5))
    return Question(f"Which number comes next: {given}?", number_of(start + step * 5))


def _weekday(rng: Random) -> Question:
    today, days = rng.randrange(7), rng.randrange(1, 8) * 7 + rng.randrange(1, 7)
    text = f"Today is {_DAYS[today]}. Which day of the week is it in {days} days?"
    return Question(text, rf"\b{_DAYS[(today + days) % 7]}\b")


def _order(rng: Random) -> Question:
    oldest, middle, youngest = rng.sample(_NAMES, 3)
    facts = [f"{oldest} is older than {middle}.", f"{middle} is older than {youngest}."]
    rng.shuffle(facts)
    name, word = rng.choice(((oldest, "oldest"), (youngest, "youngest")))
    return Question(f"{' '.join(facts)} Who is the {word}? End with the name alone.", rf"\b{name}\W*\Z")


_KINDS: Final[tuple[Callable[[Random], Question], ...]] = (_sum, _difference, _product, _row, _weekday, _order)
