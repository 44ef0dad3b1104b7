"""Who makes room for a release, and how: the three strategies, cheapest for the users first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from .cards import Places, Refusal, holders, place, place_some, without_holder
from .records import Attempt, AttemptState, Release, Seat, State
from .seen import Gpu


class Strategy(StrEnum):
    """How a release gets its cards."""

    BLUE_GREEN = "blue-green"  # it fits beside live, which is not touched
    ROLLING = "rolling"  # some instances of live make room, the others keep serving
    SWAP = "swap"  # live makes room as a whole: nothing serves until the release is there, requests are held


CHEAPEST_FIRST = tuple(Strategy)


@dataclass(frozen=True, slots=True)
class Room:
    """Cards for every instance, and whose they are now."""

    strategy: Strategy
    gpu_map: Mapping[str, tuple[str, ...]]
    first: tuple[str, ...]  # instances that start before users are switched to them: all, but for rolling
    gives_way: tuple[str, ...]  # attempts that stop before the first instance starts
    later: tuple[str, ...] = ()  # rolling: attempts of live that stop after the switch, for the other instances


def find_room(
    state: State, release: Release, inventory: tuple[Gpu, ...], strategies: Collection[str]
) -> tuple[Room | Refusal, tuple[str, ...]]:
    """The first of the strategies that fits, and a sentence for each cheaper one that does not.

    The refusal, if there is one, is that of the last strategy tried: the one that can make most room.
    """
    why_not: list[str] = []
    room: Room | Refusal = Refusal("no strategy is allowed", "name one: " + ", ".join(CHEAPEST_FIRST))
    for strategy in CHEAPEST_FIRST:
        if strategy not in strategies:
            continue
        if why_not and not state.seat_attempts(state.live):
            continue  # nothing that serves could make room: what was said says more
        room = _FINDERS[strategy](state, release, inventory)
        if isinstance(room, Room):
            break
        why_not.append(f"{strategy} does not fit: {room.why}")
    return room, tuple(why_not)


def _blue_green(state: State, release: Release, inventory: tuple[Gpu, ...]) -> Room | Refusal:
    """On free cards; a warm previous gives way when its cards are needed."""
    placed = place(release.instances, without_holder(state, inventory), inventory)
    if isinstance(placed, Refusal):
        beside = {a.id for a in _others(state)}
        placed = place(release.instances, without_holder(state, inventory, beside), inventory)
    if isinstance(placed, Refusal):
        return placed
    return Room(Strategy.BLUE_GREEN, placed, _names(release), _yielding(state, placed))


def _rolling(state: State, release: Release, inventory: tuple[Gpu, ...]) -> Room | Refusal:
    """As few instances of live as can make room for one of the release's: none where that fits beside it.

    One that serves always stays.
    """
    live = state.seat_attempts(state.live)
    serving = sum(a.state is AttemptState.READY for a in live)
    if not serving:
        return Refusal("live has no instance that could keep serving", "swap")
    if any(a.slot is None for a in live) or not all(i.fronted for i in release.instances):
        return Refusal("a router stands before its instances, and it belongs to one release as a whole", "swap")
    if len(release.instances) < 2:
        return Refusal(f"{release.id} has one instance, which cannot come up in parts", "swap")
    everything = {a.id for a in (*live, *_others(state))}
    whole = place(release.instances, without_holder(state, inventory, everything), inventory)
    if isinstance(whole, Refusal):
        return whole  # whoever leaves first: thousands of ways need not be tried
    for leaving in _subsets(state, release, inventory, live):
        if room := _rolled(state, release, inventory, live, leaving):
            return room
    if serving < 2:
        return Refusal("live has no second instance that could keep serving", "swap")
    return Refusal("no instance fits on the cards that live could spare while it serves", "swap")


def _subsets(
    state: State, release: Release, inventory: tuple[Gpu, ...], live: tuple[Attempt, ...]
) -> Iterator[tuple[Attempt, ...]]:
    """Who could leave first, small ones first; what does not serve leaves before what does.

    Of sixteen instances there are 65,000 subsets: those that free too few cards for any instance are left out unlooked.
    """
    ordered = sorted(live, key=lambda a: a.state is AttemptState.READY)
    needed = min(i.gpu_count if i.gpus is None else len(i.gpus) for i in release.instances)
    needed -= len(without_holder(state, inventory, {a.id for a in _others(state)}))
    for count in range(len(live)):
        for leaving in combinations(ordered, count):
            if sum(len(a.gpus) for a in leaving) < needed:
                continue
            if any(a.state is AttemptState.READY and a not in leaving for a in live):
                yield leaving


def _rolled(
    state: State,
    release: Release,
    inventory: tuple[Gpu, ...],
    live: tuple[Attempt, ...],
    leaving: tuple[Attempt, ...],
) -> Room | None:
    gone = {a.id for a in (*_others(state), *leaving)}
    first = place_some(release.instances, without_holder(state, inventory, gone), inventory)
    if not first:
        return None
    taken = {gpu for gpus in first.values() for gpu in gpus}
    everything = without_holder(state, inventory, gone | {a.id for a in live})
    rest = place(
        (i for i in release.instances if i.name not in first),
        tuple(gpu for gpu in everything if gpu.id not in taken),
        inventory,
    )
    if isinstance(rest, Refusal):
        return None
    placed = first | rest
    others = tuple(a.id for a in live if a not in leaving)
    gives_way = tuple(dict.fromkeys((*_yielding(state, placed), *(a.id for a in leaving))))
    return Room(Strategy.ROLLING, placed, tuple(n for n in _names(release) if n in first), gives_way, others)


def _swap(state: State, release: Release, inventory: tuple[Gpu, ...]) -> Room | Refusal:
    """Everything that is ours makes room."""
    live = state.seat_attempts(state.live)
    if not live:
        return Refusal("nothing is live that could make room", "free a card")
    gone = {a.id for a in (*live, *_others(state))}
    placed = place(release.instances, without_holder(state, inventory, gone), inventory)
    if isinstance(placed, Refusal):
        return placed
    # The warm previous leaves first: its cards cost nobody a token.
    gives_way = tuple(dict.fromkeys((*_yielding(state, placed), *(a.id for a in live))))
    return Room(Strategy.SWAP, placed, _names(release), gives_way)


_FINDERS = {Strategy.BLUE_GREEN: _blue_green, Strategy.ROLLING: _rolling, Strategy.SWAP: _swap}


def _names(release: Release) -> tuple[str, ...]:
    return tuple(i.name for i in release.instances)


def _others(state: State) -> tuple[Attempt, ...]:
    """Attempts that are not live's: they serve nobody and give way first."""
    kept = {a.id for a in state.seat_attempts(state.live)}
    return tuple(a for a in state.held if a.id not in kept)


def _yielding(state: State, placed: Places) -> tuple[str, ...]:
    """Those others whose cards are taken, each with its whole seat: a release without one instance is no target."""
    held = holders(state)
    taken = {gpu for gpus in placed.values() for gpu in gpus}
    others = {a.id for a in _others(state)}
    seats = {Seat(held[g].release, held[g].rollout) for g in taken if g in held and held[g].id in others}
    return tuple(a.id for a in _others(state) if Seat(a.release, a.rollout) in seats)
