"""Engines are asked to sleep and to wake up: begun here, in a thread each, and seen later. What is believed, core says.

Find or do: an engine is first asked which of the two it is, because a crash can fall between the wish and its record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
import structlog

from gates.contract import sendable
from launch import lending
from launch.attempts import listening_pids
from launch.engine_key import read_key
from launch.engines.sleeping import Call, Sleeping
from launch.errors import LaunchError
from launch.release import load_release
from launch.sleep import sleeping, weights_bytes

from ..core.actions import Outcome
from ..core.records import Attempt
from ..core.seen import SleepSeen
from .processes import HOST, is_real

log = structlog.get_logger("sleeper")

SLEEP, WAKE = "sleep", "wake"
HOST_RESERVE_BYTES = 4 << 30  # for everybody else, the next engine's start among them
_GIB = 1 << 30
_ASK_TIMEOUT_S = 5.0
_LOOK_TIMEOUT_S = 1.0
_SHOWN = 200


class SleepError(Exception):
    """It is not what it was asked to be; the message says why."""


class Sleeper:
    """`begin` asks, `results` is what is known. `on_change` is called when an engine has answered."""

    def __init__(
        self,
        releases: Path,
        run_dir: Callable[[str], Path],
        pids_of: Callable[[str], Collection[int]],
        deadline_s: float,
        host_bytes: Callable[[], int],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`deadline_s`: how long one call to an engine may take. `host_bytes`: what the host's memory has left."""
        self._releases = releases
        self._run_dir = run_dir
        self._pids_of = pids_of
        self._deadline_s = deadline_s
        self._host_bytes = host_bytes
        self._on_change = on_change
        self._lock = threading.Lock()
        self._seen: dict[str, SleepSeen] = {}

    def results(self) -> Mapping[str, SleepSeen]:
        with self._lock:
            return dict(self._seen)

    def begin(self, attempt: Attempt, wanted: str, *, again: bool) -> Outcome:
        """Ask it to `sleep` or to `wake`. `again`: it was asked before, and nobody knows what came of it."""
        try:
            release = load_release(self._releases, attempt.release)
            how = sleeping(release.topology, attempt.instance)
        except (LaunchError, OSError) as error:
            return Outcome(False, f"{attempt.id} cannot be asked to {wanted}: {error}")
        if how is None:
            return Outcome(False, f"{attempt.id} cannot be asked to {wanted}: its engine was not told what it needs")
        first = wanted == SLEEP and not again  # who was asked before may sleep already, and have its weights there
        full = self._full_host(weights_bytes(release.manifest)) if first else ""
        with self._lock:
            self._seen[attempt.id] = SleepSeen(wanted, ok=False if full else None, sentence=full)
        if full:
            return Outcome(True)
        threading.Thread(
            target=self._run, args=(attempt, how, wanted, again), name=f"{wanted}-{attempt.id}", daemon=True
        ).start()
        return Outcome(True)

    def _full_host(self, weights: int | None) -> str:
        """Why the host's memory cannot take these weights: the kernel would end somebody for it."""
        left = self._host_bytes()
        if weights is None or weights + HOST_RESERVE_BYTES <= left:
            return ""
        return f"its weights are {weights / _GIB:.1f} GiB, and the host's memory has {left / _GIB:.1f} GiB left"

    def _run(self, attempt: Attempt, how: Sleeping, wanted: str, again: bool) -> None:
        try:
            self._do(attempt, how, wanted, again=again)
            seen = SleepSeen(wanted, ok=True)
        except (SleepError, LaunchError, OSError, httpx.HTTPError) as error:
            seen = SleepSeen(wanted, ok=False, sentence=sendable(str(error) or type(error).__name__))
        except Exception as error:
            log.exception("asking an engine broke", attempt=attempt.id, wanted=wanted)
            seen = SleepSeen(wanted, ok=False, sentence=f"the asking itself broke: {error}")
        with self._lock:
            if self._seen.get(attempt.id, seen).wanted == wanted:  # else it was asked for the opposite meanwhile
                self._seen[attempt.id] = seen
        self._on_change()

    def _do(self, attempt: Attempt, how: Sleeping, wanted: str, *, again: bool) -> None:
        locked = any(is_real(gpu) for gpu in attempt.gpus)
        run_dir = self._run_dir(attempt.id)
        if wanted == WAKE:
            lending.reclaim(run_dir) if locked else lending.strike(run_dir)
        _refuse_stranger(attempt.port, self._pids_of(attempt.id))
        with _engine(run_dir, attempt.port) as engine:
            asleep = _is_asleep(engine, how)
            if asleep is None and again:
                raise SleepError("it was asked before, and its engine cannot tell what came of it")
            if asleep is not (wanted == SLEEP):
                for call in how.sleep if wanted == SLEEP else how.wake:
                    self._call(engine, call)
            if _is_asleep(engine, how) is (wanted != SLEEP):
                path = how.is_asleep[0] if how.is_asleep else ""
                raise SleepError(f"its engine took the wish to {wanted}, and {path} says that it did not")
        if wanted == SLEEP:
            lending.lend(run_dir) if locked else lending.note(run_dir)

    def _call(self, engine: httpx.Client, call: Call) -> None:
        body: dict[str, Any] = {} if call.body is None else {"json": dict(call.body)}
        try:
            answer = engine.post(call.path, timeout=httpx.Timeout(_ASK_TIMEOUT_S, read=self._deadline_s), **body)
        except httpx.TimeoutException:
            raise SleepError(f"{call.path} was not answered within {self._deadline_s:.0f} s") from None
        if not answer.is_success:
            raise SleepError(f"{call.path} answered {answer.status_code} {answer.text[:_SHOWN]}".rstrip())


