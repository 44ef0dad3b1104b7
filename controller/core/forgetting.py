"""What of the past leaves the journal, so that it and every pass stay as small as on the first day. Pure.

By age, and never what something may still need: what is open, live, previous or a way back; the last known good release
and what has been found against one since; what an open night or an undecided sweep refers to; and for each of the
releases that were tried last the rollouts in which it was last seen to start, to stop, to sleep and to pass its gates,
because plans are made of those figures (`core.history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import actions as act
from .frozen import replace
from .history import passed_all
from .night_records import NightState
from .records import Attempt, Kind, Now, Phase, Rollout, Seat, State
from .retention import kept_rollouts
from .table import IllegalMove
from .takeover import decides, marks

KEEP = act.KeepOfThePast(newest=50, measured=200, good=20)


def to_forget(state: State, ended_before_wall_s: float, keep: act.KeepOfThePast = KEEP) -> act.Forget:
    """Everything that has ended before that moment and that nobody needs."""
    sweeps = {
        s.id for s in state.sweeps.values() if s.decided_wall_s is None or s.decided_wall_s >= ended_before_wall_s
    }
    young = {r.id for r in state.rollouts.values() if r.ended_wall_s is None or r.ended_wall_s >= ended_before_wall_s}
    staying = young | set(list(state.rollouts)[::-1][: keep.newest])
    staying |= kept_rollouts(state) | {arm.rollout for name in sweeps for arm in state.sweeps[name].arms}
    staying |= {*_unfinished(state), *_compared(state), *_measured(state, keep.measured), *_good(state, keep.good)}
    staying = (staying | set(_against(staying & set(state.rollouts), state))) & set(state.rollouts)
    attempts = [a for a in state.attempts.values() if a.rollout in staying or a.rollout not in state.rollouts]
    nights = _nights(state, {state.rollouts[name].night for name in staying}, ended_before_wall_s)
    releases = _releases(state, [state.rollouts[name] for name in staying], attempts)
    releases |= {arm.release for name in sweeps for arm in state.sweeps[name].arms}
    return act.Forget(
        ended_before_wall_s,
        keep,
        _without(state.rollouts, staying),
        _without(state.attempts, {a.id for a in attempts}),
        _without(state.nights, nights),
        _without(state.sweeps, sweeps),
        _without(state.releases, releases),
    )


def forget(state: State, action: act.Forget, now: Now, why: str) -> State:  # noqa: ARG001
    """The state without them. Raises `IllegalMove` where somebody needs one of them by now."""
    if to_forget(state, action.ended_before_wall_s, action.keep) != action:
        raise IllegalMove("what nobody needs any more is not the same as a moment ago")
    return replace(
        state,
        rollouts={name: r for name, r in state.rollouts.items() if name not in set(action.rollouts)},
        attempts={name: a for name, a in state.attempts.items() if name not in set(action.attempts)},
        nights={name: n for name, n in state.nights.items() if name not in set(action.nights)},
        sweeps={name: s for name, s in state.sweeps.items() if name not in set(action.sweeps)},
        releases={name: r for name, r in state.releases.items() if name not in set(action.releases)},
    )


def words(action: act.Forget) -> str:
    """``2 rollouts, 3 attempts``; empty when there is nothing."""
    kinds = ((action.rollouts, "rollout"), (action.attempts, "attempt"), (action.nights, "night"))
    counted = [*kinds, (action.sweeps, "sweep"), (action.releases, "release")]
    return ", ".join(f"{len(names)} {noun}{'' if len(names) == 1 else 's'}" for names, noun in counted if names)


def _unfinished(state: State) -> Iterator[str]:
    """What something that has not ended names, beyond `kept_rollouts`."""
    for rollout in state.rollouts.values():
        if rollout.gate is not None or rollout.dark_since_s is not None:
            yield rollout.id
        if rollout.ended_wall_s is None:
            yield rollout.again_for
            planned = (*rollout.planned("gives_way"), *rollout.planned("later"))
            yield from (state.attempts[name].rollout for name in planned if name in state.attempts)
            yield from (seat.rollout for seat in (rollout.instead_of,) if seat is not None)
    for attempt in state.held:
        naps = (name for nap in attempt.naps for name in (nap.for_rollout, nap.woken_for))
        yield from (name for name in (attempt.rollout, attempt.gave_way_to, *naps) if name is not None)


def _compared(state: State) -> Iterator[str]:
    """Rollouts of an open night and of undecided sweeps, and those that measured live in the same nights."""
    nights = {night.id for night in state.nights.values() if night.state is NightState.OPEN}
    for sweep in state.sweeps.values():
        if sweep.decided_wall_s is None:
            yield from (arm.rollout for arm in sweep.arms)
            nights |= {state.rollouts[arm.rollout].night for arm in sweep.arms}
    yield from (rollout.id for rollout in state.rollouts.values() if rollout.night in nights - {""})
    yield from (night.baseline for night in state.nights.values() if night.id in nights)


def _measured(state: State, most: int) -> Iterator[str]:
    """Where each figure of `core.history`, and of a comparison with live, was measured last."""
    mine: dict[str, list[Attempt]] = {}
    for attempt in state.attempts.values():
        mine.setdefault(attempt.rollout, []).append(attempt)
    releases: set[str] = set()
    known: set[tuple[str, str]] = set()
    for rollout in reversed(tuple(state.rollouts.values())):
        if rollout.release not in releases and len(releases) == most:
            continue
        releases.add(rollout.release)
        shown = {(rollout.release, figure) for figure in _figures(rollout, mine.get(rollout.id, ()))}
        if shown - known:
            known |= shown
            yield rollout.id


def _figures(rollout: Rollout, attempts: Iterable[Attempt]) -> Iterator[str]:
    if rollout.kind is Kind.PROPOSE and Phase.GATING.value in rollout.times and passed_all(rollout):
        yield "gates"
    for result in rollout.gates:
        if result.verdict == "pass" and result.measurements:
            yield f"figures of {result.gate}"
    for attempt in attempts:
        if attempt.ready_at_s is not None and attempt.started_at_s is not None:
            yield f"start of {attempt.instance}"
        if attempt.stopped_at_s is not None and attempt.stopping_at_s is not None:
            yield "stop"
        if attempt.stopping_at_s is not None and attempt.retired_at_s is not None and not attempt.hurry:
            yield "drain"
        if any(nap.asleep_at_s is not None for nap in attempt.naps):
            yield "sleep"
        if any(nap.wake_s is not None for nap in attempt.naps):
            yield f"wake of {attempt.instance}"


def _good(state: State, most: int) -> Iterator[str]:
    """Who could take over, and by what the last take-over, or the decision after it, is known."""
    found_bad, good = marks(state), set[str]()
    bad = {state.live.release} if state.live else set()
    undecided = True
    for rollout in reversed(tuple(state.rollouts.values())):
        if undecided and (rollout.instead_of is not None or decides(rollout)):
            yield rollout.id
            undecided = not decides(rollout)
        bad |= found_bad.get(rollout.id, frozenset())
        if rollout.phase is Phase.PROMOTED and rollout.release not in bad | good and len(good) < most:
            good.add(rollout.release)
            yield rollout.id


def _against(staying: Iterable[str], state: State) -> Iterator[str]:
    """What was found against a release since it was promoted stays as long as its promotion does, or it were good."""
    promoted = {name for name in staying if state.rollouts[name].phase is Phase.PROMOTED}
    newest = {release: name for name, releases in _in_order(state) for release in releases}
    yield from (newest[r] for r in {state.rollouts[name].release for name in promoted} if r in newest)


def _in_order(state: State) -> Iterator[tuple[str, frozenset[str]]]:
    found = marks(state)
    return ((name, found[name]) for name in state.rollouts if name in found)


def _nights(state: State, named: set[str], ended_before_wall_s: float) -> set[str]:
    """Those that stay: a window's newest is how anybody knows that its nights of before do not come again."""
    newest = {n.window: n.id for n in sorted(state.nights.values(), key=lambda n: n.opens_wall_s)}
    young = {
        n.id
        for n in state.nights.values()
        if n.state is NightState.OPEN or n.ended_wall_s is None or n.ended_wall_s >= ended_before_wall_s
    }
    return young | set(newest.values()) | named


def _releases(state: State, rollouts: Iterable[Rollout], attempts: Iterable[Attempt]) -> set[str]:
    seats: list[Seat | None] = [state.live, state.previous]
    named = {attempt.release for attempt in attempts}
    for rollout in rollouts:
        named.add(rollout.release)
        seats += [*rollout.before, rollout.target, rollout.instead_of]
    return named | {seat.release for seat in seats if seat is not None}


def _without(names: Iterable[str], staying: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in staying)
