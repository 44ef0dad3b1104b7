"""Which cards: who holds them, which are free, and which instance could sit where. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from .policy import Policy
from .records import Attempt, Instance, Release, State
from .seen import Gpu

Places = dict[str, tuple[str, ...]]
"""Instance → GPU ids."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no plan, and what would help."""

    why: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.why}; {self.remedy}"


def holders(state: State) -> dict[str, Attempt]:
    """GPU id → the attempt that holds it; a sleeper holds none."""
    return {gpu: attempt for attempt in state.attempts.values() if attempt.holds_cards for gpu in attempt.gpus}


def usable(state: State, inventory: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Cards that NVML vouches for, that no stranger sits on and that are not closed."""
    return tuple(gpu for gpu in inventory if gpu.trusted and not gpu.foreign and gpu.id not in state.closed)


def told_apart_mib(gpu: Gpu, pids: Collection[int] = ()) -> int | None:
    """What a card has in use besides strangers and these processes, as far as NVML tells theirs; None: no memory.

    Below zero where more is told than is in use: the two were not true at one moment.
    """
    if gpu.memory_used_mib is None:
        return None
    told_mib = sum(process.memory_mib or 0 for process in gpu.processes or () if process.pid in pids)
    return gpu.memory_used_mib - (gpu.strangers_mib or 0) - told_mib


def is_back(gpu: Gpu | None, limit_mib: int) -> bool:
    """Whether what we had of a card is free again; of a card that cannot be read nobody knows it.

    A stranger's memory says nothing about ours: it is taken off. Where a stranger's is not told, that none of our
    processes is listed has to do; where nobody can tell whose they are, only free memory is.
    """
    if gpu is None or not gpu.trusted or (left_mib := told_apart_mib(gpu)) is None:
        return False
    return left_mib <= limit_mib or (gpu.strangers_mib is None and bool(gpu.foreign) and gpu.ours is False)


def shows(name: str, gpu: Gpu | None) -> str:
    """What a card has to say of its memory, in words."""
    if gpu is None:
        return f"{name} is not in the inventory"
    if not gpu.trusted:
        return f"{name} cannot be read{f' ({gpu.why})' if gpu.why else ''}"
    used = f"{name} shows {gpu.memory_used_mib} MiB in use"
    if gpu.ours is None:
        return f"{used}, and whose they are cannot be told from inside this container"
    return f"{used}, {gpu.strangers_mib} of them a stranger's" if gpu.strangers_mib else used


def oldest_capability(state: State, release: Release, inventory: tuple[Gpu, ...]) -> tuple[int, int] | None:
    """The lowest compute capability among the cards that the release may get; None where no card tells its own.

    Those that it names, and for a mere number of cards all that no human has cordoned: who is on them now may leave.
    """
    named = {name for instance in release.instances for name in instance.gpus or ()}
    any_card = any(instance.gpus is None and instance.gpu_count for instance in release.instances)
    cordoned = {gpu for gpu, closed in state.closed.items() if closed.by}
    told = (
        gpu.compute_capability
        for gpu in inventory
        if named & {gpu.id, str(gpu.index)} or (any_card and gpu.id not in cordoned)
    )
    return min((capability for capability in told if capability is not None), default=None)


def memory_note(needed_gib: float, gpu_map: Mapping[str, Collection[str]], inventory: tuple[Gpu, ...]) -> str:
    """What the planned cards have beside what a topology says that it needs on each of them, in a sentence.

    Their whole memory counts: whoever is on them leaves, or the plan is none.
    """
    planned = {gpu for gpus in gpu_map.values() for gpu in gpus}
    cards = [gpu for gpu in inventory if gpu.id in planned]
    needs = f"{needed_gib:g} GiB on each card (need.gpu_memory_gib)"
    silent = [str(gpu.index) for gpu in cards if gpu.memory_total_mib is None]
    if silent or not cards:
        tell = "tells" if len(silent) == 1 else "tell"
        why = f"GPU {', '.join(silent)} {tell} no memory" if silent else "it gets no card"
        return f"memory: it needs {needs}, which was not judged: {why}"
    totals = {str(gpu.index): (gpu.memory_total_mib or 0) / 1024 for gpu in cards}
    if small := [f"GPU {index} has {total:.1f}" for index, total in totals.items() if total < needed_gib]:
        return f"memory: it needs {needs}, and {', '.join(small)}: expect it not to load there"
    return f"memory: it needs {needs}, and the smallest of its cards has {min(totals.values()):.1f}"


def without_holder(state: State, inventory: tuple[Gpu, ...], leaving: Collection[str] = ()) -> tuple[Gpu, ...]:
    """Usable cards that no attempt holds; attempts in `leaving` count as gone because they are about to be."""
    held = {gpu for gpu, attempt in holders(state).items() if attempt.id not in leaving}
    return tuple(gpu for gpu in usable(state, inventory) if gpu.id not in held)


def unknown_cards(release: Release, inventory: tuple[Gpu, ...]) -> Refusal | None:
    """The first card that the release names and that this box does not have: no card that is freed helps it."""
    known = {name for gpu in inventory for name in (gpu.id, str(gpu.index))}
    for instance in release.instances:
        for name in instance.gpus or ():
            if name not in known:
                return _no_such_card(instance, name, inventory)
    return None


def _no_such_card(instance: Instance, name: str, inventory: tuple[Gpu, ...]) -> Refusal:
    has = ", ".join(str(gpu.index) for gpu in inventory)
    cards = f"{'GPU' if len(inventory) == 1 else 'GPUs'} {has}" if has else "no GPU"
    return Refusal(
        f"instance {instance.name} wants GPU {name}, which does not exist: this box has {cards}",
        f"name those that exist at instances.{instance.name}.gpus in the topology, or only how many it takes",
    )


def place(instances: Iterable[Instance], free: tuple[Gpu, ...], inventory: tuple[Gpu, ...]) -> Places | Refusal:
    """Cards for every instance: explicit ones as asked, then counts from what is left, close together, by index."""
    instances = tuple(instances)
    names = {gpu.id: gpu for gpu in inventory} | {str(gpu.index): gpu for gpu in inventory}
    left = {gpu.id: gpu for gpu in sorted(free, key=lambda gpu: gpu.index)}
    placed: Places = {}
    for instance in (i for i in instances if i.gpus is not None):
        wanted = instance.gpus or ()
        for name in wanted:
            if name not in names:
                return _no_such_card(instance, name, inventory)
            if names[name].id not in left:
                return Refusal(f"instance {instance.name} wants GPU {name}, which is not free", "see `cutover status`")
            del left[names[name].id]
        placed[instance.name] = tuple(names[name].id for name in wanted)
    for instance in (i for i in instances if i.gpus is None):
        if len(left) < instance.gpu_count:
            asked = sum(i.gpu_count for i in instances)
            return Refusal(f"{asked} GPUs are needed and {len(free)} of {len(inventory)} can be had", "free some")
        chosen = _close_together(left, instance.gpu_count)
        placed[instance.name] = tuple(chosen)
        for gpu in chosen:
            del left[gpu]
    return placed


def _close_together(left: dict[str, Gpu], count: int) -> tuple[str, ...]:
    """That many of the cards: those with most NVLinks among them, then those behind one switch, then the first."""

    def closeness(cards: tuple[Gpu, ...]) -> tuple[int, int]:
        pairs = list(combinations(cards, 2))
        return sum(b.id in a.nvlink for a, b in pairs), sum(b.id in a.switch for a, b in pairs)

    # `max` keeps the first of equals, and combinations come in index order.
    best = max(combinations(left.values(), count), key=closeness, default=())
    return tuple(gpu.id for gpu in best)


def place_some(instances: Iterable[Instance], free: tuple[Gpu, ...], inventory: tuple[Gpu, ...]) -> Places:
    """As many of the instances as fit, those with cards of their own choice first; possibly none."""
    placed: Places = {}
    left = free
    for instance in sorted(instances, key=lambda i: i.gpus is None):
        one = place((instance,), left, inventory)
        if isinstance(one, Refusal):
            continue
        placed |= one
        left = tuple(gpu for gpu in left if gpu.id not in one[instance.name])
    return placed


def no_places(
    state: State, release: Release, policy: Policy, leaving: frozenset[str] = frozenset(), *names: str
) -> Refusal | None:
    """Whether slots or blocks of ports run out for the named instances (default: all); cards are not looked at.

    `leaving`: attempts whose places count as free because they are about to be.
    """
    wanted = [i for i in release.instances if not names or i.name in names]
    held = [a for a in state.held if a.id not in leaving]
    blocks = (policy.port_last - policy.port_first + 1) // policy.port_block
    taken = sum(a.slot is not None for a in held)
    for what, key, needed, used, there_are in (
        ("places at the front door", "slots", sum(i.fronted for i in wanted), taken, policy.slots),
        ("blocks of ports", "instance_ports", len(wanted), len(held), blocks),
    ):
        if needed > there_are - used:
            return Refusal(
                f"{needed} {what} are needed and {max(0, there_are - used)} of {there_are} can be had",
                f"widen `{key}` in the configuration",
            )
    return None
