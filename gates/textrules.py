"""Is this language, or a machine that has lost its mind? Rules on text alone, calibrated on prose and on source code.

The thresholds come from 1,208 windows of English prose and 1,316 of Python source: each rule raised no alarm on prose
and at most four on code (comment rulers, embedded base64), where a single hit does not decide.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from operator import eq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_CHARS: Final = 800
MIN_LETTERS: Final = 0.85
MIN_STOP_WORDS: Final = 0.10

_FEWEST_ALIKE: Final = 16
_FEWEST_BLANKS: Final = 40
# Rulers are drawn with these, and with the signs for boxes.
_RUN: Final = re.compile(r"([^\s\-=_*#.~+|/\u2500-\u257f])\1{15,}|(.)\2{119,}", re.DOTALL)
_BLANKS: Final = re.compile(r"\n{40,}|\s{200,}")
_PLAIN: Final = ".,;:!?'\"()-%\u2013\u2014\u2018\u2019\u201c\u201d"
_EAST_ASIAN: Final = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "HANGUL"), "East Asian")
_SALAD_PAIRS: Final = 5
_GRAM_SHARE: Final = 0.20
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN: Final = re.compile(r"<0x[0-9A-F]{2}>")
_ALIKE: Final = 6
_COUNTED: Final = 40
_COUNTED_CHARS: Final = 600
_WORDS: Final = re.compile(r"[a-z']+")
_CODE: Final = re.compile(
    r"```|\b(?:source code|(?:some|the|this|write|in) code|python|rust|javascript|typescript|c\+\+|sql|html|yaml|xml|"
    r"css|regex|base64|hex dump|function|script|program|class|table|diagram|ascii art)\b",
    re.IGNORECASE,
)
_MOJIBAKE: Final = re.compile(
    r"Ã[\u0080-\u00bf]"  # é as Ã©
    r"|â(?:€|\u0080)[™œ\u009d“”\u0080-\u00bf]"  # ’ as â€™
    r"|(?:[ÐÑ][\u0080-\u00bf\u2013-\u2122]){3}"  # Cyrillic, two bytes a letter
    r"|(?:[ã-é][\u0080-\u00bf\u2013-\u2122]{2}){2}"  # CJK, three bytes a letter
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters but tab, line and page feed, carriage return and the next line of old hosts; and no characters."""
_UNSEEN: Final = "\u200b\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Invisible signs that stand within a text for a reason, but do nothing where one begins or ends."""
_FOREIGN_TAIL: Final = 40
_FOREIGN_SHARE: Final = 0.9
_OTHER_SCRIPT: Final = re.compile(
    r"\b(?:chinese|mandarin|cantonese|japanese|korean|russian|ukrainian|bulgarian|serbian|arabic|persian|farsi|urdu|"
    r"hebrew|yiddish|greek|hindi|sanskrit|bengali|tamil|telugu|thai|georgian|armenian|cyrillic|kanji|hiragana|katakana|"
    r"hangul|unicode|emoji|\w*lingual|languages?|translat\w*|translit\w*|alphabets?|scripts?|native|original)\b",
    re.IGNORECASE,
)
STOP_WORDS: Final = frozenset(
    """
    the a an and or of to in on at is are was were be been it its this that these those for with as by
    from not but he she they we you i his her their our your which who what when where there then so if
    than into out up no all one some has have had do does did can will would could more very over after
    before while about
    """.split()  # noqa: SIM905 - a list of eighty words is read as words
)


def degeneration(text: str) -> str | None:
    """What is broken about `text`, in words; None when nothing is."""
    return next(degenerations(text), None)


def degenerations(text: str) -> Iterator[str]:
    """Every rule that `text` breaks, in words. Source code may break one of them and be well: rulers, embedded data."""
    collapsed = " ".join(text.split())
    # Most texts are healthy: what a rule cannot do without is looked for first, where that is the cheaper question.
    if len(text) - len(collapsed) >= _FEWEST_BLANKS - 1 and _BLANKS.search(text):
        yield "a run of blanks or newlines"
    run = _RUN.search(text) if any(_FEWEST_ALIKE * sign in text for sign in set(text)) else None
    if run:
        yield f"the character {run.group()[0]!r} {len(run.group())} times in a row"
    if mixed := mixed_scripts(text):
        yield mixed
    if len(collapsed) < 200:
        if loop := _short_loop(collapsed):
            yield loop
        return
    share, gram = top_gram_share(collapsed) if _may_have_top_gram(collapsed) else (0.0, "")
    if share >= _GRAM_SHARE:
        yield f"{share:.0%} of the text is made of {gram!r}"
    period = tail_period(collapsed)
    if period:
        yield f"the end repeats itself every {period} characters"
    ratio = _compressed(collapsed) if len(collapsed) >= 400 else 1.0
    if ratio < 0.18:
        yield f"the text compresses to {ratio:.0%}: it says the same over and over"


