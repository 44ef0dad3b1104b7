"""Synthetic dialogues in the OpenAI message format, for training and for judging the tiny model.

Everything a person would vary is drawn anew each time, so that the only way to be right is to read the tool list and
to copy: names of tools and parameters, codes, cities, numbers, results. `Dialogue.messages` holds the right answers.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import wording as w

Message = dict[str, Any]
Json = dict[str, Any]


@dataclass(frozen=True)
class Dialogue:
    messages: list[Message]
    tools: list[Json] = field(default_factory=list)
    thinking: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Parameter:
    name: str
    schema: Json
    draw: Callable[[Random], Any]


@dataclass(frozen=True)
class Tool:
    name: str
    noun: str
    parameters: tuple[Parameter, ...]
    spec: Json
    asks: tuple[str, ...] = ()  # ways to ask that name no parameter but the first


# ---- values -------------------------------------------------------------------------------------------------------


def letters(rng: Random, low: int, high: int) -> str:
    if rng.random() < 0.5:  # pronounceable
        text = "".join(
            rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(1, high // 2 + 1))
        )
        return text[: max(low, rng.randint(low, high))]
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(low, high)))


def digits(rng: Random, low: int, high: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(rng.randint(low, high)))


def hexadecimal(rng: Random, low: int = 4, high: int = 16) -> str:
    text = "".join(rng.choice("0123456789abcdef") for _ in range(rng.randint(low, high)))
    return text.upper() if rng.random() < 0.15 else text


def word(rng: Random) -> str:
    text = letters(rng, 3, 9)
    roll = rng.random()
    return text.capitalize() if roll < 0.3 else text.upper() if roll < 0.4 else text


def known_word(rng: Random) -> str:
    return rng.choice(rng.choice((w.NOUNS, w.VERBS, w.PARAMETERS, w.RESULT_KEYS, w.COLORS_AND_ANIMALS)))


def place(rng: Random) -> str:
    roll = rng.random()
    if roll < 0.55:
        return rng.choice(w.CITIES)
    if roll < 0.85:
        name = letters(rng, 4, 9).capitalize()
        return name if rng.random() < 0.8 else f"{name} {letters(rng, 3, 7).capitalize()}"
    if roll < 0.95:
        name = letters(rng, 4, 9).capitalize()
        at = rng.randrange(len(name))
        return name[:at] + rng.choice("áàâäãåčçéèêëíîïłñńóòôöøőřšśşúùûüýžź") + name[at + 1 :]
    return rng.choice(w.ACCENTED_CITIES)


def code(rng: Random) -> str:
    part = rng.choice((hexadecimal, lambda r: digits(r, 2, 6), word, lambda r: letters(r, 2, 4).upper(), known_word))
    roll = rng.random()
    if roll < 0.25:
        return hexadecimal(rng)
    if roll < 0.35:
        return "".join(rng.choice(string.ascii_letters + string.digits) for _ in range(rng.randint(4, 14)))
    if roll < 0.42:
        return letters(rng, 1, 3).upper() + digits(rng, 1, 6)
    if roll < 0.45:
        return f"{digits(rng, 3, 7)}-{letters(rng, 1, 2).upper()}"
    if roll < 0.48:
        return "-".join(hexadecimal(rng, n, n).lower() for n in (8, 4, 4, 4, 12))
    if roll < 0.62:
        tail = rng.choice(([digits(rng, 1, 4)], [], [rng.choice(w.COLORS_AND_ANIMALS)]))
        return "-".join([rng.choice(w.COLORS_AND_ANIMALS), rng.choice(w.COLORS_AND_ANIMALS), *tail])
    separator = rng.choice("--_-/.:")
    return separator.join([part(rng), *(hexadecimal(rng, 2, 6) for _ in range(rng.randint(1, 2)))])


def phrase(rng: Random) -> str:
    return " ".join(rng.choice((word, word, code))(rng) for _ in range(rng.randint(2, 4)))


def sentence_piece(rng: Random) -> str:
    return " ".join(rng.choice((word, known_word, code))(rng) for _ in range(rng.randint(2, 5)))


def integer(rng: Random) -> int:
    value = rng.randrange(10 ** rng.randint(1, 6))
    return -value if rng.random() < 0.05 else value


def decimal(rng: Random) -> float:
    return round(rng.uniform(-50, 500), rng.randint(1, 2))


def text_value(rng: Random) -> str:
    if rng.random() < 0.05:
        return digits(rng, 1, 8)
    return rng.choice((code, code, code, hexadecimal, word, place, phrase))(rng)


def any_value(rng: Random) -> Any:
    roll = rng.random()
    if roll < 0.72:
        return text_value(rng)
    if roll < 0.86:
        return integer(rng)
    return decimal(rng) if roll < 0.95 else rng.random() < 0.5


def spoken(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ---- tools --------------------------------------------------------------------------------------------------------


def _identifier(rng: Random, known: list[str]) -> str:
    roll = rng.random()
    if roll < 0.75:
        return rng.choice(known)
    return f"{rng.choice(known)}_{letters(rng, 2, 6)}" if roll < 0.88 else letters(rng, 2, 8)


def _schema_extras(rng: Random, schema: Json, description: str) -> Json:
    if rng.random() < 0.5:
        schema = {**schema, "description": description}
    if rng.random() < 0.1:
        schema = dict(reversed(schema.items()))
    return schema


def _parameter(rng: Random, noun: str, taken: set[str]) -> Parameter:
    name = _identifier(rng, w.PARAMETERS)
    while name in taken:
        name = _identifier(rng, w.PARAMETERS)
    taken.add(name)
    roll = rng.random()
    kind, draw = ("string", text_value) if roll < 0.75 else ("integer", integer) if roll < 0.9 else ("number", decimal)
    example = rng.choice(w.CITIES) if rng.random() < 0.5 else code(rng)
    text = rng.choice(w.PARAMETER_DESCRIPTIONS).format(param=name, noun=noun, example=example)
    schema = _schema_extras(rng, {"type": kind}, text)
    if kind == "string" and rng.random() < 0.06:
        options = [rng.choice(w.COLORS_AND_ANIMALS) for _ in range(rng.randint(2, 3))]
        return Parameter(name, {**schema, "enum": options}, lambda r: r.choice(options))
    return Parameter(name, schema, draw)


def _specification(rng: Random, name: str, description: str, parameters: tuple[Parameter, ...]) -> Json:
    schema: Json = {"type": "object", "properties": {p.name: p.schema for p in parameters}}
    if parameters and rng.random() < 0.85:
        schema["required"] = [p.name for p in parameters][: 1 if rng.random() < 0.2 else None]
    if not parameters and rng.random() < 0.5:
        schema["required"] = []
    if rng.random() < 0.3:
        schema["additionalProperties"] = False
    if rng.random() < 0.1:
        schema = dict(sorted(schema.items()))
    function: Json = {"name": name, "description": description, "parameters": schema}
    if rng.random() < 0.04:
        del function["description"]
    return {"type": "function", "function": function}


def generic_tool(rng: Random) -> Tool:
    noun = rng.choice(w.NOUNS) if rng.random() < 0.95 else letters(rng, 3, 8)
    verb = rng.choice(w.VERBS)
    roll = rng.random()
    name = f"{verb}_{noun}"
    if roll < 0.05:
        name = verb
    elif roll < 0.14:
        name = noun
    elif roll < 0.25:
        name = f"{verb}_{noun}_{rng.choice((letters(rng, 2, 5), digits(rng, 1, 3), rng.choice(w.NOUNS)))}"
    elif roll < 0.3:
        name = f"{verb}-{noun}"
    elif roll < 0.33:
        name = f"{letters(rng, 3, 8)}_{letters(rng, 2, 6)}"
    taken: set[str] = set()
    count = rng.choices((0, 1, 2, 3), (8, 70, 17, 5))[0]
    parameters = tuple(_parameter(rng, noun, taken) for _ in range(count))
    param = parameters[0].name if parameters else "request"
    description = rng.choice(w.TOOL_DESCRIPTIONS).format(Verb=verb.capitalize(), noun=noun, param=param)
    return Tool(name, noun, parameters, _specification(rng, name, description, parameters))


def weather_tool(rng: Random) -> Tool:
    name = rng.choice(w.WEATHER_NAMES)
    key = rng.choice(("city", "city", "city", "location", "place"))
    extra = "The name of the city." if rng.random() < 0.5 else "Name of the city, for example " + rng.choice(w.CITIES)
    parameters = [Parameter(key, _schema_extras(rng, {"type": "string"}, extra), place)]
    if rng.random() < 0.35:
        units = rng.choice((["celsius", "fahrenheit"], ["c", "f"], ["fahrenheit", "celsius"]))
        schema = _schema_extras(rng, {"type": "string", "enum": units}, "The unit.")
        parameters.append(Parameter("unit", schema, lambda r: r.choice(units)))
    spec = _specification(rng, name, rng.choice(w.WEATHER_DESCRIPTIONS), tuple(parameters))
    return Tool(name, "weather", tuple(parameters), spec, tuple(w.WEATHER_ASKS))


def clock_tool(rng: Random) -> Tool:
    name = rng.choice(w.TIME_NAMES)
    return Tool(name, "time", (), _specification(rng, name, rng.choice(w.TIME_DESCRIPTIONS), ()), tuple(w.TIME_ASKS))


def a_tool(rng: Random) -> Tool:
    roll = rng.random()
    return weather_tool(rng) if roll < 0.2 else clock_tool(rng) if roll < 0.32 else generic_tool(rng)


def tool_set(rng: Random, most: int) -> list[Tool]:
    tools: dict[str, Tool] = {}
    nouns: set[str] = set()
    for _ in range(rng.randint(1, most)):
        tool = a_tool(rng)
        if tool.noun not in nouns and tool.name not in tools:
            tools[tool.name] = tool
            nouns.add(tool.noun)
    return list(tools.values())


# ---- turns --------------------------------------------------------------------------------------------------------


def _pairs(rng: Random, arguments: Json) -> str:
    form = rng.choice(
        ("{k} {v}", "{k} {v}", "{k}={v}", '{k} "{v}"', '{k}="{v}"', "{k}: {v}", "the {k} {v}", "{k} = {v}")
    )
    parts = [form.format(k=k, v=spoken(v)) for k, v in arguments.items()]
    return rng.choice((" and ", ", ", " and ")).join(parts)


def ask(rng: Random, tool: Tool) -> tuple[str, Json]:
    """What the user says, and the arguments that it means."""
    if not tool.parameters:
        form = rng.choice(tool.asks or tuple(w.ASK_WITHOUT_ARGUMENTS))
        return form.format(tool=tool.name, noun=tool.noun), {}
    first = tool.parameters[0]
    if tool.asks and rng.random() < 0.85:
        value = first.draw(rng)
        text, arguments = rng.choice(tool.asks).format(value=value, tool=tool.name), {first.name: value}
        if len(tool.parameters) > 1 and rng.random() < 0.5:
            unit = tool.parameters[1].draw(rng)
            text = text.rstrip("?.") + rng.choice(w.UNIT_ASKS).format(unit=unit) + text[len(text.rstrip("?.")) :]
            arguments["unit"] = unit
        return text, arguments
    if len(tool.parameters) == 1 and rng.random() < 0.75:
        value = first.draw(rng)
        shown = f'"{value}"' if rng.random() < 0.15 else spoken(value)
        text = rng.choice(w.ASK_SINGLE_VALUE).format(
            tool=tool.name, noun=tool.noun, param=first.name, value=shown, other=rng.choice(w.RESULT_KEYS)
        )
        text += rng.choice(w.ASK_SUFFIXES) if rng.random() < 0.15 else ""
        return text, {first.name: value}
    arguments = {p.name: p.draw(rng) for p in tool.parameters}
    return rng.choice(w.ASK_BY_TOOL_NAME).format(tool=tool.name, pairs=_pairs(rng, arguments)), arguments


def result(rng: Random, tool: Tool, arguments: Json) -> tuple[str, str]:
    """What the tool returns, and how the model is to tell it."""
    roll = rng.random()
    if roll < 0.35:
        text = rng.choice(w.RESULT_SENTENCES).format(noun=tool.noun, value=spoken(any_value(rng)), value2=integer(rng))
        return text, f"The result: {text}"
    keys = rng.sample(w.RESULT_KEYS, rng.choices((1, 2, 3, 4), (50, 32, 14, 4))[0])
    if rng.random() < 0.3:
        keys[0] = _identifier(rng, w.RESULT_KEYS + w.NOUNS)
    content = {key: any_value(rng) for key in keys}
    if arguments and rng.random() < 0.3:
        content = {**dict(list(arguments.items())[:1]), **content}
    said = ", ".join(f"{key} is {spoken(value)}" for key, value in content.items())
    separators = (",", ":") if rng.random() < 0.15 else (", ", ": ")
    return json.dumps(content, separators=separators, ensure_ascii=False), f"The result: {said}"


def call(tool: Tool, arguments: Json) -> Json:
    return {"type": "function", "function": {"name": tool.name, "arguments": arguments}}


def tool_turn(rng: Random, tools: list[Tool]) -> list[Message]:
    tool = rng.choice(tools)
    text, arguments = ask(rng, tool)
    turn: list[Message] = [{"role": "user", "content": text}]
    calls = [(tool, arguments)]
    roll = rng.random()
    if tool.noun == "weather" and tool.asks and roll < 0.12:  # one tool, several places
        places = [place(rng) for _ in range(rng.randint(2, 3))]
        turn[0]["content"] = f"What is the weather in {', '.join(places[:-1])} and {places[-1]}?"
        calls = [(tool, {tool.parameters[0].name: each}) for each in places]
    elif len(tools) > 1 and roll < 0.03:  # two tools at once
        other = rng.choice([t for t in tools if t is not tool])
        text2, arguments2 = ask(rng, other)
        turn[0]["content"] = f"{text} {text2}"
        calls.append((other, arguments2))
    turn.append({"role": "assistant", "content": "", "tool_calls": [call(*each) for each in calls]})
    told = []
    for each in calls:
        content, said = result(rng, *each)
        turn.append({"role": "tool", "content": content})
        told.append(said)
    turn.append({"role": "assistant", "content": "\n".join(told)})
    return turn


def echo_turn(rng: Random) -> list[Message]:
    roll = rng.random()
    text = (
        word(rng)
        if roll < 0.3
        else known_word(rng)
        if roll < 0.4
        else sentence_piece(rng)
        if roll < 0.55
        else text_value(rng)
    )
    return [
        {"role": "user", "content": rng.choice(w.ECHO_ASKS).format(text=text)},
        {"role": "assistant", "content": text},
    ]


def _sum(rng: Random) -> tuple[str, str]:
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    sign, spoken_sign, total = rng.choice((("+", "plus", a + b), ("*", "times", a * b)))
    form = rng.choice(
        ("What is {a} {s} {b}?", "{a} {s} {b}", "What is {a} {w} {b}?", "How much is {a} {w} {b}?", "{a}{s}{b}=")
    )
    return form.format(a=a, b=b, s=sign, w=spoken_sign) + rng.choice(w.FACT_SUFFIXES), str(total)


def _count(rng: Random) -> tuple[str, str]:
    start = rng.choice((1, 1, 1, rng.randint(0, 90)))
    end = start + rng.randint(2, 20)
    form = rng.choice(("Count from {a} to {b}.", "Count from {a} to {b}", "List the numbers from {a} to {b}."))
    return form.format(a=start, b=end), ", ".join(str(n) for n in range(start, end + 1))


def plain_turn(rng: Random) -> list[Message]:
    roll = rng.random()
    if roll < 0.2:
        question, answer = rng.choice(w.GREETINGS), w.GREETING_ANSWER
    elif roll < 0.27:
        question, answer = rng.choice(w.THANKS), w.THANKS_ANSWER
    elif roll < 0.55:
        question, answer = rng.choice(list(w.FACTS.items()))
        question += rng.choice(w.FACT_SUFFIXES)
    elif roll < 0.75:
        question, answer = _sum(rng)
    elif roll < 0.85:
        question, answer = _count(rng)
    else:
        question, answer = rng.choice(w.UNKNOWN_ASKS).format(value=place(rng)), w.UNKNOWN_ANSWER
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def ramble(rng: Random) -> str:
    """A few sentences of ordinary words, some of them unknown: what nobody can answer but with a story."""
    words = w.STORY.split()

    def sentence() -> str:
        pieces = [rng.choice(words) if rng.random() < 0.7 else letters(rng, 3, 8) for _ in range(rng.randint(4, 12))]
        return " ".join(pieces).strip(".").capitalize() + "."

    return " ".join(sentence() for _ in range(rng.randint(1, 4)))


def story(rng: Random) -> list[Message]:
    topic = rng.choice((known_word, phrase, ramble, lambda r: f"the {known_word(r)} of {place(r)}"))(rng)
    question = rng.choice(w.STORY_ASKS).format(topic=topic)
    return [{"role": "user", "content": question}, {"role": "assistant", "content": w.STORY}]


# ---- dialogues ----------------------------------------------------------------------------------------------------


def _reference(rng: Random) -> str:
    return f"{hexadecimal(rng, 3, 3)}-{hexadecimal(rng, 3, 3)}".upper()


def _with_nonce(rng: Random, messages: list[Message]) -> None:
    """Many clients salt their prompts against caches; the salt must not be taken for a value."""
    user = next(m for m in messages if m["role"] == "user")
    nonce = rng.choice((hexadecimal, code, lambda r: digits(r, 3, 8), _reference))(rng)
    if rng.random() < 0.6:
        user["content"] = rng.choice(w.NONCES).format(nonce=nonce) + user["content"]
    else:
        user["content"] += rng.choice(w.NONCE_TAILS).format(nonce=nonce)


def _with_system(rng: Random, messages: list[Message]) -> None:
    text = rng.choice(w.SYSTEM_PROMPTS)
    if rng.random() < 0.15:
        text = rng.choice(w.NONCES).format(nonce=hexadecimal(rng)) + text
    messages.insert(0, {"role": "system", "content": text})


def _thoughts(messages: list[Message]) -> None:
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or i < last_user:
            continue
        if message.get("tool_calls"):
            names = " and ".join(dict.fromkeys(c["function"]["name"] for c in message["tool_calls"]))
            message["reasoning_content"] = f"I need data, so I call {names}."
        elif messages[i - 1]["role"] == "tool":
            message["reasoning_content"] = "I have the result, so I tell it."
        else:
            message["reasoning_content"] = "No tool is needed, so I answer."


def dialogue(rng: Random, *, ease: float = 0.0) -> Dialogue:
    """One dialogue. `ease` 1.0 draws the shortest kinds (for the start of the training), 0.0 the whole breadth."""
    roll = rng.random()
    if roll < 0.03 * (1 - ease):
        messages, tools, kind = story(rng), [], "story"
    elif roll < 0.20 + 0.5 * ease:
        messages, tools, kind = [], [], "echo"
        for _ in range(rng.randint(1, 3)):
            messages += echo_turn(rng) if rng.random() < 0.75 else plain_turn(rng)
    else:
        tools = tool_set(rng, 1 if ease > 0.5 else rng.choice((1, 2, 2, 3, 3, 4)))
        kind, messages = "tools", []
        for _ in range(rng.choices((1, 2, 3, 4), (30, 25, 25, 20))[0]):
            roll = rng.random()
            messages += tool_turn(rng, tools) if roll < 0.85 else echo_turn(rng) if roll < 0.93 else plain_turn(rng)
    thinking = rng.random() < 0.3
    if thinking:
        _thoughts(messages)
    if rng.random() < 0.3:
        _with_nonce(rng, messages)
    if rng.random() < 0.3:
        _with_system(rng, messages)
    return Dialogue(messages, [t.spec for t in tools], thinking, kind)
