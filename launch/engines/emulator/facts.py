"""The few things this pseudo model knows: enough to pass for sane when asked simple questions."""

import re
from itertools import pairwise

_CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "japan": "Tokyo", "poland": "Warsaw",
    "portugal": "Lisbon", "norway": "Oslo", "sweden": "Stockholm", "finland": "Helsinki", "greece": "Athens",
    "austria": "Vienna", "egypt": "Cairo", "canada": "Ottawa", "china": "Beijing", "india": "New Delhi",
    "russia": "Moscow", "peru": "Lima", "kenya": "Nairobi", "hungary": "Budapest", "ireland": "Dublin",
}  # fmt: skip
_OPERATORS = {
    "+": "+",
    "plus": "+",
    "-": "-",
    "\u2212": "-",
    "minus": "-",
    "*": "*",
    "\u00d7": "*",
    "x": "*",
    "times": "*",
}
_ARITHMETIC = re.compile(
    r"(?<![\w.])(-?\d{1,9})\s*(\+|plus|-|\u2212|minus|\*|\u00d7|x|times)\s*(\d{1,9})(?!\w|\.\d)", re.IGNORECASE
)
_CAPITAL = re.compile(r"capital (?:city )?of (\w+)", re.IGNORECASE)
_BACKWARDS = re.compile(
    r"(?:spell|write|reverse)\b.*?[\"“'`]([^\"”'`]+)[\"”'`].*?(?:backwards?|reversed?|in reverse)?", re.IGNORECASE
)
_SERIES = re.compile(r"(-?\d+(?:\s*,\s*-?\d+){2,})")


def known_answer(text: str) -> str | None:
    """A short answer to a simple question, or None."""
    if capital := _CAPITAL.search(text):
        return _CAPITALS.get(capital[1].lower())
    if re.search(r"backward|revers", text, re.IGNORECASE) and (word := _BACKWARDS.search(text)):
        return word[1][::-1]
    if re.search(r"\b(?:next|continue|follows|comes after)\b", text, re.IGNORECASE):
        if "quick brown fox" in text.lower():
            return "jumps over the lazy dog"
        if series := _SERIES.search(text):
            return _next_in([int(n) for n in series[1].split(",")])
    if len(text) < 200 and (sums := list(_ARITHMETIC.finditer(text))):
        return _computed(*sums[-1].groups())
    return None


def _computed(left: str, operator: str, right: str) -> str:
    a, b = int(left), int(right)
    match _OPERATORS[operator.lower()]:
        case "+":
            return str(a + b)
        case "-":
            return str(a - b)
        case _:
            return str(a * b)


def _next_in(series: list[int]) -> str | None:
    steps = {b - a for a, b in pairwise(series)}
    if len(steps) == 1:
        return str(series[-1] + steps.pop())
    if 0 not in series and len({b / a for a, b in pairwise(series)}) == 1:
        return str(series[-1] * series[1] // series[0])
    return None
