"""Group T: where thought and answer get mixed up: agents' prompts, stop strings, cuts, changes of the switch."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import answers
from gates.acceptance.agent import AGENT_TOOLS, agent_prompt
from gates.acceptance.asker import user
from gates.acceptance.check import B90, Behaviour, Check, Deterministic, Report, Sample, Skip, needs
from gates.acceptance.problems import problem
from gates.acceptance.survey import Surveyed, failed, passed
from gates.acceptance.thinking import apart_problem, delimiter_problem, no_thought_problem, silent_problem
from gates.acceptance.words import unanswered
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.capability import Capability
    from gates.trial import Answer

CUT_TOKENS: Final = 24
_AGENT_CONTEXT_TOKENS: Final = 8192
_MID_THOUGHT: Final = re.compile(
    r"\s*(?:(?:okay|ok|hmm+|alright|wait|so)\b[,.\s\u2026]+)+"
    r"(?:the user|let me|let's see|i need to|they want|we need)\b"
    r"|\s*the user (?:wants|asks|asked|is asking|says|said)\b",
    re.IGNORECASE,
)
_THINKS: Final = needs(thinking=("always", "switch"))
_SWITCH: Final = needs(thinking="switch")


# --- T08 --------------------------------------------------------------------------------------------------------------


def _agent_needs(capability: Capability) -> str | None:
    missing = needs(tools=True, thinking=("always", "switch"))(capability)
    room = capability.max_context_tokens
    if missing is None and room is not None and room < _AGENT_CONTEXT_TOKENS:
        return f"an agent's prompt and an answer need {_AGENT_CONTEXT_TOKENS} tokens of context; there are {room}"
    return missing


async def _agent(asker: Asker, sample: Sample) -> str | None:
    asked = problem(sample.rng())
    messages = [{"role": "system", "content": agent_prompt(sample.rng("system"))}, user(sample, asked.text)]
    answer = await asker.chat(sample, messages, tools=AGENT_TOOLS)
    return content_problem(answer, asked)


def content_problem(answer: Answer, asked: answers.Question) -> str | None:
    """The answer has to be where people read it."""
    reply = answer.reply
    if not answer.first_problem and not reply.content.strip() and not reply.calls and reply.reasoning.strip():
        there = "the answer is in the reasoning" if re.search(asked.answer, reply.reasoning) else "only reasoning came"
        return f"the content is empty: {there}" if reply.finish_reason != "length" else unanswered(answer)
    return answers.problem(answer, asked) or delimiter_problem(answer)


# --- T09, T10, T13 ----------------------------------------------------------------------------------------------------


async def _stop_in_thought(asker: Asker, sample: Sample) -> str | None:
    """The word is asked for in the thought alone; stop strings are for what is read."""
    rng = sample.rng()
    asked, stop = problem(rng), f"END{rng.randrange(2, 10)}"
    text = f"{asked.text} When your thoughts are done, write {stop} at their end; never write it in the answer."
    wrong = stop_problem(await asker.chat(sample, text, stop=[stop]), stop)
    for again in range(2):
        if wrong != ended(stop):
            break
        # A model may begin its answer with the word, and has said nothing then. It does not do so three times.
        other = sample.asked(salt=f"{sample.salt}{again}")
        wrong = stop_problem(await asker.chat(other, text, stop=[stop]), stop)
    return wrong


def ended(stop: str) -> str:
    """What looks like a stop string that was found in the thought."""
    return f"the content is empty: the stop string {stop} ended the thought"


def stop_problem(answer: Answer, stop: str) -> str | None:
    """A stop string that stands in the thought ends neither the thought nor the answer."""
    reply = answer.reply
    broken = answer.first_problem or delimiter_problem(answer)
    if broken:
        return broken
    if "/think" in reply.content:
        return f"the rest of a delimiter stands in the content: {reply.content.strip()[:60]!r}"
    if stop in reply.content:
        return f"the stop string {stop} stands in the content"
    if not reply.content.strip() and reply.finish_reason == "stop":
        # What ended at the string does not hold it. With it in the thought the model began its answer with it as well.
        return None if stop in reply.reasoning else ended(stop)
    if not reply.content.strip():
        return unanswered(answer)
    return None if reply.reasoning.strip() else "thinking is on and there is no reasoning"


async def _cut(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    a, b, c = (rng.randrange(120, 900) for _ in range(3))
    text = f"Think it through step by step, in many words: what is {a} × {b} + {c}?"
    return cut_problem(await asker.chat(sample, text, max_tokens=CUT_TOKENS))


def cut_problem(answer: Answer) -> str | None:
    """What is wrong with an answer that max_tokens ends in the middle of the thought."""
    reply = answer.reply
    broken = answer.first_problem or delimiter_problem(answer)
    if broken:
        return broken
    if reply.finish_reason != "length":
        return f"finish_reason is {reply.finish_reason} after {CUT_TOKENS} tokens; expected length"
    if not reply.reasoning.strip():
        where = "it stands in the content" if reply.content.strip() else "it is lost"
        return f"the thought was cut by max_tokens and there is no reasoning: {where}"
    return None


async def _literal_tags(asker: Asker, sample: Sample) -> str | None:
    rng = sample.rng()
    asked = problem(rng)
    tag = rng.choice(("<think>", "</think>", "<think></think>"))
    text = f"My editor shows {tag} at the end of each line; never mind that. {asked.text}"
    return answers.problem(await asker.chat(sample, text), asked)


# --- T12 --------------------------------------------------------------------------------------------------------------


async def _switching(asker: Asker, sample: Sample) -> str | None:
    """On, off, on; unset; a key that no template knows."""
    match sample.variant % 3:
        case 0:
            return await _on_off_on(asker, sample)
        case 1:
            return await _unset(asker, sample)
        case _:
            return await _unknown_key(asker, sample)


async def _on_off_on(asker: Asker, sample: Sample) -> str | None:
    messages: list[Mapping[str, Any]] = []
    for turn, thinking in enumerate((True, False, True)):
        asked = sample.asked(thinking=thinking, salt=f"{sample.salt}{turn}")
        messages.append(user(asked, problem(sample.rng(f"turn {turn}")).text))
        answer = await asker.chat(asked, messages)
        wrong = apart_problem(answer) if thinking else silent_problem(answer) or unanswered(answer)
        if wrong:
            return f"turn {turn + 1}, thinking {'on' if thinking else 'off'} (on, off, on): {wrong}"
        messages.append(answer.reply.message())
    return None


async def _unset(asker: Asker, sample: Sample) -> str | None:
    """Without the switch an answer is one of the two, by its prompt as well as by its thought."""
    text = problem(sample.rng()).text
    tokens = {way: await _prompt_tokens(asker, sample, text, thinking=way) for way in (True, False, None)}
    if None not in tokens.values() and tokens[None] not in (tokens[True], tokens[False]):
        return f"prompt tokens without the switch: {tokens[None]}; on: {tokens[True]}, off: {tokens[False]}"
    answer = await asker.chat(sample.asked(thinking=None), text)
    if tokens[True] == tokens[False] or answer.first_problem:
        return answer.first_problem or unanswered(answer)
    on = tokens[None] == tokens[True]
    wrong = (no_thought_problem(answer) if on else silent_problem(answer)) or unanswered(answer)
    return f"the prompt without the switch is the one of thinking {'on' if on else 'off'}: {wrong}" if wrong else None


async def _unknown_key(asker: Asker, sample: Sample) -> str | None:
    text = problem(sample.rng()).text
    keys = asker.capability.thinking_off.get("chat_template_kwargs", {})
    answer = await asker.chat(sample.asked(thinking=False), text, chat_template_kwargs={**keys, "no_such_switch": True})
    wrong = silent_problem(answer) or unanswered(answer)
    return f"with an unknown key in chat_template_kwargs: {wrong}" if wrong else None


async def _prompt_tokens(asker: Asker, sample: Sample, text: str, *, thinking: bool | None) -> int | None:
    answer = await asker.chat(sample.asked(thinking=thinking), text, max_tokens=1)
    return answer.reply.usage.prompt_tokens if answer.reply.usage else None


# --- over all answers -------------------------------------------------------------------------------------------------


async def _counted(asker: Asker, _surroundings: Surroundings) -> Surveyed:
    answers = [answer for answer in asker.trial.answers if answer.reply.answered]
    told = [(answer, count) for answer in answers if (count := reasoning_tokens(answer)) is not None]
    if not told:
        raise Skip("no usage so far tells reasoning tokens")
    wrong = [(answer, said) for answer, count in told if (said := count_problem(answer, count))]
    if not wrong:
        return passed(f"usage tells reasoning tokens in {len(told)} answers, always where there is reasoning")
    return failed(f"{wrong[0][1]} ({len(wrong)} of {len(told)} answers)", *(a.exchange for a, _ in wrong[:3]))


def reasoning_tokens(answer: Answer) -> int | None:
    """What the engine counted, in either place; None where it does not say."""
    usage = _usage_of(answer.exchange.body)
    details = usage.get("completion_tokens_details")
    nested = details.get("reasoning_tokens") if isinstance(details, dict) else None
    count = nested if nested is not None else usage.get("reasoning_tokens")
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _usage_of(body: bytes) -> Mapping[str, Any]:
    """The last usage in a body or in the events of a stream."""
    lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:")] or [body]
    for line in reversed(lines):
        if b'"usage"' not in line:
            continue
        try:
            usage = json.loads(line).get("usage")
        except (ValueError, RecursionError, AttributeError):
            continue
        if isinstance(usage, dict):
            return usage
    return {}


def count_problem(answer: Answer, count: int) -> str | None:
    """Do the reasoning tokens fit what came?"""
    usage = answer.reply.usage
    if usage is not None and usage.completion_tokens is not None and count > usage.completion_tokens:
        return f"usage says {count} reasoning tokens of {usage.completion_tokens} tokens in all"
    if answer.reply.reasoning.strip() and count == 0:
        return "there is reasoning and usage says 0 reasoning tokens"
    if not answer.reply.reasoning.strip() and count > 0 and answer.reply.finish_reason != "length":
        return f"there is no reasoning and usage says {count} reasoning tokens"
    return None


async def _begins_inside(asker: Asker, _surroundings: Surroundings) -> Surveyed:
    thought = [answer for answer in asker.trial.answers if answer.reply.reasoning.strip()]
    if not thought:
        raise Skip("no answer so far holds reasoning")
    odd = [answer for answer in thought if begins_mid_thought(answer.reply.content)]
    if not odd:
        return passed(f"none of {len(thought)} answers begins as a thought does")
    quoted = " ".join(odd[0].reply.content.split())[:100]
    sentence = f"the content begins in the middle of a thought: {quoted!r} ({len(odd)} of {len(thought)} answers)"
    return failed(sentence, *(answer.exchange for answer in odd[:3]))


def begins_mid_thought(content: str) -> bool:
    """`Okay, the user wants …` is how thoughts begin."""
    return _MID_THOUGHT.match(content) is not None


CHECKS: Final = (
    Check(
        id="T01w",
        name="answers begin as answers",
        asks="Nothing: looks at the answers so far that hold reasoning.",
        holds="no content begins as a thought does (`Okay, the user wants …`)",
        catches="a reasoning parser that ends the thought too early",
        rule=Report(1),
        survey=_begins_inside,
        needs=_THINKS,
        warns=True,
    ),
    Check(
        id="T08",
        name="agent's prompt",
        asks="Small problems behind an agent's system prompt of some 3,000 tokens and twelve tools, thinking on.",
        holds="the content holds the right answer",
        catches="models that do not close their thought under an agent's prompt, so that the answer stays in it",
        rule=B90,
        attempt=_agent,
        needs=_agent_needs,
        thinking=(True,),
    ),
    Check(
        id="T09",
        name="stop string in the thought",
        asks="A problem with a stop string that belongs at the end of the thought.",
        holds="reasoning and content are both there and whole",
        catches="stop strings that are matched inside the thought and cut the answer off",
        # No other check can see it, so here is all the exposure it gets: one in twenty shows in 98 %.
        rule=Deterministic(40),
        attempt=_stop_in_thought,
        needs=_THINKS,
        thinking=(True,),
    ),
    Check(
        id="T10",
        name="thought cut by max_tokens",
        asks=f"A problem with max_tokens {CUT_TOKENS}, thinking on.",
        holds="finish_reason length, reasoning there, no delimiter anywhere",
        catches="reasoning parsers that put a thought without an end into the content, or drop it",
        rule=Deterministic(4),
        attempt=_cut,
        needs=_THINKS,
        thinking=(True,),
    ),
    Check(
        id="T11",
        name="reasoning tokens",
        asks="Nothing: looks at the usage of the answers so far.",
        holds="where usage tells reasoning tokens, they are above 0 exactly when there is reasoning",
        catches="accounting that bills thoughts as answers, or the other way round",
        rule=Report(1),
        survey=_counted,
        needs=_THINKS,
        warns=True,
    ),
    Check(
        id="T12",
        name="throwing the switch",
        asks="On, off, on in one conversation; the switch left alone; an unknown key beside it.",
        holds="each answer thinks as its switch says, and the switch left alone is one of its two positions",
        catches="switches that stick, templates that close the thought while the parser still waits for its end",
        rule=Deterministic(3, persists=True),
        attempt=_switching,
        needs=_SWITCH,
        thinking=(None,),
    ),
    Check(
        id="T13",
        name="delimiters in the question",
        asks="Problems whose text holds <think> or </think>.",
        holds="the answer is complete and right",
        catches="parsers that look for the delimiters in the prompt",
        rule=Behaviour(FixedPlan(8, 1)),
        attempt=_literal_tags,
        needs=_THINKS,
        warns=True,
    ),
)
