"""`cutover doctor --rebuild`: a new journal of what runs, where the old one is lost or damaged."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch import attempts as launched
from launch.attempt_record import read_start
from launch.attempts import Status
from launch.errors import LaunchError

from ..catalogue import Catalogue, record_of
from ..core.rebuilt import BY, UNKNOWN, Found, rebuild
from ..core.records import State
from ..core.route import SlotState
from ..effects.clock import Clock
from ..effects.frontdoor.committed import committed_route
from ..effects.frontdoor.door import DoorSettings, FrontDoor
from ..effects.processes import OWNER
from ..effects.sleeper import sleeps
from ..errors import RefusedError
from ..store.condition import Kind, look
from ..store.copies import remake
from ..store.database import StateDirectoryLock, StoreError
from .backup import as_owner, numbers_below
from .checks import folders

if TYPE_CHECKING:
    from ..config import Config

Route = Mapping[str, tuple[int, SlotState]]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`strangers`: sentences about run directories with living processes that nothing could be made of."""

    state: State
    old: Path | None
    strangers: tuple[str, ...]


def rebuild_journal(config: Config) -> Rebuilt:
    """Make the new journal and put it in the old one's place, which is kept beside it. No process is touched.

    Raises `RefusedError` while a daemon runs and where the journal is sound, or of a newer version; `StoreError` where
    what serves users cannot be made out.
    """
    as_owner(config)
    lock = StateDirectoryLock(config.state_dir)
    try:
        was = look(config.journal)
        if was.usable:
            raise RefusedError(
                f"{was.sentence}: there is nothing to rebuild; move it away to have a new one all the same"
            )
        if was.kind in {Kind.NEWER, Kind.UNREADABLE}:
            raise RefusedError(f"{was.sentence}; {was.remedy}")
        route = _route(config)
        strangers: list[str] = []
        found = _agreeing(_found(config, route, strangers), strangers)
        _refuse_headless(route, found, strangers)
        highest = numbers_below(config)
        state = rebuild(found, Clock().now(), highest.rollouts, highest.attempts)
        why = f"made of {len(found)} run directories and the front door's route by `{BY}`: {was.sentence}"
        return Rebuilt(state, remake(config.journal, state, why, Clock().now()), tuple(strangers))
    finally:
        lock.release()


def _refuse_headless(route: Route, found: tuple[Found, ...], strangers: list[str]) -> None:
    serving = [name for name, (_, state) in route.items() if state is SlotState.READY]
    if serving and not any(f.serves for f in found):
        words = "; ".join(strangers) or "it has no run directory"
        raise StoreError(
            f"the front door sends users to {', '.join(serving)}, of which nothing is known ({words}): a journal "
            "without it would take it away from them; nothing was changed"
        )


def _route(config: Config) -> Route:
    """What the front door does, and where it does not answer, what it was told last."""
    committed = committed_route(config.door_dir)
    settings = DoorSettings(directory=config.door_dir, public=config.public, preview=config.preview)
    door = FrontDoor(settings).read()
    if not door.alive:
        return committed
    alive = [folder for folder in folders(config.runs_dir) if _lives(folder) and not folder.is_symlink()]
    alive.sort(key=lambda folder: launched.observe(folder).status is Status.RUNNING)  # a copy has no shim
    named = {_port(_facts(folder)): folder.name for folder in alive}
    seen = {named[slot.port]: (slot.number, slot.state) for slot in door.public if slot.port in named}
    return seen or committed


def _lives(folder: Path) -> bool:
    return launched.observe(folder).status in {Status.RUNNING, Status.STRAYS}


def _found(config: Config, route: Route, strangers: list[str]) -> Iterator[Found]:
    for folder in folders(config.runs_dir):
        lives = _lives(folder)
        if not lives and folder.name not in route:
            continue
        try:
            yield _read(config, folder, route, lives=lives)
        except (LaunchError, OSError, ValueError, LookupError, StopIteration) as error:
            strangers.append(f"{folder.name}: {str(error) or type(error).__name__}")


def _agreeing(found: Iterable[Found], strangers: list[str]) -> tuple[Found, ...]:
    """Without those that claim a port, or a place at the front door, of another: users' own first, then the newest.

    A run directory may be a copy, or its record an old one. Whoever is left out is left alone and named. Whoever has
    only its cards in common with another is its own start: it counts as a sleeper, which the next daemon stops.
    """
    taken: dict[tuple[str, int], str] = {}
    cards: set[str] = set()
    agreeing = []
    for one in sorted(found, key=lambda f: (f.serves, f.drains, f.running, f.start_ticks), reverse=True):
        claims = [(what, number) for what, number in (("port", one.port), ("slot", one.slot)) if number]
        if rivals := [
            f"the {what} {number} of {taken[what, number]}" for what, number in claims if (what, number) in taken
        ]:
            strangers.append(f"{one.id}: it claims {' and '.join(rivals)}")
            continue
        taken.update(dict.fromkeys(claims, one.id))
        agreeing.append(replace(one, sleeps=one.sleeps or not cards.isdisjoint(one.gpus)))
        if not one.sleeps:
            cards.update(one.gpus)
    return tuple(agreeing)


