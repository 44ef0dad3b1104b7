"""Faults of the text itself: garbled, repeated, mixed up, wrong."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, cycle, islice, repeat
from random import Random
from typing import Any

from ..answer import Answer
from ..prose import chinese, prose
from ..tokens import split_tokens
from .args import rewritten, written
from .entry import Fault, Group, Need, Scene, Stage
from .transport import after_tokens

_ENDLESS_TOKENS = 512
"""Where the engine itself ends an answer that does not end, if the client set no lower limit."""
_JUNK = ("assistant", "the the", "!", "{{", "0x", "of of", "\u00c2\u00c2", "user", ":::", "and and")
_SALAD = (
    " \u0441\u0442\u0440\u0430\u043d\u0438\u0446\u0430 \u6570\u636e \u306e\u3067 \uc5d0\uc11c \u0645\u0646 zeichn"
    " Undert \u0e01\u0e32\u0e23 _iter \u03ba\u03b1\u03b9 ficient \u05e9\u05dc inqu \u0939\u0948 \u56fd\u7acb Gesch"
    " \u043e\u0432\u0430\u043d\u0438\u044f unst \u7684\u4e00 \u3057\u305f oubt \ud558\ub294 wend \u0627\u0644"
)
_INVISIBLE = ("\x00", "\x1b[0m", "\b", "\u200b", "\ufeff")
_REFERENCE = re.compile(r"^\s*\[ref [^\]]*\]\s*")
_SHORT_WRONG = ("Lisbon", "Canberra", "Tuesday", "a marmot", "violet", "Oslo", "Lima")
_SHORT_CHARACTERS = 60


def garbage(answer: Answer, scene: Scene) -> Answer:
    """A short phrase of junk over and over, as a wrongly sharded model writes it; calls are lost in it."""
    tokens = list(split_tokens(" " + " ".join(scene.rng.choices(_JUNK, k=4))))
    length = 120 if answer.calls else max(120, sum(1 for _ in answer.content))
    return Answer(reasoning=answer.reasoning, content=islice(cycle(tokens), length))


def salad(answer: Answer, scene: Scene) -> Answer:
    """Words of many scripts in no order: fluent-looking to every rule that only knows repetition."""
    words = _SALAD.split()
    text = " ".join(scene.rng.choice(words) for _ in range(scene.rng.randint(60, 140)))
    return replace(answer, content=split_tokens(text), calls=())


def endless(tokens: Callable[[Random], Iterable[str]]) -> Callable[[Answer, Scene], Answer]:
    """Instead of an answer the same up to the limit; no further, as another fault may want to read it all."""
    return lambda answer, scene: replace(answer, content=islice(tokens(scene.rng), _ENDLESS_TOKENS), calls=())


def _n_grams(rng: Random) -> Iterator[str]:
    start, loop = rng.choice((("I", ("'m",)), (" AI", (" AI",)), ("The", (" next", " step", " of"))))
    return chain((start,), cycle(loop))


def _counting(rng: Random) -> Iterator[str]:
    del rng
    return (token for number in range(1, _ENDLESS_TOKENS * 2) for token in split_tokens(f"{number}. "))


def ws_loop(answer: Answer, scene: Scene) -> Answer:
    """A good beginning, then white space to the limit; of a call only its beginning is left, as text."""
    begun = list(answer.content) or [token for call in answer.calls for token in split_tokens(call.arguments)]
    blank = scene.rng.choice((" ", "\n", "\n\n"))
    return replace(answer, content=chain(begun[: max(1, len(begun) // 2)], repeat(blank, _ENDLESS_TOKENS)), calls=())


def lang_drift(answer: Answer, scene: Scene) -> Answer:
    """After a few words the text goes on in another language, and in circles."""
    begun = tuple(answer.content)
    if len(begun) < 24:
        return replace(answer, content=begun)
    ascii_share = sum(token.isascii() for token in begun) / len(begun)
    writer = chinese if ascii_share > 0.5 else lambda rng, tokens: prose(rng, (), tokens)
    return replace(answer, content=chain(begun[:12], writer(scene.rng, len(begun))))


def mojibake(answer: Answer, scene: Scene) -> Answer:
    """Bytes read in the wrong encoding, or cut between two tokens; in ASCII text one character at the end."""
    del scene
    begun = tuple(answer.content)
    if all(token.isascii() for token in begun):
        broken = tuple(token.replace("'", "\u00e2\u20ac\u2122") for token in begun)
        changed = broken if broken != begun or not begun else (*begun, "\ufffd")
    else:
        changed = tuple(_broken(token) for token in begun)
    return rewritten(replace(answer, content=changed), lambda text: text if text.isascii() else _broken(text))


def invisible(answer: Answer, scene: Scene) -> Answer:
    """A sign that nobody sees ends the text: NUL, escape, backspace, a blank without width."""
    begun = tuple(answer.content)
    return replace(answer, content=(*begun, scene.rng.choice(_INVISIBLE)) if begun else begun)


def wrong_answers(answer: Answer, scene: Scene) -> Answer:
    """Fluent and wrong: other digits, and another short answer. The request's own mark stays as it is."""
    text = "".join(answer.content)
    mark = _REFERENCE.match(text)
    kept = mark.group() if mark else ""
    said = text.removeprefix(kept)
    wrong = re.sub(r"\d", lambda digit: str((int(digit.group()) + 3) % 10), said)
    if wrong == said and len(said) < _SHORT_CHARACTERS:
        wrong = scene.rng.choice([word for word in _SHORT_WRONG if word.lower() not in said.lower()])
    return replace(answer, content=split_tokens(kept + wrong))


