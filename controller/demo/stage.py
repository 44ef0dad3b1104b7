"""A box for one evening: a real daemon, a real front door and real processes in a directory of their own.

Used by the demo, by the tests and by the benchmarks. Everything it starts it ends, by run directory and pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from launch import attempts as launched
from launch.attempts import Status
from launch.ports import is_bindable

from ..config import Config, load_config
from ..effects.frontdoor.door import DoorSettings, FrontDoor
from ..errors import CutoverError
from .load import REQUEST_TIMEOUT_S

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.05
PORTS = 300
PORTS_FIRST, PORTS_LAST = 20_000, 31_999


class StageError(CutoverError):
    """The stage could not be set."""


class PortRange:
    """Consecutive ports below the kernel's ephemeral range that are this stage's alone.

    Stages on the same machine keep out of each other's way by a kernel lock per range, which dies with its holder.
    """

    def __init__(self) -> None:
        locks = Path(tempfile.gettempdir()) / "cutover-stage-ports"
        locks.mkdir(mode=0o777, exist_ok=True)
        firsts = list(range(PORTS_FIRST, PORTS_LAST - PORTS + 1, PORTS))
        random.SystemRandom().shuffle(firsts)
        for first in firsts:
            self._lock = (locks / str(first)).open("a")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._lock.close()
                continue
            if is_bindable(range(first, first + PORTS)):
                self.first = first
                self.last = first + PORTS - 1
                return
            self._lock.close()
        raise StageError(f"no {PORTS} free ports in a row in {PORTS_FIRST}-{PORTS_LAST}; end what listens there")

    def release(self) -> None:
        self._lock.close()


class Stage:
    """`with Stage(directory, settings) as stage:`; `settings` are configuration keys over the stage's own."""

    def __init__(
        self, directory: Path, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._ports = PortRange()
        first = self._ports.first
        given = {
            "state_dir": str(directory / "state"),
            "public": f"127.0.0.1:{first}",
            "preview": f"127.0.0.1:{first + 1}",
            "instance_ports": f"{first + 10}-{self._ports.last}",
            **settings,
        }
        directory.mkdir(parents=True, exist_ok=True)
        self.config_file = directory / "cutover.yaml"
        self.config_file.write_text(yaml.safe_dump(given, sort_keys=False))
        self.config: Config = load_config(self.config_file)
        self.environment = dict(environment or {})
        self.daemon: subprocess.Popen[bytes] | None = None
        transport = httpx.HTTPTransport(uds=str(self.config.socket))
        self.api = httpx.Client(transport=transport, base_url="http://cutover", timeout=60.0, trust_env=False)

    def __enter__(self) -> Self:
        self.start_daemon()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- daemon -------------------------------------------------------------------------------------------------------

    def start_daemon(self, **environment: str) -> None:
        """Start `cutover serve` and wait until it answers."""
        self.begin_daemon(**environment)
        if not self.until(self.answers, READY_TIMEOUT_S):
            raise StageError(f"the daemon did not come up; it said: {self.daemon_words()}")

    def begin_daemon(self, **environment: str) -> None:
        """Start `cutover serve` and do not wait: it may be meant to die before it answers."""
        with (self.directory / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "controller", "--config", str(self.config_file), "serve"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.environment, **environment},
            )

    def answers(self) -> bool:
        if self.daemon is not None and self.daemon.poll() is not None:
            raise StageError(f"the daemon ended with code {self.daemon.returncode}; it said: {self.daemon_words()}")
        try:
            return self.api.get("/v1/status", timeout=2.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def daemon_words(self) -> str:
        lines = (self.directory / "daemon.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-5:])

    def stop_daemon(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.daemon is None:
            return
        if self.daemon.poll() is None:
            self.daemon.send_signal(number)
        self.daemon.wait(STOP_TIMEOUT_S)
        self.daemon = None

    def close(self) -> None:
        """End everything that was started here."""
        try:
            self.stop_daemon()
        finally:
            try:
                self._stop_attempts()
            finally:  # an attempt that lives on must not keep the door open as well
                self.door().stop()
                self.api.close()
                self._ports.release()

    def _stop_attempts(self) -> None:
        folders = [
            f for d in (self.config.runs_dir, self.config.gates_dir) if d.is_dir() for f in d.iterdir() if f.is_dir()
        ]
        for folder in folders:
            launched.request_stop(folder)
        if not self.until(lambda: not any(self._lives(folder) for folder in folders), STOP_TIMEOUT_S):
            raise StageError(f"processes live on below {self.config.runs_dir}")

    @staticmethod
    def _lives(folder: Path) -> bool:
        status = launched.observe(folder).status
        if status is Status.STRAYS:
            launched.kill_strays(folder, force=True)
        return status in {Status.RUNNING, Status.STRAYS}

    def door(self) -> FrontDoor:
        return FrontDoor(
            DoorSettings(directory=self.config.door_dir, public=self.config.public, preview=self.config.preview)
        )

    # --- asking -------------------------------------------------------------------------------------------------------

    @staticmethod
    def until(condition: Callable[[], object], timeout_s: float) -> bool:
        """Poll until `condition` is true or time is over; tells which."""
        end_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end_s:
                return False
            time.sleep(POLL_S)
        return True

    def get(self, path: str) -> dict[str, Any]:
        return self._checked(self.api.get(path))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._checked(self.api.post(path, json=body))

    def _checked(self, response: httpx.Response) -> dict[str, Any]:
        answer: dict[str, Any] = response.json()
        if response.is_error:
            raise StageError(str(answer.get("error", answer)))
        return answer

    def propose(self, topology: str, source: str, **options: Any) -> str:
        """File a topology text; returns the rollout's id."""
        answer = self.post("/v1/rollouts", {"topology": topology, "source": source, **options})
        return str(answer["rollout"]["id"])

    def rollout(self, rollout_id: str) -> dict[str, Any]:
        return self.get(f"/v1/rollouts/{rollout_id}")

    def finish(self, rollout_id: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Wait until the rollout is over."""
        if not self.until(lambda: self.rollout(rollout_id)["over"], timeout_s):
            raise StageError(f"{rollout_id} is not over after {timeout_s:.0f} s: {self.rollout(rollout_id)['why']}")
        return self.rollout(rollout_id)


class Clients:
    """The demo's client load as a process: see `demo.load`."""

    def __init__(
        self,
        endpoint: str,
        model: str,
        streams: int,
        max_tokens: int,
        log: Path,
        *,
        pause_s: float = 0.0,
        timeout_s: float = REQUEST_TIMEOUT_S,
        rate_per_s: float = 0.0,
    ) -> None:
        """`rate_per_s`: short questions that arrive besides, each on a connection of its own."""
        self._log = log
        self._last_answer_s = timeout_s + 60.0
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "controller.demo.load"),
                    *(endpoint, model, str(streams), str(max_tokens), str(pause_s), str(timeout_s), str(rate_per_s)),
                ],
                stdout=out,
                stdin=subprocess.DEVNULL,
            )

    def tally(self) -> dict[str, Any]:
        """The newest sums."""
        return next((line for line in reversed(self._lines()) if "sent" in line), {"sent": 0})

    def problems(self) -> list[dict[str, Any]]:
        """Every request that was not served whole: why, its status, and from when to when (`time.monotonic()`)."""
        return [line for line in self._lines() if "problem" in line]

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self._log.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    def stop(self) -> dict[str, Any]:
        """Let the last answers finish, then return the sums."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(self._last_answer_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self.tally()