def _read(config: Config, folder: Path, route: Route, *, lives: bool) -> Found:
    if folder.is_symlink():
        raise ValueError("it is a link to another directory")
    started = read_start(folder)
    if started is None or started.identity is None:
        raise ValueError(f"{folder}/shim.json does not say which process it is")
    facts, owner = _facts(folder), _owner(folder)
    catalogue = Catalogue(config.releases_dir)
    release_id, instance = (str(owner["release"]), str(owner["instance"])) if owner else _by_script(catalogue, folder)
    release = record_of(catalogue.find(release_id))
    release.instance(instance)  # or it is somebody else's record
    slot, slot_state = route.get(folder.name, (owner.get("slot"), SlotState.MAINT))
    serves, port = slot_state is SlotState.READY, _port(facts)
    pids = launched.observe(folder).pids
    asleep = lives and not serves and sleeps(config.releases_dir, release_id, instance, folder, port, pids)
    return Found(
        id=folder.name,
        release=release,
        instance=instance,
        rollout=str(owner.get("rollout", UNKNOWN)),
        port=port,
        pid=started.identity.pid,
        start_ticks=started.identity.start_ticks,
        boot_id=started.identity.boot_id,
        slot=slot,
        gpus=tuple(owner["gpus"]) if owner else _cards(facts),
        workers=tuple(int(url.rpartition(":")[2]) for url in facts.get("CUTOVER_WORKERS", "").split()),
        memory_before_mib=owner.get("memory_before_mib", {}),
        running=lives,
        serves=serves,
        drains=slot_state is SlotState.DRAIN,
        sleeps=asleep,
    )


def _owner(folder: Path) -> dict[str, Any]:
    """Empty for a start of a version that did not write it, and for what no daemon has written."""
    document: Any = None
    with contextlib.suppress(OSError, ValueError):
        document = json.loads((folder / OWNER).read_bytes())
    match document:
        case {
            "rollout": str(),
            "release": str(),
            "instance": str(),
            "gpus": list() as gpus,
            "slot": int() | None,
            "memory_before_mib": dict() as memory,
        } if all(isinstance(gpu, str) for gpu in gpus) and all(isinstance(mib, int) for mib in memory.values()):
            return dict(document)
    return {}


def _by_script(catalogue: Catalogue, folder: Path) -> tuple[str, str]:
    """The release, and the instance, whose script this attempt runs; of several the one that was frozen last."""
    script = (folder / "launch.sh").read_text(encoding="utf-8")
    ids = sorted(catalogue.ids(), key=lambda name: (catalogue.directory / name).stat().st_mtime, reverse=True)
    for release_id in ids:
        frozen = catalogue.find(release_id)
        for instance, text in frozen.scripts.items():
            if text == script and folder.name.startswith(f"{frozen.name}-{instance}-"):
                return release_id, instance
    raise ValueError(f"no release in {catalogue.directory} has its script")


def _facts(folder: Path) -> dict[str, str]:
    try:
        words = shlex.split((folder / "attempt.env").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(word.partition("=")[::2] for word in words)


def _port(facts: Mapping[str, str]) -> int:
    port = facts.get("PORT", "")
    return int(port) if port.isdecimal() else 0


def _cards(facts: Mapping[str, str]) -> tuple[str, ...]:
    """A declared card is its index to CUDA."""
    names = [name for name in facts.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return tuple(f"gpu-{name}" if name.isdecimal() else name for name in names)


def document(done: Rebuilt) -> dict[str, Any]:
    state = done.state
    wanted = {seat for seat in (state.live, state.previous) if seat is not None}
    kept = [a.id for seat in wanted for a in state.seat_attempts(seat)]
    return {
        "schema": 1,
        "live": state.live.release if state.live else None,
        "previous": state.previous.release if state.previous else None,
        "kept": sorted(kept),
        "stopped_by_the_next_daemon": sorted(a for a in state.attempts if a not in kept),
        "unknown": list(done.strangers),
        "old": str(done.old) if done.old else None,
    }


def words(told: Mapping[str, Any]) -> Iterator[str]:
    kept = f" ({', '.join(told['kept'])})" if told["kept"] else ""
    yield f"a new journal: live is {told['live'] or 'nothing'}, previous is {told['previous'] or 'nothing'}{kept}"
    if told["stopped_by_the_next_daemon"]:
        names = ", ".join(told["stopped_by_the_next_daemon"])
        yield f"the next daemon stops {names}: asleep, on cards of another, or neither live nor previous"
    for sentence in told["unknown"]:
        yield f"left alone, and known to nobody: {sentence}"
    yield "lost with the old one: history, cordons (`cutover cordon` again), a freeze, waiting rollouts"
    if told["old"]:
        yield f"the old one is kept as {told['old']}"