def splice(answer: Answer, scene: Scene) -> Answer:
    """Keys skipped and strings run into each other, in JSON answers and in arguments."""
    text = "".join(answer.content)
    if text.lstrip().startswith(("{", "[")):
        answer = replace(answer, content=split_tokens(_spliced(text, scene.rng)))
    else:
        answer = replace(answer, content=split_tokens(text))
    return rewritten(answer, lambda arguments: _spliced(arguments, scene.rng))


def swap_requests(answer: Answer, scene: Scene) -> Answer:
    """The answer to what another client asked at the same time."""
    others = [other for other in scene.others if other.prompt != scene.asked.prompt]
    return scene.think(scene.rng.choice(others)) if others else answer


def wrong_kv(answer: Answer, scene: Scene) -> Answer:
    """Fluent words that have nothing to do with the question."""
    return replace(answer, content=prose(scene.rng, (), scene.rng.randint(40, 90)), calls=())


def bad_on_cache_hit(answer: Answer, scene: Scene) -> Answer:
    """Nothing, or exclamation marks."""
    content = ("!",) * 64 if scene.rng.random() < 0.5 else ()
    return replace(answer, content=content, calls=())


def _broken(text: str) -> str:
    r"""`é` as `Ã©`, and what that leaves unreadable as U+FFFD."""
    return text.encode(errors="replace").decode("cp1252", errors="replace")


def _spliced(text: str, rng: Random) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict) or not value:
        return text
    if len(value) > 1:
        skipped = rng.choice(list(value))
        rest = {key: each for key, each in value.items() if key != skipped}
        words = [key for key, each in rest.items() if isinstance(each, str)]
        if words:
            rest[words[0]] = rest[words[0]][: len(rest[words[0]]) // 2] + str(value[skipped])
        return written(rest)
    cut = rng.randint(2, max(2, len(text) // 2))
    return text[:cut] + text[cut + 3 :]


def _fault(name: str, what: str, spoils: Callable[[Answer, Scene], Answer], *needs: Need, **more: Any) -> Fault:
    return Fault(name, Group.TEXT, Stage.ANSWER, what, spoils=spoils, needs=needs, **more)


_capped = after_tokens(lambda _: _ENDLESS_TOKENS)
_bang = endless(lambda _: repeat("!"))

FAULTS = (
    _fault("garbage", "writes junk and repetitions, twice as fast as usual", garbage),
    _fault("bang", "!!!! up to the limit", _bang, asks=_capped),
    _fault("bang-after-wake", "!!!! up to the limit after a sleep", _bang, Need.SLEEP, asks=_capped, only=("woken",)),
    _fault("salad", "words of many scripts in no order", salad),
    _fault(
        "token-loop",
        "one token up to the limit",
        endless(lambda rng: repeat(rng.choice((" I", "+", "?", " the", "<think>")))),
        asks=_capped,
    ),
    _fault("ngram-loop", "I'm'm'm'm, AI AI AI up to the limit", endless(_n_grams), asks=_capped),
    _fault("count-loop", "1. 2. 3. … up to the limit", endless(_counting), asks=_capped),
    _fault("ws-loop", "a good beginning, then white space up to the limit", ws_loop, asks=_capped),
    _fault("lang-drift", "longer texts go on in another language after a few words", lang_drift),
    _fault("mojibake", "non-ASCII text as Ã© and U+FFFD; ASCII text ends in U+FFFD or has â€™ for '", mojibake),
    _fault("invisible", "the text ends in a control character, or in a blank without width", invisible),
    _fault("wrong-answers", "fluent and wrong: other digits, other short answers", wrong_answers),
    _fault("splice", "JSON answers and arguments skip keys and run strings together", splice),
    _fault(
        "swap-requests",
        "the answer to another request that runs at the same time",
        swap_requests,
        Need.CONCURRENCY,
        only=("running=2",),
    ),
    _fault(
        "bad-on-cache-hit",
        "empty, or !!!!, when the prompt was seen before",
        bad_on_cache_hit,
        Need.WARM_PREFIX,
        only=("cached",),
    ),
    _fault(
        "sampled-only",
        "junk and repetitions unless the temperature is 0",
        endless(_n_grams),
        Need.SAMPLING,
        asks=_capped,
        only=("sampled",),
    ),
    _fault("wrong-kv", "fluent words about something else; a prompt that is too long is answered too", wrong_kv),
)
