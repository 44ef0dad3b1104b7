"""What `cutover doctor` looks at, one function each. They read; nothing is started, changed or signalled."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch import attempts, programs
from launch.attempts import Status
from launch.ports import is_bindable, outgoing_ports
from launch.routers.base import routers

from ..config import Config, Gpus
from ..effects.frontdoor.address import Address, check_free
from ..effects.frontdoor.binary import find_binary
from ..effects.frontdoor.door import DoorError, DoorSettings, FrontDoor
from ..effects.frontdoor.process import DoorProcess
from ..effects.gpus import Card, Sheet, open_inventory
from ..effects.gpus.judge import BY_MEMORY
from ..store import archive, condition
from ..store.ballast import is_spent

MIN_FREE_BYTES = 2 << 30  # a capped log takes a quarter of a GiB, and an evening starts several engines
_FRONT_DOOR = "front door"


@dataclass(frozen=True, slots=True)
class Check:
    """`ok` is None for a hint, and where it could not be looked at; the sentence says why."""

    name: str
    ok: bool | None
    sentence: str
    remedy: str = ""


Status_ = Mapping[str, Any]


def state_directory(config: Config, status: Status_ | None) -> Check:
    """Where a daemon answers it has its directory; that somebody else cannot look into it is as it should be."""
    found = _state_directory(config)
    if found.ok is False and found.remedy == _OWN_DIRECTORY and status is not None:
        return Check(found.name, None, f"not looked at: {config.state_dir} belongs to the daemon's user")
    return found


def _state_directory(config: Config) -> Check:
    directory = config.state_dir
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError:
        parent = next((p for p in directory.parents if p.exists()), directory.parent)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check("state directory", True, f"{directory} is not there yet; the daemon makes it")
        return Check(
            "state directory", False, f"{directory} is not there and {parent} cannot be written", _OWN_DIRECTORY
        )
    except OSError as error:
        return Check("state directory", False, f"{directory}: {error.strerror}", _OWN_DIRECTORY)
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return Check("state directory", False, f"{directory} cannot be written by this user", _OWN_DIRECTORY)
    if mode & stat.S_IWOTH:
        return Check("state directory", False, f"everybody may write {directory}", f"chmod 0750 {directory}")
    return Check("state directory", True, str(directory))


_OWN_DIRECTORY = "run this as the daemon's user, or set `state_dir` to a directory that you own"


def journal(config: Config) -> Check:
    found = condition.look(config.journal)
    if found.kind is condition.Kind.ABSENT:
        return Check("journal", True, "none yet")
    if found.kind is condition.Kind.UNREADABLE and found.remedy != condition.READ_ONLY:
        return Check("journal", None, f"not looked at: {found.sentence}")
    if not found.usable:
        return Check("journal", False, found.sentence, found.remedy)
    unwritable = condition.written_by_nobody(config.journal)
    if unwritable:
        return Check("journal", False, f"{found.sentence}, and {unwritable}", condition.READ_ONLY)
    return Check("journal", True, found.sentence)


def ledger(config: Config) -> Check:
    """What was measured: nothing that users see depends on it, and nothing measures it again."""
    try:
        size_bytes = config.ledger.stat().st_size
    except FileNotFoundError:
        return Check("ledger", True, "none yet")
    except OSError as error:
        return Check("ledger", None, f"not looked at: {config.ledger}: {error.strerror}")
    if not os.access(config.ledger, os.R_OK):
        return Check("ledger", None, f"not looked at: {config.ledger} belongs to another user")
    if damage := archive.damage_of(config.ledger):
        remedy = f"stop the daemon and `cutover restore` a backup, or `sqlite3 {config.ledger} .recover`"
        return Check("ledger", False, f"{config.ledger} is damaged ({damage}); traffic is not touched", remedy)
    return Check("ledger", True, f"{config.ledger} is sound, {size_bytes / (1 << 20):.1f} MiB")


def backup(config: Config, now_wall_s: float) -> Check:
    """A hint: a box may be backed up by other means."""
    try:
        if not config.journal.exists():
            return Check("backup", True, "nothing to back up yet")
    except OSError as error:
        return Check("backup", None, f"not looked at: {config.state_dir}: {error.strerror}")
    last = archive.last_backup(config.state_dir)
    if last is None:
        return Check("backup", None, "none was made yet", "`cutover backup FILE`, on another disk; best by cron")
    at_s, file = last
    days = (now_wall_s - at_s) / 86_400.0
    said = f"the last one was made {'today' if days < 1 else f'{days:.0f} days ago'}: {file}"
    old = days > OLD_BACKUP_DAYS
    return Check("backup", None if old else True, said, f"`cutover backup {file} --force`" if old else "")


OLD_BACKUP_DAYS = 30


def haproxy(config: Config) -> Check:
    try:
        return Check("HAProxy", True, str(find_binary(config.haproxy)))
    except DoorError as error:
        return Check("HAProxy", False, str(error))


def how_to_get(extra: str) -> str:
    """An extra of pyproject.toml, as README and docs have it: there is no package to be had by the project's name."""
    return (
        f"the extra `{extra}`: `{sys.prefix}/bin/pip install '.[{extra}]'` in the checkout that this was installed from"
    )


