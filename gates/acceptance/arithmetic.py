"""F08, prompt arithmetic: does what is sent reach the prompt?

A chat template that drops a tool's result, forgets a call or ignores a switch shows in the number of prompt tokens,
whatever the model says: exactly, with one token of answer per question.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import result, user
from gates.acceptance.check import Check, Deterministic, Sample, Skip, Tier, needs
from gates.acceptance.prompts import RefusedError, count, count_if_accepted, one_token, rendered
from gates.acceptance.tools import CLOCK, WEATHER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gates.acceptance.asker import Asker
    from gates.capability import Capability

Messages = list[dict[str, Any]]
TOOLS: Final = (WEATHER, CLOCK)
CALL_IDS: Final = ("Wthr4K7Q2", "Clck8M3X5")
"""Nine letters and digits: every template takes these, also those that take nothing else."""

MANY_WORDS: Final = 200
MANY_TOKENS: Final = 150
"""What 200 words add at least, wherever they are sent."""
FEW_TOKENS: Final = 15
"""What a call with its result adds at least, or a result of forty words."""
TOOLS_TOKENS: Final = 20
PARTS_TOKENS: Final = 2
ASCII_RATIO: Final = 4.0
USER_RATIO: Final = 1.4
"""The same foreign text in a tool's result and in a user's message: escaped it counts at least twice as much."""

_SENTENCE: Final = (
    "the harbour lies quiet this morning and the ferry waits at the stone pier while gulls circle over the nets "
    "that were hung to dry beside the old customs house where clerks once counted barrels of salt and wool"
)
_HAN: Final = "天気予報晴時雲南風強海岸山道橋川町駅前公園図書館学校病院朝昼夜春夏秋冬東西北中央市場"


def words(number: int) -> str:
    """So many short English words."""
    said = _SENTENCE.split()
    return " ".join(said[i % len(said)] for i in range(number))


HAN_TEXT: Final = (_HAN * 3)[:100]
ASCII_TEXT: Final = words(40)[:100]


def base(
    first: dict[str, Any],
    *,
    arguments: dict[str, Any] | None = None,
    text: str | None = None,
    told: Any = '{"temp_c": 48.37, "sky": "dust haze"}',
) -> Messages:
    """User, call, result. `first` is the user's message."""
    function = {"name": "get_weather", "arguments": json.dumps(arguments or {"city": "Lisbon", "unit": "c"})}
    calls = [{"id": CALL_IDS[0], "type": "function", "function": function}]
    return [first, {"role": "assistant", "content": text, "tool_calls": calls}, result(CALL_IDS[0], told)]


def two_results(first: dict[str, Any], *told: str) -> Messages:
    """User, two calls, two results."""
    messages = base(first, told=told[0])
    function = {"name": "get_server_time", "arguments": "{}"}
    messages[1]["tool_calls"].append({"id": CALL_IDS[1], "type": "function", "function": function})
    return [*messages, result(CALL_IDS[1], told[1])]


def question(sample: Sample) -> dict[str, Any]:
    """The user's message: the same in every conversation that one check compares."""
    return user(sample, "What is the weather in Lisbon, and what time is it there?")


async def _adds(asker: Asker, sample: Sample, less: Messages, more: Messages, least: int, what: str) -> str | None:
    """`more` must count at least so many tokens more than `less`."""
    short = await count(asker, sample, less, TOOLS)
    grown = await count(asker, sample, more, TOOLS) - short
    if grown >= least:
        return None
    return f"{what}: the prompt grows by {grown} tokens from {short}, expected at least {least}"


async def _tools_rendered(asker: Asker, sample: Sample) -> str | None:
    messages = base(question(sample))
    bare, full = await count(asker, sample, messages, ()), await count(asker, sample, messages, TOOLS)
    if full - bare >= TOOLS_TOKENS:
        return None
    return f"two tools add {full - bare} tokens to a prompt of {bare}, expected at least {TOOLS_TOKENS}: not rendered"


