"""Group O, sampling: greedy answers repeat, and the model's own sampling is as sane as greedy decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import answers, prose
from gates.acceptance.check import Check, Relative, Report
from gates.acceptance.words import said, shown, unanswered
from gates.text import folded

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

REPEATS: Final = 3


async def _repeat(asker: Asker, sample: Sample) -> str | None:
    """The same body each time, so that nothing but the engine can make a difference."""
    body = asker.body(sample.asked(greedy=True), answers.question(sample).text)
    texts = []
    for _ in range(REPEATS):
        answer = await asker.send(sample, body)
        missing = unanswered(answer)
        if missing:
            return missing
        texts.append(said(answer))
    different = next((text for text in texts[1:] if folded(text) != folded(texts[0])), None)
    return None if different is None else f"greedy and not the same: {shown(texts[0])}, then {shown(different)}"


async def _sampled(asker: Asker, sample: Sample) -> str | None:
    """No sampling key at all, as clients ask, or temperature 1; known answers and prose in turn."""
    sampling = sample.number // 4 % 2
    asked = sample.asked(greedy=False)
    keys: dict[str, Any] = {"temperature": 1} if sampling else {}
    if sample.number // 2 % 2:
        return await prose.write(asker, asked, **keys)
    known = answers.question(asked)
    return answers.problem(await asker.chat(asked, known.text, **keys), known)


CHECKS: Final = (
    Check(
        id="O05",
        name="greedy repeats",
        asks=f"Four small questions with temperature 0, each {REPEATS} times.",
        holds="the answer is the same every time",
        catches="an engine whose results depend on batching or chance; shown only, since no engine promises otherwise",
        rule=Report(4),
        attempt=_repeat,
    ),
    Check(
        id="O09",
        name="default sampling",
        asks="Known answers and prose without any sampling key, and at temperature 1.",
        holds="answers are right and prose is prose, as with greedy decoding",
        catches="a sampling kernel, penalty or default that spoils what greedy decoding, and so every test, never sees",
        rule=Relative(48, answers.MARGIN, answers.FLOOR),
        attempt=_sampled,
    ),
)
