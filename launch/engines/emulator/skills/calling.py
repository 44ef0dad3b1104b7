"""Calling tools: which, how often, and with what."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

from ..answer import Answer, Call
from ..choosing import Wish, nearest, wishes
from ..conversation import Tool
from ..filler import NAME_LIKE, TEXT_LIKE, Filler
from ..harvest import Harvest, name_words
from ..reading import MISSING, Question, literal, read
from ..request import Asked
from ..tokens import split_tokens
from .facts import known_answer
from .writing import composed

_STEP = re.compile(r"(?:^|\s)(?:step\s+)?(\d{1,2})[.):]\s+", re.IGNORECASE)
_THEN = re.compile(r"[,;.]?\s*\b(?:and then|then|after that|afterwards|finally)\b,?\s*", re.IGNORECASE)
_ONE_BY_ONE = re.compile(
    r"\b(?:one (?:call|tool|step) (?:at a time|per turn)|one after (?:the other|another)|step by step|step \d)\b",
    re.IGNORECASE,
)
_SPEAK_FIRST = re.compile(
    r"\b(?:first|before)\b[^.\n]{0,60}\b(?:sentence|say|announce)\b|\bsentence\b[^.\n]{0,30}\b(?:before|then)\b",
    re.IGNORECASE,
)


def call_tools(asked: Asked, rng: Random) -> Answer | None:
    """The calls that a message asks for, or that the client demands."""
    if not asked.tools or asked.choice.mode == "none" or (asked.results and not asked.choice.forced):
        return None
    question = read(asked.user_text)
    step = next(iter(steps(asked.tools, question)), [])
    calls = demanded(asked, question, step) if asked.choice.forced else _calls(step, question)
    if not calls:
        return None
    spoken = _SPEAK_FIRST.search(question.focus) is not None and not asked.choice.forced
    sentence = rng.choice(("I will look that up for you now.", "Let me check that with the right tool."))
    content = split_tokens(sentence) if spoken else ()
    return Answer(content=content, calls=tuple(calls if asked.parallel_calls else calls[:1]))


def steps(tools: tuple[Tool, ...], question: Question) -> list[list[Wish]]:
    """The wishes of a message, one list per turn: several at once, unless it says one after the other."""
    return [list(turn) for turn in _turns(tools, question.focus)]


@lru_cache(maxsize=256)
def _turns(tools: tuple[Tool, ...], text: str) -> list[list[Wish]]:
    if known_answer(text) is not None:
        return [wished] if (wished := wishes(tools, text, obvious_only=True)) else []
    parts = _parts(text)
    turns = [wished for part in parts if (wished := wishes(tools, part, obvious_only=len(parts) > 1))]
    if len(turns) > 1:
        return turns
    whole = wishes(tools, text)
    if len(whole) > 1 and _ONE_BY_ONE.search(text):
        return [[wish] for wish in whole]
    implicit = [wished for part in parts if (wished := wishes(tools, part))] if len(parts) > 1 else []
    return implicit if len(implicit) > 1 else [whole] if whole else []


def _parts(text: str) -> list[str]:
    """The numbered steps of a text, or what stands between its `then`s."""
    marks = list(_STEP.finditer(text))
    numbers = [int(mark[1]) for mark in marks]
    if len(marks) > 1 and numbers == list(range(1, len(marks) + 1)):
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        return [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
    return _THEN.split(text)


def demanded(asked: Asked, question: Question, step: list[Wish]) -> list[Call]:
    """Calls where there have to be some: of the tool that is named, else of those wished for, else of the nearest."""
    if asked.choice.mode == "named":
        chosen = [tool for tool in asked.tools if tool.name == asked.choice.name][:1]
        step = [wish for wish in step if wish.tool in chosen] or [
            Wish(tool, question.focus, named=False) for tool in chosen
        ]
    elif not step and asked.tools:
        step = [Wish(nearest(asked.tools, question.focus), question.focus, named=False)]
    calls = _calls(step, question)
    done = {_same(call.name, call.arguments) for call in made_since_question(asked)}
    fresh = [call for call in calls if _same(call.name, call.arguments) not in done]
    if fresh or asked.choice.mode == "named":
        return fresh or calls
    others = [tool for tool in asked.tools if tool.name not in {call.name for call in calls}]
    return [_one_call(others[0], question, "")] if others else calls


def made_since_question(asked: Asked) -> Iterator[Call]:
    """The calls after the last message of the user."""
    last_user = max((i for i, m in enumerate(asked.messages) if m.role == "user"), default=-1)
    for message in asked.messages[last_user + 1 :]:
        yield from (Call(call.name, call.arguments) for call in message.calls)


def _same(name: str, arguments: str) -> tuple[str, str]:
    return name, json.dumps(json.loads(arguments), sort_keys=True)


def _calls(step: list[Wish], question: Question) -> list[Call]:
    return [call for wish in step for call in calls_of(wish, question)]


def calls_of(wish: Wish, question: Question, known: dict[str, Any] | None = None) -> list[Call]:
    """One call; or one per value, when the tool takes one and the text lists several.

    `known`: values of earlier results, for properties of which the text says nothing itself.
    """
    schema = wish.tool.schema
    properties = schema.get("properties") or {}
    harvest = Harvest(wish.text, own_words(wish.tool))
    key = _key(schema)
    listed: list[str] = []
    if key is not None and not known and literal(wish.text, key) is MISSING:
        listed = harvest.listed_quotes() or (harvest.listed_names() if NAME_LIKE & set(name_words(key)) else [])
    arguments = _arguments(wish, harvest, question)
    if known and key is not None and literal(wish.text, key) is MISSING:
        arguments |= {name: value for name, value in known.items() if name in properties}
    if key is None or len(listed) < 2:
        return [Call(wish.tool.name, _text(arguments))]
    return [Call(wish.tool.name, _text({**arguments, key: value})) for value in listed]


def _one_call(tool: Tool, question: Question, text: str) -> Call:
    return calls_of(Wish(tool, text, named=False), question)[0]


def own_words(tool: Tool) -> frozenset[str]:
    """Words with a capital at the start of a sentence that name the tool and not a value of it."""
    return frozenset(name_words(" ".join([tool.name, tool.description, *(tool.schema.get("properties") or {})])))


def _key(schema: dict[str, Any]) -> str | None:
    """The string property that tells one call of a tool from another."""
    properties = schema.get("properties") or {}
    texts = {k for k, member in properties.items() if isinstance(member, dict) and member.get("type") == "string"}
    plain = [k for k in schema.get("required") or [] if k in texts]
    return next((k for k in plain if NAME_LIKE & set(name_words(k))), plain[0] if len(plain) == 1 else None)


def _arguments(wish: Wish, harvest: Harvest, question: Question) -> dict[str, Any]:
    arguments = Filler(wish.tool.schema, harvest, list(question.blocks)).value(wish.tool.schema, "")
    arguments = arguments if isinstance(arguments, dict) else {}
    if not question.blocks and (text := composed(question)) is not None:
        for name in arguments:
            if TEXT_LIKE & set(name_words(name)) and not isinstance(literal(wish.text, name), str):
                arguments[name] = text
    return arguments


def _text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
