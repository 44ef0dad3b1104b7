"""Every animal in a run directory of its own, started and seen through the daemon's own doors; each of its processes
is held by a pidfd, so that whether it is gone is the kernel's word and not a scan's.

    python zoo_cage.py ROOT NAME:PORT…    starts these and stays: the daemon that is killed
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from zoo_animals import ANIMALS, Animal

from controller.catalogue import Catalogue
from controller.core.records import Attempt
from controller.effects.processes import Processes
from launch import shim
from launch.topology import parse

PATIENCE_S = float(os.environ.get("CUTOVER_ZOO_PATIENCE_S", "60"))
TESTS = Path(__file__).parent.parent


@dataclass
class Kept:
    """One animal that was started. `handles`: its processes when it was ready, by pid."""

    animal: Animal
    attempt: Attempt
    run_dir: Path
    shim_pid: int = 0
    handles: dict[int, int] = field(default_factory=dict)

    def alive(self) -> set[int]:
        """Of the processes that it had when it was ready; a zombie is not alive."""
        waiting = select.poll()
        for handle in self.handles.values():
            waiting.register(handle, select.POLLIN)
        ended = {handle for handle, _ in waiting.poll(0)}
        return {pid for pid, handle in self.handles.items() if handle not in ended}

    def is_ready(self) -> bool:
        return (
            len([path for path in self.run_dir.glob(self.animal.ready) if path.suffix != ".tmp"]) >= self.animal.files
        )

    def hold(self) -> bool:
        """Take a pidfd of each; whether as many as there should be live on a moment later."""
        for pid, ticks in shim.tree_below(self.shim_pid, shim.all_processes()).items():
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                stat = shim.stat_of(pid)
                if stat is not None and stat.start_ticks == ticks and pid not in self.handles:
                    self.handles[pid] = handle
                else:
                    os.close(handle)
        return len(self.alive()) >= self.animal.family

    def drop_the_dead(self) -> None:
        for pid in self.handles.keys() - self.alive():
            os.close(self.handles.pop(pid))

    def pid_of_victim(self) -> int:
        if self.animal.victim:
            return int((self.run_dir / self.animal.victim).read_text())
        return int(json.loads((self.run_dir / "shim.json").read_text())["child_pid"])

    def strike(self, pid: int, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self.handles[pid], number)


class Cage:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        script = root / "zoo.sh"
        lines = [f"  {animal.name}) {animal.command} ;;" for animal in ANIMALS]
        script.write_text("\n".join(["case ${CUTOVER_ATTEMPT%%-*} in", *lines, "esac", ""]))
        text = f"name: zoo\nserves: [m]\nengine: script\nscript: {script}\ninstances: {{a: {{gpus: 1}}}}\n"
        self.release = Catalogue(root / "releases").keep(parse(text, source="zoo.yaml"))
        self.kept: list[Kept] = []

    def keeper(self) -> Processes:
        """As a daemon that begins anew has it: it knows nothing."""
        return Processes(self.runs, self.root / "releases", 1, self.root)

    def start(self, animals: Sequence[tuple[Animal, int]], grace_s: float | None = None) -> None:
        keeper = self.keeper()

        def begin(kept: Kept) -> None:
            release = replace(self.release, stop_grace_s=kept.animal.grace_s if grace_s is None else grace_s)
            outcome = keeper.start(kept.attempt, release, {})
            assert outcome.ok, outcome.sentence
            self._note(kept, outcome.pid or 0, outcome.start_ticks or 0)

        self.kept += [self.place(animal, port) for animal, port in animals]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(begin, self.kept))

    def place(self, animal: Animal, port: int, number: int = 1) -> Kept:
        name = f"{animal.name}-a-{number}"
        attempt = Attempt(name, "r0001", self.release.id, "a", "engine", ("gpu-0",), port, 1)
        return Kept(animal, attempt, self.runs / name)

    def start_by_another(self, animals: Sequence[tuple[Animal, int]]) -> None:
        """Started by a process that is killed as soon as they are."""
        words = [f"{animal.name}:{port}" for animal, port in animals]
        search = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "zoo")))
        with subprocess.Popen(
            [sys.executable, __file__, str(self.root), *words],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": search},
        ) as daemon:
            assert daemon.stdout is not None
            told = json.loads(daemon.stdout.readline())
            daemon.kill()
        for animal, port in animals:
            self.kept.append(kept := self.place(animal, port))
            self._note(kept, *told[animal.name])

    @staticmethod
    def _note(kept: Kept, pid: int, start_ticks: int) -> None:
        kept.shim_pid = pid
        kept.attempt = replace(kept.attempt, pid=pid, start_ticks=start_ticks)

    def hold_all(self) -> None:
        """Until each is ready and its family complete."""
        waiting = list(self.kept)
        wait_until(lambda: not (remove_if(waiting, lambda kept: kept.is_ready() and kept.hold())), "ready: ", waiting)
        time.sleep(0.1)
        for kept in self.kept:
            kept.drop_the_dead()
            assert len(kept.alive()) >= kept.animal.family, f"{kept.animal.name} has {len(kept.alive())} processes"

    def leftovers(self, kept: Kept, strangers: Collection[int] = ()) -> set[int]:
        """Whoever lives in its directory, writes there, or was started with it in the environment."""
        mark, found = f"CUTOVER_RUN_DIR={kept.run_dir}\0".encode(), set()
        for pid in others():
            with contextlib.suppress(OSError):
                marked = mark in Path(f"/proc/{pid}/environ").read_bytes()
                if (marked or lives_in(pid, kept.run_dir)) and (stat := shim.stat_of(pid)) and stat.alive:
                    found.add(pid)
        return found - set(strangers)

    def end_all(self) -> None:
        keeper = self.keeper()
        for kept in self.kept:
            keeper.stop(kept.attempt)
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s and any(self.leftovers(kept) for kept in self.kept):
            for kept in self.kept:
                keeper.clear(kept.attempt, force=True)
                for pid in kept.alive():
                    kept.strike(pid, signal.SIGKILL)
            time.sleep(0.05)
        for kept in self.kept:
            for handle in kept.handles.values():
                os.close(handle)


def others() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())  # noqa: PTH208


def lives_in(pid: int, run_dir: Path) -> bool:
    for mark in ("cwd", "fd/1", "fd/2"):
        with contextlib.suppress(OSError):
            place = os.readlink(f"/proc/{pid}/{mark}")  # noqa: PTH115 - thousands of times
            if place.removesuffix(" (deleted)") == str(run_dir) or place.startswith(f"{run_dir}/"):
                return True
    return False


def remove_if(waiting: list[Kept], done: Callable[[Kept], bool]) -> list[Kept]:
    """Take those out that are done, and return the rest."""
    waiting[:] = [kept for kept in waiting if not done(kept)]
    return waiting


def wait_until(done: Callable[[], bool], what: str, waiting: Sequence[Kept] = ()) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not done():
        names = ", ".join(kept.animal.name for kept in waiting)
        assert time.monotonic() < until_s, f"not within {PATIENCE_S:.0f} s {what}{names}"
        time.sleep(0.03)


def main(root: Path, words: Sequence[str]) -> None:
    by_name = {animal.name: animal for animal in ANIMALS}
    cage = Cage(root)
    cage.start([(by_name[name], int(port)) for name, _, port in (word.partition(":") for word in words)])
    print(
        json.dumps({kept.animal.name: (kept.attempt.pid, kept.attempt.start_ticks) for kept in cage.kept}), flush=True
    )
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
