"""What was noted in the thoughts before a call, told with the call's result."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens
from .feedback import use_results

_ASKED = re.compile(
    r"\b(?:which|what) (?:number|code|value|word) (?:you|did you|have you) (?:note|noted|chose|chosen|keep|kept)\b",
    re.IGNORECASE,
)
_NOTED = re.compile(r"\b(?:note|choose|keep|remember)\w* (?:is|the number|the code)?:? ?(\d[\d.]*\d)")


def tell_noted(asked: Asked, rng: Random) -> Answer | None:
    """The number, and what the result says; None where no thought of this conversation holds one."""
    if not asked.results or asked.choice.forced or not _ASKED.search(read(asked.user_text).plain):
        return None
    noted = [match[1] for message in asked.messages for match in _NOTED.finditer(message.reasoning)]
    told = use_results(asked, rng) if noted else None
    if told is None or told.calls:
        return told
    return Answer(content=split_tokens(f"I noted {noted[-1]}. {''.join(told.content)}"))
