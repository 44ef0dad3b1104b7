"""One gate as a child process: its own session, a deadline, a bounded output, nobody's secrets, no survivor."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import psutil

from gates.contract import Verdict, VerdictKind, broken, parse_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gates.contract import GateRequest

MAX_STDOUT_BYTES: Final = 8 * 1024 * 1024
_MAX_STDERR_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024
_MAX_LOG_CHARS: Final = 2000
_TAIL_LINES: Final = 20
_POLL_S: Final = 0.05
_GRACE_S: Final = 1.0
_MARK: Final = "CUTOVER_GATE_RUN"
# A gate gets what a program needs to run, and nothing that happens to be in the environment of its caller.
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass
class _Streams:
    """What the child wrote, read by two threads so that a full pipe never stops it."""

    stdout: bytearray
    tail: list[str]
    overflowed: bool = False


def run_gate(
    command: Sequence[str],
    request: GateRequest,
    *,
    on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    cancel: threading.Event | None = None,
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """Run `command` on the contract. Whatever goes wrong with the program is a verdict `error` with a sentence.

    `cancel` ends it early. `environment` is added to what every gate inherits. Raises `OSError` when the evidence
    directory cannot be made.
    """
    mark = secrets.token_hex(16)
    started_s = time.monotonic()
    directory = _directory(request)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(request.api_key_env, environment) | {_MARK: mark},
            cwd=directory,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return broken(request.gate, f"The gate's program could not be started: {command[0]}: {reason}.")
    streams = _Streams(bytearray(), [])
    threads = _start_threads(process, request, streams, on_progress)
    try:
        ended = _wait(process, streams, started_s + request.deadline_s, cancel)
    except BaseException:
        # Ctrl-C where nobody set `cancel`: a gate has a session of its own and would go on asking until its deadline.
        _end_all(process, mark)
        raise
    left_behind = _end_all(process, mark)
    for thread in threads:
        thread.join(_GRACE_S)
    return _conclude(request, process, streams, ended, left_behind)


def _environment(api_key_env: str | None, added: Mapping[str, str] | None) -> dict[str, str]:
    names = (*_INHERITED, *([api_key_env] if api_key_env else []))
    return {name: os.environ[name] for name in names if name in os.environ} | dict(added or {})


def _directory(request: GateRequest) -> str:
    directory = Path(request.evidence_dir)
    directory.mkdir(parents=True, exist_ok=True)
    return str(directory)


def _start_threads(
    process: subprocess.Popen[bytes],
    request: GateRequest,
    streams: _Streams,
    on_progress: Callable[[Mapping[str, Any]], None] | None,
) -> list[threading.Thread]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - all three are pipes
    threads = [
        threading.Thread(target=_write, args=(process.stdin, request.to_json().encode()), daemon=True),
        threading.Thread(target=_collect, args=(process.stdout, streams), daemon=True),
        threading.Thread(target=_listen, args=(process.stderr, streams, request.gate, on_progress), daemon=True),
    ]
    for thread in threads:
        thread.start()
    return threads


def _write(stdin: IO[bytes], data: bytes) -> None:
    # A gate that does not read its request, or died before, is judged by what it answers.
    with contextlib.suppress(OSError), stdin:
        stdin.write(data)


def _collect(stdout: IO[bytes], streams: _Streams) -> None:
    with contextlib.suppress(OSError, ValueError), stdout:
        while data := os.read(stdout.fileno(), 64 * 1024):
            if len(streams.stdout) + len(data) > MAX_STDOUT_BYTES:
                streams.overflowed = True
                return
            streams.stdout += data


def _listen(
    stderr: IO[bytes],
    streams: _Streams,
    gate: str,
    on_progress: Callable[[Mapping[str, Any]], None] | None,
) -> None:
    total = 0
    with contextlib.suppress(OSError, ValueError), stderr:
        while line := stderr.readline(_MAX_LINE_BYTES):
            total += len(line)
            if total > _MAX_STDERR_BYTES:
                continue  # keep draining, stop keeping
            text = line.decode("utf-8", errors="replace").rstrip()
            fields = _json_object(text)
            if fields is None:
                text = text[:_MAX_LOG_CHARS]
                streams.tail = [*streams.tail, text][-_TAIL_LINES:]
                fields = {"log": text}
            if on_progress is not None:
                on_progress({"gate": gate, **fields})


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _wait(
    process: subprocess.Popen[bytes], streams: _Streams, deadline_s: float, cancel: threading.Event | None
) -> str | None:
    """None when the program ended by itself, else why it has to be ended."""
    while True:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline_s:
                return "deadline"
            if cancel is not None and cancel.is_set():
                return "cancelled"
            if streams.overflowed:
                return "overflow"
            continue
        return None


def _end_all(process: subprocess.Popen[bytes], mark: str) -> int:
    """Kill whatever is left of the gate: its session, its children, and what slipped out of both. How many there were.

    A process that made a session of its own and lost its parent still carries the mark in its environment.
    """
    alive = process.poll() is None
    own = _marked(mark) - {process.pid}
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in own:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    return len(own)


def _marked(mark: str) -> set[int]:
    found = set()
    uid = os.getuid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == uid and process.environ().get(_MARK) == mark:
                found.add(process.pid)
    return found


def _conclude(
    request: GateRequest,
    process: subprocess.Popen[bytes],
    streams: _Streams,
    ended: str | None,
    left_behind: int,
) -> Verdict:
    if ended == "deadline":
        return broken(request.gate, f"The gate gave no verdict within its deadline of {request.deadline_s:g} s.")
    if ended == "cancelled":
        return broken(request.gate, "The gate was cancelled before it gave a verdict.")
    if streams.overflowed:
        return broken(request.gate, f"The gate wrote more than {MAX_STDOUT_BYTES} bytes to stdout and was ended.")
    verdict = parse_verdict(bytes(streams.stdout), request.gate)
    if verdict.sentence.startswith("The gate") and not streams.stdout.strip():
        said = f" Its last words: {streams.tail[-1][:300]!r}." if streams.tail else ""
        return broken(request.gate, f"The gate ended {_how(process.returncode)} without a verdict.{said}")
    if verdict.verdict is VerdictKind.ERROR and not verdict.checks and process.returncode != verdict.exit_code:
        verdict = verdict.model_copy(update={"sentence": f"{verdict.sentence} (it ended {_how(process.returncode)})"})
    if left_behind:
        note = f"{left_behind} processes that it left running were ended."
        return verdict.model_copy(update={"sentence": f"{verdict.sentence} ({note})"})
    return verdict


def _how(code: int | None) -> str:
    if code is None:
        return "by force"
    if code >= 0:
        return f"with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"by signal {known.get(-code, -code)}"  # most real-time signals have no name