def router() -> Check:
    """smg, for topologies with a router of their own; the front door alone needs none."""
    kind = routers()["smg"]
    command = programs.resolve(kind.default_command, what="router smg", remedy="", required=False)
    if command.found:
        return Check("router", True, f"smg: {command.words[0]}")
    sentence = "smg is not installed: topologies with a `router` are refused; without one the front door balances"
    return Check("router", None, sentence, f"where a topology wants it, {how_to_get('router')}")


def never_started(config: Config) -> bool:
    """No daemon was ever here: no journal, no socket, and both could have been seen."""
    try:
        return not any(path.exists() for path in (config.journal, config.socket))
    except OSError:
        return False


def addresses(config: Config, status: Status_ | None) -> Iterator[Check]:
    """Public and preview address: ours, or to be had."""
    if status is not None:
        alive, pid = status["front_door"]["alive"], status["front_door"]["pid"]
    else:
        alive, pid = _door_without_daemon(config)
    for key, text in (("public", config.public), ("preview", config.preview)):
        if alive:
            yield Check(f"{key} address", True, f"{text}, served by our front door (pid {pid})")
            continue
        try:
            check_free(Address.parse(text, key))
        except DoorError as error:
            yield Check(f"{key} address", False, str(error))
        else:
            yield Check(f"{key} address", True, f"{text} is free")


def _door_without_daemon(config: Config) -> tuple[bool, int | None]:
    settings = DoorSettings(directory=config.door_dir, public=config.public, preview=config.preview)
    try:
        door = FrontDoor(settings).read()
    except PermissionError:  # another user's: its address is taken then, and that is told
        return False, None
    return door.alive, door.pid


def instance_ports(config: Config, taken: frozenset[int]) -> Check:
    """`taken`: first ports of attempts that run."""
    policy = config.policy
    block = policy.port_block
    starts = range(policy.port_first, policy.port_last - block + 2, block)
    others = [first for first in starts if first not in taken and not is_bindable(range(first, first + block))]
    free = len(starts) - len(taken & set(starts)) - len(others)
    text = f"{config.instance_ports}: {free} of {len(starts)} blocks of {block} are free"
    among = [f"`{key}` ({address})" for key, address in _own_addresses(config) if _port(address) in _range(config)]
    if among:
        remedy = "give it a port outside of that range, or move the range (`instance_ports`)"
        return Check("instance ports", False, f"{text}, and the own {' and '.join(among)} lies among them", remedy)
    if not free:
        return Check("instance ports", False, text, _OTHER_RANGE)
    if others:
        text += f"; in use or just left: {', '.join(str(first) for first in others[:4])}"
    outgoing, reserved = outgoing_ports()
    if (set(_range(config)) & set(outgoing)) - reserved:
        text += (
            f"; the kernel gives ports of {outgoing.start}-{outgoing.stop - 1} to outgoing connections "
            "(ip_local_port_range), so that one may be in use when an instance wants it"
        )
        return Check("instance ports", None, text, _NOT_THE_KERNELS)
    return Check("instance ports", True, text)


