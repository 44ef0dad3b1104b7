"""The plan: which cards, in which way, how long dark, how long the way back. Pure; made before anything is touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .policy import Policy
from .records import Attempt, Instance, Release, Seat, State
from .seen import Gpu


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no plan, and what would help."""

    why: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.why}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Plan:
    release: str
    strategy: str  # blue-green
    gpu_map: Mapping[str, tuple[str, ...]]  # instance → GPU ids
    gives_way: tuple[str, ...]  # attempts of the warm previous that are stopped first
    steps: tuple[str, ...]
    blackout_s: float
    rollback: str  # how one would return: running | cold | none
    rollback_s: float | None  # expected; None: this box has not measured it yet
    start_s: float | None  # expected, from this box's own history
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Identifies the decision: expected times may change without making it another plan."""
        fixed = {"release": self.release, "strategy": self.strategy, "gpu_map": self.gpu_map, "way": self.gives_way}
        text = json.dumps(fixed, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "gpu_map": {k: list(v) for k, v in self.gpu_map.items()}, "digest": self.digest}


def start_history_s(state: State, release: str) -> float | None:
    """Seconds from the first process to the last instance ready, as last measured for this release."""
    by_rollout: dict[str, list[Attempt]] = {}
    for attempt in state.attempts.values():
        if attempt.release == release and attempt.ready_at_s is not None and attempt.started_at_s is not None:
            by_rollout.setdefault(attempt.rollout, []).append(attempt)
    if not by_rollout:
        return None
    last = list(by_rollout.values())[-1]
    ready_s = max(a.ready_at_s for a in last if a.ready_at_s is not None)
    return round(ready_s - min(a.started_at_s for a in last if a.started_at_s is not None), 1)


def holders(state: State) -> dict[str, Attempt]:
    """GPU id → the attempt that holds it."""
    return {gpu: attempt for attempt in state.attempts.values() if attempt.holds for gpu in attempt.gpus}


def place(
    instances: tuple[Instance, ...], free: tuple[Gpu, ...], inventory: tuple[Gpu, ...]
) -> dict[str, tuple[str, ...]] | Refusal:
    """Cards for every instance: explicit ones as asked, then counts from what is left, in index order."""
    names = {gpu.id: gpu for gpu in inventory} | {str(gpu.index): gpu for gpu in inventory}
    left = {gpu.id: gpu for gpu in sorted(free, key=lambda gpu: gpu.index)}
    placed: dict[str, tuple[str, ...]] = {}
    for instance in (i for i in instances if i.gpus is not None):
        wanted = instance.gpus or ()
        for name in wanted:
            if name not in names:
                known = ", ".join(str(gpu.index) for gpu in inventory)
                return Refusal(
                    f"instance {instance.name} wants GPU {name}, which does not exist", f"this box has {known}"
                )
            if names[name].id not in left:
                return Refusal(f"instance {instance.name} wants GPU {name}, which is not free", "see `cutover status`")
            del left[names[name].id]
        placed[instance.name] = tuple(names[name].id for name in wanted)
    for instance in (i for i in instances if i.gpus is None):
        if len(left) < instance.gpu_count:
            asked = sum(i.gpu_count for i in instances)
            return Refusal(f"{asked} GPUs are needed and {len(free)} of {len(inventory)} can be had", "free some")
        chosen = list(left)[: instance.gpu_count]
        placed[instance.name] = tuple(chosen)
        for gpu in chosen:
            del left[gpu]
    return placed


def no_places(
    state: State, release: Release, policy: Policy, leaving: frozenset[str] = frozenset(), *names: str
) -> Refusal | None:
    """Whether slots or blocks of ports run out for the named instances (default: all); cards are not looked at.

    `leaving`: attempts whose places count as free because they are about to be.
    """
    wanted = [i for i in release.instances if not names or i.name in names]
    held = [a for a in state.attempts.values() if a.holds and a.id not in leaving]
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


def make_plan(
    state: State, release: Release, inventory: tuple[Gpu, ...], policy: Policy, *, force: bool = False
) -> Plan | Refusal:
    """Blue-green: the candidate comes up on free cards while live is untouched.

    A warm previous gives way when its cards are needed. When that is not enough the proposal is refused: making live
    give way (`rolling`, `swap`) is not something this version does.
    """
    needed = sum(len(i.gpus) if i.gpus is not None else i.gpu_count for i in release.instances)
    if needed > len(inventory):
        return Refusal(f"{release.id} needs {needed} GPUs and this box has {len(inventory)}", "propose a smaller one")
    if refusal := _names_refusal(state, release, force=force):
        return refusal
    held = holders(state)
    usable = tuple(gpu for gpu in inventory if gpu.trusted and not gpu.foreign)
    free = tuple(gpu for gpu in usable if gpu.id not in held)
    placed = place(release.instances, free, inventory)
    gives_way: tuple[str, ...] = ()
    if isinstance(placed, Refusal):
        kept = {a.id for a in state.seat_attempts(state.live)}
        yielding = {gpu: attempt for gpu, attempt in held.items() if attempt.id not in kept}
        wider = tuple(gpu for gpu in usable if gpu.id not in held or gpu.id in yielding)
        placed = place(release.instances, wider, inventory)
        if isinstance(placed, Refusal):
            return _no_room(placed, inventory, held, state)
        taken = {gpu for gpus in placed.values() for gpu in gpus}
        gives_way = _whole_seats(state, tuple(a for gpu, a in yielding.items() if gpu in taken))
    if refusal := no_places(state, release, policy, frozenset(gives_way)):
        return refusal
    return _blue_green(state, release, placed, gives_way, policy)


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


def _no_room(refusal: Refusal, inventory: tuple[Gpu, ...], held: Mapping[str, Attempt], state: State) -> Refusal:
    reasons = []
    live = {a.id for a in state.seat_attempts(state.live)}
    used = [str(gpu.index) for gpu in inventory if gpu.id in held and held[gpu.id].id in live]
    if used:
        reasons.append(f"GPU {', '.join(used)} serve users")
    reasons += [f"GPU {gpu.index}: {text}" for gpu in inventory for text in gpu.foreign]
    reasons += [f"GPU {gpu.index} cannot be trusted" for gpu in inventory if not gpu.trusted]
    remedy = (
        "free a card, or propose a topology that fits beside live: making live give way "
        "(rolling, swap) is not available in this version"
    )
    return Refusal(f"{refusal.why} ({'; '.join(reasons)})" if reasons else refusal.why, remedy)


def _whole_seats(state: State, attempts: tuple[Attempt, ...]) -> tuple[str, ...]:
    """A release that loses one instance is no rollback target: all its attempts give way together."""
    seats = {Seat(a.release, a.rollout) for a in attempts}
    return tuple(a.id for a in state.attempts.values() if a.holds and Seat(a.release, a.rollout) in seats)


def _blue_green(
    state: State,
    release: Release,
    placed: Mapping[str, tuple[str, ...]],
    gives_way: tuple[str, ...],
    policy: Policy,
) -> Plan:
    live = state.live
    steps: list[str] = []
    if gives_way:
        steps.append(f"stop {', '.join(gives_way)} (warm, not serving) to free the cards")
    for instance in release.instances:
        gpus = ", ".join(placed.get(instance.name, ())) or "no GPU"
        steps.append(f"start {instance.name} ({instance.role}) on {gpus}")
    steps += [
        "prove it through the preview address",
        "switch new requests to it; streams in flight finish where they are",
    ]
    steps.append(f"watch it bake for {policy.bake_s:.0f} s" + (f" with {live.release} still warm" if live else ""))
    notes = tuple(f"needs the admin role: {flag}" for flag in release.needs_admin)
    if gives_way:
        notes = (*notes, "while this candidate is tried, a rollback to the release before live would be a cold start")
    return Plan(
        release=release.id,
        strategy="blue-green",
        gpu_map=placed,
        gives_way=gives_way,
        steps=tuple(steps),
        blackout_s=0.0,
        rollback="running" if live else "none",
        rollback_s=1.0 if live else None,
        start_s=start_history_s(state, release.id),
        notes=notes,
    )


def place_again(
    state: State, release: Release, inventory: tuple[Gpu, ...], leaving: frozenset[str] = frozenset()
) -> dict[str, tuple[str, ...]] | Refusal:
    """Cards for a cold rollback: only free ones; what serves now is not touched before the old release is back.

    `leaving`: attempts whose cards count as free because they are about to be.
    """
    held = {gpu: attempt for gpu, attempt in holders(state).items() if attempt.id not in leaving}
    free = tuple(gpu for gpu in inventory if gpu.trusted and not gpu.foreign and gpu.id not in held)
    return place(release.instances, free, inventory)
