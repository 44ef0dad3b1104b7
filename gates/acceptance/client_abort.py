"""P15: clients that hang up in the middle of a stream free their place in the engine."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from gates.acceptance.arithmetic import words
from gates.acceptance.check import Check, Overall, Sample, Skip
from gates.acceptance.plain import unthinking
from gates.acceptance.survey import Surveyed, failed, passed
from gates.acceptance.tools import SAVE
from gates.counters import read_counters

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Survey
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer
    from gates.wire import Exchange

STREAMS: Final = 8
_HANG_UP_AFTER_BYTES: Final = 1_000
_SETTLED_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.25
_METRICS_TIMEOUT_S: Final = 5.0
_ON_PURPOSE: Final = "on purpose"


def hang_up_survey(settled_within_s: float) -> Survey:
    """The survey, with so many seconds for the engine to notice."""

    async def survey(asker: Asker, around: Surroundings) -> Surveyed:
        metrics_url = around.metrics_url or f"{asker.trial.endpoint.target.base}/metrics"
        before = await _busy(metrics_url)
        exchanges = await asyncio.gather(*(_hang_up(asker, around.seed, number) for number in range(STREAMS)))
        cut = [one for one in exchanges if one.failure is not None and _ON_PURPOSE in one.failure.sentence]
        upset = next((one for one in exchanges if one not in cut and (one.failure or one.status != 200)), None)
        if upset is not None:
            why = upset.failure.sentence if upset.failure is not None else f"HTTP {upset.status}"
            return failed(f"before the client could hang up: {why}", upset)
        if not cut:
            raise Skip("every answer had ended before the client could hang up")
        after, waited_s = await _settled(metrics_url, before, settled_within_s)
        figures = {"cut": len(cut), "running_before": before, "running_after": after, "settled_s": waited_s}
        gone = f"{len(cut)} clients hung up"
        if before is not None and after is not None and after > before:
            said = f"{settled_within_s:g} s after {gone} {after:g} requests run, before {before:g}"
            return failed(said, *cut[:1], **figures)
        answer, problem = await _next_answer(asker, around.seed)
        if problem is not None:
            said = f"after {gone}, a plain question is not answered: {problem}"
            return failed(said, answer.exchange, **figures)
        if before is None or after is None:
            return passed(f"{gone} and the next question is answered; the engine shows no counters", **figures)
        return passed(f"{gone}; their requests were gone after {waited_s:g} s", **figures)

    return survey


async def _next_answer(asker: Asker, seed: str) -> tuple[Answer, str | None]:
    sample = unthinking(asker, Sample("P15", STREAMS, seed, streamed=True, greedy=True))
    answer = await asker.chat(sample, f"Reply with only the following code: {sample.nonce}")
    if answer.first_problem or sample.nonce in answer.reply.content:
        return answer, answer.first_problem
    return answer, f"the answer was {answer.reply.content[:80]!r}"


async def _hang_up(asker: Asker, seed: str, number: int) -> Exchange:
    sample = unthinking(asker, Sample("P15", number, seed, streamed=True, greedy=True))
    if asker.capability.tools and number % 2:
        asked = f'Save the text "{words(400)}" verbatim under the path /notes/{number}.txt. Use the tool save_file.'
        body = asker.body(sample, asked, tools=[SAVE])
    else:
        body = asker.body(sample, "Write a long story of about 800 words about a lighthouse.")
    return await asker.raw(
        "POST", "/v1/chat/completions", body, abort_when=lambda came_bytes: came_bytes >= _HANG_UP_AFTER_BYTES
    )


async def _settled(metrics_url: str, before: float | None, within_s: float) -> tuple[float | None, float]:
    """Requests that run when it is quiet again or the time is up, and how long that took."""
    started_s = time.monotonic()
    while True:
        busy = await _busy(metrics_url)
        waited_s = time.monotonic() - started_s
        if before is None or busy is None or busy <= before or waited_s >= within_s:
            return busy, round(waited_s, 2)
        await asyncio.sleep(_POLL_S)


async def _busy(metrics_url: str) -> float | None:
    counters = await asyncio.to_thread(read_counters, metrics_url, timeout_s=_METRICS_TIMEOUT_S)
    if counters is None or counters.running is None:
        return None
    return counters.running + (counters.waiting or 0.0)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="P15",
        name="clients that hang up",
        asks=f"{STREAMS} streams, half of them calls, closed by the client in the middle; then a plain question.",
        holds=f"within {_SETTLED_WITHIN_S:g} s no more requests run than before, and the next question is answered",
        catches="an engine that goes on generating for nobody until it is full",
        rule=Overall(f"the number of running requests is back within {_SETTLED_WITHIN_S:g} s"),
        survey=hang_up_survey(_SETTLED_WITHIN_S),
        exclusive=True,
    ),
)
