"""Where the dark time of a swap went, and what going back would cost now. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from . import history
from .cards import Refusal
from .policy import Policy
from .records import Phase, Rollout, Seat, State
from .room import CHEAPEST_FIRST, Strategy, find_room
from .seats import all_ready
from .seen import Gpu
from .sleep import sleeps_whole, who_leaves

WARM_S = 1.0
"""A switch to a release that runs: one command to the front door, and the probe before it."""


Window = tuple[float, float]
"""From when to when nothing served, on the clock of the box."""


def dark_parts(state: State, rollout: Rollout, window: Window | None = None) -> Mapping[str, float]:
    """Seconds in which nothing served, by what they went into; empty when it was never dark.

    ``drain``: streams in flight ended · ``sleep``: old engines slept and their memory was back · ``stop``: old
    processes ended · ``memory``: their cards' memory came back · ``wake``: a sleeper came back · ``start``: instances
    of the release loaded until they generated, or failed · ``gates`` · ``rest``: everything else, which is decisions,
    probes and the switch, or the way back when the rollout did not succeed.

    Each second counts once, for the first of these that it was spent on by anybody: one who drains is waited for, and
    who sleeps beside it is not. So the parts add up to ``dark_s``, or to the one `window` that is asked for. Without a
    sleeper there is no ``sleep`` and no ``wake``.
    """
    if "dark_s" not in rollout.times:
        return {}
    windows = dark_windows(state, rollout)
    spans = _spans(state, rollout)
    counted = windows if window is None else (window,)
    whole_s = rollout.times["dark_s"] if window is None else window[1] - window[0]
    each = [_each_second_once(spans, *one) for one in counted]
    parts = {name: sum(one[name] for one in each) for name in spans}
    judged_in = _judged_in(state, rollout, windows)
    gates_s = rollout.times.get(Phase.GATING.value, 0.0) if judged_in in counted else 0.0
    parts["gates"] = min(gates_s, max(0.0, whole_s - sum(parts.values())))
    for name in ("sleep", "wake"):
        if not spans[name]:
            del parts[name]
    rest_s = max(0.0, whole_s - sum(parts.values()))
    return {**{name: round(value, 3) for name, value in parts.items()}, "rest": round(rest_s, 3)}


def dark_windows(state: State, rollout: Rollout) -> tuple[Window, ...]:
    """When nothing served, in order: what is undone was dark there and, where nobody was left, on the way back."""
    dark_s = rollout.times.get("dark_s")
    return () if dark_s is None else rollout.darks or (_last_window(state, rollout, dark_s),)


def _judged_in(state: State, rollout: Rollout, windows: tuple[Window, ...]) -> Window | None:
    """The dark in which it was judged: its instances came up in it. When its gates began is not kept."""
    ready = [a.ready_at_s for a in state.attempts.values() if a.rollout == rollout.id and a.release == rollout.release]
    return next((w for w in windows if any(at_s is not None and w[0] <= at_s <= w[1] for at_s in ready)), None)


_Spans = list[Window]


def _spans(state: State, rollout: Rollout) -> dict[str, _Spans]:
    """When which part happened, on the clock of the box; what has no end yet goes on."""
    everybody = state.attempts.values()
    naps = [(a, nap) for a in everybody for nap in a.naps if nap.for_rollout == rollout.id]
    woken = [(a, nap) for a in everybody for nap in a.naps if nap.woken_for == rollout.id]
    slept = {a.id for a, nap in naps if nap.asleep_at_s is not None}
    left = [a for a in everybody if a.gave_way_to == rollout.id and a.id not in slept]
    dozed = {a.id for a, _ in naps}  # … and was stopped after all
    drained = [a for a in left if a.id not in dozed]
    came = {rollout.id, rollout.target.rollout if rollout.target else rollout.id}
    return {
        "drain": [
            *_ended((a.retired_at_s, a.stopping_at_s) for a in drained),
            *_ended((nap.retired_at_s, nap.asked_at_s) for _, nap in naps),
        ],
        "sleep": _ended((nap.asked_at_s, nap.asleep_at_s or a.stopping_at_s) for a, nap in naps),
        "stop": _ended((a.stopping_at_s, a.gone_at_s) for a in left),
        "memory": _ended((a.gone_at_s, a.stopped_at_s) for a in left),
        "wake": _ended((nap.woken_at_s, nap.ready_at_s or a.stopping_at_s) for a, nap in woken),
        "start": _ended(
            (a.started_at_s, a.ready_at_s or a.retired_at_s or a.stopping_at_s) for a in everybody if a.rollout in came
        ),
    }


def _ended(spans: Iterable[tuple[float | None, float | None]]) -> _Spans:
    return [(began, math.inf if ended is None else ended) for began, ended in spans if began is not None]


def _last_window(state: State, rollout: Rollout, dark_s: float) -> Window:
    """Of a record of an earlier version, which kept how long it was: from when the last who served had to leave."""
    fronted = [a for a in state.attempts.values() if a.slot is not None and a.ready_at_s is not None]
    naps = {a.id: nap.retired_at_s for a in fronted for nap in a.naps if nap.for_rollout == rollout.id}
    # Who was to sleep and could not is retired twice: the first time counts.
    left = {a.id: a.retired_at_s for a in fronted if a.gave_way_to == rollout.id and a.retired_at_s is not None}
    began_s = max((left | naps).values(), default=0.0)
    return began_s, began_s + dark_s


def _each_second_once(spans: Mapping[str, _Spans], begin: float, end: float) -> dict[str, float]:
    """Between two moments: the seconds of every part that no part before it has."""
    moments = {min(max(moment, begin), end) for part in spans.values() for span in part for moment in span}
    parts = dict.fromkeys(spans, 0.0)
    for since, until in pairwise(sorted(moments)):
        name = next((n for n, part in spans.items() if any(b <= since and until <= e for b, e in part)), None)
        if name is not None:
            parts[name] += until - since
    return parts


@dataclass(frozen=True, slots=True)
class WayHome:
    """What `cutover rollback` would do now. `seconds` is None where this box has not measured it."""

    how: str  # none | running | asleep | starts | starts beside | rolling | swap | impossible
    seconds: float | None
    dark: bool  # nothing serves in the meantime
    sentence: str


_DEFAULTS = Policy()


def way_home(state: State, inventory: tuple[Gpu, ...], policy: Policy = _DEFAULTS) -> WayHome:
    """The price of a rollback at this moment."""
    target = state.previous
    if target is None:
        return WayHome("none", None, dark=False, sentence="there is no release to go back to")
    if all_ready(state, target) and not state.unborn(target):
        return WayHome("running", WARM_S, dark=False, sentence="it still runs: a switch, about a second")
    if sleeps_whole(state, target):
        return _by_waking(state, target, policy)
    release = state.releases[target.release]
    start_s = history.start_s(state, release.id, policy)
    took = f"about {start_s:.0f} s" if start_s is not None else "its start was never timed here"
    room, _ = find_room(state, release, inventory, CHEAPEST_FIRST)
    if isinstance(room, Refusal):
        return WayHome("impossible", None, dark=False, sentence=f"it cannot be started now: {room.sentence}")
    if state.live is None:
        return WayHome("starts", start_s, dark=True, sentence=f"nothing is live: it starts on free cards ({took})")
    if room.strategy is Strategy.BLUE_GREEN:
        return WayHome("starts beside", start_s, dark=False, sentence=f"it starts beside live ({took}), then a switch")
    if room.strategy is Strategy.ROLLING:
        return WayHome(
            "rolling", start_s, dark=False, sentence=f"instance by instance ({took}); somebody serves all the time"
        )
    leaving = {a.release for a in state.seat_attempts(state.live)}
    seconds = history.return_s(state, release.id, leaving, policy, asleep=False)
    sentence = f"live {_drains(state, leaving, policy)} and stops for it, requests wait meanwhile ({took})"
    return WayHome("swap", seconds, dark=True, sentence=sentence)


def _drains(state: State, leaving: Collection[str], policy: Policy) -> str:
    """``drains (about 4 s)``: streams in flight end before anybody leaves, and that may be the longest part."""
    measured = [s for name in leaving if (s := history.drain_s(state, name)) is not None]
    return f"drains (about {max(measured):.0f} s)" if measured else f"drains (up to {policy.swap_drain_s:.0f} s)"


def _by_waking(state: State, target: Seat, policy: Policy) -> WayHome:
    wake_s = history.wake_s(state, target.release)
    took = f"about {wake_s:.1f} s" if wake_s is not None else "its wake was never timed here"
    names, dark = who_leaves(state, target)
    leaving = {state.attempts[name].release for name in names}
    seconds = history.return_s(state, target.release, leaving, policy, asleep=True)
    if not names:
        cards = "its cards are free" if state.live is not None else "nothing is live"
        return WayHome("asleep", seconds, dark=state.live is None, sentence=f"it sleeps, {cards}: woken ({took})")
    meanwhile = "requests wait meanwhile" if dark else "instance by instance, somebody serves all the time"
    sentence = f"it sleeps: live {_drains(state, leaving, policy)}, makes room and it is woken ({took}), {meanwhile}"
    return WayHome("asleep", seconds, dark=dark, sentence=sentence)
