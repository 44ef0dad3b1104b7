"""Small arithmetic in words, solved by its verbs: who gets, loses, shares, pays how much."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens

_NUMBER_WORDS = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "twenty": "20", "dozen": "12",
}  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_ASKS = re.compile(
    r"\bhow (?:many|much|far|long|old|fast|tall)\b|\bwhat (?:is|was) (?:the )?(?:total|sum|price|cost|area|perimeter)",
    re.IGNORECASE,
)
_GROUPS = re.compile(
    r"\b(?:each|every|per|rows? of|boxes? of|packs? of|bags? of|times as|at \S+ km|apiece)\b",
    re.IGNORECASE,
)
_SHARED = re.compile(r"\b(?:shared?|divided?|split|distribut\w+|equally|evenly|half of)\b", re.IGNORECASE)
_FEWER = re.compile(
    r"\b(?:gives?|gave|loses?|lost|eats?|ate|sells?|sold|spends?|spent|uses?|used|left|remain\w*|fewer|less|younger|away"
    r"|leaves?|breaks?|broke|takes? out|took out|drops?|dropped|flies|flew|get off|got off)\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(?:buys?|bought|gets?|got|finds?|found|receives?|received|adds?|added|more|older|joins?|joined|arrives?|arrived|gains?"
    r"|picks?|picked|bakes?|baked|earns?|earned|get on|altogether|in total|and)\b",
    re.IGNORECASE,
)
_OF_ONE = re.compile(r"\b1 (\w+ (?:costs?|holds?|has|have|weighs?|needs?|takes?))\b")
_FOR_SO_MANY = re.compile(
    r"\bhow (?:many|much|far|long)\b[^?]*\b(?:in|for|do|does|would|cost|have|hold)\b[^?]*\d", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|,\s+(?:and|then|but)?\s*|\s+and\s+(?:then\s+)?(?=\w+s\b|\w+ed\b|\w+t\b)")


def solve(asked: Asked, rng: Random) -> Answer | None:
    """The result of a small problem, with the sum that leads to it."""
    del rng
    text = read(asked.user_text).plain
    if len(text) > 400 or not _ASKS.search(text):
        return None
    result = solution(text)
    return None if result is None else Answer(content=split_tokens(f"The answer is {result}."))


def solution(text: str) -> str | None:
    """The number that the problem asks for, or None when it is none that is understood."""
    for word, digits in _NUMBER_WORDS.items():
        text = re.sub(rf"\b{word}\b", digits, text, flags=re.IGNORECASE)
    numbers = [float(n) for n in _NUMBER.findall(text)]
    if len(numbers) < 2:
        return None
    if _SHARED.search(text) and len(numbers) == 2 and numbers[1]:
        return _written(numbers[0] / numbers[1])
    text = _OF_ONE.sub(r"a \1", text)
    total: float | None = None
    for clause in _SENTENCE.split(text):
        found = [float(n) for n in _NUMBER.findall(clause)]
        if not found:
            continue
        if total is not None and _FOR_SO_MANY.search(clause):
            total *= found[0]
        elif total is None:
            total = found[0] * found[1] if len(found) > 1 and _GROUPS.search(clause) else found[0]
            rest = found[2:] if len(found) > 1 and _GROUPS.search(clause) else found[1:]
            for number in rest:
                total = _changed(total, number, clause)
        else:
            amount = found[0] * found[1] if len(found) > 1 and _GROUPS.search(clause) else found[0]
            total = _changed(total, amount, clause)
    return None if total is None else _written(total)


def _changed(total: float, number: float, clause: str) -> float:
    if _GROUPS.search(clause):
        return total * number
    if _SHARED.search(clause) and number:
        return total / number
    return total - number if _FEWER.search(clause) else total + number


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.2f}".rstrip("0")
