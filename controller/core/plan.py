"""The plan: which cards, in which way, how long dark, how long the way back. Pure; made before anything is touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass

from . import history
from .cards import Refusal, holders, no_places, unknown_cards
from .policy import Policy
from .records import Options, Release, State
from .room import CHEAPEST_FIRST, Room, Strategy, find_room
from .seen import Gpu

AUTO = "auto"
ANY = "any"
"""What somebody may ask for instead of one strategy: what the policy allows, or whatever fits."""


@dataclass(frozen=True, slots=True)
class Plan:
    release: str
    strategy: str  # blue-green | rolling | swap
    gpu_map: Mapping[str, tuple[str, ...]]  # instance → GPU ids
    first: tuple[str, ...]  # instances that start before the switch: all of them, but for rolling
    gives_way: tuple[str, ...]  # attempts that sleep or are stopped before the first instance starts
    later: tuple[str, ...]  # rolling: attempts of live that sleep or are stopped after the switch
    steps: tuple[str, ...]
    blackout_s: float | None  # how long nothing serves, expected; None: this box has not measured the parts yet
    rollback: str  # how one would return: running | asleep | cold | none
    rollback_s: float | None  # expected; None: this box has not measured it yet
    start_s: float | None  # expected, from this box's own history
    why_not: tuple[str, ...] = ()  # a sentence for each cheaper strategy that does not fit
    notes: tuple[str, ...] = ()
    rollback_dark: bool = False  # nothing serves on the way back either
    hold_s: float = 0.0  # that long a request waits in the dark of a swap; then it gets 503

    @property
    def digest(self) -> str:
        """Identifies the decision: expected times may change without making it another plan."""
        fixed = {
            "release": self.release,
            "strategy": self.strategy,
            "gpu_map": self.gpu_map,
            "first": self.first,
            "way": self.gives_way,
            "later": self.later,
        }
        text = json.dumps(fixed, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "gpu_map": {k: list(v) for k, v in self.gpu_map.items()}, "digest": self.digest}


def make_plan(
    state: State,
    release: Release,
    inventory: tuple[Gpu, ...],
    policy: Policy,
    *,
    options: Options | None = None,
    profile: tuple[object, ...] = (),
) -> Plan | Refusal:
    """The cheapest strategy that fits, of those that the policy allows or the one that somebody named.

    A warm previous gives way when its cards are needed. Refused when the box is too small, when names that live serves
    would be lost, or when only a strategy fits that was not asked for: the refusal names it and its price.
    """
    options = options or Options()
    if refusal := unknown_cards(release, inventory):
        return refusal
    needed = sum(len(i.gpus) if i.gpus is not None else i.gpu_count for i in release.instances)
    if needed > len(inventory):
        return Refusal(f"{release.id} needs {needed} GPUs and this box has {len(inventory)}", "propose a smaller one")
    if refusal := _names_refusal(state, release, force=options.force):
        return refusal
    allowed = _allowed(options.strategy, policy)
    room, why_not = find_room(state, release, inventory, allowed)
    if isinstance(room, Refusal):
        return _no_room(state, release, inventory, room, allowed)
    if refusal := no_places(state, release, policy, frozenset(room.gives_way), *room.first):
        return refusal
    if room.strategy is Strategy.SWAP and options.require_approval:
        return Refusal(
            "an approval would be waited for in the dark, because a swap stops live before the candidate starts",
            "look at `cutover plan` first, and propose without --require-approval",
        )
    return _plan(state, release, room, why_not, policy, profile)


def _allowed(strategy: str, policy: Policy) -> tuple[str, ...]:
    if strategy == AUTO:
        return policy.strategies
    return CHEAPEST_FIRST if strategy == ANY else (strategy,)


def _names_refusal(state: State, release: Release, *, force: bool) -> Refusal | None:
    if state.live is None or force:
        return None
    missing = sorted(set(state.releases[state.live.release].serves) - set(release.serves))
    if not missing:
        return None
    return Refusal(
        f"{release.id} does not serve {', '.join(missing)}, which live serves",
        "add the name to `serves`, or propose with --force to take it away from users",
    )


_AS_VERB = {
    Strategy.BLUE_GREEN: "start beside live",
    Strategy.ROLLING: "roll, instance by instance",
    Strategy.SWAP: "swap, in the place of live",
}


def _no_room(
    state: State, release: Release, inventory: tuple[Gpu, ...], refusal: Refusal, tried: Collection[str]
) -> Refusal:
    reasons = []
    held = holders(state)
    live = {a.id for a in state.seat_attempts(state.live)}
    used = [str(gpu.index) for gpu in inventory if gpu.id in held and held[gpu.id].id in live]
    if used:
        reasons.append(f"GPU {', '.join(used)} {'serves' if len(used) == 1 else 'serve'} users")
    reasons += [f"GPU {gpu.index}: {text}" for gpu in inventory for text in gpu.foreign]
    distrusted = [gpu for gpu in inventory if not gpu.trusted]
    reasons += [f"GPU {gpu.index} cannot be used: {gpu.why or 'NVML cannot tell'}" for gpu in distrusted]
    closed = [(gpu, state.closed[gpu.id]) for gpu in inventory if gpu.id in state.closed]
    reasons += [f"GPU {gpu.index} is {shut.word}: {shut.why}" for gpu, shut in closed]
    why = f"{refusal.why} ({'; '.join(reasons)})" if reasons else refusal.why
    others, _ = find_room(state, release, inventory, [s for s in CHEAPEST_FIRST if s not in tried])
    if isinstance(others, Refusal):
        opens = f" (`cutover uncordon {closed[0][0].index}` opens that one again)" if len(closed) == 1 else ""
        return Refusal(why, f"free a card{opens}, or propose a smaller topology")
    dark = (
        "nothing serves until it is proved" if others.strategy is Strategy.SWAP else "capacity sinks, never to nothing"
    )
    return Refusal(why, f"it could {_AS_VERB[others.strategy]} ({dark}): propose with --strategy {others.strategy}")


def _plan(
    state: State, release: Release, room: Room, why_not: tuple[str, ...], policy: Policy, profile: tuple[object, ...]
) -> Plan:
    live = state.live
    start_s = history.start_s(state, release.id, policy)
    notes = [f"needs the admin role: {flag}" for flag in release.needs_admin]
    if state.previous is not None and state.previous.release == release.id:
        notes.append(f"{release.id} is the release before live: `cutover rollback` returns to it, without its gates")
    dark = room.strategy is Strategy.SWAP
    if not dark and any(state.attempts[a].rollout != (live.rollout if live else "") for a in room.gives_way):
        sleeps = policy.sleep and all(state.releases[state.attempts[a].release].can_sleep for a in room.gives_way)
        way = "would have to wake it" if sleeps else "would be a cold start"
        notes.append(f"while this candidate is tried, a rollback to the release before live {way}")
    if room.strategy is Strategy.ROLLING:
        notes.append(_capacity(state, room))
    blackout_s = _blackout_s(state, release, room, start_s, profile) if dark else 0.0
    if warning := hold_warning(room.strategy, blackout_s, policy.hold_s):
        notes.append(warning)
    warm = live is not None and room.strategy is Strategy.BLUE_GREEN
    asleep = live is not None and not warm and policy.sleep and state.releases[live.release].can_sleep
    dark_back = dark and _is_dark_back(state, release, room)
    if dark_back:
        comes = "wakes" if asleep else "starts"
        notes.append(
            f"the way back is dark too: streams in flight end (up to {policy.swap_drain_s:.0f} s), "
            f"{release.id} makes room, then the release before {comes}"
        )
    return Plan(
        release=release.id,
        strategy=room.strategy.value,
        gpu_map=room.gpu_map,
        first=room.first,
        gives_way=room.gives_way,
        later=room.later,
        steps=tuple(_steps(state, release, room, policy)),
        blackout_s=blackout_s,
        rollback="none" if live is None else "running" if warm else "asleep" if asleep else "cold",
        rollback_s=None
        if live is None
        else 1.0
        if warm
        else history.return_s(state, live.release, (release.id,), policy, asleep=asleep),
        start_s=start_s,
        why_not=why_not,
        notes=tuple(notes),
        hold_s=policy.hold_s,
        rollback_dark=dark_back,
    )


def _is_dark_back(state: State, release: Release, room: Room) -> bool:
    """Whether the return from a swap leaves nobody serving: no instance of live fits where only some have to leave."""
    live = state.seat_attempts(state.live)
    if any(a.slot is None for a in live) or not all(i.fronted for i in release.instances):
        return True  # what stands behind a router leaves, and comes, as a whole
    ways = [sum(bool(set(gpus) & set(a.gpus)) for gpus in room.gpu_map.values()) for a in live]
    return all(way == len(release.instances) for way in ways)


def live_already(state: State, release: Release, *, force: bool) -> Refusal | None:
    """Why proposing what serves already is most likely a mistake; None where it is not live, or somebody insists."""
    if force or state.live is None or state.live.release != release.id:
        return None
    return Refusal(f"{release.id} is live already", "`cutover restart` gives it fresh processes")


def hold_warning(strategy: str, blackout_s: float | None, hold_s: float) -> str | None:
    """What users get in the dark of a swap that may outlast their patience; None where everybody is let in."""
    if strategy != Strategy.SWAP or (blackout_s is not None and blackout_s <= hold_s):
        return None
    dark = "how long this is dark was never measured here"
    if blackout_s is not None:
        dark = f"this is dark for about {blackout_s:.0f} s"
    return (
        f"requests wait at most {hold_s:g} s (hold_s), and {dark}: "
        "those that wait longer get 503; raise hold_s in the configuration"
    )


def _capacity(state: State, room: Room) -> str:
    live = [a for a in state.seat_attempts(state.live) if a.role != "router"]
    if not any(a.id in room.gives_way for a in live):
        serve = "serves" if len(room.first) == 1 else "serve"
        alone = f"{', '.join(room.first)} {serve} alone until the rest is up"
        return f"live is whole while the candidate is tried, then {alone}: it is never dark"
    staying = sum(a.id not in room.gives_way for a in live)
    return f"{staying} of {len(live)} instances serve while the candidate is tried: it is never dark"


def _sum_s(*parts: float | None) -> float | None:
    return None if any(part is None for part in parts) else round(sum(part for part in parts if part is not None), 1)


def _blackout_s(
    state: State, release: Release, room: Room, start_s: float | None, profile: tuple[object, ...]
) -> float | None:
    """Drain, stop, start and gates, as measured on this box; without a measured start and gates there is no figure."""
    leaving = {state.attempts[a].release for a in room.gives_way}
    # What never drained or stopped here counts as nothing: the start and the gates are the long parts.
    drained_s = max((history.drain_s(state, name) or 0.0 for name in leaving), default=0.0)
    left_s = max((history.leave_s(state, name) for name in leaving), default=0.0)
    return _sum_s(drained_s, left_s, start_s, history.gates_s(state, release.id, profile))


def _leave(state: State, names: Collection[str], policy: Policy) -> str:
    """``stop a-1, a-2``, or ``put a-1 to sleep``."""
    sleeps = policy.sleep and all(state.releases[state.attempts[name].release].can_sleep for name in names)
    return f"put {', '.join(names)} to sleep" if sleeps else f"stop {', '.join(names)}"


def _steps(state: State, release: Release, room: Room, policy: Policy) -> Iterator[str]:
    live = state.live
    serving = {a.id for a in state.seat_attempts(live)}
    warm = [a for a in room.gives_way if a not in serving]
    leaving = [a for a in room.gives_way if a in serving]
    if warm:
        yield f"{_leave(state, warm, policy)} (warm, not serving) to free the cards"
    if room.strategy is Strategy.SWAP:
        yield (
            f"hold new requests, let streams in flight end for up to {policy.swap_drain_s:.0f} s, "
            f"{_leave(state, leaving, policy)}"
        )
    elif leaving:
        keeps = "keeps" if len(room.later) == 1 else "keep"
        yield f"drain and {_leave(state, leaving, policy)}; {', '.join(room.later)} {keeps} serving"
    yield from _starts(release, room, room.first)
    yield "prove it through the preview address"
    if room.strategy is Strategy.ROLLING:
        yield f"switch new requests to {', '.join(room.first)}; drain and {_leave(state, room.later, policy)}"
        yield from _starts(release, room, [i.name for i in release.instances if i.name not in room.first])
    elif room.strategy is Strategy.SWAP:
        yield "let the held requests in, in order of arrival"
    else:
        yield "switch new requests to it; streams in flight finish where they are"
    kept = f" with {live.release} still warm" if live and room.strategy is Strategy.BLUE_GREEN else ""
    yield f"watch it bake for {policy.bake_s:.0f} s{kept}"


def _starts(release: Release, room: Room, names: Collection[str]) -> Iterator[str]:
    for instance in release.instances:
        if instance.name in names:
            gpus = ", ".join(room.gpu_map.get(instance.name, ())) or "no GPU"
            yield f"start {instance.name} ({instance.role}) on {gpus}"
