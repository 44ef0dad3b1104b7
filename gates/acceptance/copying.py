"""Group J: values and texts that must arrive exactly as they were given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates import textrules
from gates.acceptance.calls import one_call_problem, same
from gates.acceptance.check import B80, B90, EXPOSED, Behaviour, Check, Deterministic, Relative, Report, Skip, needs
from gates.acceptance.filler import context_tokens, filler
from gates.acceptance.tools import CITIES, SAVE, tool
from gates.callrules import not_an_object
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.trial import Answer

_TEXT: Final = {"type": "string"}
_FORCED_SHARE: Final = 0.5


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- J03: types -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """One parameter and the values asked for it; `written` where JSON has another spelling than Python's."""

    name: str
    schema: Mapping[str, Any]
    value: Callable[[Random], Any]
    written: Callable[[Any], str] = _json


_PLACE: Final = {
    "type": "object",
    "properties": {"city": _TEXT, "room": _TEXT},
    "required": ["city", "room"],
    "additionalProperties": False,
}
KINDS: Final = (
    _Kind("zip", _TEXT, lambda rng: f"00{rng.randrange(100, 1000)}"),
    _Kind("count", {"type": "integer"}, lambda rng: rng.randrange(2, 90_000)),
    _Kind("price", {"type": "number"}, lambda rng: -rng.randrange(1, 99) - rng.choice((0.25, 0.5, 0.75))),
    _Kind("rate", {"type": "number"}, lambda rng: rng.randrange(1, 9) * 1e5, lambda value: f"{value / 1e5:.0f}e5"),
    _Kind("active", {"type": "boolean"}, lambda rng: rng.random() < 0.5),
    _Kind("note", {"type": ["string", "null"]}, lambda _: None),
    _Kind("size", {"type": "string", "enum": ["small", "medium", "large"]}, lambda rng: rng.choice(("small", "large"))),
    _Kind(
        "steps",
        {"type": "array", "items": {"type": "integer"}},
        lambda rng: [rng.randrange(1, 90) for _ in range(3)],
    ),
    _Kind(
        "place",
        _PLACE,
        lambda rng: {"city": rng.choice(CITIES), "room": f"B{rng.randrange(10, 99)}"},
    ),
    _Kind("part", {"anyOf": [_TEXT, {"type": "integer"}]}, lambda rng: f"K-{rng.randrange(10, 99)}"),
)

# Floats are 16 apart there, and the nearest one is 7 away: no digit that a model gets wrong by one makes it the float.
SERIAL: Final = _Kind("serial", {"type": "integer"}, lambda rng: 2**56 + 16 * rng.randrange(1_000_000) + 7)
"""No double holds any of these: one that went through a float is another number (J28). Asked for with every try."""


async def types(asker: Asker, sample: Sample) -> str | None:
    """J03: four values of different kinds. Half of the calls are forced: there a wrong type is the engine's."""
    rng = sample.rng()
    forced = asker.capability.required and sample.rng("choice").random() < _FORCED_SHARE
    keys = {"tool_choice": "required"} if forced else {}
    chosen = [KINDS[(3 * sample.variant + i) % len(KINDS)] for i in range(3)] + [SERIAL]
    asked = {kind.name: kind.value(rng) for kind in chosen}
    written = [f"{kind.name} {kind.written(asked[kind.name])}" for kind in chosen]
    offered = tool("update_item", "Changes an item.", {kind.name: kind.schema for kind in chosen})
    text = f"Call update_item with {', '.join(written[:-1])} and {written[-1]}."
    answer = await asker.chat(sample, text, tools=[offered], **keys)
    # Which end a forced call has differs between engines, and is a rule for every answer.
    finishes = ("tool_calls", "stop") if forced else ("tool_calls",)
    return one_call_problem(answer, [offered], "update_item", asked, exact=True, finishes=finishes)


# --- J04, J05, J06: texts ---------------------------------------------------------------------------------------------

ALPHABETS: Final = (
    "東京都港区の天気",
    "请把这句话保存下来",
    "서울의 날씨",
    "👩🏽\u200d🚀 and 👨\u200d👩\u200d👧\u200d👦",
    "مرحبا بالعالم",
    "שלום עולם",
    "cafe\u0301 and nai\u0308ve",
    "नमस्ते दुनिया",
    "İstanbul'da ılık bir gün",  # noqa: RUF001 - Turkish has both
    "one line\u2028and its separator",
    "Ελλάδα, Ζέφυρος",
    "Привет, ёлка",
)
"""Beyond ASCII: other scripts, joined emoji, combining marks, a letter that changes its length in lower case."""
_ESCAPES: Final[tuple[Callable[[int], str], ...]] = (
    lambda n: rf"C:\temp\new\{n}\readme.txt",
    lambda n: f"She said \"it's 'fine'\" {n} times.",
    lambda n: f'{{"a": [1, {{"b": "c\\"d"}}], "n": {n}}}',
    lambda n: rf"^\d{{{n % 9 + 1}}}-\w+\.(?:js|ts)$",
    lambda n: f"name\tsize\nreadme\t{n}\n\tindented",
    lambda n: rf"\frac{{\alpha}}{{\beta_{{{n}}}}} \neq \nabla f",
    lambda n: rf"echo \"$HOME\" | sed 's/\//_/g' && printf '%s\n' {n}",
)
MARKERS: Final = ("</parameter>", "</tool_call>", "</function>", "<think>", "}}", "```")
_ESCAPED: Final = re.compile(r"\\u[0-9a-fA-F]{4}")


