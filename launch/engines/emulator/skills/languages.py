"""Paragraphs in the language that was asked for."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens
from .stock import SENTENCES, SPACELESS

# How a message says which language it wants; English is what happens without.
_NAMES = {
    "german": r"german|deutsch\w*", "french": r"french|français\w*", "spanish": r"spanish|español|castellano",
    "italian": r"italian|italiano", "portuguese": r"portuguese|português", "dutch": r"dutch|nederlands",
    "polish": r"polish|polsku|polski", "swedish": r"swedish|svenska", "turkish": r"turkish|türkçe",
    "czech": r"czech|česky|češtině", "vietnamese": r"vietnamese|tiếng việt",
    "indonesian": r"indonesian|bahasa indonesia",
    "russian": r"russian|по-русски|русском", "ukrainian": r"ukrainian|українською", "greek": r"greek|ελληνικά",
    "arabic": r"arabic|العربية|بالعربية", "hebrew": r"hebrew|עברית|בעברית", "hindi": r"hindi|हिंदी|हिन्दी",
    "japanese": r"japanese|日本語", "korean": r"korean|한국어", "chinese": r"chinese|mandarin|中文|汉语",
    "thai": r"thai|ภาษาไทย",
}  # fmt: skip
_PATTERNS = {
    key: re.compile(rf"(?<!\w)(?:{names})(?!\w)" if names.isascii() else names, re.IGNORECASE)
    for key, names in _NAMES.items()
}
_ANY = re.compile("|".join(pattern.pattern for pattern in _PATTERNS.values()), re.IGNORECASE)
_IN = re.compile(
    r"\b(?:in|into|auf|en|em|po|på|answer|write|reply|respond|only|language|use)\b(?:\s+\w+){0,2}\s*[:\"“]?\s*$",
    re.IGNORECASE,
)


def write_in_language(asked: Asked, rng: Random) -> Answer | None:
    """Two paragraphs in the language the message names; None when it names none, or English."""
    language = wanted_language(read(asked.user_text).focus)
    if language is None:
        return None
    sentences = list(SENTENCES[language])
    rng.shuffle(sentences)
    joint = "" if language in SPACELESS else " "
    half = len(sentences) // 2
    return Answer(content=split_tokens(joint.join(sentences[:half]) + "\n\n" + joint.join(sentences[half:])))


def wanted_language(text: str) -> str | None:
    """The language in which a message wants its answer, as a key of the stock."""
    if not _ANY.search(text):
        return None
    for key, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            if not match.group().isascii() or _IN.search(text[max(0, match.start() - 40) : match.start()]):
                return key
    return None