def mixed_scripts(text: str) -> str | None:
    """Is this token salad? Words of different scripts side by side, five times over; Latin letters stand anywhere.

    East Asian scripts count as one. A list of greetings in ten languages has a comma or a new line between them.
    """
    if text.isascii():
        return None
    pairs = [(a, b) for a, b in pairwise(map(_family, text.split(" "))) if a and b and a != b]
    if len(pairs) < _SALAD_PAIRS:
        return None
    names = sorted({name.title() for pair in pairs for name in pair})
    return f"words of {', '.join(names)} letters stand side by side, {len(pairs)} times"


def _family(word: str) -> str | None:
    """The script of a word of foreign letters that ends in one; None for any other."""
    name = script(word[0]) if word and not word.isascii() and unicodedata.category(word[-1])[0] in "LM" else None
    return None if name in (None, "LATIN") else _EAST_ASIAN.get(name, name)


def counts_on(text: str) -> str | None:
    """Does the end of `text` only count? Forty numbers, each one more than the last, and no word between them."""
    tail = re.split(r"[^\W\d_]", text[-_COUNTED_CHARS:])[-1]
    # The first and the last may be cut.
    numbers = [int(number) for number in re.findall(r"\d{1,9}", tail)][1:-1]
    if len(numbers) < _COUNTED or any(b != a + 1 for a, b in pairwise(numbers)):
        return None
    return f"it only counts on, at last from {numbers[0]} to {numbers[-1]}"


@lru_cache(maxsize=4096)
def script(sign: str) -> str | None:
    """The script of a letter, as the first word of its Unicode name; None for anything that is no letter."""
    if not sign.isalpha():
        return None
    return unicodedata.name(sign, "UNKNOWN").partition(" ")[0].removesuffix("-")


def degenerate_window(text: str) -> str | None:
    """The same for a long text, window by window: what is healthy on the whole may have a sick stretch."""
    step = WINDOW_CHARS // 4
    for start in range(0, max(1, len(text) - WINDOW_CHARS + step), step):
        broken = degeneration(text[start : start + WINDOW_CHARS])
        if broken:
            return f"from character {start}: {broken}"
    return None


def asks_for_code(text: str) -> bool:
    """Will the answer to `text` be source code or the like, where one rule alone may err?"""
    return _CODE.search(text) is not None


def top_gram_share(text: str, size: int = 5) -> tuple[float, str]:
    """How much of `text` its most frequent five characters cover."""
    grams = Counter(text[i : i + size] for i in range(len(text) - size + 1))
    if not grams:
        return 0.0, ""
    gram, count = grams.most_common(1)[0]
    return count / sum(grams.values()), gram


def _may_have_top_gram(text: str) -> bool:
    """Only signs that are a fifth of the text can make up five that are: asked first, since counting fives is dear."""
    least = _GRAM_SHARE * (len(text) - 4)
    frequent = "".join(sign for sign, count in Counter(text).items() if count >= least)
    return bool(frequent) and re.search(f"[{re.escape(frequent)}]{{5}}", text) is not None


