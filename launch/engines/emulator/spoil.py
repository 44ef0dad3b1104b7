"""What faults do to an answer. Each function takes a good answer and returns the bad one."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from random import Random

from .answer import Answer, Call
from .tokens import split_tokens

_JUNK = ("assistant", "the the", "!", "{{", "0x", "of of", "ÂÂ", "user", ":::", "and and")


def garbage(answer: Answer, rng: Random) -> Answer:
    """A short phrase of junk over and over, as a wrongly sharded model writes it; calls are lost in it."""
    tokens = list(split_tokens(" " + " ".join(rng.choices(_JUNK, k=4))))
    length = 120 if answer.calls else max(120, sum(1 for _ in answer.content))
    return Answer(reasoning=answer.reasoning, content=(tokens[i % len(tokens)] for i in range(length)))


def bad_tool_arguments(answer: Answer, rng: Random) -> Answer:
    """Arguments that are no JSON: the closing characters are missing."""
    return _each_call(answer, lambda call: call.arguments[: -rng.randint(1, min(2, len(call.arguments) - 1))])


def wrong_schema_arguments(answer: Answer, rng: Random) -> Answer:
    """Arguments that are JSON and not what the schema asks for: every value has the wrong type."""
    del rng

    def spoilt(call: Call) -> str:
        values = json.loads(call.arguments)
        wrong = {k: json.dumps(v) if isinstance(v, dict) else {"value": v} for k, v in values.items()}
        # A tool without arguments: no object at all, since an empty schema allows every object.
        return json.dumps(wrong or [], ensure_ascii=False)

    return _each_call(answer, spoilt)


def leak_think(answer: Answer, rng: Random) -> Answer:
    """The reasoning arrives inside the content, tags included: the reasoning parser is missing."""
    del rng
    thought = chain(("<think>", "\n"), answer.reasoning or split_tokens("The user wants an answer, so I write one."))
    return replace(answer, reasoning=(), content=chain(thought, ("\n", "</think>", "\n\n"), answer.content))


def tool_text_in_content(answer: Answer, rng: Random) -> Answer:
    """Calls arrive as the model's raw text: the tool parser is missing."""
    del rng
    return replace(answer, content=chain(answer.content, _raw_calls(answer.calls)), calls=())


def loses_tool_result(answer: Answer, rng: Random) -> Answer:
    """The answer to a tool result knows nothing of it."""
    text = rng.choice(
        (
            "I have looked that up for you, but I cannot say what the tool found.",
            "I do not have access to that information at the moment.",
        )
    )
    return replace(answer, content=split_tokens(text))


def _raw_calls(calls: tuple[Call, ...]) -> Iterator[str]:
    for call in calls:
        text = f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        yield from split_tokens(text)


def _each_call(answer: Answer, arguments: Callable[[Call], str]) -> Answer:
    return replace(answer, calls=tuple(replace(call, arguments=arguments(call)) for call in answer.calls))
