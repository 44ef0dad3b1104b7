"""Calling a tool with a value that stands far above the task, in a text too long to be read at one glance."""

from random import Random
from typing import Any

from ..answer import Answer
from ..choosing import wishes
from ..conversation import Tool
from ..reading import MISSING, Question, literal, read
from ..request import Asked
from .calling import calls_of


def call_from_afar(asked: Asked, rng: Random) -> Answer | None:
    """The call that the last paragraph asks for, with values that the text above it states as literals."""
    del rng
    question = read(asked.user_text)
    if not asked.tools or asked.choice.mode == "none" or asked.results or question.focus == question.plain:
        return None
    task = question.plain.rsplit("\n\n", 1)[-1]
    if "above" not in task:
        return None
    calls = [
        call for wish in wishes(asked.tools, task) for call in calls_of(wish, question, _stated(wish.tool, question))
    ]
    return Answer(calls=tuple(calls)) if calls else None


def _stated(tool: Tool, question: Question) -> dict[str, Any]:
    """The literals that stand behind the names of this tool's properties, anywhere."""
    found = {name: literal(question.plain, name) for name in tool.schema.get("properties") or {}}
    return {name: value for name, value in found.items() if value is not MISSING}
