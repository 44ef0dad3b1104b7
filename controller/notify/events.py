"""From lines of the journal to what people are told. Pure.

A line says to whom something happened, the newest state says how that one stands: a rollout that has moved on since is
told as it stands now, so that nobody is called to approve what was approved an hour ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core import actions as act
from ..core.night_records import NightState
from ..core.records import Kind as Asked
from ..core.records import Phase, Rollout, State
from ..core.takeover import BY
from ..store.journal import Line
from .kinds import Kind, Severity

LONGEST = 1000
"""Characters of a sentence: engines and gates are quoted in some."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that people are told. The same happening has the same `id`, however often it is looked at."""

    id: str
    kind: Kind
    severity: Severity
    sentence: str
    wall_s: float  # when it happened
    rollout: str = ""
    release: str = ""
    night: str = ""
    gpu: str = ""


_ENDS: Mapping[Phase, Kind] = {
    Phase.AWAITING_APPROVAL: Kind.NEEDS_APPROVAL,
    Phase.PROMOTED: Kind.PROMOTED,
    Phase.ROLLED_BACK: Kind.ROLLED_BACK,
    Phase.ROLLBACK_FAILED: Kind.ROLLBACK_FAILED,
    Phase.FAILED: Kind.FAILED,
    Phase.REFUSED: Kind.FAILED,
    Phase.REJECTED: Kind.FAILED,
    Phase.INCONCLUSIVE: Kind.FAILED,
    Phase.SKIPPED: Kind.FAILED,
    Phase.ABORTED: Kind.FAILED,
}
"""Where a rollout stands → what is told. A measured one is told by the report, one that was superseded by the newer."""


def event_of(line: Line, state: State) -> Event | None:
    """What a line tells, with a state at least as new as the line; None for most."""
    tell = _TELLERS.get(line.action)
    return tell(line, state) if tell is not None else None


def _rollout(line: Line, state: State) -> Event | None:
    rollout = state.rollouts.get(line.rollout)
    kind = _ENDS.get(rollout.phase) if rollout is not None else None
    if rollout is None or kind is None or _by_a_person(rollout):
        return None
    return Event(
        id=f"{rollout.id}.{rollout.phase.value}.{rollout.created_wall_s:.0f}",
        kind=kind,
        severity=_severity(rollout, kind, again=line.action == act.TryAgain.__name__ and bool(rollout.options.window)),
        sentence=sentence(_words(rollout)),
        wall_s=line.wall_s,
        rollout=rollout.id,
        release=rollout.release,
        night=rollout.night,
    )


def _by_a_person(rollout: Rollout) -> bool:
    """Whoever aborted it knows."""
    return rollout.phase is Phase.ABORTED and rollout.abort_by not in {None, BY}


def _severity(rollout: Rollout, kind: Kind, *, again: bool) -> Severity:
    """`again`: it is tried once more by itself."""
    if kind is Kind.ROLLBACK_FAILED:
        return Severity.CRITICAL
    if kind is Kind.ROLLED_BACK and rollout.kind is Asked.ROLLBACK:
        return Severity.INFO if rollout.instead_of is None else Severity.CRITICAL
    is_aside = rollout.options.trial or rollout.kind is Asked.MEASURE or again
    return Severity.INFO if kind is Kind.PROMOTED or (is_aside and kind is Kind.FAILED) else Severity.WARNING


_ABOUT: Mapping[Asked, str] = {
    Asked.PROPOSE: "",
    Asked.ROLLBACK: "the rollback to ",
    Asked.RESTART: "the restart of ",
    Asked.MEASURE: "the measurement of ",
}


def _words(rollout: Rollout) -> str:
    who = f"{rollout.id}: {_ABOUT[rollout.kind]}{rollout.release}"
    if rollout.phase is Phase.AWAITING_APPROVAL:
        return (
            f"{who} has passed and waits for approval: `cutover approve {rollout.id}`, or `cutover abort {rollout.id}`"
        )
    more = f"; `cutover show {rollout.id}`" if rollout.phase is not Phase.PROMOTED else ""
    if rollout.kind is Asked.ROLLBACK and rollout.phase is Phase.ROLLED_BACK:
        return f"{who} is done: {rollout.why}{more}"
    return f"{who} is {_SAID.get(rollout.phase, rollout.phase.words)}: {rollout.why}{more}"


_SAID = {Phase.ROLLBACK_FAILED: "not undone, a person is needed"}


def _night(line: Line, _: State) -> Event | None:
    night = line.detail["night"]
    name, state, why = str(night["id"]), night["state"], str(night["why"])
    if state == NightState.MISSED:
        kind, severity, said = Kind.MISSED, Severity.WARNING, f"window {name} was missed: {why}"
    elif state == NightState.CLOSED:
        about = f"`cutover report --night {name}`"
        kind, severity, said = Kind.REPORT, Severity.INFO, f"the report of {name} is ready: {why}; {about}"
    else:
        return None
    return Event(f"{name}.{state}", kind, severity, sentence(said), line.wall_s, night=name)


def _sweep(line: Line, state: State) -> Event | None:
    sweep = state.sweeps.get(str(line.detail["sweep"]))
    if sweep is None:
        return None
    said = f"sweep {sweep.id} ({sweep.name}) is decided: {sweep.why}; `cutover sweep show {sweep.id}`"
    return Event(
        f"{sweep.id}.decided", Kind.SWEEP, Severity.INFO, sentence(said), line.wall_s, rollout=sweep.followed_by
    )


def _card(line: Line, _: State) -> Event | None:
    gpu, closed = str(line.detail["gpu"]), line.detail["closed"]
    if closed["by"]:
        return None  # a person cordoned it
    said = f"GPU {gpu} is quarantined, nobody gets it: {closed['why']}; `cutover gpus`"
    name = f"{gpu}.quarantined.{closed['since_wall_s']:.0f}"
    return Event(name, Kind.QUARANTINED, Severity.WARNING, sentence(said), line.wall_s, gpu=gpu)


_TELLERS: Mapping[str, Callable[[Line, State], Event | None]] = {
    act.Move.__name__: _rollout,
    act.CommitRollback.__name__: _rollout,
    act.TryAgain.__name__: _rollout,
    act.NoteNight.__name__: _night,
    act.ConcludeSweep.__name__: _sweep,
    act.CloseCard.__name__: _card,
}
"""Of the actions that can end a rollout or let it wait for a person, and no others: an old one is not told again."""


def greeting(wall_s: float) -> Event:
    """What `cutover notify test` sends."""
    said = "a test: whoever reads this is told what happens here"
    return Event(f"test.{wall_s:.0f}", Kind.TEST, Severity.INFO, said, wall_s)


def sentence(text: str) -> str:
    """One line of bounded length without control characters: what an engine wrote may be quoted in it."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def event_from(record: Mapping[str, Any]) -> Event:
    """The event that `dataclasses.asdict` has written. Raises `KeyError`, `TypeError` or `ValueError`."""
    known = {"kind": Kind(record["kind"]), "severity": Severity(record["severity"]), "wall_s": float(record["wall_s"])}
    fields = {**record, **known}
    return Event(**fields)
