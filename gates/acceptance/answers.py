"""Group O, known answers: small questions to which everybody knows the answer. Fluent and wrong is wrong.

O12, *after a life cycle* (sleep and wake, weights loaded again, restart), is no check of a run: whoever moves the
engine through its life runs the smoke tier once more afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gates.acceptance.check import NONCE_SIGNS, Check, Relative, Tier
from gates.acceptance.words import said, shown, unanswered

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.trial import Answer

FLOOR: Final = 20 / 24
MARGIN: Final = 0.15
"""Of 48 answers three may be wrong that production had right; from there to the floor the run cannot tell."""


class Question(NamedTuple):
    """A question and the pattern that every right answer holds, in any case."""

    text: str
    answer: str


def right(answer: str, text: str) -> bool:
    """Does `text` hold what the pattern `answer` says? Numbers may be grouped: 1,081 is 1081."""
    plain = re.sub(r"(?<=\d)[,\u202f\u00a0 ](?=\d{3}\b)", "", text)
    return re.search(answer, plain, re.IGNORECASE) is not None


def question(sample: Sample) -> Question:
    """The question of this try. 24 tries ask each once, the next 24 each in the other mode."""
    kind = (sample.number + sample.number // len(_KINDS)) % len(_KINDS)
    return _KINDS[kind](sample.rng())


def problem(answer: Answer, asked: Question) -> str | None:
    """What is wrong with an answer to `asked`, or None."""
    missing = unanswered(answer)
    if missing or right(asked.answer, said(answer)):
        return missing
    return f"{asked.text!r} was answered with {shown(said(answer))}"


def number_of(value: int) -> str:
    """The pattern of a number, not negative, that is no part of a longer one."""
    return rf"(?<![\d.\-−–]){value}(?!\d|[.,]\d)"


_CAPITALS: Final = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Poland": "Warsaw",
    "Portugal": "Lisbon", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Greece": "Athens",
    "Austria": "Vienna", "Egypt": "Cairo", "Canada": "Ottawa", "China": "Beijing", "Ireland": "Dublin",
    "Hungary": "Budapest", "Peru": "Lima", "Kenya": "Nairobi", "India": "Delhi",
}  # fmt: skip
_OPPOSITES: Final = {
    "hot": "cold|cool", "up": "down", "big": "small|little", "day": "night", "black": "white", "wet": "dry",
    "open": "clos", "left": "right", "fast": "slow", "empty": "full",
}  # fmt: skip
_BACKWARDS: Final = ("stop", "draw", "flow", "part", "star", "live", "tool", "pots", "ward")
_HOW_MANY: Final = {
    "days are there in a week": 7, "months are there in a year": 12, "legs does a spider have": 8,
    "minutes are there in an hour": 60, "sides does a triangle have": 3, "hours are there in a day": 24,
    "letters are there in the English alphabet": 26, "wheels does a bicycle have": 2,
}  # fmt: skip
_NOTHING_ELSE: Final = "Answer with nothing else."


def _capital(of: slice) -> Callable[[Random], Question]:
    def ask(rng: Random) -> Question:
        country, city = rng.choice(list(_CAPITALS.items())[of])
        return Question(f"What is the capital of {country}? Answer with one word.", city)

    return ask


def _sum(sign: str, low: int, high: int) -> Callable[[Random], Question]:
    def ask(rng: Random) -> Question:
        a, b = rng.randrange(low, high), rng.randrange(3, 10 if sign == "×" else low)
        value = {"+": a + b, "-": a - b, "×": a * b}[sign]
        # One worked example: a model that reasons aloud otherwise needs room for it.
        example = {"+": "12 + 5 = 17", "-": "30 - 8 = 22", "×": "11 × 4 = 44"}[sign]
        return Question(f"For example, {example}. What is {a} {sign} {b}? {_NOTHING_ELSE}", number_of(value))

    return ask


def _row(factor: int) -> Callable[[Random], Question]:
    def ask(rng: Random) -> Question:
        start, step = rng.randrange(1, 9), rng.randrange(2, 9)
        row = [start * factor**n if factor > 1 else start + step * n for n in range(5)]
        given = ", ".join(str(value) for value in row[:4])
        return Question(f"Which number comes next: {given}? Answer with the next number only.", number_of(row[4]))

    return ask


def _backwards(rng: Random) -> Question:
    word = rng.choice(_BACKWARDS)
    return Question(f'Spell the word "{word}" backwards. {_NOTHING_ELSE}', rf"\b{'[-, ]*'.join(word[::-1])}\b")


def _copy(rng: Random) -> Question:
    code = "".join(rng.choices(NONCE_SIGNS, k=24))
    return Question(f"Reply with only the following code: {code}", code)


def _opposite(of: slice) -> Callable[[Random], Question]:
    def ask(rng: Random) -> Question:
        word, opposite = rng.choice(list(_OPPOSITES.items())[of])
        return Question(f'What is the opposite of "{word}"? Answer with one word.', rf"\b(?:{opposite})")

    return ask


def _how_many(of: slice) -> Callable[[Random], Question]:
    def ask(rng: Random) -> Question:
        what, count = rng.choice(list(_HOW_MANY.items())[of])
        words = {2: "two", 3: "three", 7: "seven", 8: "eight", 12: "twelve", 24: "twenty[- ]four", 26: "twenty[- ]six"}
        spelled = words.get(count, "sixty")
        return Question(f"How many {what}? Answer with one number.", rf"{number_of(count)}|\b{spelled}\b")

    return ask


def _fixed(text: str, answer: str) -> Callable[[Random], Question]:
    return lambda _: Question(text, answer)


def _largest(rng: Random) -> Question:
    numbers = rng.sample(range(11, 99), 3)
    listed = ", ".join(str(value) for value in numbers)
    return Question(f"Which of these numbers is the largest: {listed}? Answer with the number only.", _alone(numbers))


def _alone(numbers: list[int]) -> str:
    # Whoever repeats the whole list has not answered.
    others = "|".join(str(value) for value in sorted(numbers)[:-1])
    return rf"\A(?![\s\S]*\b(?:{others})\b)[\s\S]*{number_of(max(numbers))}|largest\D{{0,30}}{max(numbers)}"


# The first five are what the smoke tier asks.
_KINDS: Final[tuple[Callable[[Random], Question], ...]] = (
    _capital(slice(0, 5)),
    _sum("×", 12, 20),
    _copy,
    _row(1),
    _how_many(slice(0, 3)),
    _capital(slice(5, 10)),
    _sum("+", 12, 60),
    _opposite(slice(0, 3)),
    _row(2),
    _backwards,
    _how_many(slice(3, 6)),
    _capital(slice(10, 15)),
    _sum("-", 60, 99),
    _copy,
    _fixed('Continue: "The quick brown fox jumps over the lazy …" Which word follows? Answer with one word.', r"\bdog"),
    _opposite(slice(3, 6)),
    _largest,
    _capital(slice(15, 20)),
    _sum("+", 100, 400),
    _row(3),
    _how_many(slice(6, 8)),
    _opposite(slice(6, 10)),
    _fixed("Which planet do we live on? Answer with one word.", r"\bearth"),
    _fixed("What is the chemical formula of water? Answer with the formula only.", "H(?:2|₂)O"),
)


async def _known(asker: Asker, sample: Sample) -> str | None:
    asked = question(sample)
    return problem(await asker.chat(sample, asked.text), asked)


CHECKS: Final = (
    Check(
        id="O01",
        name="known answers",
        asks="24 questions of one word or number that every model of some size answers, streamed and whole.",
        holds="the answer is right",
        catches="fluent nonsense: a wrong shard, a broken kernel or quantisation, speculation that accepts too much",
        rule=Relative(48, MARGIN, FLOOR),
        attempt=_known,
        tier=Tier.SMOKE,
    ),
)
