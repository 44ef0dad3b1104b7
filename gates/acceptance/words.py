"""Answers in words: what makes one no answer at all, and what of it is the answer itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gates.trial import Answer

_REFERENCE: Final = re.compile(r"\[ref [^\]\n]{1,20}\]")
SHOWN_CHARS: Final = 100


def unanswered(answer: Answer) -> str | None:
    """Why there are no words in this answer that could be right or wrong, or None."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if reply.calls:
        return f"{reply.calls[0].name or 'a tool'} was called instead of an answer in words"
    if reply.content.strip():
        return None
    if reply.finish_reason == "length":
        return "no word of an answer came before max_tokens" + (", only thinking" if reply.reasoning.strip() else "")
    return "the answer is empty"


def said(answer: Answer) -> str:
    """The content, without the reference that some models repeat from the question."""
    return _REFERENCE.sub("", answer.reply.content).strip()


def shown(text: str) -> str:
    """The beginning of a text, for a sentence."""
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN_CHARS else line[:SHOWN_CHARS] + "…")
