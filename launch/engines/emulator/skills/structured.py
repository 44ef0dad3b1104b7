"""Answers that have to be JSON."""

import json
from random import Random
from typing import Any

from ..answer import Answer
from ..filler import object_of
from ..reading import pairs, read
from ..request import Asked
from ..tokens import split_tokens
from .facts import known_answer


def answer_as_json(asked: Asked, rng: Random) -> Answer | None:
    """A document that is valid against the schema of the request and holds what the message says."""
    del rng
    if asked.answer_schema is None:
        return None
    text = json.dumps(_document(asked.answer_schema, asked.user_text), ensure_ascii=False)
    return Answer(content=split_tokens(text))


def _document(schema: dict[str, Any], text: str) -> Any:
    if set(schema) - {"type"} or schema.get("type") != "object":
        return object_of(schema, text)
    question = read(text)
    return pairs(question.plain) or {"answer": known_answer(question.focus) or "There is nothing more to say."}