async def _result_rendered(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    longer = base(first, told=f'{{"temp_c": 48.37, "sky": "dust haze {words(MANY_WORDS)}"}}')
    return await _adds(asker, sample, base(first), longer, MANY_TOKENS, "a tool's result got 200 words longer")


async def _arguments_rendered(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    longer = base(first, arguments={"city": f"Lisbon {words(MANY_WORDS)}", "unit": "c"})
    what = "the arguments of an earlier call got 200 words longer"
    return await _adds(asker, sample, base(first), longer, MANY_TOKENS, what)


async def _text_rendered(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    longer = base(first, text=f"I will look that up. {words(MANY_WORDS)}")
    what = "the assistant said 200 words beside its call"
    return await _adds(asker, sample, base(first), longer, MANY_TOKENS, what)


async def _nothing_rendered_as_nothing(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    null, missing = base(first), base(first)
    del missing[1]["content"]
    counts = {
        "null": await count(asker, sample, null, TOOLS),
        '""': await count(asker, sample, base(first, text=""), TOOLS),
        "missing": await count(asker, sample, missing, TOOLS),
    }
    # A template may write less for nothing than for an empty text; more is a word that nobody said.
    if max(counts["null"], counts["missing"]) <= counts['""']:
        return None
    literal = await _literal(asker, sample, null if counts["null"] > counts['""'] else missing)
    if literal == "":
        return None
    shown = f"the prompt holds the word {literal}" if literal else "the prompt cannot be looked at"
    listed = ", ".join(f"{name} {tokens}" for name, tokens in counts.items())
    return f"content that is not there counts more than an empty one (prompt tokens: {listed}); {shown}"


async def _literal(asker: Asker, sample: Sample, messages: Messages) -> str | None:
    """The word that stands for nothing in the prompt; empty when there is none, None when nobody can look."""
    prompt = await rendered(asker, one_token(asker, sample, messages, TOOLS))
    if prompt is None:
        return None
    # The question and the tools hold neither of these words.
    return next((word for word in ("None", "null", "undefined") if word in prompt), "")


async def _parts_rendered(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    told = f"Clear, 48.37 degrees, {words(40)}."
    whole = await count(asker, sample, base(first, told=told), TOOLS)
    parts = await count(asker, sample, base(first, told=[{"type": "text", "text": told}]), TOOLS)
    if abs(parts - whole) <= PARTS_TOKENS:
        return None
    return f"a tool's result as a list of text parts counts {parts} prompt tokens, as a string {whole}"


async def _history_rendered(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    return await _adds(asker, sample, [first], base(first), FEW_TOKENS, "a call and its result were added")


async def _switch_rendered(asker: Asker, sample: Sample) -> str | None:
    messages = base(question(sample))
    on, off = asker.capability.thinking_on, asker.capability.thinking_off
    counts = [await count(asker, sample, messages, TOOLS, **keys) for keys in (on, off)]
    if counts[0] != counts[1]:
        return None
    prompts = [await rendered(asker, one_token(asker, sample, messages, TOOLS, **keys)) for keys in (on, off)]
    if None not in prompts and prompts[0] != prompts[1]:
        return None
    spelled = asker.capability.thinking_switch
    return f"the prompt counts {counts[0]} tokens with thinking on and off: the switch {spelled} does not reach it"


async def _every_result_rendered(asker: Asker, sample: Sample) -> str | None:
    first, long, short = question(sample), f"48.37 {words(40)}", "48.37"
    for which, shorter in (("second", (long, short)), ("first", (short, long))):
        what = f"the {which} of two results got forty words longer"
        problem = await _adds(
            asker, sample, two_results(first, *shorter), two_results(first, long, long), FEW_TOKENS, what
        )
        if problem:
            return problem
    return None


async def _foreign_text_unescaped(asker: Asker, sample: Sample) -> str | None:
    first = question(sample)
    told = {text: await count(asker, sample, base(first, told=text), TOOLS) for text in ("-", ASCII_TEXT, HAN_TEXT)}
    plain, foreign = told[ASCII_TEXT] - told["-"], told[HAN_TEXT] - told["-"]
    if foreign < ASCII_RATIO * max(plain, 1):
        return None
    # Many tokens for few characters: escaped on the way, or a tokeniser that knows none of them? A user's message
    # that holds the same text tells.
    without = await count(asker, sample, base(first | {"content": first["content"] + "-"}), TOOLS)
    by_user = await count(asker, sample, base(first | {"content": first["content"] + HAN_TEXT}), TOOLS) - without
    if foreign < USER_RATIO * max(by_user, 1):
        return None
    return (
        f"100 Chinese characters count {foreign} tokens in a tool's result, {by_user} in a user's message and 100 "
        f"plain ones {plain}: they are escaped on their way into the prompt"
    )


async def _system_rendered(asker: Asker, sample: Sample) -> str | None:
    told = "You are the assistant of a harbour office."
    less, more = (
        [{"role": "system", "content": text}, *base(question(sample))] for text in (told, f"{told} {words(MANY_WORDS)}")
    )
    return await _adds(asker, sample, less, more, MANY_TOKENS, "the system message got 200 words longer")


async def _every_system_rendered(asker: Asker, sample: Sample) -> str | None:
    def behind(text: str) -> Messages:
        return [{"role": "system", "content": text}, {"role": "system", "content": "Be brief."}, question(sample)]

    told = "You are the assistant of a harbour office."
    short = await count_if_accepted(asker, sample, behind(told), TOOLS)
    if short is None:
        raise Skip("this template takes one system message and says so")
    long = await count(asker, sample, behind(f"{told} {words(MANY_WORDS)}"), TOOLS)
    if long - short >= MANY_TOKENS:
        return None
    return (
        f"the first of two system messages got 200 words longer: the prompt grows by {long - short} tokens from "
        f"{short}, expected at least {MANY_TOKENS}"
    )


def _guarded(attempt: Callable[[Asker, Sample], Awaitable[str | None]]) -> Callable[..., Awaitable[str | None]]:
    async def guarded(asker: Asker, sample: Sample) -> str | None:
        try:
            return await attempt(asker, sample)
        except RefusedError as refused:
            return str(refused)

    return guarded


def _letter(
    letter: str,
    name: str,
    asks: str,
    holds: str,
    catches: str,
    attempt: Callable[[Asker, Sample], Awaitable[str | None]],
    needed: Callable[[Capability], str | None] | None = None,
) -> Check:
    return Check(
        id=f"F08{letter}",
        name=name,
        asks=f"{asks} One token of answer.",
        holds=holds,
        catches=catches,
        rule=Deterministic(tries=1),
        attempt=_guarded(attempt),
        tier=Tier.SMOKE,
        needs=needed or needs(tools=True),
        modes=(False,),
        thinking=(None,),
    )


CHECKS: Final[tuple[Check, ...]] = (
    _letter(
        "a",
        "tools in the prompt",
        "A conversation with a call and its result, with two tools on offer and with none.",
        f"the tools add at least {TOOLS_TOKENS} prompt tokens",
        "a chat template that does not render tools: the model cannot know them",
        _tools_rendered,
    ),
    _letter(
        "b",
        "tool result in the prompt",
        "The same conversation with a result that is 200 words longer.",
        f"the prompt grows by at least {MANY_TOKENS} tokens",
        "a template that drops the tool's result: the model says that it has no data",
        _result_rendered,
    ),
    _letter(
        "c",
        "call arguments in the prompt",
        "The same conversation with arguments that are 200 words longer.",
        f"the prompt grows by at least {MANY_TOKENS} tokens",
        "arguments of earlier calls that are dropped or become {}",
        _arguments_rendered,
    ),
    _letter(
        "d",
        "text beside a call in the prompt",
        "The same conversation with 200 words of the assistant beside its call.",
        f"the prompt grows by at least {MANY_TOKENS} tokens",
        "a template that forgets what was said beside a call",
        _text_rendered,
    ),
    _letter(
        "e",
        "no content is no word",
        "The same conversation with the content beside the call null, empty and missing.",
        "null and missing count no more prompt tokens than an empty text",
        "a template that writes None where there is no content: answers degenerate after a few turns",
        _nothing_rendered_as_nothing,
    ),
    _letter(
        "f",
        "result in parts",
        "The same conversation with the result as a string and as a list of text parts.",
        f"both count the same prompt tokens, give or take {PARTS_TOKENS}",
        "results in parts that get lost or are written as a list",
        _parts_rendered,
    ),
    _letter(
        "g",
        "history in the prompt",
        "The same question with and without the call and its result.",
        f"the history adds at least {FEW_TOKENS} prompt tokens",
        "a template that drops calls with their results: the model calls again for ever",
        _history_rendered,
    ),
    _letter(
        "i",
        "switch in the prompt",
        "The same conversation with thinking switched on and off.",
        "the prompts differ",
        "a switch for thinking that never reaches the template",
        _switch_rendered,
        needs(tools=True, thinking="switch"),
    ),
    _letter(
        "j",
        "every result in the prompt",
        "A conversation with two calls and two results, each of them in turn forty words longer.",
        f"the prompt grows by at least {FEW_TOKENS} tokens both times",
        "a template that renders only the first or only the last of several results",
        _every_result_rendered,
    ),
    _letter(
        "k",
        "foreign letters in the prompt",
        "The same conversation with a result of 100 Chinese characters, of 100 plain ones, and of next to nothing.",
        f"the Chinese ones count less than {ASCII_RATIO:g} times as much, or as much as in a user's message",
        "results that are escaped on their way into the prompt: slow, and copied wrongly by the model",
        _foreign_text_unescaped,
    ),
    _letter(
        "m",
        "system message beside tools",
        "The same conversation behind a system message, and behind one that is 200 words longer.",
        f"the prompt grows by at least {MANY_TOKENS} tokens",
        "a template that writes the tools in place of the system message: an agent without its instructions",
        _system_rendered,
    ),
    _letter(
        "n",
        "every system message",
        "A question behind two system messages, and with the first of them 200 words longer.",
        f"the prompt grows by at least {MANY_TOKENS} tokens; a refusal (400) is no failure",
        "a template that keeps only the last system message: instructions that are lost without a word",
        _every_system_rendered,
    ),
)
