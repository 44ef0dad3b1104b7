"""Greetings."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens

_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|day)|greetings|ping|thanks|thank you)\b.{0,40}$",
    re.IGNORECASE | re.DOTALL,
)


def greet(asked: Asked, rng: Random) -> Answer | None:
    """A word of welcome for a message that is nothing but one."""
    del rng
    if not _GREETING.match(read(asked.user_text).plain):
        return None
    return Answer(content=split_tokens("Hello! I am ready to help. What would you like to know?"))
