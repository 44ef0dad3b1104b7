"""Attempts as processes: start (find or do), look, stop. What an attempt is, `launch.attempts` knows."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from launch import attempts as launched
from launch.attempts import AttemptSpec, Identity, Status
from launch.engine_key import given_key, read_key
from launch.errors import LaunchError
from launch.ports import first_in_use, holder_of
from launch.release import Release as LaunchedRelease
from launch.release import load_release

from .. import wholefile
from ..core.actions import Outcome
from ..core.records import Attempt, Release, State
from ..core.seen import Life, ProcessSeen

_LIFE = {
    Status.ABSENT: Life.ABSENT,
    Status.RUNNING: Life.RUNNING,
    Status.EXITED: Life.EXITED,
    Status.STRAYS: Life.STRAYS,
}
OWNER = "owner.json"
_OWNED = ("rollout", "release", "instance", "role", "gpus", "port", "slot", "workers", "memory_before_mib")
HOST = "127.0.0.1"  # engines are reached through the front door only


class Processes:
    """Run directories lie under `runs/<attempt id>`; their layout is described in `docs/processes.md`."""

    def __init__(
        self,
        runs: Path,
        releases: Path,
        port_block: int,
        locks: Path,
        manager: Path | None = None,
        engine_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`locks`: directory of the lock files of cards, the same for every daemon on this box.

        `manager`: socket of a service manager that gives each attempt a unit of its own. `engine_key`: asked at every
        start, for the key that an engine has to want of its clients.
        """
        self._engine_key = engine_key
        self.locks = locks
        self.manager = manager
        self.runs = runs
        self.releases = releases
        self.port_block = port_block
        self._ended: dict[str, ProcessSeen] = {}  # nothing changes any more once a tree is proved empty
        self._homeless: frozenset[str] = frozenset()  # they run, and their directories say nothing of it

    def run_dir(self, attempt_id: str) -> Path:
        return self.runs / attempt_id

    def start(
        self, attempt: Attempt, release: Release, host_facts: Mapping[str, Any], peers: Collection[str] = ()
    ) -> Outcome:
        """Spawn the attempt's shim, or find the one that runs already. `peers`: the others of its release that run."""
        run_dir = self.run_dir(attempt.id)
        try:
            seen = launched.observe(run_dir)
            if seen.status is Status.ABSENT:
                block = range(attempt.port, attempt.port + self.port_block)
                taken = first_in_use(block)
                if taken is not None:
                    place = f"port {taken} of {block.start}-{block.stop - 1}"
                    return Outcome(False, f"{place} is in use: {holder_of(taken)}", port_conflict=True)
            frozen = load_release(self.releases, release.id)
            write_owner(run_dir, attempt)
            identity = launched.start(self._spec(attempt, release, frozen, self._key_beside(peers)))
            (run_dir / "host.json").write_text(json.dumps(host_facts, indent=2) + "\n")
        except (LaunchError, OSError, KeyError) as error:
            return Outcome(False, f"{attempt.id} could not be started: {error}")
        return Outcome(True, pid=identity.pid, start_ticks=identity.start_ticks)

    def _key_beside(self, peers: Collection[str]) -> str | None:
        """What its peers have, with or without: a router that has no key cannot ask a worker that wants one."""
        return next(filter(None, map(self.key_of, peers)), None) if peers else self._engine_key()

    def _spec(self, attempt: Attempt, release: Release, frozen: LaunchedRelease, key: str | None) -> AttemptSpec:
        run_dir = self.run_dir(attempt.id)
        return AttemptSpec(
            attempt_id=attempt.id,
            run_dir=run_dir,
            script=frozen.scripts[attempt.instance],
            environment={
                "HOST": HOST,
                "PORT": str(attempt.port),
                "CUDA_VISIBLE_DEVICES": ",".join(_visible(gpu) for gpu in attempt.gpus),
                "CUTOVER_ATTEMPT": attempt.id,
                "CUTOVER_RUN_DIR": str(run_dir),
                "CUTOVER_PORT_FIRST": str(attempt.port + 1),
                "CUTOVER_PORT_LAST": str(attempt.port + self.port_block - 1),
                "CUTOVER_WORKERS": " ".join(f"http://{HOST}:{port}" for port in attempt.workers),
                **given_key(frozen, attempt.instance, key),
            },
            grace_s=release.stop_grace_s,
            locks=tuple(self.locks / f"cutover-{gpu}.lock" for gpu in attempt.gpus if is_real(gpu)),
            manager=self.manager,
        )

    def key_of(self, attempt_id: str) -> str | None:
        """What the attempt's engine wants of its clients; None where it wants nothing."""
        return read_key(self.run_dir(attempt_id))

    def living_key(self) -> str | None:
        """The key that engines want which run now: a front door that is started anew has to bring it to them."""
        folders = sorted(self.runs.iterdir()) if self.runs.is_dir() else []
        keys = ((folder, read_key(folder)) for folder in folders if folder.is_dir())
        living = {Status.RUNNING, Status.STRAYS}
        return next((key for folder, key in keys if key and launched.observe(folder).status in living), None)

    def look(self, attempt: Attempt) -> tuple[ProcessSeen, tuple[int, ...]]:
        """What is left of the attempt, and the pids of all its processes."""
        if attempt.id in self._ended:
            return self._ended[attempt.id], ()
        run_dir = self.run_dir(attempt.id)
        seen = launched.observe(run_dir, _remembered(attempt))
        life = Life.ENDING if seen.status is Status.EXITED and seen.pids else _LIFE[seen.status]
        identity = seen.identity
        homeless = identity is not None and identity.run_dir is None and bool(seen.pids)
        self._homeless = self._homeless | {attempt.id} if homeless else self._homeless - {attempt.id}
        if attempt.pid is not None and identity is not None and identity.start_ticks != attempt.start_ticks:
            return ProcessSeen(Life.ABSENT, sentence="its run directory belongs to another start"), ()
        ended = life in {Life.EXITED, Life.ENDING, Life.STRAYS}
        looked = ProcessSeen(
            life=life,
            pid=identity.pid if identity else None,
            start_ticks=identity.start_ticks if identity else None,
            sentence=f"{_how_it_ended(seen)}{_last_words(run_dir)}" if ended else "",
            port_conflict=ended and launched.port_conflict(run_dir),
            log_tail=launched.log_tail(run_dir) if ended else "",
        )
        if life is Life.EXITED:
            self._ended[attempt.id] = looked
        return looked, seen.pids

    def alarms(self, held: Collection[str]) -> list[str]:
        """Whose run directory is gone, of those that somebody still asks about."""
        return [
            f"the run directory {self.run_dir(name)} of {name} is gone or says nothing of it; its processes live on "
            "and are watched, its log and its key are lost: `cutover restart` heals that"
            for name in sorted(self._homeless.intersection(held))
        ]

    def stop(self, attempt: Attempt) -> Outcome:
        try:
            launched.request_stop(self.run_dir(attempt.id), _remembered(attempt))
        except (LaunchError, OSError) as error:
            return Outcome(False, str(error))
        return Outcome(True)

    def clear(self, attempt: Attempt, *, force: bool) -> Outcome:
        try:
            pids = launched.kill_strays(self.run_dir(attempt.id), force=force, remembered=_remembered(attempt))
        except (LaunchError, OSError) as error:
            return Outcome(False, str(error))
        # Not `ok` while some are left: the loop takes a breath before it looks again.
        return Outcome(not pids, f"signalled {', '.join(map(str, pids))}" if pids else "")


