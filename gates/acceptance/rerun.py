"""Which layer is at fault? The failing question asked again in five other ways, and what the pattern says."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import SilentError
from gates.acceptance.check import NONCE, Sample, Skip
from gates.acceptance.tries import Try, attempt
from gates.trial import CannotJudgeError, WrongModelError

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Check
    from gates.trial import Answer

_BELOW: Final = "below the parsers: chat template, weights or kernels, or the model itself"
_SELDOM: Final = "not seen again when asked alone: a rare mistake of the model, or a fault that needs load"
_SELDOM_SERVER: Final = "not seen again when asked alone: a fault of the server that strikes seldom, or needs load"
_PARSER: Final = "the parser, which is missing or another model's: marks of the template come through"
_MIXED: Final = "not clear, the re-runs are mixed"
_UNKNOWN: Final = "not known, it could not be asked again"
_OTHER_MODE: Final = "the other mode"
_NO_THOUGHT: Final = "thinking off"
_ALONE: Final = "alone"
_WARM: Final = "the same once more, warm"
_PRODUCTION: Final = "on production"
_SAME: Final = (_ALONE, _WARM)
"""The ways that change nothing but what else is under way: a fault that does not strike there strikes by chance."""
MAX_RERUNS: Final = 10
"""So many failing checks of a run are looked into; five questions each."""


@dataclass(frozen=True)
class Rerun:
    """One way of asking again; `problem` is None when it was right that way, `why_not` says why it was not asked."""

    name: str
    problem: str | None = None
    why_not: str | None = None

    def as_dict(self) -> Mapping[str, Any]:
        return {"name": self.name, "problem": self.problem, "why_not": self.why_not}


async def look_into(check: Check, failing: Try, asker: Asker, live: Asker | None) -> tuple[list[Rerun], str]:
    """The five re-runs, one after the other with nothing else under way, and the layer in words."""
    sample = failing.sample
    switch = asker.capability.thinking == "switch"

    def asked(where: Asker, **how: Any) -> _Ask:
        return lambda: _tried(check, where, sample.asked(**how))

    ways: list[_Way] = [
        (_OTHER_MODE, asked(asker, streamed=not sample.streamed, salt="mode")),
        (_NO_THOUGHT, asked(asker, thinking=False, salt="off") if switch and sample.thinking is not False else _OFF),
        (_ALONE, asked(asker, salt="alone")),
        (_WARM, asked(asker)),
        (_PRODUCTION, asked(live, salt="live") if live is not None else _NO_LIVE),
    ]
    reruns = [await _again(name, way, came=not failing.lost) for name, way in ways]
    found = layer(reruns, streamed=sample.streamed)
    if found == _BELOW:
        found = _SERVER if failing.lost or not failing.answers else _unparsed(failing.answers[-1]) or found
    return reruns, found


async def look_into_answer(rule: str, answer: Answer, asker: Asker, live: Asker | None) -> tuple[list[Rerun], str]:
    """The same for a rule for every answer: the request behind `answer`, and whether the rule is broken again."""
    body, streamed = answer.body, bool(answer.body.get("stream"))
    silent = asker.capability.thinking_off
    switched = asker.capability.thinking == "switch" and any(body.get(key) != value for key, value in silent.items())

    def asked(number: int, where: Asker, changed: Mapping[str, Any]) -> _Ask:
        return lambda: _broken(rule, where, changed, number)

    ways: list[_Way] = [
        (_OTHER_MODE, asked(0, asker, renewed(in_mode(body, streamed=not streamed), "mode"))),
        (_NO_THOUGHT, asked(1, asker, renewed({**body, **silent}, "off")) if switched else _OFF),
        (_ALONE, asked(2, asker, renewed(body, "alone"))),
        (_WARM, asked(3, asker, body)),
        (_PRODUCTION, asked(4, live, renewed({**body, "model": live.model}, "live")) if live is not None else _NO_LIVE),
    ]
    reruns = [await _again(name, way, came=answer.reply.answered) for name, way in ways]
    found = layer(reruns, streamed=streamed)
    if any(breach.rule == rule for breach in answer.certain):
        # What only a server can do is not in the weights.
        found = {_BELOW: _SERVER, _SELDOM: _SELDOM_SERVER}.get(found, found)
        if found.startswith(_MIXED):
            found = f"the server; where in it is {found}"
    return reruns, (_unparsed(answer) or found) if found == _BELOW else found


def _unparsed(answer: Answer) -> str | None:
    """However it is asked, a mark of the template comes through: that names the layer without any pattern."""
    return _PARSER if any(breach.rule in ("P11", "T14") for breach in answer.breaches) else None


def in_mode(body: Mapping[str, Any], *, streamed: bool) -> Mapping[str, Any]:
    """The same request, streamed or whole."""
    bare = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    return bare | {"stream": True, "stream_options": {"include_usage": True}} if streamed else bare


def renewed(body: Mapping[str, Any], salt: str) -> Mapping[str, Any]:
    """The same request with other nonces, so that no cache knows it."""
    text = NONCE.sub(
        lambda found: Sample("again", 0, found[0], streamed=False, greedy=False, salt=salt).nonce,
        json.dumps(body, ensure_ascii=False),
    )
    again: dict[str, Any] = json.loads(text)
    return again


_Ask = Callable[[], Awaitable[tuple[str | None, bool]]]
"""Asks; returns what is wrong, or None, and whether an answer came at all."""
_Way = tuple[str, _Ask | str]
"""A name, and how to ask or why it is not asked."""
_OFF: Final = "there is no switch, or it was off"
_NO_LIVE: Final = "no live endpoint is known"
_SERVER: Final = "the server, or the way to it: it is the same however it is asked"


async def _tried(check: Check, asker: Asker, sample: Sample) -> tuple[str | None, bool]:
    again = await attempt(check, asker, sample)
    return again.problem, not again.lost


async def _broken(rule: str, asker: Asker, body: Mapping[str, Any], number: int) -> tuple[str | None, bool]:
    sample = Sample(f"{rule}.layer", number, "again", streamed=bool(body.get("stream")), greedy=False)
    async with asker.slot():
        again = await asker.send(sample, body)
    return next((breach.sentence for breach in again.breaches if breach.rule == rule), None), again.reply.answered


async def _again(name: str, way: _Ask | str, *, came: bool) -> Rerun:
    if isinstance(way, str):
        return Rerun(name, why_not=way)
    try:
        problem, answered = await way()
    except Skip as skip:
        return Rerun(name, why_not=str(skip))
    except (SilentError, CannotJudgeError, WrongModelError) as error:
        if name != _PRODUCTION:
            raise
        return Rerun(name, why_not=f"production does not answer: {error}")
    if name == _PRODUCTION and came and not answered:
        # That production cannot be reached does not make this engine's wrong answer right.
        return Rerun(name, why_not=f"production does not answer: {problem}")
    return Rerun(name, problem)


def layer(reruns: list[Rerun], *, streamed: bool) -> str:
    """What the pattern of `look_into` says. Only a pattern that one layer makes names it; any other is mixed."""
    wrong = {run.name: run.problem is not None for run in reruns if run.why_not is None}
    here = {name: found for name, found in wrong.items() if name != _PRODUCTION}
    persists = any(here.get(name) for name in _SAME) and all(here.get(name, True) for name in _SAME)
    if not here:
        return _UNKNOWN
    if wrong.get(_PRODUCTION):
        return (
            "production does the same: the model, the question, or a fault that both share"
            if persists
            else _mixed(wrong)
        )
    if not any(here.values()):
        return _SELDOM
    if [name for name, found in here.items() if found] == [_WARM]:
        return "the prefix cache: a cold prompt is right, the same prompt warm is not"
    if not persists:
        return _mixed(wrong)
    if not here.get(_OTHER_MODE, True):
        return (
            "the streaming parser: the same question is right when it is not streamed"
            if streamed
            else "the parser of whole answers: the same question is right when it is streamed"
        )
    if not here.get(_NO_THOUGHT, True):
        return "the reasoning parser or the chat template with thinking on"
    return _BELOW


def _mixed(wrong: Mapping[str, bool]) -> str:
    """The counts, and which were which: it strikes now and then, or at more than one thing."""
    again, right = ([name for name, found in wrong.items() if found is side] for side in (True, False))
    return (
        f"{_MIXED}: {len(again)} of {len(wrong)} {_were(again)} wrong again ({'; '.join(again)}), "
        f"{len(right)} {_were(right)} right ({'; '.join(right)})"
    )


def _were(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"
