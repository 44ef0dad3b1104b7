"""Pseudo text: unique, repeatable sentences of sane words, and code that looks like code."""

from collections.abc import Iterator
from itertools import repeat
from random import Random

from .tokens import split_tokens
from .vocabulary import word_list

_NOUNS = word_list(
    "system engine server river mountain teacher garden market signal window bridge engineer method pattern station "
    "harbour measure library village journey question answer machine schedule model context memory cluster request "
    "station letter winter summer morning evening forest student captain painter number story reason circuit budget "
    "kitchen theatre island railway compass lantern orchard archive valley notebook ticket cabinet"
)
_VERBS = word_list(
    "carries follows shapes supports limits explains improves reaches connects describes changes protects measures "
    "balances replaces crosses remembers prepares balances controls surprises guides feeds answers"
)
_ADJECTIVES = word_list(
    "quiet careful modern small large simple steady narrow early distant bright patient regular useful honest common "
    "curious gentle heavy local practical rapid shallow silent typical warm young deep broad clear"
)
_ADVERBS = word_list("usually slowly often quickly rarely clearly mostly always sometimes carefully directly together")
_SENTENCES = (
    "The {a} {n} {v} the {n}, and the {n} {d} {v} a {n}.",
    "In the {n} there is a {a} {n} that {v} every {n}.",
    "When the {n} is {a}, the {n} {v} the {a} {n} of the {n}.",
    "It is {d} true that a {n} {v} the {n} because the {n} is {a}.",
    "Most people think of the {n} as {a}, but the {n} {v} it {d}.",
    "A {a} {n} {v} the {n} with {k} parts, which is why the {n} {v} it.",
    "For this reason the {n} of the {n} {d} {v} what the {n} has to do.",
    "After {k} steps the {n} is no longer {a}, so the {n} {v} another {n}.",
)
_THOUGHTS = (
    "The user wants something about the {n}, so I should look at the {n} first.",
    "Let me consider how the {n} and the {n} belong together here.",
    "A {a} answer is enough, with the {n} in {k} parts.",
    "I will keep the {n} short and check the {n} once more.",
    "The {n} matters more than the {n}, since a {a} {n} {v} it.",
    "First comes the {n}, then the {n}, and the {a} part goes to the end.",
    "Nothing here needs more than {k} words about the {n}.",
    "If the {n} {v} the {n}, the rest follows {d}.",
)
_CHINESE_SUBJECTS = word_list(
    "清晨的河流 老师傅 这座城市 远处的山 年轻的工程师 图书馆里的人 这个方法 海边的小镇 系统 邻居家的孩子"
)
_CHINESE_VERBS = word_list(
    "慢慢地改变了 总是记得 常常需要 轻轻地推开了 认真地研究了 很快就学会了 一直在寻找 静静地守着"
)
_CHINESE_OBJECTS = word_list(
    "新的道路 旧日的故事 那扇窗 明天的安排 一盏灯 简单的道理 大家的意见 秋天的味道 一封来信 许多问题"
)
_CODE_NAMES = word_list("total index window bucket cursor offset weight record result segment counter margin")


def prose(rng: Random, topic: tuple[str, ...], tokens: int | None) -> Iterator[str]:
    """About so many tokens of English prose that uses the topic's words; without a number it never ends."""
    return _until(_sentences(rng, _SENTENCES, topic), tokens)


def lines(rng: Random, topic: tuple[str, ...]) -> Iterator[str]:
    """Short sentences without end, no two alike in a row."""
    nouns = (*_NOUNS, *topic)
    for _ in repeat(None):
        first, second = rng.sample(nouns, 2)
        yield f"The {rng.choice(_ADJECTIVES)} {first} {rng.choice(_VERBS)} the {second}."


def thoughts(rng: Random, topic: tuple[str, ...], tokens: int) -> Iterator[str]:
    """About so many tokens of reasoning."""
    return _until(_sentences(rng, _THOUGHTS, topic), tokens)


def chinese(rng: Random, tokens: int | None) -> Iterator[str]:
    """About so many tokens of Chinese prose."""

    def sentences() -> Iterator[str]:
        while True:
            clause = rng.choice(_CHINESE_SUBJECTS) + rng.choice(_CHINESE_VERBS) + rng.choice(_CHINESE_OBJECTS)
            other = rng.choice(_CHINESE_SUBJECTS) + rng.choice(_CHINESE_VERBS) + rng.choice(_CHINESE_OBJECTS)
            yield f"{clause}\uff0c{other}\u3002"

    return _until(sentences(), tokens)


def code(rng: Random, topic: tuple[str, ...], tokens: int | None) -> Iterator[str]:
    """About so many tokens of a Python-like listing in a fence, function after function."""

    def functions() -> Iterator[str]:
        yield "Here is a version in Python:\n\n```python\n"
        while True:
            yield _function(rng, topic)

    yield from _until(functions(), tokens)
    yield from ("\n", "```")


def _function(rng: Random, topic: tuple[str, ...]) -> str:
    name, first, second = rng.choice(topic or ("compute",)), *rng.sample(_CODE_NAMES, 2)
    limit = rng.randint(2, 900)
    return (
        f"def {rng.choice(_CODE_NAMES)}_{name.lower()}_{rng.randint(1, 99)}({first}: int, {second}: int) -> int:\n"
        f'    """Return the {rng.choice(_ADJECTIVES)} {second} of a {rng.choice(_NOUNS)}."""\n'
        f"    if {first} > {limit}:\n        return {second} - {rng.randint(1, 90)}\n"
        f"    for step in range({rng.randint(2, 40)}):\n        {second} += {first} * step % {rng.randint(3, 97)}\n"
        f"    return {second}\n\n\n"
    )


def _sentences(rng: Random, templates: tuple[str, ...], topic: tuple[str, ...]) -> Iterator[str]:
    nouns = [*_NOUNS, *(word for word in topic for _ in range(4))]
    number = 0
    while True:
        words = rng.choice(templates)
        for slot, choices in (("{a}", _ADJECTIVES), ("{n}", nouns), ("{v}", _VERBS), ("{d}", _ADVERBS)):
            while slot in words:
                words = words.replace(slot, rng.choice(choices), 1)
        number += 1
        yield words.replace("{k}", str(rng.randint(2, 97))) + ("\n\n" if number % 5 == 0 else " ")


def _until(texts: Iterator[str], tokens: int | None) -> Iterator[str]:
    """Whole sentences until about so many tokens are out; the last one ends cleanly."""
    produced = 0
    pending = ""
    for text in texts:
        for token in split_tokens(pending + text.rstrip()):
            produced += 1
            yield token
        if tokens is not None and produced >= tokens:
            return
        pending = text[len(text.rstrip()) :]