def fenced(text: str, path: str) -> str:
    """The request to save a text that no quotes could hold."""
    return (
        f"Call save_file with path {_json(path)}. Its text is exactly what stands between the line <<< and the line "
        f">>> below, unchanged and without these two lines.\n<<<\n{text}\n>>>"
    )


def saved(answer: Answer, path: str) -> tuple[str, str | None]:
    """The text that was saved, and what is wrong with the call beside it."""
    problem = one_call_problem(answer, [SAVE], "save_file", {"path": path}, exact=True)
    calls = answer.reply.calls
    if not calls or not_an_object(calls[0].arguments):
        return "", problem
    text = json.loads(calls[0].arguments).get("text")
    return (text if isinstance(text, str) else ""), problem


def copy_problem(text: str, asked: str) -> str | None:
    """How a copy differs from what was to be copied. Blanks around it are looked at elsewhere (J05t)."""
    if same(text.strip(), asked.strip()):
        return None
    at = next((i for i, (mine, theirs) in enumerate(zip(text, asked, strict=False)) if mine != theirs), None)
    at = min(len(text), len(asked)) if at is None else at
    return f"the text differs from character {at} on: {text[at : at + 40]!r}; asked was {asked[at : at + 40]!r}"


def encoding_problem(text: str, asked: str) -> str | None:
    """Letters that became something else on the way, which no model does."""
    if _ESCAPED.search(text) and not _ESCAPED.search(asked):
        return f"letters arrive as escapes: {text[:60]!r}"
    if text == asked.encode().decode("latin-1"):
        return f"the bytes of the letters arrive as letters: {text[:60]!r}"
    damage = textrules.encoding_damage(text)
    return f"the text holds {damage}: {text[:60]!r}" if damage else None


async def _copied(asker: Asker, sample: Sample, asked: str) -> tuple[str, str | None]:
    path = f"notes/{sample.rng('path').randrange(100, 1000)}.txt"
    return saved(await asker.chat(sample, fenced(asked, path), tools=[SAVE]), path)


def _alphabet(sample: Sample) -> str:
    number = sample.rng().randrange(100, 1000)
    return f"{ALPHABETS[sample.variant % len(ALPHABETS)]} & <{number}> &lt;b{number}&gt;"


async def _unicode(asker: Asker, sample: Sample) -> str | None:
    asked = _alphabet(sample)
    text, problem = await _copied(asker, sample, asked)
    return problem or copy_problem(text, asked)


async def _encoding(asker: Asker, sample: Sample) -> str | None:
    """What J04 was answered is looked at first, then more is asked."""
    known = asker.recall(sample, "J04")
    if known is not None:
        return encoding_problem(saved(known, "")[0], _alphabet(sample.asked(check="J04", variant=sample.number)))
    asked = _alphabet(sample)
    text, _ = await _copied(asker, sample, asked)
    return encoding_problem(text, asked)


async def _escapes(asker: Asker, sample: Sample) -> str | None:
    number = sample.rng().randrange(100, 1000)
    asked = f"{_ESCAPES[sample.variant % len(_ESCAPES)](number)} &lt;{number}&gt;"
    text, problem = await _copied(asker, sample, asked)
    return problem or copy_problem(text, asked)


