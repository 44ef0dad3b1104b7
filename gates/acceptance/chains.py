"""Group F: several rounds of tools in one turn, and what was thought between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import lookups
from gates.acceptance.asker import result, user
from gates.acceptance.calls import one_call_problem
from gates.acceptance.check import B80, Check, Deterministic, Sample, needs
from gates.acceptance.tools import RECORD, code, record_id
from gates.acceptance.turns import STATUS_TOKENS, status_problem, told_problem
from gates.reply import REASONING_FIELDS

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker

ROUNDS: Final = 4


async def _chain(asker: Asker, sample: Sample) -> str | None:
    """Each record names the next one, so that no round can be guessed or left out."""
    rng = sample.rng()
    records = [record_id(rng) for _ in range(ROUNDS)]
    codes = [code(rng) for _ in range(ROUNDS)]
    text = (
        f"Look up the record {records[0]} with the tool. Each record names the next one in next_record: look that up "
        "as well, one by one, until next_record is null. At the end tell me the code of the first record and the code "
        "of the last one."
    )
    messages: list[dict[str, Any]] = [user(sample, text)]
    for number, (wanted, value) in enumerate(zip(records, codes, strict=True)):
        answer = await asker.chat(sample, messages, tools=[RECORD])
        problem = one_call_problem(answer, [RECORD], "lookup_record", {"record_id": wanted})
        if problem is not None:
            return f"round {number + 1} of {ROUNDS}: {problem}"
        following = records[number + 1] if number + 1 < ROUNDS else None
        found = json.dumps({"record_id": wanted, "code": value, "next_record": following})
        messages += [answer.reply.message(), result(answer.reply.calls[0].id, found)]
    return told_problem(await asker.chat(sample, messages, tools=[RECORD]), codes[0], codes[-1])


def _thought(asker: Asker, sample: Sample, spelling: str, content: str | None) -> tuple[list[dict[str, Any]], str, str]:
    """A call before which a number was noted in the thoughts: messages, that number, the record's code."""
    rng = sample.rng()
    wanted, number = lookups.record(rng), code(rng)
    text = (
        "Note a six-digit number of your own choice in your thoughts. Then look up the record "
        f"{wanted.arguments['record_id']} with the tool. When the result is there, tell me which number you noted, and "
        "the record's code."
    )
    thoughts = (
        f"The user wants me to note a six-digit number of my own choice. The number I note is {number}. "
        "Now I look up the record with the tool."
    )
    messages = lookups.history(asker, sample, wanted, content=content, **{spelling: thoughts})
    messages[0] = user(sample, text)
    return messages, number, wanted.canary


async def _reasoning_accepted(asker: Asker, sample: Sample) -> str | None:
    spelling = REASONING_FIELDS[sample.variant % 2]
    content = None if sample.variant < 2 else "I am looking it up."
    messages, *_ = _thought(asker, sample, spelling, content)
    problem = status_problem(await asker.chat(sample, messages, tools=[RECORD], max_tokens=STATUS_TOKENS))
    beside = " beside content" if content else ""
    return f"reasoning in the history, as {spelling}{beside}: {problem}" if problem else None


async def _reasoning_read(asker: Asker, sample: Sample) -> str | None:
    messages, number, value = _thought(asker, sample, _spelling(asker), None)
    return told_problem(await asker.chat(sample, messages, tools=[RECORD]), number, value)


def _spelling(asker: Asker) -> str:
    """The declared field, else the one in which this engine's answers carried reasoning."""
    seen = (answer.reply.reasoning_field for answer in reversed(asker.trial.answers) if answer.reply.reasoning_field)
    return asker.capability.reasoning_field or next(seen, None) or REASONING_FIELDS[0]


CHECKS: Final = (
    Check(
        id="F05",
        name="chain",
        asks="Four records, each of which names the next one; then the codes of the first and the last.",
        holds="four right calls, one after the other, then both codes in the answer",
        catches="histories that are cut or mixed up as they grow, parsers that fail after several rounds",
        rule=B80,
        attempt=_chain,
        needs=needs(tools=True),
    ),
    Check(
        id="F14",
        name="reasoning in the history: accepted",
        asks="An earlier call with reasoning, as `reasoning` and as `reasoning_content`, with and without content.",
        holds="HTTP 200 and an answer",
        catches="templates that refuse content and reasoning in one message",
        rule=Deterministic(4),
        attempt=_reasoning_accepted,
        needs=needs(tools=True, thinking=("always", "switch")),
        thinking=(True,),
    ),
    Check(
        id="F14c",
        name="reasoning in the history: read",
        asks="Which number was noted in the thoughts before the call?",
        holds="the answer tells that number and the result's value",
        catches="reasoning that is dropped between two calls of one turn, which makes agents forget their plan",
        rule=B80,
        attempt=_reasoning_read,
        needs=needs(tools=True, thinking=("always", "switch"), keeps_reasoning=True),
        thinking=(True,),
    ),
)
