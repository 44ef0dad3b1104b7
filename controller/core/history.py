"""What this box has shown so far: how long starts, stops, drains and gates took. Pure; None: never measured here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from .policy import Policy
from .records import Kind, Nap, Phase, Rollout, State


def start_s(state: State, release: str, policy: Policy) -> float | None:
    """How long the release takes to come up: the own last starts of its instances, one after another.

    As many load at a time as the policy lets, with its pause between two; a router comes when they are there. What an
    instance waited for before its own start (a gate, a drain, its turn) is none of it. One that was never started here
    counts as the slowest of its role; None where there is none of its role either.
    """
    own: dict[str, float] = {}
    for a in state.by_release.get(release, ()):
        if a.ready_at_s is not None and a.started_at_s is not None:
            own[a.instance] = a.ready_at_s - a.started_at_s
    return _in_turn(state, release, {name: took_s for name, took_s in own.items() if took_s >= 0}, policy)


def _in_turn(state: State, release: str, own: Mapping[str, float], policy: Policy) -> float | None:
    if not own or release not in state.releases:
        return None
    instances = state.releases[release].instances
    total_s = 0.0
    for role in {i.role for i in instances}:
        names = [i.name for i in instances if i.role == role]
        measured = [own[name] for name in names if name in own]
        if not measured:
            return None
        each = [own.get(name, max(measured)) for name in names]
        at_once = policy.max_concurrent_starts if role != "router" else len(names)
        total_s += max(*each, sum(each) / at_once) + (policy.settle_s * (len(names) - 1) if role != "router" else 0.0)
    return round(total_s, 1)


def stop_s(state: State, release: str) -> float | None:
    """From the stop to the proof that nothing is left of it: the longest of the release's stops."""
    return _longest(
        a.stopped_at_s - a.stopping_at_s
        for a in state.by_release.get(release, ())
        if a.stopped_at_s is not None and a.stopping_at_s is not None
    )


def drain_s(state: State, release: str) -> float | None:
    """How long streams in flight took to end: the longest drain of the release."""
    stopped = (
        a.stopping_at_s - a.retired_at_s
        for a in state.by_release.get(release, ())
        if a.stopping_at_s is not None and a.retired_at_s is not None and not a.hurry
    )
    return _longest([*stopped, *(nap.asked_at_s - nap.retired_at_s for nap in _naps(state, release))])


def _naps(state: State, release: str) -> tuple[Nap, ...]:
    return tuple(nap for a in state.by_release.get(release, ()) for nap in a.naps)


def sleep_s(state: State, release: str) -> float | None:
    """From the wish to the proof that the memory is back: the longest of the release's naps."""
    naps = _naps(state, release)
    return _longest(nap.asleep_at_s - nap.asked_at_s for nap in naps if nap.asleep_at_s is not None)


def wake_s(state: State, release: str) -> float | None:
    """From the wish to a sane answer with the memory in use again: the longest wakes, one instance after another."""
    own: dict[str, float] = {}
    for a in state.by_release.get(release, ()):
        for nap in a.naps:
            if nap.wake_s is not None and nap.wake_s >= 0:
                own[a.instance] = max(nap.wake_s, own.get(a.instance, 0.0))
    sleepers = [i.name for i in state.releases[release].instances if i.role != "router"] if own else []
    return round(sum(own.get(name, max(own.values())) for name in sleepers), 1) if own else None


def leave_s(state: State, release: str) -> float:
    """How long it takes to get the cards of a release; what neither slept nor stopped here counts as nothing."""
    slept_s = sleep_s(state, release)
    return (stop_s(state, release) or 0.0) if slept_s is None else slept_s


def return_s(state: State, target: str, leaving: Collection[str], policy: Policy, *, asleep: bool) -> float | None:
    """The price of going back to `target` over the cards of the releases that leave: drain, leaving, and its coming.

    What never drained here counts as nothing: whoever tells the figure tells how long a drain may take.
    """
    comes_s = wake_s(state, target) if asleep else start_s(state, target, policy)
    if comes_s is None:
        return None
    goes_s = max(((drain_s(state, name) or 0.0) + leave_s(state, name) for name in leaving), default=0.0)
    return round(goes_s + comes_s, 1)


def gates_s(state: State, release: str, profile: tuple[object, ...]) -> float | None:
    """How long the gates took: of this release, else of the last one that had the same gates."""
    tried = [r for r in state.rollouts.values() if r.kind is Kind.PROPOSE and Phase.GATING.value in r.times]
    ran = [r for r in tried if passed_all(r)]
    same = [r for r in ran if r.release == release] or [r for r in ran if r.profile == profile and profile]
    return round(same[-1].times[Phase.GATING.value], 1) if same else None


def passed_all(rollout: Rollout) -> bool:
    """A gate that stopped early at a failure says nothing about how long a good run takes."""
    return len({r.index for r in rollout.gates if r.verdict == "pass" and r.index >= 0}) == len(rollout.profile)


def _longest(values: Iterable[float]) -> float | None:
    measured = [value for value in values if value >= 0]  # below zero: the clock of another boot
    return round(max(measured), 1) if measured else None
