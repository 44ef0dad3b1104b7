"""Finding the one sentence of a long text that answers a question about it."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens
from ..vocabulary import word_list

_SENTENCE = re.compile(r"[^.!?\n]+(?:[.](?=\d)[^.!?\n]*)*[.!?]?")
_ASKS = re.compile(r"\b(?:what|which|who|where|when|how|find|tell|give|name)\b", re.IGNORECASE)
_STATES = re.compile(r"\b(?:is|was|are|were|reads?|equals?)\b|[:=]", re.IGNORECASE)
_IDLE = frozenset(
    word_list(
        "what which where when about above answer please only with that this from there their tell give given text"
    )
)


def find_needle(asked: Asked, rng: Random) -> Answer | None:
    """The sentence, anywhere in the conversation, that says what the last one asks."""
    del rng
    sentences = [match.group().strip() for match in _SENTENCE.finditer(read(asked.user_text).plain)]
    asking = [n for n, sentence in enumerate(sentences) if sentence.endswith("?") and _ASKS.search(sentence)]
    if not asking:
        return None
    wanted = _words(sentences[asking[-1]])
    told = [s for n, s in enumerate(sentences) if n != asking[-1]]
    for message in asked.messages[:-1]:
        told += [match.group().strip() for match in _SENTENCE.finditer(read(message.text).plain)]
    best = max(told, key=lambda s: len(_words(s) & wanted) if _STATES.search(s) else 0, default="")
    found = _words(best) & wanted
    if len(found) < min(2, len(wanted)) or not _STATES.search(best) or not found:
        return None
    return Answer(content=split_tokens(best))


def _words(sentence: str) -> frozenset[str]:
    return frozenset(w for w in re.findall(r"\w{4,}", sentence.lower()) if w not in _IDLE)
