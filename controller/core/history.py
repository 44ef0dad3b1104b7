"""What this box has shown so far: how long starts, stops, drains and gates took. Pure; None: never measured here."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .records import Attempt, Nap, Phase, Rollout, State


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
    stopped = (
        a.stopping_at_s - a.retired_at_s
        for a in state.attempts.values()
        if a.release == release and a.stopping_at_s is not None and a.retired_at_s is not None and not a.hurry
    )
    return _longest([*stopped, *(nap.asked_at_s - nap.retired_at_s for nap in _naps(state, release))])


def _naps(state: State, release: str) -> tuple[Nap, ...]:
    return tuple(nap for a in state.attempts.values() if a.release == release for nap in a.naps)


def sleep_s(state: State, release: str) -> float | None:
    """From the wish to the proof that the memory is back: the longest of the release's naps."""
    naps = _naps(state, release)
    return _longest(nap.asleep_at_s - nap.asked_at_s for nap in naps if nap.asleep_at_s is not None)


def wake_s(state: State, release: str) -> float | None:
    """From the wish to a sane answer with the memory in use again: the longest of the release's wakes."""
    return _longest(nap.wake_s for nap in _naps(state, release) if nap.wake_s is not None)


def leave_s(state: State, release: str) -> float:
    """How long it takes to get the cards of a release; what neither slept nor stopped here counts as nothing."""
    slept_s = sleep_s(state, release)
    return (stop_s(state, release) or 0.0) if slept_s is None else slept_s


def return_s(state: State, target: str, leaving: Collection[str], *, asleep: bool) -> float | None:
    """The price of going back to `target` over the cards of the releases that leave: their leaving and its coming."""
    comes_s = wake_s(state, target) if asleep else start_s(state, target)
    return None if comes_s is None else round(comes_s + max((leave_s(state, name) for name in leaving), default=0.0), 1)


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
