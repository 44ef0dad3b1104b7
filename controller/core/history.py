"""What this box has shown so far: how long starts, stops, drains and gates took. Pure; None: never measured here."""

from __future__ import annotations

from collections.abc import Iterable

from .records import Attempt, Phase, Rollout, State


def start_s(state: State, release: str) -> float | None:
    """From the first process to the last instance ready, as last measured for this release."""
    by_rollout: dict[str, list[Attempt]] = {}
    for attempt in state.attempts.values():
        if attempt.release == release and attempt.ready_at_s is not None and attempt.started_at_s is not None:
            by_rollout.setdefault(attempt.rollout, []).append(attempt)
    if not by_rollout:
        return None
    last = list(by_rollout.values())[-1]
    ready_s = max(a.ready_at_s for a in last if a.ready_at_s is not None)
    return round(ready_s - min(a.started_at_s for a in last if a.started_at_s is not None), 1)


def stop_s(state: State, release: str) -> float | None:
    """From the stop to the proof that nothing is left of it: the longest of the release's stops."""
    return _longest(
        a.stopped_at_s - a.stopping_at_s
        for a in state.attempts.values()
        if a.release == release and a.stopped_at_s is not None and a.stopping_at_s is not None
    )


def drain_s(state: State, release: str) -> float | None:
    """How long streams in flight took to end: the longest drain of the release."""
    return _longest(
        a.stopping_at_s - a.retired_at_s
        for a in state.attempts.values()
        if a.release == release and a.stopping_at_s is not None and a.retired_at_s is not None and not a.hurry
    )


def gates_s(state: State, release: str, profile: tuple[object, ...]) -> float | None:
    """How long the gates took: of this release, else of the last one that had the same gates."""
    ran = [r for r in state.rollouts.values() if Phase.GATING.value in r.times and _passed_all(r)]
    same = [r for r in ran if r.release == release] or [r for r in ran if r.profile == profile and profile]
    return round(same[-1].times[Phase.GATING.value], 1) if same else None


def _passed_all(rollout: Rollout) -> bool:
    """A gate that stopped early at a failure says nothing about how long a good run takes."""
    return len({r.index for r in rollout.gates if r.verdict == "pass" and r.index >= 0}) == len(rollout.profile)


def _longest(values: Iterable[float]) -> float | None:
    measured = [value for value in values if value >= 0]  # below zero: the clock of another boot
    return round(max(measured), 1) if measured else None
