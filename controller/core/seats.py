"""Seats and their attempts: who carries a release, whether it is whole, and who has to leave. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from . import actions as act
from .actions import Decision
from .cards import told_apart_mib
from .frozen import replace
from .policy import Policy
from .records import Attempt, AttemptState, Kind, Phase, Rollout, Seat, State
from .remembered import remembered
from .seen import ProbeSeen, Seen
from .silence import is_computing
from .table import Event


def move(rollout: Rollout, event: Event, why: str) -> Decision:
    return Decision(act.Move(rollout.id, event), why)


def new_attempts(
    state: State, seen: Seen, policy: Policy, place: Seat, gpu_map: Mapping[str, tuple[str, ...]], *names: str
) -> tuple[Attempt, ...]:
    """Attempts for the named instances (default: all) of a seat, with ports and slots that nobody holds.

    Ports and slots go round: one that was just in use still has clients that remember it (sglang#22779).
    """
    release = state.releases[place.release]
    before, strangers = _in_use(seen)
    chosen = [i for i in release.instances if not names or i.name in names]
    used_ports, used_slots = {a.port for a in state.held}, {a.slot for a in state.held if a.slot is not None}
    ports = _round(policy.port_first, policy.port_last, policy.port_block, state.last_port, used_ports)
    slots = _round(1, policy.slots, 1, state.last_slot, used_slots)
    attempts: list[Attempt] = []
    for number, instance in enumerate(chosen, state.attempt_seq + 1):
        attempts.append(
            Attempt(
                id=f"{release.name}-{instance.name}-{number}",
                rollout=place.rollout,
                release=release.id,
                instance=instance.name,
                role=instance.role,
                gpus=tuple(gpu_map.get(instance.name, ())),
                port=next(ports),
                slot=next(slots) if instance.fronted else None,
                memory_before_mib={gpu: before[gpu] for gpu in gpu_map.get(instance.name, ()) if gpu in before},
                strangers_before_mib={
                    gpu: strangers[gpu] for gpu in gpu_map.get(instance.name, ()) if gpu in strangers
                },
            )
        )
    return _with_workers(state, place, tuple(attempts))


def _in_use(seen: Seen) -> tuple[dict[str, int], dict[str, int]]:
    """Card → memory that stays when everybody leaves whose share is told; card → what strangers have of it besides.

    Strangers and sleepers come and go. Were theirs counted, as much of the new attempt's could stay behind unnoticed.
    """
    ours = {pid for pids in seen.pids.values() for pid in pids}
    before: dict[str, int] = {}
    strangers: dict[str, int] = {}
    for gpu in seen.gpus:
        used_mib, stays_mib = gpu.memory_used_mib, told_apart_mib(gpu, ours)
        if used_mib is None or stays_mib is None:
            continue
        fits = stays_mib >= 0  # else who is told and what is in use belong to two moments: nobody is taken off
        before[gpu.id] = stays_mib if fits else used_mib
        if fits and gpu.strangers_mib:
            strangers[gpu.id] = gpu.strangers_mib
    return before, strangers


def _round(first: int, last: int, step: int, after: int, taken: set[int]) -> Iterator[int]:
    everything = range(first, last - step + 2, step)
    ordered = [n for n in everything if n > after] + [n for n in everything if n <= after]
    return iter([n for n in ordered if n not in taken])


def _with_workers(state: State, place: Seat, attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """A router learns the ports of the engines behind it that stay, in the order of the topology."""
    known = {a.instance: a.port for a in state.seat_attempts(place) if a.is_staying}
    known |= {a.instance: a.port for a in attempts}
    workers = tuple(
        known[i.name] for i in state.releases[place.release].instances if i.role != "router" and i.name in known
    )
    return tuple(replace(a, workers=workers) if a.role == "router" else a for a in attempts)


@remembered
def missing_instances(state: State, seat: Seat) -> Sequence[str]:
    """Instances of the seat that were begun and that no attempt carries, or whose attempt is on its way out."""
    carried = {a.instance for a in state.seat_attempts(seat) if a.is_staying}
    if len(carried) == len(state.releases[seat.release].instances):
        return []  # as a rule
    return [name for name in state.begun(seat) if name not in carried]


def all_ready(state: State, seat: Seat) -> bool:
    """Whether every instance that was begun is ready, and there is one."""
    ready = {a.instance for a in state.seat_attempts(seat) if a.state is AttemptState.READY}
    begun = state.begun(seat)
    return bool(begun) and all(name in ready for name in begun)


def is_fresh(probe: ProbeSeen | None, seen: Seen, fresh_s: float, since_s: float = 0.0) -> bool:
    """A probe that succeeded, recently, and began after `since_s`."""
    if probe is None or not probe.ok or probe.started_at_s < since_s:
        return False
    return seen.now.boot_s - probe.at_s <= fresh_s


def heard_since(state: State, seat: Seat, door: str, seen: Seen, fresh_s: float, since_s: float) -> bool:
    """Whether every attempt of the seat, and the seat through the front door, has generated since then."""
    names = (*(a.id for a in state.seat_attempts(seat)), door)
    return all(is_fresh(seen.probes.get(name), seen, fresh_s, since_s) for name in names)


def is_failed_bake(rollout: Rollout) -> bool:
    """What is live just now is what is being left, because it is worse: nothing of it is worth a start."""
    return rollout.phase is Phase.ROLLING_BACK and rollout.kind is not Kind.ROLLBACK


def is_recallable(attempt: Attempt) -> bool:
    """It drains in good health: it can take requests again at once."""
    drains = attempt.state is AttemptState.RETIRING and not attempt.hurry
    return drains and attempt.ready_at_s is not None and not attempt.lent  # who is stopped in its sleep has no cards


def ask_to_leave(rollout: Rollout, state: State, names: tuple[str, ...], seen: Seen, policy: Policy) -> Decision | None:
    """One of the named attempts makes room; what no longer answers has no streams worth waiting for."""
    for name in names:
        if state.attempts[name].is_staying:
            why = f"its cards are needed by {rollout.id} ({(rollout.target or rollout.seat).release})"
            probe = seen.probes.get(name)
            silent = probe is not None and not probe.ok and probe.streak >= policy.silent_probes
            hurry = silent and probe is not None and not is_computing(probe, seen.now.boot_s, policy.silent_s)
            return Decision(act.Retire(name, hurry=hurry, gives_way_to=rollout.id), why)
    return None
