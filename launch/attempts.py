"""Attempts: one start of one program, in a run directory of its own, under a shim that outlives whoever started it.

Every door takes the run directory, reads what is there now, and may be called again after any crash of the caller.
The files are described in docs/processes.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from launch import own_unit, shim
from launch.attempt_log import log_path, log_tail, says_port_in_use
from launch.attempt_record import StartRecord, read_exit, read_start, told_exit
from launch.errors import LaunchError
from launch.identity import Identity, each_stray, this_boot, tree_of
from launch.ports import Ports, PortsError, listening_pids, printable

__all__ = [
    "AttemptError",
    "AttemptSpec",
    "BadAttempt",
    "Identity",
    "Ports",
    "PortsError",
    "ProcessSeen",
    "Status",
    "StraysAlive",
    "kill_strays",
    "kill_unrecorded",
    "listening_pids",
    "log_path",
    "log_tail",
    "observe",
    "port_conflict",
    "request_stop",
    "start",
]

START_TIMEOUT_S = 30.0  # for the shim to write who it is; it takes 60 ms on an idle box
POLL_S = 0.01
KILL_ROUNDS = 6
STRAYS_SHOWN = 8
ATTEMPT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AttemptError(LaunchError):
    """An attempt could not be started or read."""


class BadAttempt(AttemptError):  # noqa: N818  # reads as what it is where it is raised
    """What was asked for cannot be an attempt."""

    exit_code: ClassVar[int] = 2


class StraysAlive(AttemptError):  # noqa: N818
    """Processes of an earlier start live on in the run directory: starting on top of them would mix two trees."""

    exit_code: ClassVar[int] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """What to run, where, and when to end it. Paths and ``argv`` are taken as seen from ``run_dir``."""

    attempt_id: str
    run_dir: Path
    argv: tuple[str, ...] = ()
    script: str | None = None  # bash; written to launch.sh and run instead of argv
    environment: Mapping[str, str] = field(default_factory=dict)  # written to attempt.env and exported
    grace_s: float = 30.0  # from TERM to KILL
    keep: bool = False  # restart when it dies
    stdin: Path | None = None  # default /dev/null
    stdout: Path | None = None  # default: the log, where stderr always goes
    deadline_s: float | None = None  # stop it that long after its start
    log_cap_bytes: int = 256 * 1024 * 1024
    locks: tuple[Path, ...] = ()  # files that the shim holds locked for life; nothing runs when somebody else does
    manager: Path | None = None  # socket of a service manager that starts shims in units of their own (own_unit)


class Status(StrEnum):
    ABSENT = "absent"
    RUNNING = "running"
    EXITED = "exited"
    STRAYS = "strays"  # the shim is dead, processes of the attempt live on


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """One look at an attempt.

    ``pids``: its living processes without the shim (at most a second old while it runs). EXITED with pids means that
    the program has ended and the shim is still ending the rest; only EXITED without pids frees what they held.
    ``reason``: ``exited`` by itself, ``killed`` by a signal that was not ours, ``stopped`` on request, ``deadline``,
    ``spawn failed: …``, ``not started: …`` (a lock is somebody else's), ``lost`` (the shim died without a record,
    nothing is left), or "" while it runs.
    ``exited_at_s``: seconds since 1970, for display. ``restarts`` counts those of a kept program.
    """

    status: Status
    identity: Identity | None = None
    child_pid: int | None = None
    pids: tuple[int, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    exited_at_s: float | None = None
    restarts: int = 0
    boot_id: str = ""


def start(spec: AttemptSpec) -> Identity:
    """Start the attempt or find it started; returns when its shim has recorded who it is.

    Find-or-do: a living shim of this run directory is returned as it is. An attempt runs once: where it has already
    ended, the ended shim's identity is returned, nothing runs again, and ``observe`` says how it ended. Only what is
    to be kept (``keep``) starts again. Refused (`StraysAlive`) while leftovers of a dead shim live on.
    """
    _check(spec)
    try:
        return _find_or_do(spec, _private_directory(spec.run_dir))
    except OSError as error:
        raise AttemptError(
            f"attempt {spec.attempt_id} cannot start in {spec.run_dir} ({error}): "
            "it must be a directory of this user on a disk with room"
        ) from error


def observe(run_dir: Path, remembered: Identity | None = None) -> ProcessSeen:
    """What is there now. Cheap enough for several looks a second; searches all processes only when the shim is dead.

    ``remembered``: what `start` returned, as its caller has kept it (``run_dir`` None). It is believed where the
    directory is gone or tells something else: a file that is missing is no sign that anybody has ended. The identity
    of what is seen is ``remembered`` itself then.
    """
    run_dir = run_dir.resolve()
    started = _on_record(run_dir, remembered)
    if started is None:
        return ProcessSeen(Status.ABSENT)
    identity = started.identity
    alive = identity is not None and identity.is_alive()  # asked before the exit is read: the shim writes it, then ends
    ended = read_exit(run_dir, identity)
    if identity and alive and ended is None:
        ended = told_exit(identity)
    if identity and alive and ended is None:
        pids = tree_of(identity, including=started.child_pid)
        child = started.child_pid if started.child_pid in pids and _lives(started.child_pid) else None
        return ProcessSeen(Status.RUNNING, identity, child, pids, restarts=started.restarts, boot_id=identity.boot_id)
    if ended and ended.tree_empty:
        pids = ()
    else:
        pids = tree_of(identity, fresh=True) if identity and alive else _strays(run_dir, identity)
    return ProcessSeen(
        Status.STRAYS if pids and not alive else Status.EXITED,
        identity,
        pids=pids,
        exit_code=ended.exit_code if ended else None,
        signal=ended.signal if ended else None,
        reason=ended.reason if ended else "lost",
        exited_at_s=ended.exited_at_s if ended else None,
        restarts=started.restarts,
        boot_id=identity.boot_id if identity else "",
    )


def request_stop(run_dir: Path, remembered: Identity | None = None) -> None:
    """Ask the shim to end its whole tree: TERM, grace, KILL. Returns at once; repeating it or coming late does no harm.

    Only the shim is signalled, after its identity was checked. A dead shim hears nothing: see `kill_strays`.
    ``remembered``: as for `observe`.
    """
    started = _on_record(run_dir.resolve(), remembered)
    if started and started.identity:
        started.identity.send(signal.SIGTERM)
        started.identity.send(signal.SIGCONT)  # one that was stopped (`kill -STOP`, a debugger) would never hear it


def kill_strays(run_dir: Path, *, force: bool, remembered: Identity | None = None) -> tuple[int, ...]:
    """TERM (``force``: KILL) what a dead shim has left behind; returns whom. Call it again until `observe` sees none.

    Does nothing while a shim lives or is being started, as record and lock tell. A stray is known by where it lives and
    writes and by its start time, checked again when its pidfd is open; others of the same name are strangers.
    ``remembered``: as for `observe`.
    """
    run_dir = run_dir.resolve()
    if _on_record(run_dir, remembered) is None:
        return ()
    with _lock(run_dir) if run_dir.is_dir() else contextlib.nullcontext(-1) as lock:  # nobody starts in none
        started = _on_record(run_dir, remembered)
        if lock is None or started is None or (started.identity and started.identity.is_alive()):
            return ()
        number, signalled = signal.SIGKILL if force else signal.SIGTERM, set[int]()
        for _ in range(KILL_ROUNDS if force else 1):  # what was forked meanwhile; the dead cannot fork
            if not (more := _signal_strays(run_dir, started.identity, number)):
                break
            signalled |= more
    return tuple(sorted(signalled))


def kill_unrecorded(run_dir: Path) -> tuple[int, ...]:
    """KILL whoever lives in a run directory that has lost its record, a shim as well; returns whom, to be called again.

    Does nothing where there is a record: `request_stop` and `kill_strays` know more. Only for a caller who knows that
    nothing in there serves anybody.
    """
    run_dir = run_dir.resolve()
    if read_start(run_dir) is not None:
        return ()
    return tuple(sorted(_signal_strays(run_dir, None, signal.SIGKILL)))


def port_conflict(run_dir: Path) -> bool:
    """Whether the program ended by itself and its log says that a port was taken: worth one try on other ports."""
    return observe(run_dir).reason in ("exited", "killed") and says_port_in_use(run_dir)


def _on_record(run_dir: Path, remembered: Identity | None) -> StartRecord | None:
    """What the shim wrote, or whom its starter remembers: only of this boot, and not against another one's record.

    Against that only while it lives: of its tree nothing could be told from the other's.
    """
    started = read_start(run_dir)
    if remembered is None or remembered.boot_id != this_boot():
        return started
    there = started.identity if started else None
    if there is None:
        return StartRecord(remembered)
    same = (there.pid, there.start_ticks, there.boot_id) == (
        remembered.pid,
        remembered.start_ticks,
        remembered.boot_id,
    )
    return StartRecord(remembered) if not same and remembered.is_alive() else started


def _lives(pid: int | None) -> bool:
    """Between its death and its record, a moment: asked of a child whose shim lives and has not reported it dead."""
    stat = shim.stat_of(pid) if pid else None
    return stat is not None and stat.alive


def _check(spec: AttemptSpec) -> None:
    named = f"attempt {spec.attempt_id!r}"
    if not ATTEMPT_ID.fullmatch(spec.attempt_id):
        raise BadAttempt(
            f"{named}: an id is a-z, 0-9, '.', '_' and '-', starts with a letter or digit, at most 81 long"
        )
    if spec.script is None and not spec.argv:
        raise BadAttempt(f"{named} has nothing to run: give argv or a script")
    for name, value in spec.environment.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise BadAttempt(
                f"{named}: {name!r} cannot be an environment variable: use letters, digits and '_', no NUL"
            )
    if any("\0" in word for word in spec.argv):
        raise BadAttempt(f"{named}: a word of argv contains a NUL byte, which no program can receive")
    if spec.grace_s < 0 or spec.log_cap_bytes <= 0 or (spec.deadline_s is not None and spec.deadline_s < 0):
        raise BadAttempt(f"{named}: grace_s and deadline_s must be 0 s or more, log_cap_bytes more than 0 bytes")


def _find_or_do(spec: AttemptSpec, run_dir: Path) -> Identity:
    give_up_at_s, spawned, manager = time.monotonic() + START_TIMEOUT_S, False, spec.manager
    while time.monotonic() < give_up_at_s:
        with _lock(run_dir) as lock:
            seen = observe(run_dir)
            if lock is None:  # a shim holds it, or another starter who is about to have one
                if seen.identity and _is_settled(spec, seen):
                    return seen.identity
            elif (spawned and (seen.identity or not manager)) or not _may_start(spec, run_dir, seen):
                if seen.identity:
                    return seen.identity
                raise AttemptError(
                    f"attempt {spec.attempt_id} did not start: no shim on record in {run_dir}; {_last_words(run_dir)}"
                )
            else:
                _write_files(spec, run_dir)
                # Asked once: a manager that took the message and made no shim of it has let go of the lock.
                if spawned or not manager or not own_unit.asked(str(manager), str(run_dir), lock):
                    manager = None
                    _spawn_shim(run_dir, lock)
                spawned = True
        time.sleep(POLL_S)
    raise AttemptError(
        f"attempt {spec.attempt_id} did not report within {START_TIMEOUT_S:.0f} s, and somebody holds "
        f"{run_dir}/shim.lock: see who with `fuser {run_dir}/shim.lock`; {_last_words(run_dir)}"
    )


def _is_settled(spec: AttemptSpec, seen: ProcessSeen) -> bool:
    """The shim has its program, or what it had to run once has ended; one that is about to end keeps nothing going."""
    return seen.child_pid is not None or seen.restarts > 0 or (seen.status is Status.EXITED and not spec.keep)


def _private_directory(run_dir: Path) -> Path:
    run_dir = run_dir.resolve()
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_dir.chmod(0o700)
    return run_dir


@contextlib.contextmanager
def _lock(run_dir: Path) -> Iterator[int | None]:
    """The lock that a shim holds for life, or None. Closing our copy leaves it with a shim that inherited it."""
    handle = os.open(run_dir / "shim.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield handle
    finally:
        os.close(handle)


def _may_start(spec: AttemptSpec, run_dir: Path, seen: ProcessSeen) -> bool:
    """Asked with the lock in hand: no shim lives here, unless the lock or the whole directory was removed under it."""
    if seen.status is Status.RUNNING:
        return False
    left = _strays(run_dir, None) if seen.status is Status.ABSENT else seen.pids
    if left:
        raise StraysAlive(
            f"attempt {spec.attempt_id}: processes of an earlier start live on in {run_dir}, "
            f"{_named(left)}: end them first, then start again"
        )
    return spec.keep or seen.status is Status.ABSENT


def _named(pids: tuple[int, ...]) -> str:
    """What a person needs to find them: ``17 (python3), 18 (nginx)``."""
    shown = []
    for pid in pids[:STRAYS_SHOWN]:
        with contextlib.suppress(OSError):
            shown.append(f"{pid} ({printable(Path(f'/proc/{pid}/comm').read_text(errors='replace').strip())})")
    more = f" and {len(pids) - STRAYS_SHOWN} more" if len(pids) > STRAYS_SHOWN else ""
    return ", ".join(shown) + more


def _write_files(spec: AttemptSpec, run_dir: Path) -> None:
    for record in ("exit.json", "shim.json"):  # of an earlier run of something kept
        (run_dir / record).unlink(missing_ok=True)
    argv = spec.argv
    if spec.script is not None:
        _write(run_dir / "launch.sh", spec.script, 0o500)
        argv = (shutil.which("bash") or "/bin/bash", str(run_dir / "launch.sh"))
    facts = "".join(f"{name}={shlex.quote(value)}\n" for name, value in spec.environment.items())
    _write(run_dir / "attempt.env", facts, 0o600)
    request = {
        "version": 1,
        "attempt_id": spec.attempt_id,
        "argv": argv,
        "grace_s": spec.grace_s,
        "keep": spec.keep,
        "stdin": spec.stdin and str(spec.stdin),
        "stdout": spec.stdout and str(spec.stdout),
        "deadline_s": spec.deadline_s,
        "log_cap_bytes": spec.log_cap_bytes,
        "locks": [str(path) for path in spec.locks],
    }
    _write(run_dir / "attempt.json", json.dumps(request), 0o600)


def _write(path: Path, text: str, mode: int) -> None:
    new = path.with_name(f"{path.name}.tmp")
    new.unlink(missing_ok=True)  # a read-only one of an interrupted start could not be opened
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.rename(path)


def _spawn_shim(run_dir: Path, lock: int) -> None:
    """Returns when the first of two processes has ended: the second, the shim, is nobody's child.

    It inherits the open lock, so that the directory is locked from before the fork until the shim's death.
    """
    argv = [sys.executable, "-S", "-I", shim.__file__, str(run_dir), str(lock)]
    with (run_dir / "shim.log").open("ab") as words:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=(lock,),
            start_new_session=True,  # a Ctrl-C meant for the starter
            check=False,
        )


def _last_words(run_dir: Path) -> str:
    with contextlib.suppress(OSError):
        if lines := (run_dir / "shim.log").read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            return f"the last words of its shim: {lines[-1]}"
    return "its shim said nothing"


def _strays(run_dir: Path, identity: Identity | None) -> tuple[int, ...]:
    return tuple(sorted(pid for pid, _ in _each_stray(run_dir, identity)))


def _signal_strays(run_dir: Path, identity: Identity | None, number: signal.Signals) -> set[int]:
    """Each as soon as it is seen: whoever forks on is another one a moment later."""
    signalled = set()
    for pid, start_ticks in _each_stray(run_dir, identity):
        shim.signal_all({pid: start_ticks}, number)
        signalled.add(pid)
    return signalled


def _each_stray(run_dir: Path, identity: Identity | None) -> Iterator[tuple[int, int]]:
    if identity and identity.boot_id != this_boot():
        return iter(())  # nothing outlives its boot
    return each_stray(str(run_dir), identity.start_ticks if identity else 0)
