"""After tool results: the next call of a chain, or an answer with everything that came back."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from ..answer import Answer, Call
from ..conversation import Message
from ..filler import NAME_LIKE
from ..harvest import name_words
from ..reading import Question, read
from ..request import Asked
from ..tokens import split_tokens
from .calling import calls_of, made_since_question, steps

_ONWARD = re.compile(r"\b(?:next|follow(?:ing|s)?|until|chain|points? to|refers? to|leads? to)\b", re.IGNORECASE)
_LOOKING_BACK = re.compile(
    r"\b(?:earlier|before|previous(?:ly)?|noted?|remember(?:ed)?|so far|went wrong|from above|once more|again"
    r"|was (?:it|the|that)|were the|did (?:you|it|the|they)|you (?:found|noted|said|got|saw)|had (?:you|the)"
    r"|(?:which|what) (?:number|code|value|secret)|the (?:first|last|second) (?:result|answer|call))\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"</?[^<>\n]{1,60}>|\[/?[A-Z_]{3,}\]")
_SENTENCE = re.compile(r"[^.!?\n\u3002\uff01\uff1f]+(?:\.\d[^.!?\n\u3002\uff01\uff1f]*)*[.!?\u3002\uff01\uff1f]?")
_TOLD_WHOLE = 1200  # characters: longer results are told by their facts
_MOST_FACTS = 24


def use_results(asked: Asked, rng: Random) -> Answer | None:
    """What a model does with results: go on with what it was told to do, then say what it has learnt."""
    del rng
    if not asked.results or asked.choice.forced:
        return None
    question = read(asked.user_text)
    if asked.tools and asked.choice.mode == "auto" and (calls := _onward(asked, question)):
        return Answer(calls=tuple(calls if asked.parallel_calls else calls[:1]))
    return Answer(content=split_tokens(_told(asked, asked.results, question)))


def recall(asked: Asked, rng: Random) -> Answer | None:
    """An answer to a question about what was found or thought earlier in the conversation."""
    del rng
    question = read(asked.user_text)
    if not _LOOKING_BACK.search(question.focus):
        return None
    results = [message for message in asked.messages if message.role == "tool"]
    asked_about = [message for message in results if _subject(asked, message).lower() in question.focus.lower()]
    parts = [_told(asked, tuple(asked_about or results[-6:]), question)] if results else []
    parts += [fact for message in asked.messages for fact in _facts(message.reasoning, question)]
    return Answer(content=split_tokens(" ".join(parts))) if parts else None


def _onward(asked: Asked, question: Question) -> list[Call]:
    """The calls that are still to be made."""
    made = list(made_since_question(asked))
    known = _objects(asked.results)
    turns = steps(asked.tools, question)
    done = sum(1 for message in _since_question(asked) if message.calls)
    if len(turns) > done:
        latest = known[-1] if known else {}
        calls = []
        for wish in turns[done]:
            quoted = re.findall(r"[\"`']([\w-]+)[\"`']", wish.text)
            named = next((str(latest[key]) for key in quoted if isinstance(latest.get(key), str | int)), None)
            text = wish.text if named is None else re.sub(r"[\"`'][\w-]+[\"`']", f'"{named}"', wish.text)
            values = {key: value for values in known for key, value in values.items()}
            calls += calls_of(replace(wish, text=text), question, values)
        return _new(calls, made)
    return _new(_followed(made, known, question), made)


def _followed(made: list[Call], known: list[dict[str, Any]], question: Question) -> list[Call]:
    """The last call with the value that its result calls the next one."""
    if not made or not known or not _ONWARD.search(question.focus):
        return []
    following = next((v for k, v in known[-1].items() if "next" in name_words(k) and isinstance(v, str | int)), None)
    arguments = json.loads(made[-1].arguments)
    if following is None or isinstance(following, bool) or not arguments:
        return []
    key = next(iter(arguments))
    return [Call(made[-1].name, json.dumps({**arguments, key: following}, ensure_ascii=False))]


def _new(calls: list[Call], made: list[Call]) -> list[Call]:
    return [call for call in calls if call not in made]


def _since_question(asked: Asked) -> tuple[Message, ...]:
    last_user = max((i for i, m in enumerate(asked.messages) if m.role == "user"), default=-1)
    return asked.messages[last_user + 1 :]


def _objects(results: tuple[Message, ...]) -> list[dict[str, Any]]:
    values = (_parsed(result.text) for result in results)
    return [value for value in values if isinstance(value, dict)]


def _told(asked: Asked, results: tuple[Message, ...], question: Question) -> str:
    """Prose that carries every value of the results."""
    return " ".join(_one_result(asked, result, question) for result in results)


def _call_of(asked: Asked, result: Message) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the call that a result answers: by its id, else by its place."""
    calls = [call for message in asked.messages for call in message.calls]
    found = next((call for call in reversed(calls) if call.id == result.tool_call_id), None)
    if found is None:
        place = [message for message in asked.messages if message.role == "tool"].index(result)
        found = calls[place] if place < len(calls) else None
    return (found.name, json.loads(found.arguments)) if found is not None else ("the tool", {})


def _subject(asked: Asked, result: Message) -> str:
    """What a call was about: its values, those that name something first."""
    _, given = _call_of(asked, result)
    names = [str(v) for k, v in given.items() if NAME_LIKE & set(name_words(k)) and isinstance(v, str)]
    return ", ".join(names or (str(v) for v in given.values() if isinstance(v, str | int | float) and len(str(v)) < 80))


def _one_result(asked: Asked, result: Message, question: Question) -> str:
    name, _ = _call_of(asked, result)
    subject = _subject(asked, result)
    source = f"{name} for {subject}" if subject else name
    value = _parsed(result.text)
    if isinstance(value, dict) and value.get("error"):
        told = f"I could not get an answer from {source}: it failed with {_spoken(value['error'], question)}."
    elif value is None:
        text = result.text.strip()
        told = f"According to {source}: {_gist(text, question) if text else 'it came back empty'}."
    else:
        told = f"According to {source}, {_spoken(value, question)}."
    return _MARKUP.sub("", told)


def _spoken(value: Any, question: Question) -> str:
    if isinstance(value, dict):
        parts = (f"{key.replace('_', ' ')} is {_spoken(v, question)}" for key, v in value.items())
        return ", ".join(parts) or "there is nothing"
    if isinstance(value, list):
        return ", ".join(_spoken(v, question) for v in value[:200]) or "nothing"
    return _gist(value, question) if isinstance(value, str) else json.dumps(value)


def _gist(text: str, question: Question) -> str:
    """A text as it is, or if it is long its beginning and its facts."""
    if len(text) <= _TOLD_WHOLE:
        return text
    return " ".join([text[:160].rsplit(" ", 1)[0] + " \u2026", *_facts(text, question)])


def _facts(text: str, question: Question) -> Iterator[str]:
    """The sentences that say something nobody can guess: with digits, or about what the question names."""
    wanted = set(re.findall(r"\w{5,}", question.focus.lower()))
    told = 0
    for sentence in (match.group().strip() for match in _SENTENCE.finditer(text)):
        if told >= _MOST_FACTS:
            return
        words = set(re.findall(r"\w{5,}", sentence.lower()))
        if any(map(str.isdigit, sentence)) or len(words & wanted) > 1:
            told += 1
            yield sentence if len(sentence) < 300 else _around_digits(sentence)


def _around_digits(text: str) -> str:
    found = [match.group() for match in re.finditer(r"(?:\S+\s+){0,6}\S*\d\S*(?:\s+\S+){0,2}", text)]
    return " \u2026 ".join(found[:_MOST_FACTS]) or text[:200]


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
