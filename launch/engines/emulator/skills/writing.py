"""Writing at length: prose, code, Chinese, numbered lists; as long as asked, with the end that was asked for."""

import re
from collections.abc import Iterator
from itertools import chain
from random import Random

from .. import prose
from ..answer import Answer
from ..reading import Question, read
from ..request import Asked
from ..tokens import split_tokens
from ..vocabulary import word_list

_CODE = re.compile(r"\b(?:code|python|function|script|program|class|implement|algorithm|refactor)\b", re.IGNORECASE)
_LONG = re.compile(r"\b(?:long|detailed|essay|story|thorough|in depth|chapter|at length)\b", re.IGNORECASE)
_COUNT = re.compile(r"\b(\d{2,5}|\d{1,2},\d{3})[ -](word|token|character|byte)s?\b", re.IGNORECASE)
_KILOBYTES = re.compile(r"\b(\d{1,3})\s?(?:KB|KiB|kilobytes?)\b", re.IGNORECASE)
_ROWS = re.compile(
    r"\b(\d{1,4}|\d,\d{3})[ -](?:\w+[ -]){0,2}?(lines?|items?|entries|sentences|facts|tips|steps|ideas|points|rows)\b"
    r"|\blist of (\d{1,4})\b|\b(?:from 1 (?:to|up to)|numbered 1 to|1 to) (\d{1,4})\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b(?:numbered|number(?:s|ing)?|list|count(?:ing)?|lines|items|entries)\b", re.IGNORECASE)
_END = re.compile(
    r"\b(?:last line|last word|end(?:s|ing)?|finish(?:es|ing)?|clos(?:e|es|ing)|conclud(?:e|es|ing)"
    r"|followed by|then write|sentinel)\b[^.\n\"“`]{0,80}?"
    r"(?:[\"“`](?P<quoted>[^\"”`\n]{2,80})[\"”`]|\b(?P<bare>(?-i:[A-Z][A-Z0-9]*(?:[-_][A-Z0-9]+)+|[A-Z]{3,}\d+))\b)",
    re.IGNORECASE,
)
_CJK = re.compile(r"[\u4e00-\u9fff]")
_TOPIC = re.compile(r"\b[a-z]{5,12}\b")
_DULL = frozenset(word_list("about write would could should please exactly nothing there their which these those"))
_TOKENS_PER_WORD = 1.35
_CHARACTERS_PER_TOKEN = 4.6


def write(asked: Asked, rng: Random) -> Answer | None:
    """Something to read about what the message is about. There is always something to say."""
    question = read(asked.user_text)
    prefix = split_tokens(f"[ref {question.reference}] ") if question.reference else iter(())
    listed = rows(question, rng)
    said = listed if listed is not None else _prose(question, rng, asked.usual_tokens)
    return Answer(content=chain(prefix, _ended(question, said)))


def topic_of(question: Question) -> tuple[str, ...]:
    """Words of the message that are worth using again."""
    return tuple(sorted(set(_TOPIC.findall(question.focus[-2000:])) - _DULL))[:12]


def composed(question: Question) -> str | None:
    """The text of a document that a message describes by its length; None when it does not."""
    rng = Random(question.plain)  # noqa: S311 - must be repeatable, guards nothing
    listed = rows(question, rng)
    length = _length(question)
    if listed is None and length is None:
        return None
    return "".join(_ended(question, listed if listed is not None else _prose(question, rng, length or 0)))


def rows(question: Question, rng: Random) -> Iterator[str] | None:
    """A numbered list, if so many lines, items or numbers are asked for."""
    match = _ROWS.search(question.focus)
    if match is None or not _NUMBERED.search(question.focus):
        return None
    count = int((match[1] or match[3] or match[4]).replace(",", ""))
    named = re.search(r"`(\w+ )?(?:1|\d+|N|n|<?number>?)[.:)]?", question.focus)
    label = (named[1] or "") if named else ""
    return _rows(count, label, topic_of(question), rng, bare=match[4] is not None and match[1] is None)


def _rows(count: int, label: str, topic: tuple[str, ...], rng: Random, *, bare: bool) -> Iterator[str]:
    sentences = prose.lines(rng, topic)
    for number in range(1, count + 1):
        text = f"{label}{number}" if bare else f"{label}{number}. {next(sentences)}"
        yield from split_tokens(text + ("\n" if number < count else ""))


def _prose(question: Question, rng: Random, usual_tokens: int) -> Iterator[str]:
    text = question.focus
    length = _length(question)
    if length is None:
        length = round(rng.uniform(0.7, 1.3) * (4 if _LONG.search(text) else 1) * usual_tokens)
    if len(_CJK.findall(text)) * 3 > len(text):
        return prose.chinese(rng, length)
    return (prose.code if _CODE.search(text) else prose.prose)(rng, topic_of(question), length)


def _length(question: Question) -> int | None:
    """Tokens, where the message says how long."""
    if count := _COUNT.search(question.focus):
        number = int(count[1].replace(",", ""))
        return round(number * {"w": _TOKENS_PER_WORD, "t": 1.0}.get(count[2][0].lower(), 1 / _CHARACTERS_PER_TOKEN))
    if kilobytes := _KILOBYTES.search(question.focus):
        return round(int(kilobytes[1]) * 1024 / _CHARACTERS_PER_TOKEN)
    return None


def _ended(question: Question, tokens: Iterator[str]) -> Iterator[str]:
    yield from tokens
    if end := _END.search(question.focus):
        yield from split_tokens(f"\n{end['quoted'] or end['bare']}")