def _remembered(attempt: Attempt) -> Identity | None:
    """Whom the journal knows as its shim, whatever has become of its directory."""
    if attempt.pid is None or attempt.start_ticks is None:
        return None
    return Identity(attempt.pid, attempt.start_ticks, attempt.boot_id, None)


def write_owner(run_dir: Path, attempt: Attempt) -> None:
    """Whose start this is, before there is a process: what a journal that is lost can be made of again."""
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    owned = {"version": 1, **{name: getattr(attempt, name) for name in _OWNED}}
    wholefile.put(run_dir / OWNER, json.dumps(owned, indent=2) + "\n")


def is_real(gpu: str) -> bool:
    """A card with a UUID; a declared one, `gpu-2`, is this daemon's alone and is not locked."""
    return not gpu.startswith("gpu-")


def _visible(gpu: str) -> str:
    """A declared card `gpu-2` is index 2 to CUDA; a real one goes by its UUID, which no reordering can change."""
    return gpu.removeprefix("gpu-")


def _last_words(run_dir: Path) -> str:
    """The last line of its log: nine times of ten it says why."""
    lines = [line.strip() for line in launched.log_tail(run_dir, 5).splitlines() if line.strip()]
    return f"; its log ends: {lines[-1][:200]}" if lines else ""


def _how_it_ended(seen: launched.ProcessSeen) -> str:
    if seen.status is Status.STRAYS:
        return f"its shim is dead and {len(seen.pids)} processes of it live on"
    if seen.signal is not None:
        return f"killed by signal {seen.signal} ({seen.reason})"
    if seen.exit_code is not None:
        return f"exited with code {seen.exit_code} ({seen.reason})"
    return seen.reason or "its process is gone"


def host_facts(state: State, gpus: Mapping[str, Any]) -> dict[str, Any]:
    """What the machine was when an attempt began; outside the release's digest."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "generation": state.generation,
        **gpus,
    }
