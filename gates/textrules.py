"""Is this language, or a machine that has lost its mind? Rules on text alone, calibrated on prose and on source code.

The thresholds come from 1,208 windows of English prose and 1,316 of Python source: each rule raised no alarm on prose
and at most four on code (comment rulers, embedded base64), where a single hit does not decide.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from itertools import pairwise
from typing import Final

_RUN: Final = re.compile(r"([^\s\-=_*#.~+|/])\1{15,}|(.)\2{119,}", re.DOTALL)
_BLANKS: Final = re.compile(r"\n{40,}|\s{200,}")
_PLAIN: Final = ".,;:!?'\"()-%\u2013\u2014\u2018\u2019\u201c\u201d"
_WORDS: Final = re.compile(r"[a-z']+")
_STOP_WORDS: Final = frozenset(
    """
    the a an and or of to in on at is are was were be been it its this that these those for with as by
    from not but he she they we you i his her their our your which who what when where there then so if
    than into out up no all one some has have had do does did can will would could more very over after
    before while about
    """.split()  # noqa: SIM905 - a list of eighty words is read as words
)


def degeneration(text: str) -> str | None:
    """What is broken about `text`, in words; None when nothing is."""
    if _BLANKS.search(text):
        return "a run of blanks or newlines"
    run = _RUN.search(text)
    if run:
        return f"the character {run.group()[0]!r} {len(run.group())} times in a row"
    collapsed = " ".join(text.split())
    if len(collapsed) < 200:
        return _short_loop(collapsed)
    return _repetition(collapsed)


def _repetition(text: str) -> str | None:
    share, gram = top_gram_share(text)
    if share >= 0.20:
        return f"{share:.0%} of the text is made of {gram!r}"
    period = tail_period(text)
    if period:
        return f"the end repeats itself every {period} characters"
    if len(text) >= 400:
        ratio = len(zlib.compress(text.encode())) / len(text.encode())
        if ratio < 0.18:
            return f"the text compresses to {ratio:.0%}: it says the same over and over"
    return None


def top_gram_share(text: str, size: int = 5) -> tuple[float, str]:
    """How much of `text` its most frequent five characters cover."""
    grams = Counter(text[i : i + size] for i in range(len(text) - size + 1))
    if not grams:
        return 0.0, ""
    gram, count = grams.most_common(1)[0]
    return count / sum(grams.values()), gram


def tail_period(text: str, window: int = 600, longest: int = 200) -> int | None:
    """The period of the last `window` characters when at least 95 % of them repeat."""
    tail = text[-window:]
    for period in range(1, min(longest, len(tail) // 3) + 1):
        compared = len(tail) - period
        equal = sum(a == b for a, b in zip(tail, tail[period:], strict=False))
        if equal / compared >= 0.95:
            return period
    return None


def _short_loop(text: str) -> str | None:
    # "AI AI AI AI": too short for shares, yet five equal words in a row are no sentence.
    words = text.split()
    row = 1
    for before, word in pairwise(words):
        row = row + 1 if word == before else 1
        if row >= 5:
            return f"the word {word!r} {row} times in a row"
    return None


def stop_word_share(text: str) -> float:
    """The share of small English words among all words: token salad has hardly any."""
    words = _WORDS.findall(text.lower())
    return sum(word in _STOP_WORDS for word in words) / len(words) if words else 0.0


def letter_share(text: str) -> float:
    """The share of letters, digits, blanks and plain punctuation."""
    plain = sum(c.isalnum() or c.isspace() or c in _PLAIN for c in text)
    return plain / len(text) if text else 0.0


def encoding_damage(text: str) -> str | None:
    """Bytes that were decoded wrongly somewhere on the way."""
    if "\ufffd" in text:
        return "a replacement character (U+FFFD)"
    if any("\ud800" <= c <= "\udfff" for c in text):
        return "half of a surrogate pair"
    if re.search(r"<0x[0-9A-F]{2}>", text):
        return "a literal byte token"
    pair = re.search(r"Ã[\u0080-\u00bf]|â€[™œ\u009d“”]", text)
    return f"mojibake ({pair.group()!r})" if pair else None
