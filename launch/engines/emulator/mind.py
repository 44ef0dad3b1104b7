"""The pseudo model: from a request to its answer. Deterministic: same seed and same prompt, same words."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from random import Random
from typing import Any

from . import prose
from .answer import Answer
from .facts import known_answer
from .request import Asked, Message
from .settings import Settings
from .tokens import split_tokens
from .tooluse import calls_for, fill
from .vocabulary import word_list

_ECHO = re.compile(
    r"(?:repeat|echo|copy|say|reply|respond|answer|print|output|return)\b(?:\s+(?:back|only|with|me|exactly|verbatim"
    r"|just|the|this|these|following|text|word|words|string|token|code|sentence|after|nothing|but|else))*"
    r"\s*[:\-]?\s*(?P<what>\"[^\"]+\"|“[^”]+”|`[^`]+`|'[^']+'|(?<=:)\s*\S.*|(?<=: )\S.*|[\w-]*\d[\w-]*)",
    re.IGNORECASE | re.DOTALL,
)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|day)|greetings|ping)\b.{0,40}$", re.IGNORECASE | re.DOTALL
)
_CODE = re.compile(r"\b(?:code|python|function|script|program|class|implement|algorithm|refactor)\b", re.IGNORECASE)
_LONG = re.compile(r"\b(?:long|detailed|essay|story|thorough|in depth|chapter|at length)\b", re.IGNORECASE)
_COUNT = re.compile(r"\b(\d{2,5})[ -](?:word|token)s?\b", re.IGNORECASE)
_REFERENCE = re.compile(r"\[ref ([^\]]+)\]")
_CJK = re.compile(r"[\u4e00-\u9fff]")
_TOPIC = re.compile(r"\b[a-z]{5,12}\b")


def answer(asked: Asked, settings: Settings, choice: int) -> Answer:
    """What the model would say, as so manieth choice."""
    salt = settings.seed.to_bytes(8, "little", signed=True)
    usual_tokens = settings.answer_tokens
    digest = blake2b(asked.prompt, digest_size=8, salt=salt, person=choice.to_bytes(2)).digest()
    rng = Random(int.from_bytes(digest))  # noqa: S311 - must be repeatable, guards nothing
    topic = tuple(sorted(set(_TOPIC.findall(asked.user_text[-2000:])) - _DULL))[:12]
    said = _said(asked, rng, topic, usual_tokens)
    if asked.thinking:
        said = replace(said, reasoning=prose.thoughts(rng, topic, 24 + rng.randrange(24)))
    return said


def more(asked: Asked, seed: int) -> Iterator[str]:
    """Words without end, for requests that forbid the model to stop."""
    return prose.prose(Random(f"{seed}/{len(asked.prompt)}"), (), None)  # noqa: S311 - must be repeatable


def _said(asked: Asked, rng: Random, topic: tuple[str, ...], usual_tokens: int) -> Answer:
    forced = asked.choice.mode in ("required", "named")
    if asked.tools and asked.choice.mode != "none" and (forced or not asked.results):
        calls = calls_for(asked)
        if calls:
            return Answer(calls=calls)
    if asked.results:
        return Answer(content=split_tokens(_told(asked)))
    if asked.answer_schema is not None:
        text = json.dumps(fill(asked.answer_schema, asked.user_text), ensure_ascii=False)
        return Answer(content=split_tokens(text))
    return Answer(content=_text(asked, rng, topic, usual_tokens))


def _text(asked: Asked, rng: Random, topic: tuple[str, ...], usual_tokens: int) -> Iterator[str]:
    text = asked.user_text
    reference = _REFERENCE.search(text)
    prefix = split_tokens(f"[ref {reference[1]}] ") if reference else iter(())
    text = _REFERENCE.sub("", text).strip()
    short = known_answer(text) or _echoed(text)
    if short is None and _GREETING.match(text):
        short = "Hello! I am ready to help. What would you like to know?"
    if short is not None:
        return chain(prefix, split_tokens(short))
    length = _length(text, rng, usual_tokens)
    if len(_CJK.findall(text)) * 3 > len(text):
        return chain(prefix, prose.chinese(rng, length))
    writer = prose.code if _CODE.search(text) else prose.prose
    return chain(prefix, writer(rng, topic, length))


def _length(text: str, rng: Random, usual_tokens: int) -> int:
    if count := _COUNT.search(text):
        return int(count[1])
    spread = rng.uniform(0.7, 1.3)
    return round(usual_tokens * spread * (4 if _LONG.search(text) else 1))


def _echoed(text: str) -> str | None:
    match = _ECHO.search(text)
    if match is None:
        return None
    what = match["what"].strip()
    if what[0] in "\"“`'" and len(what) > 2:
        what = what[1:-1]
    return what


def _told(asked: Asked) -> str:
    """Prose that carries every value of the tool results."""
    names = {call.id: (call.name, call.arguments) for message in asked.messages for call in message.calls}
    return " ".join(_one_result(result, names) for result in asked.results)


def _one_result(result: Message, names: dict[str, tuple[str, str]]) -> str:
    name, arguments = names.get(result.tool_call_id, ("the tool", "{}"))
    given = _parsed(arguments)
    subject = ", ".join(str(v) for v in given.values() if isinstance(v, str | int | float)) if given else ""
    source = f"{name} for {subject}" if subject else name
    value = _parsed(result.text)
    if value is None:
        return f"According to {source}: {result.text.strip() or 'it came back empty'}."
    if isinstance(value, dict) and "error" in value:
        return f"I could not get an answer from {source}: it failed with {_spoken(value['error'])}."
    return f"According to {source}, {_spoken(value)}."


def _spoken(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} is {_spoken(v)}" for key, v in value.items()) or "there is nothing"
    if isinstance(value, list):
        return ", ".join(_spoken(v) for v in value) or "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


_DULL = frozenset(
    word_list("about write would could should please exactly nothing please there their which these those")
)