async def _outer_blanks(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    asked = f"{' ' * rng.randrange(1, 4)}{rng.choice(CITIES)} {rng.randrange(100, 1000)}{' ' * rng.randrange(1, 4)}"
    offered = tool("set_label", "Sets a label, blanks included.", {"label": _TEXT})
    text = f"Call set_label with label {_json(asked)}, with all its blanks at both ends."
    answer = await asker.chat(sample, text, tools=[offered])
    return trimmed(answer, asked)


def trimmed(answer: Answer, asked: str) -> str | None:
    """Only blanks are missing, and nothing else is wrong: that is for other checks."""
    for call in answer.reply.calls:
        label = None if not_an_object(call.arguments) else json.loads(call.arguments).get("label")
        if isinstance(label, str) and label != asked and label.strip() == asked.strip():
            return f"the label is {label!r}; asked was {asked!r}"
    return None


async def _markers(asker: Asker, sample: Sample) -> str | None:
    rng, marker = sample.rng(), MARKERS[sample.variant % len(MARKERS)]
    after = f"code {rng.randrange(100_000, 1_000_000)}"
    text, problem = await _copied(
        asker, sample, f'The "text" before it. {marker} And &lt;after&gt; it comes {after} at the end.'
    )
    return problem or (None if after in text else f"what follows {marker} is not in the text: {text[-60:]!r}")


# --- J07: length ------------------------------------------------------------------------------------------------------

SIZES_CHARS: Final = (2_000, 8_000, 16_000)
_CHARS_PER_TOKEN: Final = 3
"""Cautious: English has four to five."""


async def _long(asker: Asker, sample: Sample) -> str | None:
    chars = await _size(asker, sample)
    last = f"End of file {sample.rng('end').randrange(100_000, 1_000_000)}."
    asked = f"{filler(sample.rng(), chars)}\n{last}"
    path = f"logs/{sample.rng('path').randrange(100, 1000)}.txt"
    thinks = asker.capability.may_think and sample.thinking is not False
    room = chars // _CHARS_PER_TOKEN + 512 + (asker.limits.thinking_max_tokens if thinks else 0)
    answer = await asker.chat(sample, fenced(asked, path), tools=[SAVE], max_tokens=asker.capability.room(room))
    text, problem = saved(answer, path)
    return problem or length_problem(text, asked, last)


def length_problem(text: str, asked: str, last: str) -> str | None:
    """A long argument need not be a perfect copy: it is whole."""
    if len(text) < 0.8 * len(asked):
        return f"the text has {len(text)} characters of {len(asked)}"
    return None if text.rstrip().endswith(last) else f"the text ends with {text[-40:]!r}; expected {last!r}"


async def _size(asker: Asker, sample: Sample) -> int:
    """The size for this try, or the largest below it that fits twice into the context: as question and as answer."""
    wanted = SIZES_CHARS[sample.variant % len(SIZES_CHARS)]
    try:
        context = await context_tokens(asker)
    except Skip:
        return wanted
    fitting = [size for size in SIZES_CHARS if size <= wanted and 2 * size // _CHARS_PER_TOKEN + 1024 <= context]
    if not fitting:
        raise Skip(f"a text of {SIZES_CHARS[0]} characters does not fit twice into {context} tokens of context")
    return fitting[-1]


_TOOLS: Final = needs(tools=True)

CHECKS: Final = (
    Check(
        id="J03",
        name="types",
        asks="Four values: digits as text, numbers, booleans, null, enum, list, object, 16 digits; half are forced.",
        holds="every value arrives with its declared type and unchanged",
        catches="parsers that turn numbers into texts and texts into numbers, or lose the last digit",
        rule=B90,
        attempt=types,
        needs=_TOOLS,
    ),
    Check(
        id="J04",
        name="copy beyond ASCII",
        asks="To save a text in another script, with joined emoji, combining marks, a line separator, &lt; and <.",
        holds="the text arrives as it was, after Unicode's composition",
        catches="tokens of several bytes that a parser cuts, text that is escaped twice, or unescaped",
        rule=B90,
        attempt=_unicode,
        needs=_TOOLS,
    ),
    Check(
        id="J04e",
        name="encoding of copies",
        asks="Texts as in J04: looks at the answers that J04 got, and asks for more.",
        holds="no escapes as text, no mojibake, no replacement character; a wrong copy alone does not count",
        catches="arguments that are escaped twice or decoded as something else",
        rule=Deterministic(EXPOSED),
        attempt=_encoding,
        needs=_TOOLS,
        looks_back=True,
    ),
    Check(
        id="J05",
        name="copy of escapes",
        asks="To save a path, nested quotes, JSON in a text, a regular expression, tabs, LaTeX, shell; &lt; is in all.",
        holds="the text arrives as it was; blanks around it do not count",
        catches="escapes that are lost or doubled, text that ends at a quote",
        rule=B80,
        attempt=_escapes,
        needs=_TOOLS,
    ),
    Check(
        id="J05t",
        name="blanks around a text",
        asks="To set a label that begins and ends with blanks.",
        holds="the blanks arrive; shown and never blocking, because models trim as well",
        catches="parsers that trim values",
        rule=Report(12),
        attempt=_outer_blanks,
        needs=_TOOLS,
    ),
    Check(
        id="J06",
        name="markers inside an argument",
        asks="To save a text with </parameter>, </tool_call>, </function>, <think>, }} or ``` in the middle.",
        holds="what follows the marker arrives as well",
        catches="arguments that end at their first marker and are valid JSON all the same",
        rule=Relative(48, margin=0.15, floor=0.4),
        attempt=_markers,
        needs=_TOOLS,
    ),
    Check(
        id="J07",
        name="long arguments",
        asks=f"To save a text of {', '.join(f'{size:,}' for size in SIZES_CHARS)} characters.",
        holds="arguments that parse, four fifths of the text at least, and its last line",
        catches="buffers of parsers that overflow, arguments that lose their end",
        rule=Behaviour(FixedPlan(18, 2)),
        attempt=_long,
        needs=_TOOLS,
    ),
)