def tail_period(text: str, window: int = 600, longest: int = 200) -> int | None:
    """The shortest period of the last `window` characters when at least 95 % of them repeat."""
    tail = text[-window:]
    most = min(longest, len(tail) // 3)
    repeating = (p for p in _distances(tail, most) if sum(map(eq, tail, tail[p:])) >= 0.95 * (len(tail) - p))
    return next(repeating, None)


def _distances(tail: str, most: int) -> list[int]:
    """How far apart equal eights of characters stand, up to `most`: no other number can be a period.

    At most one character in twenty may differ, and the part behind `most` is two thirds of the whole: there are more
    eights in it than characters that may differ, so some eight stands unchanged one period earlier.
    """
    found = set()
    for start in range(most, len(tail) - 7, 8):
        eight = tail[start : start + 8]
        before = tail.rfind(eight, start - most, start + 7)
        while before >= 0:
            found.add(start - before)
            before = tail.rfind(eight, start - most, before + 7)
    return sorted(found)


def _compressed(text: str) -> float:
    data = text.encode(errors="replace")
    return len(zlib.compress(data)) / len(data) if data else 1.0


def _short_loop(text: str) -> str | None:
    # "AI AI AI AI": too short for shares, yet five equal words in a row are no sentence.
    words = text.split()
    row = 1
    for before, word in pairwise(words):
        row = row + 1 if word == before else 1
        if row >= 5:
            return f"the word {word!r} {row} times in a row"
    return None


def one_sign_only(text: str) -> str | None:
    """Is `text` nothing but one character, six times or more? For answers of a few tokens, too short for shares.

    Engines whose weights or cache are lost write "!!!!!!!!": the token with the number 0.
    """
    signs = "".join(text.split())
    if len(signs) < _ALIKE or len(set(signs)) > 1:
        return None
    return f"the character {signs[0]!r} {len(signs)} times and nothing else"


def stop_word_share(text: str) -> float:
    """The share of small English words among all words: token salad has hardly any."""
    words = _WORDS.findall(text.lower())
    return sum(word in STOP_WORDS for word in words) / len(words) if words else 0.0


def letter_share(text: str) -> float:
    """The share of letters, digits, blanks and plain punctuation."""
    plain = sum(c.isalnum() or c.isspace() or c in _PLAIN for c in text)
    return plain / len(text) if text else 0.0


def encoding_damage(text: str) -> str | None:
    """Bytes that were decoded wrongly somewhere on the way."""
    foreign = not text.isascii()
    if foreign and "\ufffd" in text:
        return "a replacement character (U+FFFD)"
    if foreign and _SURROGATE.search(text):
        return "half of a surrogate pair"
    if _BYTE_TOKEN.search(text):
        return "a literal byte token"
    pair = _MOJIBAKE.search(text) if foreign else None
    return f"mojibake ({pair.group()!r})" if pair else None


def invisible_signs(text: str) -> list[str]:
    """Characters that nobody sees: control characters, and blanks without width where the text begins or ends.

    Inside a text those of no width are in use: between Thai words, around a name in another direction of writing.
    """
    bare = text.strip()
    ends = dict.fromkeys((bare[:1], bare[-1:]))
    return [*dict.fromkeys(_CONTROL.findall(text)), *(sign for sign in ends if sign and sign in _UNSEEN)]


def other_script(text: str, asked: str) -> str | None:
    """Does an answer to the request `asked` (all of its text) end in letters of a script that stands nowhere in it?

    Latin letters stand anywhere: in names, commands and terms. A request that speaks of languages may want another.
    """
    if text.isascii():
        return None
    tail = [name for sign in text[-4 * _FOREIGN_TAIL :] if (name := script(sign))][-_FOREIGN_TAIL:]
    if len(tail) < _FOREIGN_TAIL:
        return None
    [(family, count)] = Counter(_EAST_ASIAN.get(name, name) for name in tail).most_common(1)
    if family == "LATIN" or count < _FOREIGN_SHARE * len(tail) or _OTHER_SCRIPT.search(asked):
        return None
    theirs = {_EAST_ASIAN.get(name, name) for sign in set(asked) if (name := script(sign))}
    return None if family in theirs else f"it ends in {family.title()} letters, and the request has none of them"


def prose_problem(text: str, min_chars: int) -> str | None:
    """Why `text` is no English prose, or None. The only rule that sees token salad, which never repeats itself."""
    said = f"the answer was {' '.join(text.split())[:120]!r}"
    if len(text.strip()) < min_chars:
        return f"only {len(text.strip())} characters of prose came, expected {min_chars}; {said}"
    letters = letter_share(text)
    if letters < MIN_LETTERS:
        return f"only {letters:.0%} of the text is letters, digits and plain punctuation; {said}"
    share = stop_word_share(text)
    if len(text) >= 200 and share < MIN_STOP_WORDS:
        return f"small English words make {share:.0%} of it, in prose at least {MIN_STOP_WORDS:.0%}; {said}"
    return None
