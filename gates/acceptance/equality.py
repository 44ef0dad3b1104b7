"""P12: a streamed answer and a whole one say the same, by structure; what is only copied also by value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gates.acceptance.asker import user
from gates.acceptance.check import Check, Deterministic, Sample
from gates.acceptance.plain import unthinking
from gates.acceptance.tools import CITIES, CLOCK, PRICE, RECORD, SAVE, WEATHER, Tool, code, record_id
from gates.callrules import not_an_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.capability import Capability
    from gates.reply import Reply
    from gates.toolwire import ToolCall
    from gates.trial import Answer

QUESTIONS: Final = 24


class _Question(NamedTuple):
    text: str
    tools: tuple[Tool, ...] = ()
    copied: bool = False
    """Values, or the content, are copies of the question: both modes must have the same."""
    thinks: bool = False


def _question(sample: Sample, capability: Capability) -> _Question:
    rng = sample.rng()
    kinds = _CALLS if capability.tools else _TEXTS
    kinds = (*kinds, *_TEXTS)
    if capability.thinking in ("always", "switch"):
        kinds = (*kinds, _thought)
    if capability.tools and capability.parallel_calls:
        kinds = (*kinds, _several)
    return kinds[sample.variant % len(kinds)](rng)


def _weather(rng: Random) -> _Question:
    asked = f"What is the weather in {rng.choice(CITIES)} right now? Use the tool, unit c."
    return _Question(asked, (WEATHER,), copied=True)


def _clock(_rng: Random) -> _Question:
    return _Question("What time does the server have? Use the tool get_server_time.", (WEATHER, CLOCK))


def _record(rng: Random) -> _Question:
    return _Question(f"Look up the record with the id {record_id(rng)}. Use the tool.", (RECORD,), copied=True)


def _price(rng: Random) -> _Question:
    sku, price, quantity = (
        f"KX-{code(rng)[:4]}",
        f"{rng.randrange(20, 90)}.{rng.randrange(11, 99)}",
        rng.randrange(11, 99),
    )
    asked = f"Set the price of the article with sku {sku}: price {price}, qty {quantity}. Use the tool set_price."
    return _Question(asked, (PRICE,), copied=True)


def _save(rng: Random) -> _Question:
    text = f"Order {code(rng)}: 30 boxes, then 7 more. Keep them dry."
    return _Question(
        f'Save the text "{text}" under the path /orders/{code(rng)}.txt. Use the tool.', (SAVE,), copied=True
    )


def _several(rng: Random) -> _Question:
    cities = rng.sample(CITIES, 3)
    asked = f"What is the weather in {cities[0]}, {cities[1]} and {cities[2]}? Call the tool once for each of them."
    return _Question(asked, (WEATHER,), copied=True)


def _text(rng: Random) -> _Question:
    return _Question(f"In one sentence: what is {rng.choice(('a harbour', 'a lantern', 'a ferry', 'a library'))}?")


def _copy(rng: Random) -> _Question:
    # Newlines and indents are tokens of their own: a parser that drops what is nothing but white space loses them.
    word = rng.choice(("north", "amber", "cedar", "pebble"))
    text = f"The {word} gate, no. {code(rng)}, is open.\n\nto enter:\n    knock, then wait\n    say {code(rng)}"
    asked = "Reply with only what stands between the line <<< and the line >>>, exactly as it is, without these two"
    return _Question(f"{asked} lines.\n<<<\n{text}\n>>>", copied=True)


def _thought(rng: Random) -> _Question:
    a, b = rng.randrange(12, 60), rng.randrange(12, 60)
    return _Question(f"What is {a} + {b}? Think about it first.", thinks=True)


_CALLS: Final = (_weather, _clock, _record, _price, _save)
_TEXTS: Final = (_text, _copy)


def difference(streamed: Answer, whole: Answer, *, copied: bool) -> str | None:
    """How two answers to the same question differ in what may not differ, or None."""
    for mode, answer in (("streamed", streamed), ("whole", whole)):
        if answer.first_problem:
            return f"{mode}: {answer.first_problem}"
    left, right = streamed.reply, whole.reply
    if "length" in (left.finish_reason, right.finish_reason) and left.finish_reason != right.finish_reason:
        return f"finish_reason is {left.finish_reason} streamed and {right.finish_reason} whole"
    for name, of in _ASPECTS.items():
        if of(left) != of(right):
            return f"{name}: {of(left)} streamed, {of(right)} whole"
    if copied:
        mine, theirs = _values(left), _values(right)
        if mine != theirs:
            return f"what is only copied differs: {mine!r:.200} streamed, {theirs!r:.200} whole"
    return _accounts(left, right)


def _accounts(left: Reply, right: Reply) -> str | None:
    counted = [reply.usage.prompt_tokens if reply.usage is not None else None for reply in (left, right)]
    if None not in counted and counted[0] != counted[1]:
        return f"the same prompt counts {counted[0]} tokens streamed and {counted[1]} whole"
    return None


def _shape(call: ToolCall) -> Any:
    """Name, keys and JSON types of a call."""
    if not_an_object(call.arguments):
        return (call.name, "cut")
    return (call.name, {key: _type(value) for key, value in sorted(json.loads(call.arguments).items())})


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "number", float: "number", list: "list", dict: "object", type(None): "null"}
    return names[type(value)]


def _values(reply: Reply) -> Any:
    if reply.calls:
        return [None if not_an_object(call.arguments) else json.loads(call.arguments) for call in reply.calls]
    # What stands around a text, and blanks at the ends of lines, are nobody's loss.
    return [line.rstrip() for line in reply.content.strip().splitlines()]


_ASPECTS: Final[Mapping[str, Callable[[Reply], Any]]] = {
    "calls": lambda reply: [_shape(call) for call in reply.calls],
    "finish_reason": lambda reply: reply.finish_reason,
    "content": lambda reply: "some" if reply.content.strip() else "none",
    "reasoning": lambda reply: "some" if reply.reasoning.strip() else "none",
}


async def _both(asker: Asker, sample: Sample) -> str | None:
    asked = _question(sample, asker.capability)
    switch = asker.capability.thinking == "switch"
    how = sample.asked(thinking=True) if asked.thinks and switch else unthinking(asker, sample)
    how = how.asked(greedy=True)
    # One message for both: the nonce of a sample says how it is asked.
    messages = [user(how, asked.text)]
    streamed = await asker.chat(how.asked(streamed=True), messages, tools=asked.tools)
    whole = await asker.chat(how.asked(streamed=False), messages, tools=asked.tools)
    return difference(streamed, whole, copied=asked.copied)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="P12",
        name="streamed as whole",
        asks="Questions of many kinds (a call, none, several, text, a copy, with thought), each streamed and whole.",
        holds="the same calls, argument keys and types, presence of content and reasoning, end and prompt length",
        catches="a streaming parser that loses digits, words, lines or calls that the other has, and the reverse",
        rule=Deterministic(tries=QUESTIONS, persists=True),
        attempt=_both,
        thinking=(None,),
        modes=(False,),
    ),
)
