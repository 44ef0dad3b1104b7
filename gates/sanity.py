"""Gate `sanity`: what comes out is language and follows a simple order. The speed of garbage is not speed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gates import tally, textrules
from gates.contract import VerdictKind
from gates.strict import StrictModel, read_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from gates.contract import Verdict
    from gates.trial import Answer, Trial

RUNS: Final = 3
_TOPICS: Final = ("a harbour at dawn", "an old library", "a train journey", "a market in autumn", "a mountain hut")
_WORDS: Final = ("amber", "cedar", "falcon", "granite", "lantern", "meadow", "orchid", "pebble", "quartz", "willow")


class SanitySettings(StrictModel):
    """Settings of the gate `sanity`. A very small model may have to do without one of the two questions."""

    copy_code: bool = True
    """Ask for a code to be repeated: nobody can repeat what never reached it."""
    prose: bool = True
    """Ask for some English prose and judge whether it is language."""
    min_prose_chars: int = Field(default=80, ge=0)
    max_tokens: int = Field(default=256, gt=0)
    thinking_max_tokens: int = Field(default=4096, gt=0)
    timeout_s: float = Field(default=120.0, gt=0)


def run(trial: Trial) -> Verdict:
    settings = read_model(SanitySettings, trial.request.profile, "settings of gate sanity")
    for streamed in (True, False):
        wire = "stream" if streamed else "whole"
        if settings.copy_code:
            _judge(trial, settings, f"O01.copy.{wire}", _copy, streamed=streamed)
        if settings.prose:
            _judge(trial, settings, f"O02.prose.{wire}", _prose, streamed=streamed)
    tally.check_invariants(trial)
    return trial.verdict(f"the output is language ({len(trial.answers)} answers)")


def _judge(
    trial: Trial,
    settings: SanitySettings,
    check_id: str,
    question: Callable[[SanitySettings], tuple[str, Callable[[Answer], str | None]]],
    *,
    streamed: bool,
) -> None:
    """One question; when the answer is wrong, two more with other words, and the majority decides."""
    if tally.gone_silent(trial):
        trial.skip(check_id, "the engine does not answer any more")
        return
    problems: list[str | None] = []
    shown: Answer | None = None
    for number in range(RUNS):
        prompt, problem_of = question(settings)
        answer = trial.ask(_body(trial, settings, prompt, streamed=streamed), timeout_s=settings.timeout_s)
        problem = _odd(answer) or problem_of(answer)
        shown = answer if shown is None or (problem and not any(problems)) else shown
        problems.append(problem)
        if (number == 0 and problem is None) or tally.gone_silent(trial):
            break
    right = problems.count(None)
    first = next((p for p in problems if p), "as it should be")
    verdict = VerdictKind.PASS if right * 2 > len(problems) else VerdictKind.FAIL
    sentence = f"{first} (right in {right} of {len(problems)})"
    exchanges = [shown.exchange] if shown else []
    trial.check(check_id, verdict, sentence, rule=_RULES[check_id.split(".")[1]], exchanges=exchanges)


_RULES: Final = {
    "copy": "a code that is given is repeated exactly",
    "prose": "English prose is English prose: words, small words among them, no loops",
}


def _body(trial: Trial, settings: SanitySettings, prompt: str, *, streamed: bool) -> dict[str, Any]:
    capability = trial.capability
    thinks = capability.thinking in ("always", None)
    body: dict[str, Any] = {
        "model": trial.request.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": capability.room(settings.thinking_max_tokens if thinks else settings.max_tokens),
    }
    if capability.thinking == "switch":
        body |= capability.thinking_off
    if streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    else:
        body |= {"temperature": 0}
    return body


def _copy(_settings: SanitySettings) -> tuple[str, Callable[[Answer], str | None]]:
    code = f"{secrets.choice(_WORDS)}-{secrets.randbelow(9000) + 1000}-{secrets.choice(_WORDS)}"

    def problem(answer: Answer) -> str | None:
        text = answer.reply.content
        if code.casefold() in text.casefold():
            return None
        return f"the code {code} does not come back; the answer was {' '.join(text.split())[:120]!r}"

    return f"Reply with only the following code: {code}", problem


def _prose(settings: SanitySettings) -> tuple[str, Callable[[Answer], str | None]]:
    topic = secrets.choice(_TOPICS)

    def problem(answer: Answer) -> str | None:
        return prose_problem(answer.reply.content, settings.min_prose_chars)

    nonce = secrets.token_hex(3)
    return f"[{nonce}] Write two short paragraphs in plain English about {topic}.", problem


def prose_problem(text: str, min_chars: int) -> str | None:
    """Why `text` is no English prose, or None."""
    said = f"the answer was {' '.join(text.split())[:120]!r}"
    if len(text.strip()) < min_chars:
        return f"only {len(text.strip())} characters of prose came, expected {min_chars}; {said}"
    letters = textrules.letter_share(text)
    if letters < 0.85:
        return f"only {letters:.0%} of the text is letters, digits and plain punctuation; {said}"
    share = textrules.stop_word_share(text)
    if len(text) >= 200 and share < 0.10:
        return f"small English words make {share:.0%} of it, in prose at least 10 %; {said}"
    return None


def _odd(answer: Answer) -> str | None:
    reply = answer.reply
    if reply.finish_reason == "length" and reply.reasoning.strip() and not reply.content.strip():
        return "the answer was still thinking when it reached max_tokens"
    return answer.first_problem
