"""Where the dark time of a swap went, and what going back would cost now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import history
from .cards import Refusal
from .records import Phase, Rollout, Seat, State
from .room import CHEAPEST_FIRST, Strategy, find_room
from .seats import all_ready
from .seen import Gpu
from .sleep import sleeps_whole, who_leaves

WARM_S = 1.0
"""A switch to a release that runs: one command to the front door, and the probe before it."""


def dark_parts(state: State, rollout: Rollout) -> Mapping[str, float]:
    """Seconds in which nothing served, by what they went into; empty when it was never dark.

    ``drain``: streams in flight ended · ``stop``: the old processes ended · ``memory``: their cards' memory came back ·
    ``sleep``, in place of the two: the old engines slept and their memory was back · ``start``: from the first process
    of the release that came to its last instance that generated · ``wake``, in its place: a sleeper came back ·
    ``gates`` · ``rest``: everything else, which is decisions, probes and the switch, or the way back when the rollout
    did not succeed. The parts add up to ``dark_s``; without a sleeper there is no ``sleep`` and no ``wake``.
    """
    dark_s = rollout.times.get("dark_s")
    if dark_s is None:
        return {}
    naps = [(a, nap) for a in state.attempts.values() for nap in a.naps if nap.for_rollout == rollout.id]
    woken = [nap for a in state.attempts.values() for nap in a.naps if nap.woken_for == rollout.id]
    slept = {a.id for a, nap in naps if nap.asleep_at_s is not None}
    left = [a for a in state.attempts.values() if a.gave_way_to == rollout.id and a.id not in slept]
    dozed = {a.id for a, _ in naps}  # … and was stopped after all
    drained = [a for a in left if a.id not in dozed]
    came = [a for a in state.attempts.values() if a.rollout == rollout.id and a.ready_at_s is not None]
    parts = {
        "drain": _between(
            [*(a.retired_at_s for a in drained), *(nap.retired_at_s for _, nap in naps)],
            [*(a.stopping_at_s for a in drained), *(nap.asked_at_s for _, nap in naps)],
        ),
        "sleep": _between((nap.asked_at_s for _, nap in naps), (nap.asleep_at_s or a.stopping_at_s for a, nap in naps)),
        "stop": _between((a.stopping_at_s for a in left), (a.gone_at_s for a in left)),
        "memory": _between((a.gone_at_s for a in left), (a.stopped_at_s for a in left)),
        "start": _between((a.started_at_s for a in came), (a.ready_at_s for a in came)),
        "wake": _between((nap.woken_at_s for nap in woken), (nap.ready_at_s for nap in woken)),
        "gates": rollout.times.get(Phase.GATING.value, 0.0),
    }
    for name, happened in (("sleep", naps), ("wake", woken)):
        if not happened:
            del parts[name]
    rest_s = max(0.0, dark_s - sum(parts.values()))
    return {**{name: round(value, 3) for name, value in parts.items()}, "rest": round(rest_s, 3)}


def _between(begins: Iterable[float | None], ends: Iterable[float | None]) -> float:
    began, ended = [b for b in begins if b is not None], [e for e in ends if e is not None]
    return max(0.0, max(ended) - min(began)) if began and ended else 0.0


@dataclass(frozen=True, slots=True)
class WayHome:
    """What `cutover rollback` would do now. `seconds` is None where this box has not measured it."""

    how: str  # none | running | asleep | starts beside | rolling | swap | impossible
    seconds: float | None
    dark: bool  # nothing serves in the meantime
    sentence: str


def way_home(state: State, inventory: tuple[Gpu, ...]) -> WayHome:
    """The price of a rollback at this moment."""
    target = state.previous
    if target is None:
        return WayHome("none", None, dark=False, sentence="there is no release to go back to")
    if all_ready(state, target) and not state.unborn(target):
        return WayHome("running", WARM_S, dark=False, sentence="it still runs: a switch, about a second")
    if sleeps_whole(state, target):
        return _by_waking(state, target)
    release = state.releases[target.release]
    start_s = history.start_s(state, release.id)
    took = f"about {start_s:.0f} s" if start_s is not None else "its start was never timed here"
    room, _ = find_room(state, release, inventory, CHEAPEST_FIRST)
    if isinstance(room, Refusal):
        return WayHome("impossible", None, dark=False, sentence=f"it cannot be started now: {room.sentence}")
    if room.strategy is Strategy.BLUE_GREEN:
        return WayHome("starts beside", start_s, dark=False, sentence=f"it starts beside live ({took}), then a switch")
    if room.strategy is Strategy.ROLLING:
        return WayHome(
            "rolling", start_s, dark=False, sentence=f"instance by instance ({took}); somebody serves all the time"
        )
    leaving = {a.release for a in state.seat_attempts(state.live)}
    seconds = history.return_s(state, release.id, leaving, asleep=False)
    return WayHome("swap", seconds, dark=True, sentence=f"live stops for it, requests wait meanwhile ({took})")


def _by_waking(state: State, target: Seat) -> WayHome:
    wake_s = history.wake_s(state, target.release)
    took = f"about {wake_s:.1f} s" if wake_s is not None else "its wake was never timed here"
    names, dark = who_leaves(state, target)
    seconds = history.return_s(state, target.release, {state.attempts[name].release for name in names}, asleep=True)
    if not names:
        return WayHome("asleep", seconds, dark=False, sentence=f"it sleeps, its cards are free: woken ({took})")
    meanwhile = "requests wait meanwhile" if dark else "instance by instance, somebody serves all the time"
    sentence = f"it sleeps: live makes room and it is woken ({took}), {meanwhile}"
    return WayHome("asleep", seconds, dark=dark, sentence=sentence)