def _own_addresses(config: Config) -> Iterator[tuple[str, str]]:
    yield "public", config.public
    yield "preview", config.preview
    if config.own_way_in == config.inner:
        yield "inner", config.inner
    if config.api is not None:
        yield "api", config.api


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _range(config: Config) -> range:
    return range(config.policy.port_first, config.policy.port_last + 1)


_NOT_THE_KERNELS = (
    "set `instance_ports` outside of it, or reserve them: sysctl net.ipv4.ip_local_reserved_ports=FIRST-LAST"
)
_OTHER_RANGE = "set `instance_ports` to a range that nobody else uses"


def gpus(config: Config, status: Status_ | None, runs: Runs) -> Check:
    if status is not None and status["gpus"]:
        foreign = [text for gpu in status["gpus"] for text in gpu["foreign"]]
        distrusted = [f"{gpu['index']} ({gpu.get('why', '')})" for gpu in status["gpus"] if not gpu["trusted"]]
        return _gpus(f"{len(status['gpus'])} known to the daemon", foreign, distrusted)
    inventory = open_inventory(config.gpus)
    try:
        inventory.read({pid for pids in runs.running.values() for pid in pids}, runs.cards)
        sheet = inventory.sheet()
    finally:
        inventory.close()
    return gpus_without_daemon(config.gpus, sheet, runs)


def gpus_without_daemon(settings: Gpus, sheet: Sheet, runs: Runs) -> Check:
    """`sheet` is judged with what is known of our runs; a daemon would know more."""
    cards = sheet.cards
    if not cards and sheet.why and (sheet.source == "nvml" or settings.kind == "nvml"):
        return Check("GPUs", False, sheet.why, "install the driver, or declare `gpus: {kind: none, count: N}`")
    if not cards:
        return Check(
            "GPUs", True, "none: only engines on the CPU can run (`gpus: {kind: none, count: N}` declares some)"
        )
    text = f"{len(cards)} declared" if sheet.source == "declared" else f"{len(cards)}, driver {sheet.driver}"
    distrusted = [f"{card.index} ({card.why})" for card in cards if not card.trusted]
    untold = [f"GPU {card.index}: {_untold(card, runs)}" for card in cards if card.trusted and _untold(card, runs)]
    foreign = [sentence for card in cards if not _untold(card, runs) for sentence in card.foreign]
    if untold and not distrusted and not foreign:
        return Check("GPUs", None, f"{text}; {'; '.join(untold)}", "the daemon knows more: start it, or ask it")
    return _gpus(text, foreign, distrusted)


def _untold(card: Card, runs: Runs) -> str:
    """Why it cannot be told who is on a card, where that matters; empty where it can, or nobody is."""
    if card.ours is not None:
        return ""
    if card.id in runs.cards:
        return f"an attempt of ours has it; whether somebody else is on it too cannot be told ({BY_MEMORY})"
    if card.foreign and runs.hidden:
        return f"{card.foreign[0]}, and the run directories, which may be of ours, belong to another user"
    return ""


def _gpus(text: str, foreign: list[str], distrusted: list[str]) -> Check:
    if distrusted:
        remedy = "`nvidia-smi` says what the driver thinks"
        return Check("GPUs", False, f"{text}; not trusted: {', '.join(distrusted)}", remedy)
    if foreign:
        remedy = "a card with a stranger on it is not used; end that process if nobody needs it"
        return Check("GPUs", False, f"{text}; {'; '.join(foreign)}", remedy)
    return Check("GPUs", True, text)


_MODES = {
    "open": "is open",
    "hold": "holds requests for a moment",
    "refuse": "answers 503: nothing can serve",
}


def front_door(status: Status_ | None, config: Config) -> Check:
    """What a daemon says of it is among its alarms; without one nobody is left who would start it again."""
    if status is None:
        with contextlib.suppress(PermissionError):  # another user's
            if pids := DoorProcess(config.door_dir).without_shim():
                sentence = f"its shim is dead, and no daemon answers: when pid {pids[0]} dies, users are served no more"
                return Check(_FRONT_DOOR, False, sentence, "start the daemon: it starts the front door again then")
        return _not_asked(_FRONT_DOOR)
    door = status["front_door"]
    if door["alive"]:
        return Check(_FRONT_DOOR, True, f"{door['public']} {_MODES.get(door['mode'], door['mode'])}, pid {door['pid']}")
    return Check(_FRONT_DOOR, False, str(door["why"]), "the daemon opens it again every second; its log says more")


