"""Days of the week, and who is the oldest."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY = re.compile(rf"\b(?:today|it) is (?:a )?({'|'.join(_DAYS)})\b.*?\bin (\d+) days\b", re.IGNORECASE | re.DOTALL)
_OLDER = re.compile(r"\b([A-Z]\w+) is (older|younger|taller|shorter) than ([A-Z]\w+)")
_WHO = re.compile(r"\bwho is the (oldest|youngest|tallest|shortest)\b", re.IGNORECASE)


def riddle(asked: Asked, rng: Random) -> Answer | None:
    """A weekday, or the first or last of an order."""
    del rng
    text = read(asked.user_text).plain
    found = _weekday(text) or _extreme(text)
    return None if found is None else Answer(content=split_tokens(f"It is {found}"))


def _weekday(text: str) -> str | None:
    match = _WEEKDAY.search(text)
    if match is None:
        return None
    return f"{_DAYS[(_DAYS.index(match[1].capitalize()) + int(match[2])) % 7]}."


def _extreme(text: str) -> str | None:
    wanted = _WHO.search(text)
    if wanted is None:
        return None
    pairs = [(a, b) if word in ("older", "taller") else (b, a) for a, word, b in _OLDER.findall(text)]
    above, below = {a for a, _ in pairs}, {b for _, b in pairs}
    found = above - below if wanted[1].lower() in ("oldest", "tallest") else below - above
    return found.pop() if len(found) == 1 else None
