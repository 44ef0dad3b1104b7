"""Which layer is at fault? The failing question asked again in five other ways, and what the pattern says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.check import Skip
from gates.acceptance.tries import Try, attempt

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Check, Sample

_BELOW: Final = "below the parsers: chat template, weights or kernels, or the model itself"
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
    reruns = []
    switch = asker.capability.thinking == "switch"
    ways = (
        ("the other mode", sample.asked(streamed=not sample.streamed, salt="mode"), asker, None),
        (
            "thinking off",
            sample.asked(thinking=False, salt="off"),
            asker,
            None if switch and sample.thinking is not False else "there is no switch, or it was off",
        ),
        ("alone", sample.asked(salt="alone"), asker, None),
        ("the same once more, warm", sample.asked(), asker, None),
        ("on production", sample.asked(salt="live"), live, None if live else "no live endpoint is known"),
    )
    for name, asked, where, why_not in ways:
        if why_not is not None or where is None:
            reruns.append(Rerun(name, why_not=why_not))
        else:
            reruns.append(await _again(check, where, asked, name))
    found = layer(reruns, streamed=sample.streamed)
    if found == _BELOW and (failing.lost or not failing.answers):
        found = "the server, or the way to it: it is the same however it is asked"
    return reruns, found


async def _again(check: Check, asker: Asker, sample: Sample, name: str) -> Rerun:
    try:
        again = await attempt(check, asker, sample)
    except Skip as skip:
        return Rerun(name, why_not=str(skip))
    return Rerun(name, again.problem)


def layer(reruns: list[Rerun], *, streamed: bool) -> str:
    """What the pattern of `look_into` says, most telling first."""
    wrong = {run.name: run.problem is not None for run in reruns if run.why_not is None}
    if wrong.get("on production"):
        return "production does the same: the model, the question, or a fault that both share"
    if not wrong.get("alone", True) and not wrong.get("the same once more, warm", True):
        return "not seen again when asked alone: a rare mistake of the model, or a fault that needs load"
    if not wrong.get("the other mode", True):
        return (
            "the streaming parser: the same question is right when it is not streamed"
            if streamed
            else "the parser of whole answers: the same question is right when it is streamed"
        )
    if not wrong.get("thinking off", True):
        return "the reasoning parser or the chat template with thinking on"
    if wrong.get("the same once more, warm") and not wrong.get("alone", True):
        return "the prefix cache: a cold prompt is right, the same prompt warm is not"
    if not wrong.get("alone", True):
        return "the engine under load: alone it is right"
    return _BELOW