def sleeps(releases: Path, release: str, instance: str, run_dir: Path, port: int, pids: Collection[int]) -> bool:
    """Whether an instance sleeps, for whoever has no journal: its cards may be others'. One short question at most.

    What was noted when it fell asleep, else what the engine says of itself; one that says nothing is taken for awake.
    """
    if lending.is_noted(run_dir):
        return True
    try:
        how = sleeping(load_release(releases, release).topology, instance)
        if how is None:
            return False
        _refuse_stranger(port, pids)
        with _engine(run_dir, port) as engine:
            return _is_asleep(engine, how, _LOOK_TIMEOUT_S) is True
    except (SleepError, LaunchError, OSError, httpx.HTTPError):
        return False


def _engine(run_dir: Path, port: int) -> httpx.Client:
    # Proxies and certificates are for the world outside, and reading the latter takes longer than the asking.
    key = read_key(run_dir)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    address = f"http://{HOST}:{port}"
    return httpx.Client(base_url=address, headers=headers, trust_env=False, verify=False)  # noqa: S501 - plain HTTP


def _refuse_stranger(port: int, pids: Collection[int]) -> None:
    listening = set(listening_pids(port))
    if listening and not listening & set(pids):
        raise SleepError(f"port {port} is held by pid {min(listening)}, which is none of its own")


def _is_asleep(engine: httpx.Client, how: Sleeping, timeout_s: float = _ASK_TIMEOUT_S) -> bool | None:
    """What the engine says of itself; None where it cannot be asked. Raises `SleepError` for nonsense."""
    if how.is_asleep is None:
        return None
    path, key = how.is_asleep
    try:
        answer = engine.get(path, timeout=timeout_s)
    except httpx.TimeoutException:
        raise SleepError(f"{path} was not answered within {timeout_s:.0f} s") from None
    try:
        said = answer.raise_for_status().json()[key]
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError):
        raise SleepError(f"{path} answered {answer.status_code} {answer.text[:_SHOWN]}".rstrip()) from None
    if not isinstance(said, bool):
        raise SleepError(f"{path} answered {answer.text[:_SHOWN]}")
    return said
