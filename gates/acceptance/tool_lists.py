"""Group J: what else is in the request or the answer beside the call: long lists of tools, and text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.calls import one_call_problem
from gates.acceptance.check import B80, B90, Check, needs
from gates.acceptance.tools import CITIES, RUN, RUN_IN_TERMINAL, WEATHER, named, tool
from gates.text import folded

if TYPE_CHECKING:
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.acceptance.tools import Tool
    from gates.trial import Answer

COUNTS: Final = (1, 2, 16, 64, 128)
_TOKENS_PER_TOOL: Final = 80
_VERBS: Final = (
    "list",
    "open",
    "close",
    "rename",
    "archive",
    "copy",
    "share",
    "print",
    "merge",
    "split",
    "count",
    "tag",
)
_NOUNS: Final = (
    "orders", "folders", "invoices", "tickets", "reports", "photos", "contracts", "parcels", "badges", "meters",
    "routes",
)  # fmt: skip
_DESCRIPTIONS: Final = (
    "Works on {noun}.",
    'Takes a "value", quoted or not, for {noun}.',
    "For {noun}: pass {{curly}} braces and [brackets] as they are.",
    "Größe, coût, año, 値: any language, for {noun}.",
    "Path of {noun}, as C:\\data\\{noun}.",
)
_LONGEST: Final = 64


def tool_list(rng: Random, target: str, count: int) -> list[Tool]:
    """`count` tools with `target` among them: first, last or in the middle.

    `run` and `run_in_terminal`, of which one's name begins with the other's, always come together, one more.
    """
    names = [f"{verb}{rng.choice('-_')}{noun}" for verb in _VERBS for noun in _NOUNS]
    others = [_simple(name, rng) for name in rng.sample(names, min(count - 1, len(names)))]
    pair = {named(offered): offered for offered in (RUN, RUN_IN_TERMINAL)}
    if target in pair:
        neighbour = next(name for name in pair if name != target)
        wanted = [pair[target], pair[neighbour]] if rng.random() < 0.5 else [pair[neighbour], pair[target]]
    else:
        wanted = [_simple(target, rng)]
    at = rng.choice((0, len(others) // 2, len(others)))
    return [*others[:at], *wanted, *others[at:]]


def _simple(name: str, rng: Random) -> Tool:
    noun = name.replace("-", "_").rpartition("_")[2]
    return tool(
        name, rng.choice(_DESCRIPTIONS).format(noun=noun), {"value": {"type": "string"}, "count": {"type": "integer"}}
    )


def _target(rng: Random, variant: int) -> str:
    """Names that are parts of others, as long as names may be, with - and _ in them, and plain ones."""
    longest = f"sync_{rng.choice(_NOUNS)}_of_all_regions_with_the_central_archive_"
    return (
        "run",
        "run_in_terminal",
        longest.ljust(_LONGEST, "x"),
        f"get-{rng.choice(_NOUNS)}_status-v2",
        f"Find{rng.choice(_NOUNS).title()}ByOwner",
        f"refresh_{rng.choice(_NOUNS)}",
    )[variant % 6]


async def _list(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    target = _target(rng, sample.variant)
    context = asker.capability.max_context_tokens
    fitting = [n for n in COUNTS if context is None or n * _TOKENS_PER_TOOL < context // 2]
    tools = tool_list(rng, target, (fitting or COUNTS[:1])[sample.variant % max(1, len(fitting))])
    asked = _arguments(rng, target)
    written = " and ".join(f"{key} {json.dumps(value)}" for key, value in asked.items())
    answer = await asker.chat(sample, f"Use the tool {target} with {written}.", tools=tools)
    problem = one_call_problem(answer, tools, target, asked, exact=True)
    return f"{problem} ({len(tools)} tools on offer)" if problem else None


def _arguments(rng: Random, target: str) -> dict[str, Any]:
    value = f"item-{rng.randrange(100, 1000)}"
    if target.startswith("run"):
        return {"cmd": value} | ({"cwd": "/srv"} if target == "run_in_terminal" else {})
    return {"value": value, "count": rng.randrange(2, 100)}


async def _text_and_call(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    city, number = rng.choice(CITIES), rng.randrange(100, 1000)
    sentence = f"I will look that up for request number {number} now."
    text = (
        f'First write exactly this sentence: "{sentence}" Then call get_weather with city "{city}" in the same answer.'
    )
    answer = await asker.chat(sample, text, tools=[WEATHER])
    return one_call_problem(answer, [WEATHER], "get_weather", {"city": city}) or cut_text(answer, sentence)


def cut_text(answer: Answer, sentence: str) -> str | None:
    """Text beside a call is whole: what was asked for, or another sentence that has an end. None is fine as well."""
    text = " ".join(answer.reply.content.split())
    whole = str(folded(sentence)) in str(folded(text)) or (text.endswith(_ENDS) and not text[0].islower())
    if not text or whole:
        return None
    return f"the text beside the call is cut: {text[:120]!r}; asked was {sentence!r}"


_ENDS: Final[tuple[str, ...]] = (".", "!", "?", ":", "…", "。", "！", "？", "：", '"', "”")  # noqa: RUF001 - Chinese ends


CHECKS: Final = (
    Check(
        id="J17",
        name="lists of tools",
        asks=f"One of {', '.join(map(str, COUNTS))} tools by name, first, last or between; run and run_in_terminal.",
        holds="one call with the name in full and the values as given",
        catches="names that are cut where a shorter one fits, calls lost to a long list or an odd description",
        rule=B90,
        attempt=_list,
        needs=needs(tools=True),
    ),
    Check(
        id="J18",
        name="text and a call",
        asks="A given sentence first, then the weather of a city.",
        holds="the call, and if there is text beside it, whole sentences",
        catches="calls that are not seen after text, text that is lost before a call",
        rule=B80,
        attempt=_text_and_call,
        needs=needs(tools=True),
    ),
)
