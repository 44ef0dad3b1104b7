"""The front door as the loop sees it: make sure it runs, tell it the route, ask what it does."""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import TYPE_CHECKING

from launch.identity import this_boot

from ...core.route import DoorSeen
from .accesslog import Follower
from .address import check_free
from .binary import find_binary
from .changes import changes
from .config import (
    ENGINE_MAP,
    committed_files,
    engine_key_file,
    engine_key_in,
    first_files,
    fixed_files,
    is_state,
    text_of,
    with_defaults,
    write_if_different,
)
from .errors import DoorError, DoorSettingsError
from .guard import Guard
from .process import DoorProcess, started_at_s
from .runtime import RuntimeSocket
from .settings import DoorSettings
from .snapshot import BACKENDS, Snapshot, take_snapshot
from .spare_names import keep_names
from .traffic import TrafficCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...core.route import Route, Traffic

__all__ = ["DoorError", "DoorSettings", "FrontDoor"]

_START_TIMEOUT_S = 10.0
_CHECK_TIMEOUT_S = 10.0


class FrontDoor:
    """One HAProxy with a public and a preview address. Synchronous; nothing here waits longer than
    ``settings.runtime_timeout_s`` for a door that hangs, except :meth:`ensure` while it starts one, and :meth:`stop`.

    Every failure is a :class:`DoorError`. Not safe for use from two threads at a time: the loop is the only caller.
    """

    def __init__(
        self,
        settings: DoorSettings,
        manager: Path | None = None,
        choose_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`manager`: socket of a service manager that gives the door a unit of its own.

        `choose_key`: asked whenever a door is started, for the key that it brings to the engines from then on.
        """
        self.settings = settings
        self._choose_key = choose_key
        self.drifted = False  # the door that runs was started with another configuration than this daemon would use
        self._unsaved = False  # it may serve a route that its files do not have: the disk took nothing, or we died
        self._process = DoorProcess(settings.directory, manager)
        self._guard = Guard(settings)
        self._traffic = TrafficCounter(Follower(self._process.log))

    @property
    def socket_path(self) -> Path:
        return self.settings.directory / "haproxy.sock"

    @property
    def engine_key(self) -> str | None:
        """What the door brings to every engine, and what its own ways in want; None: engines must not want one."""
        return engine_key_in(self.settings.directory)

    def ensure(self) -> None:
        """Find the door, or start it. One that runs is never touched, not even when it hangs, nor after our upgrade.

        One that died and does not come up again gets its files anew: they may be what it dies of.
        """
        if self._process.is_between_starts():
            self._write_files()
        if self._process.is_running() or self._answers():
            self.drifted = self._differs()
            self._unsaved = True  # the daemon before this one may have died after it told the door and before it saved
            return
        self._start()
        self.drifted = False

    def apply(self, route: Route) -> None:
        """Make the door serve the route: only what differs is sent, and what was sent is saved for a door that dies.

        Does not wait: a slot is *ready* when this returns, and *up* in :meth:`read` once its own check has succeeded.
        """
        with self._runtime() as runtime:
            seen = take_snapshot(runtime)
            commands = changes(route, seen, self.settings)
            try:
                runtime.do(commands)
            except DoorError:
                with contextlib.suppress(DoorError):  # what was done before the error must survive, the error be told
                    self._save(take_snapshot(runtime))
                raise
            self._save(take_snapshot(runtime) if commands else seen)

    def read(self) -> DoorSeen:
        """What the door does now. One that does not answer is no error: ``alive`` is False, ``why`` says it."""
        try:
            with self._runtime() as runtime:
                seen = take_snapshot(runtime)
        except DoorError as error:
            return DoorSeen(alive=False, why=f"{error}{self._excuse()}")
        if self._unsaved:
            with contextlib.suppress(DoorError):
                self._save(seen)
        engines, preview = BACKENDS
        return DoorSeen(
            alive=True,
            pid=seen.pid,
            started_at_s=started_at_s(seen.pid),
            public=seen.serving(engines),
            preview=seen.serving(preview),
            mode=seen.mode,
            held=seen.held,
            hold=seen.hold,
        )

    def alarms(self) -> list[str]:
        """That nobody but a daemon starts it again when it dies.

        Another beside it is no way out: who still streams through the old one, the new one would not know, and an
        engine that has drained by its word would be ended under them.
        """
        pids = self._process.without_shim()
        if not pids:
            return []
        heals = f"a new start in a quiet moment (`kill -TERM {pids[0]}`), which ends the requests in it"
        lives = f"the front door itself (pid {', '.join(map(str, pids))}) serves on"
        dies = f"when it dies, only a daemon that runs starts another. What heals that is {heals}"
        return [f"the shim of the front door is dead, {lives}: {dies}"]

    def traffic(self, since_s: float) -> Mapping[str, Traffic]:
        """Users' traffic by attempt since a moment of the boot time clock, in seconds; see :class:`TrafficCounter`."""
        return self._traffic.since(since_s)

    @property
    def log(self) -> Path:
        """The access log, with HAProxy's own messages in between."""
        return self._process.log

    def refresh(self) -> None:
        """Hand a renewed certificate and a changed list of keys to the door that runs.

        Costs one `stat` each where nothing changed.

        A file that cannot be used leaves what is in force, and is a :class:`DoorError` at every call until it can.
        """
        if self._guard.is_stale():
            with self._runtime() as runtime:
                self._guard.hand_over(runtime)

    def cut(self, slot: int) -> int:
        """End what still runs on a slot; the clients see a cut stream. Returns how many requests that were."""
        with self._runtime() as runtime:
            seen = take_snapshot(runtime)
            if (BACKENDS[0], slot) not in seen.slots:
                raise DoorSettingsError(
                    f"slot {slot} is not there to cut; the front door has slots 1 to {self.settings.slots}"
                )
            runtime.do([f"shutdown sessions server {backend}/s{slot}" for backend in BACKENDS])
        return sum(seen.slots[backend, slot].in_flight for backend in BACKENDS)

    def stop(self) -> None:
        """End the door and every request in it. For the teardown of a demo or an installation, never for an upgrade."""
        self._process.stop()

    def _runtime(self) -> RuntimeSocket:
        keep_names(self.settings.directory)
        return RuntimeSocket(self.socket_path, self.settings.runtime_timeout_s)

    def _excuse(self) -> str:
        """What the log of a door says that is being started again and again; how one is healed that has no socket."""
        try:
            pid = self._process.pid()
            complaint = self._process.last_complaint() if self._process.is_running() else ""
        except PermissionError:  # somebody else's door
            return ""
        if pid is not None and not self.socket_path.exists():
            return (
                f"; the front door itself, pid {pid}, serves what it was told last and can be told nothing more: only "
                f"a new start heals that, which ends the requests in it (`kill -TERM {pid}`)"
            )
        return f"; it said: {complaint}" if complaint else ""

    def _answers(self) -> bool:
        return self.read().alive

    def _differs(self) -> bool:
        return any(text_of(self.settings.directory / name) != text for name, text in fixed_files(self.settings).items())

    def _save(self, seen: Snapshot) -> None:
        self._unsaved = True  # and tried again with every look, until it is
        try:
            for name, text in committed_files(seen).items():
                write_if_different(self.settings.directory / name, text)
        except OSError as error:  # it serves the route all the same; only its memory is at stake
            raise DoorError(
                f"the front door's state cannot be saved in {self.settings.directory}: {error.strerror}"
            ) from error
        self._unsaved = False

    def _start(self) -> None:
        binary = find_binary(self.settings.binary)
        guarded = (self.settings.inner_address,) if self.settings.is_guarded else ()
        for address in (self.settings.public_address, self.settings.preview_address, *guarded):
            check_free(address)
        self._write_files()
        configuration = "../haproxy.cfg"
        self._check(binary.path, configuration)
        self._process.start([str(binary.path), "-db", "-f", configuration])
        self._wait_until_it_answers()

    def _write_files(self) -> None:
        directory = self.settings.directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._process.run_dir.mkdir(mode=0o700, exist_ok=True)
            for name, text in fixed_files(self.settings).items():
                write_if_different(directory / name, text)
            write_if_different(directory / ENGINE_MAP, engine_key_file(self._choose_key()))
            self._write_route_files(directory)
            self._guard.write_files()
        except OSError as error:
            raise DoorError(f"the front door's directory {directory} cannot be written: {error.strerror}") from error

    def _write_route_files(self, directory: Path) -> None:
        """Keep the committed route, except across a reboot: by then its ports may belong to anybody.

        Whoever starts a door clears the record of the start before: were it killed then, only the mark would tell.
        """
        mark = directory / "boot"
        marked = (text_of(mark) or "").strip()
        remembers = (self._process.last_boot() or marked) == this_boot()
        for name, text in first_files(self.settings).items():
            path = directory / name
            kept = text_of(path) if remembers else None
            if kept is None or (path.suffix != ".map" and not is_state(kept)):
                write_if_different(path, text)
            elif path.suffix == ".map":
                write_if_different(path, with_defaults(text, kept))
        write_if_different(mark, f"{this_boot()}\n")

    def _check(self, binary: Path, configuration: str) -> None:
        argv = [str(binary), "-c", "-q", "-f", configuration]
        run_dir = self._process.run_dir
        try:
            checked = subprocess.run(
                argv, cwd=run_dir, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DoorError(f"HAProxy cannot be asked about its configuration: {error}") from error
        if checked.returncode:
            said = " ".join(line.strip() for line in checked.stderr.splitlines() if "ALERT" in line)
            raise DoorError(f"HAProxy refuses the configuration {self.settings.directory / 'haproxy.cfg'}: {said}")

    def _wait_until_it_answers(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not (seen := self.read()).alive:
            if not self._process.is_running():
                raise DoorError(
                    f"the front door ended as soon as it was started; it said: {self._process.last_complaint()}"
                )
            if time.monotonic() > deadline_s:
                raise DoorError(
                    f"the front door was started but did not answer within {_START_TIMEOUT_S:.0f} s: {seen.why}"
                )
            time.sleep(0.01)
