"""The pseudo model: from a request to its answer. Deterministic: same seed and same prompt, same words.

What it can do are its skills (`skills/`), what it gets wrong is in `mistakes.py`, and here is who comes first.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from random import Random

from . import prose
from .answer import Answer
from .mistakes import mistaken
from .reading import read
from .request import Asked
from .settings import Settings
from .skills import SKILLS
from .skills.writing import topic_of
from .tokens import split_tokens

_THINK_OF = re.compile(
    r"\b(?:think(?:ing)?|thoughts?|reasoning)\b[^.\n\"“`]{0,80}(?:[\"“`](?P<quoted>[^\"”`\n]{1,80})[\"”`]|(?P<bare>\d{3,}))",
    re.IGNORECASE,
)


def answer(asked: Asked, settings: Settings, choice: int = 0) -> Answer:
    """What the model would say, as its so manieth choice."""
    salt = settings.seed.to_bytes(8, "little", signed=True)
    digest = blake2b(asked.prompt, digest_size=8, salt=salt, person=choice.to_bytes(2)).digest()
    rng = Random(int.from_bytes(digest))  # noqa: S311 - must be repeatable, guards nothing
    said = _said(asked, rng)
    if settings.right:
        said = mistaken(said, asked, settings.right, settings.seed)
    if asked.thinking:
        said = replace(said, reasoning=_thoughts(asked, rng))
    return said


def more(asked: Asked, seed: int) -> Iterator[str]:
    """Words without end, for requests that forbid the model to stop."""
    return prose.prose(Random(f"{seed}/{len(asked.prompt)}"), (), None)  # noqa: S311 - must be repeatable


def _said(asked: Asked, rng: Random) -> Answer:
    return next(said for skill in SKILLS if (said := skill(asked, rng)) is not None)


def _thoughts(asked: Asked, rng: Random) -> Iterator[str]:
    """Some sentences about the message, and what it wants to have thought of."""
    question = read(asked.user_text)
    thoughts = prose.thoughts(rng, topic_of(question), 24 + rng.randrange(24))
    wanted = _THINK_OF.search(question.focus)
    if wanted is None:
        return thoughts
    return chain(thoughts, split_tokens(f" I keep {wanted['quoted'] or wanted['bare']} in mind."))
