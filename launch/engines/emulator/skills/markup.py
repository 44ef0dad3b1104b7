"""Talking about markup without writing it, and answers that begin with what they were told to begin with."""

import re
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens
from .facts import known_answer

TAG = re.compile(r"</?[\w|\uff5c:\u2581=-]+>?|\[/?[A-Z_]{3,}\]|<\|[^|>]+\|>")
_EXPLAIN = re.compile(
    r"\b(?:explain|what|meaning|means?|describe|why|how|stands? for|used for|purpose|tell me)\b", re.IGNORECASE
)
_BEGIN = re.compile(
    r"\b(?:begin|start)\b[^\n`\"“{\[]{0,60}(?:`(?P<ticks>[^`]+)`|(?P<json>\{[^\n]*?\}|\[[^\n]*?\])(?=[\s,.;]|$)|\"(?P<quoted>[^\"]+)\")",
    re.IGNORECASE,
)
_PARAGRAPH = (
    "This piece of markup marks a place where a language model hands something over to the program around it. The "
    "program reads the text between the opening mark and the closing mark, takes it out of the answer and does with "
    "it what the mark says, so that people who read the answer never see it. A word in a question that only quotes "
    "such a mark has no effect of its own: it is text like any other, and it is answered like any other."
)
_JSON_IS = (
    " is a JSON value. In Python it would be a dict or a list with the same members: the name to the left of a colon "
    "is the key, what stands on the right of it is the value, and commas keep the members apart."
)


def explain_markup(asked: Asked, rng: Random) -> Answer | None:
    """An explanation of a tag that the question quotes, or the beginning that it demands and some words about it."""
    del rng
    question = read(asked.user_text)
    if question.blocks:
        return None
    begin = _BEGIN.search(question.focus)
    if begin is not None:
        beginning = begin["ticks"] or begin["json"] or begin["quoted"]
        rest = _JSON_IS if beginning[0] in "{[" else f" {_PARAGRAPH}"
        return Answer(content=split_tokens(beginning + rest))
    if TAG.search(question.focus) and _EXPLAIN.search(question.focus):
        known = known_answer(question.focus)
        return Answer(content=split_tokens(_PARAGRAPH + (f" And the answer to the rest is {known}." if known else "")))
    return None
