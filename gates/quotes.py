"""Where in an answer is what a sentence quotes? So that a reader's eye lands on the offending part."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from gates import markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# 'as repr() writes it', "in double quotes", `in backticks`, …cut out of a text…
_QUOTED: Final = re.compile(
    r"(?<!\w)(?P<single>'(?:[^'\\]|\\.)+')(?!\w)"
    r'|(?<!\w)(?P<double>"(?:[^"\\]|\\.)+")(?!\w)'
    r"|`(?P<tick>[^`]+)`"
    r"|…(?P<cut>[^…]{2,}?)…"
)
_MAX_NEEDLES: Final = 12
_MAX_NEEDLE: Final = 400
_MAX_SPANS: Final = 60
_RUN: Final = 8
"""A sentence that quotes one plain character means a run of it; every comma would be marked otherwise."""


@dataclass(frozen=True)
class Quotes:
    """What sentences quote, as one pattern; None when they quote nothing that could be found."""

    pattern: re.Pattern[str] | None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where `text` holds it: start and end, in order, not overlapping, the first sixty."""
        if self.pattern is None:
            return []
        return [match.span() for match in islice(self.pattern.finditer(text), _MAX_SPANS)]


def quotes_of(sentences: Iterable[str]) -> Quotes:
    """The quoted parts of `sentences` and the template markers that they name, also as JSON spells them."""
    needles = dict.fromkeys(needle for sentence in sentences for needle in _needles(sentence))
    spelled = {spelling for needle in islice(needles, _MAX_NEEDLES) for spelling in _spellings(needle)}
    if not spelled:
        return Quotes(None)
    return Quotes(re.compile("|".join(_pattern(text) for text in sorted(spelled, key=len, reverse=True))))


def _needles(sentence: str) -> Iterator[str]:
    for match in _QUOTED.finditer(sentence):
        text = match.group("tick") or match.group("cut") or _literal(match.group())
        if text.strip() and (len(text) > 1 or not text.isalnum()):
            yield text[:_MAX_NEEDLE]
    yield from (marker for marker in markers.ALL if marker in sentence)
    if "U+FFFD" in sentence:
        yield "\N{REPLACEMENT CHARACTER}"


def _literal(quoted: str) -> str:
    """What `repr` wrote, or else what stands between the quotation marks."""
    try:
        value = ast.literal_eval(quoted)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return quoted[1:-1]
    return value if isinstance(value, str) else quoted[1:-1]


def _spellings(text: str) -> set[str]:
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    return {text, once, json.dumps(text)[1:-1], json.dumps(once, ensure_ascii=False)[1:-1]}


def _pattern(text: str) -> str:
    if len(text) == 1 and text.isascii():
        return f"{re.escape(text)}{{{_RUN},}}"
    return re.escape(text)