def live(status: Status_ | None) -> Check:
    if status is None:
        return _not_asked("live")
    seat = status["live"]
    if seat is None:
        return Check("live", True, "nothing is live")
    sick = [a for a in seat["attempts"] if not (a["probe"] and a["probe"]["ok"])]
    if not seat["attempts"]:
        return Check("live", False, f"{seat['release']} has no process", "`cutover restart`, or `cutover rollback`")
    if not sick:
        return Check("live", True, f"{seat['release']} generates: {', '.join(a['id'] for a in seat['attempts'])}")
    words = "; ".join(f"{a['id']} is {a['state'].replace('_', ' ')}: {_probe(a)}" for a in sick)
    return Check("live", False, words, f"`cutover logs {sick[0]['id']}`; `cutover rollback` if users suffer")


def _probe(attempt: Status_) -> str:
    probe = attempt["probe"]
    return f"{probe['layer']}, {probe['sentence']}" if probe else "no probe of it yet"


def alarms(status: Status_ | None) -> Check:
    if status is None:
        return _not_asked("alarms")
    raised = "; ".join(status["alarms"])
    return Check("alarms", not raised, raised or "none", "`cutover status`; the daemon's log" if raised else "")


def disk(config: Config) -> Check:
    place = next((p for p in (config.state_dir, *config.state_dir.parents) if p.exists()), Path("/"))
    free_bytes = shutil.disk_usage(place).free
    text = f"{free_bytes / (1 << 30):.1f} GiB free at {place}"
    if _is_ballast_spent(config):
        text += ": there is no ballast and no room for it, so nothing new is begun"
        return Check("disk", False, text, f"{_PRUNE}; the daemon makes the ballast again")
    if free_bytes < FULL_BYTES:
        return Check("disk", False, f"{text}: it is full; traffic is not touched", _PRUNE)
    enough = free_bytes >= MIN_FREE_BYTES
    return Check("disk", enough, text if enough else f"{text}: it is nearly full", "" if enough else _PRUNE)


FULL_BYTES = 1 << 20
_PRUNE = (
    "make room: `cutover prune --dry-run` says what of the past could go, `keep` in the configuration how much stays"
)


def _is_ballast_spent(config: Config) -> bool:
    try:
        return is_spent(config.state_dir, config.ballast_mib << 20)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Runs:
    """What runs below the state directory."""

    running: Mapping[str, tuple[int, ...]]  # attempt or gate run → pids
    strays: Mapping[str, tuple[int, ...]]
    ports: frozenset[int]  # first ports of the attempts among them
    cards: frozenset[str]  # those that the attempts among them were given
    hidden: bool  # some belong to another user and may not be looked into


def look_at_runs(config: Config) -> Runs:
    running: dict[str, tuple[int, ...]] = {}
    strays: dict[str, tuple[int, ...]] = {}
    ports: set[int] = set()
    cards: set[str] = set()
    hidden = False
    for parent in (config.runs_dir, config.gates_dir):
        for folder in folders(parent):
            try:
                seen = attempts.observe(folder)
            except PermissionError:
                hidden = True
                continue
            if seen.status is Status.RUNNING:
                running[folder.name] = seen.pids
            elif seen.pids:
                strays[folder.name] = seen.pids
            else:
                continue
            given = _given(folder)
            ports |= {int(port) for port in given.get("PORT", "").split() if port.isdecimal()}
            cards |= set(given.get("CUDA_VISIBLE_DEVICES", "").split(",")) - {""}
    return Runs(running, strays, frozenset(ports), frozenset(cards), hidden)


def _given(folder: Path) -> dict[str, str]:
    """What an attempt was given, from its environment file; gates have none."""
    try:
        lines = (folder / "attempt.env").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def folders(parent: Path) -> list[Path]:
    """Those below `parent`; `parent` itself where it may not be read, so that it counts as hidden."""
    try:
        return sorted(folder for folder in parent.iterdir() if folder.is_dir())
    except PermissionError:
        return [parent]
    except OSError:
        return []


def _not_asked(name: str) -> Check:
    return Check(name, None, "not looked at: no daemon answers")
