"""Saying back what one is told to say back, to the letter."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens
from .writing import rows

_VERB = re.compile(
    r"\b(?:repeat|echo|copy|say|reply|respond|answer|print|output|return|write|quote|reproduce)\b", re.IGNORECASE
)
_ECHO = re.compile(
    r"(?:repeat|echo|copy|say|reply|respond|answer|print|output|return)\b(?:\s+(?:back|only|with|me|exactly|verbatim"
    r"|just|the|this|these|following|text|word|words|string|token|code|sentence|line|after|nothing|but|else|nonce)\b)*"
    r"\s*[:\-]?\s*(?P<what>\"[^\"]+\"|“[^”]+”|`[^`]+`|'[^']+'|(?<=:)\s*\S.*|(?<=: )\S.*|[\w-]*\d[\w-]*)",
    re.IGNORECASE | re.DOTALL,
)


def copy(asked: Asked, rng: Random) -> Answer | None:
    """The block between the marks, or the words behind "repeat exactly"."""
    question = read(asked.user_text)
    if question.blocks and _VERB.search(question.focus):
        return Answer(content=split_tokens(question.blocks[0]))
    match = _ECHO.search(question.focus)
    if match is None or rows(question, rng) is not None:
        return None
    what = match["what"].strip()
    if what[0] in "\"“`'" and len(what) > 2:
        what = what[1:-1]
    return Answer(content=split_tokens(what))
