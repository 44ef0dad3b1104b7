"""P13: answers that are cut by their token budget say so, keep what was complete, and leak nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.arithmetic import words
from gates.acceptance.asker import user
from gates.acceptance.check import Check, Deterministic, Sample, needs
from gates.acceptance.jsonprefix import begins_an_object
from gates.acceptance.plain import unthinking
from gates.acceptance.tools import CITIES, SAVE, WEATHER
from gates.callrules import not_an_object

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.toolwire import ToolCall
    from gates.trial import Answer

BUDGETS: Final = (8, 16, 24, 32, 48, 64, 96, 128)
END: Final = "ENDOFNOTE"
_LONG_WORDS: Final = 220
"""More than 128 tokens in any tokeniser: no budget of the sweep suffices."""
_KEPT_SHARE: Final = 0.75


def cut_problem(answer: Answer, budget: int) -> str | None:
    """What is wrong with an answer that had `budget` tokens for an argument that needs many more."""
    reply = answer.reply
    told = _worst(answer)
    if told is not None:
        return told
    used = reply.usage.completion_tokens if reply.usage is not None else None
    finish = reply.finish_reason
    if used is not None and used >= budget and finish != "length" and not _complete(answer):
        return f"the budget of {budget} tokens is used up and finish_reason is {finish}; expected length"
    if finish != "length" and not (reply.content.strip() or reply.reasoning.strip() or reply.calls):
        return f"the message is empty and finish_reason is {finish}, as if that were an answer"
    last = reply.calls[-1] if reply.calls else None
    if last is not None and finish == "length" and not begins_an_object(last.arguments):
        return f"the cut arguments are not the beginning of a JSON object: {last.arguments[-80:]!r}"
    return None


def _worst(answer: Answer) -> str | None:
    """The broken rule that says most: no answer at all, a wrong end, a leak, then whatever else is broken."""
    said = {breach.rule: breach.sentence for breach in reversed(answer.breaches)}
    first = next((said[rule] for rule in ("P08", "P03", "P06", "P11") if rule in said), None)
    certain = next((breach.sentence for breach in answer.certain), None)
    return first or answer.first_problem or certain


def _complete(answer: Answer) -> bool:
    """An answer may end with exactly its last token; then all that was asked for is in it."""
    reply = answer.reply
    said = reply.calls[-1].arguments if reply.calls else reply.content
    return END in said and not (reply.calls and not_an_object(said))


async def _cut(asker: Asker, sample: Sample) -> str | None:
    if sample.variant >= 2 * len(BUDGETS):
        return await _kept(asker, sample)
    budget = BUDGETS[sample.variant // 2 % len(BUDGETS)]
    keys: dict[str, Any] = {"max_tokens": budget, "temperature": 0}
    if sample.variant % 2 and asker.capability.required:
        keys["tool_choice"] = "required"
    note = f"{words(_LONG_WORDS)} {END}"
    asked = f'Save the text "{note}" verbatim under the path /notes/{sample.variant}.txt. Use the tool save_file.'
    problem = cut_problem(await asker.chat(unthinking(asker, sample), asked, tools=[SAVE], **keys), budget)
    choice = keys.get("tool_choice", "auto")
    return None if problem is None else f"{problem} (max_tokens {budget}, tool_choice {choice})"


async def _kept(asker: Asker, sample: Sample) -> str | None:
    """Two calls, and the second is cut: the first must be there as it would be without the cut."""
    if not asker.capability.parallel_calls:
        return None
    plain = unthinking(asker, sample)
    city = sample.rng().choice(CITIES)
    asked = (
        f"Do two things at once. Call get_weather for {city}. "
        f'Call save_file with the path /notes/w.txt and the text "{words(60)} {END}".'
    )
    tools = [WEATHER, SAVE]
    # Word for word the same question both times, its nonce included: a greedy model then says the same until the cut.
    question = [user(plain, asked)]
    whole = (await asker.chat(plain.asked(streamed=False), question, tools=tools, temperature=0)).reply
    used = whole.usage.completion_tokens if whole.usage is not None else None
    if used is None or len(whole.calls) != 2 or whole.calls[0].name != "get_weather":
        return None  # the model went about it otherwise; whether it can call in parallel is asked elsewhere
    budget = max(1, int(used * _KEPT_SHARE))
    answer = await asker.chat(plain, question, tools=tools, temperature=0, max_tokens=budget)
    problem = cut_problem(answer, budget)
    if problem is not None:
        return f"{problem} (two calls, max_tokens {budget})"
    first = answer.reply.calls[0] if answer.reply.calls else None
    if first is None or not _same(first, whole.calls[0]):
        shown = f"{first.name}({first.arguments[:80]})" if first is not None else "no call"
        return f"the first of two calls was complete before the cut and is lost: {shown} (max_tokens {budget})"
    return None


def _same(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and _value(one.arguments) == _value(other.arguments)


def _value(arguments: str) -> Any:
    return None if not_an_object(arguments) else json.loads(arguments)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="P13",
        name="cut answers",
        asks="A long text to be saved with 8 to 128 tokens of room, free and forced; two calls of which one is cut.",
        holds="finish_reason is length, arguments are the beginning of JSON, nothing leaks, finished calls are kept",
        catches="clients that run half a call because it was reported as whole; raw markup in the content",
        rule=Deterministic(tries=2 * len(BUDGETS) + 1),
        attempt=_cut,
        needs=needs(tools=True),
        thinking=(None,),
    ),
)
