"""One gate as a child process: its own session, a deadline, a bounded output, nobody's secrets, no survivor.

Between us and the gate stands its keeper, which inherits whatever the gate leaves behind and ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from gates import keeper
from gates.contract import Check, Verdict, VerdictKind, broken, combined, parse_verdict
from gates.redact import Redactor

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
_DRAIN_S: Final = 5.0
"""So long what the gate has said is read to its end: on a busy machine the last checks may still be on their way."""
_MAX_REPORT_BYTES: Final = 64 * 1024
_MAX_CHECKS: Final = 10_000
# A gate gets what a program needs to run, and nothing that happens to be in the environment of its caller.
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass
class _Streams:
    """What the child wrote, read by two threads so that a full pipe never stops it."""

    redactor: Redactor
    stdout: bytearray = field(default_factory=bytearray)
    tail: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    """As told on stderr, for a gate that does not live to give its verdict."""
    overflowed: bool = False


@dataclass(frozen=True)
class _Kept:
    """What the gate's keeper reports. `code` as `subprocess` tells it; None when nobody saw the gate end."""

    code: int | None = None
    left: int = 0
    failed: str = ""


def run_gate(
    command: Sequence[str],
    request: GateRequest,
    *,
    on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    cancel: threading.Event | None = None,
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """Run `command` on the contract. Whatever goes wrong with the program is a verdict `error` with a sentence.

    `cancel` ends it early: the verdict then holds the checks that it had told by then. `environment` is added to what
    every gate inherits. Nothing that the gate started outlives this call. The API key is blacked out in whatever the
    gate says. A verdict that does not say when it began and how long it took is given the times seen from here. Raises
    `OSError` when the evidence directory cannot be made.
    """
    started_at, started_s = datetime.now(UTC), time.monotonic()
    verdict = _run(command, request, started_s, on_progress, cancel, environment)
    times = {
        "started_at": verdict.started_at or started_at.isoformat(timespec="milliseconds"),
        "duration_s": verdict.duration_s or round(time.monotonic() - started_s, 3),
    }
    return verdict.model_copy(update=times)


def _run(
    command: Sequence[str],
    request: GateRequest,
    started_s: float,
    on_progress: Callable[[Mapping[str, Any]], None] | None,
    cancel: threading.Event | None,
    environment: Mapping[str, str] | None,
) -> Verdict:
    directory = _directory(request)
    given = _environment(request.api_key_env, environment)
    redactor = Redactor((given.get(request.api_key_env or "") or "").strip() or None)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as report:
        try:
            process = subprocess.Popen(
                [sys.executable, "-S", "-I", keeper.__file__, str(writer), str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=given,
                cwd=directory,
                start_new_session=True,
                pass_fds=(writer,),
            )
        except (OSError, ValueError) as error:
            return _not_started(request, command, getattr(error, "strerror", None) or str(error))
        finally:
            os.close(writer)
        streams = _Streams(redactor)
        threads = _start_threads(process, request, streams, on_progress)
        try:
            ended = _wait(process, streams, started_s + request.deadline_s, cancel)
        finally:
            # Also after a Ctrl-C where nobody set `cancel`: a gate does not hear it and would go on asking.
            _end(process)
        kept = _kept(report)
    until_s = time.monotonic() + _DRAIN_S
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    if kept.failed:
        return _not_started(request, command, kept.failed)
    return redactor.verdict(_conclude(request, kept, streams, ended))


def _not_started(request: GateRequest, command: Sequence[str], reason: str) -> Verdict:
    return broken(request.gate, f"The gate's program could not be started: {command[0]}: {reason}.")


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
            text = streams.redactor.text(line.decode("utf-8", errors="replace").rstrip())
            fields = _json_object(text)
            if fields is not None:
                _keep_check(fields, streams.checks)
            else:
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


def _end(process: subprocess.Popen[bytes]) -> None:
    """The keeper ends the gate and all that it started, and then itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(keeper.ROUNDS_S + _GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _kept(report: IO[bytes]) -> _Kept:
    try:
        return _Kept(**json.loads(report.read(_MAX_REPORT_BYTES)))
    except (ValueError, TypeError):
        return _Kept()  # somebody killed it


def _keep_check(fields: Mapping[str, Any], checks: list[Check]) -> None:
    """A line of progress that tells how a check ended. Gates are foreign programs: what is misshapen is passed over."""
    told = {key: value for key, value in fields.items() if key in Check.model_fields}
    with contextlib.suppress(ValidationError):
        if "check" in fields and "verdict" in fields and len(checks) < _MAX_CHECKS:
            checks.append(Check.model_validate({**told, "id": fields["check"]}))


def _conclude(request: GateRequest, kept: _Kept, streams: _Streams, ended: str | None) -> Verdict:
    if ended == "deadline":
        late = f"The gate gave no verdict within its deadline of {request.deadline_s:g} s"
        return _failed_by_then(request, streams, "the gate did not end within its deadline") or _cut_short(
            request, streams, late
        )
    if ended == "cancelled":
        return _cut_short(request, streams, "The gate was cancelled before it gave a verdict")
    if streams.overflowed:
        return broken(request.gate, f"The gate wrote more than {MAX_STDOUT_BYTES} bytes to stdout and was ended.")
    verdict = parse_verdict(bytes(streams.stdout), request.gate)
    broke = verdict.verdict is VerdictKind.ERROR and verdict.sentence.startswith("The gate") and not verdict.checks
    if broke and _was_lost(kept, streams):
        lost = f"the gate ended {_how(kept.code)} without a verdict"
        return _failed_by_then(request, streams, lost) or _lost(request, kept, streams)
    if verdict.verdict is VerdictKind.ERROR and not verdict.checks and kept.code != verdict.exit_code:
        verdict = verdict.model_copy(update={"sentence": f"{verdict.sentence} (it ended {_how(kept.code)})"})
    if kept.left:
        note = f"{kept.left} processes that it left running were ended."
        return verdict.model_copy(update={"sentence": f"{verdict.sentence} ({note})"})
    return verdict


def _was_lost(kept: _Kept, streams: _Streams) -> bool:
    """It said nothing, or died while it did."""
    return not streams.stdout.strip() or kept.code is None or kept.code < 0


def _lost(request: GateRequest, kept: _Kept, streams: _Streams) -> Verdict:
    said = f" Its last words: {streams.tail[-1][:300]!r}." if streams.tail else ""
    verdict = broken(request.gate, f"The gate ended {_how(kept.code)} without a verdict.{said}")
    return verdict.model_copy(update={"checks": list(streams.checks)})


def _failed_by_then(request: GateRequest, streams: _Streams, why: str) -> Verdict | None:
    """What has failed has failed, although the gate did not live to say so; None when nothing had."""
    failed = [check for check in _decided(streams) if check.verdict is VerdictKind.FAIL and check.waived is None]
    if not failed:
        return None
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return Verdict(
        gate=request.gate,
        verdict=VerdictKind.FAIL,
        sentence=f"{failed[0].id}: {failed[0].sentence}{more} ({why})",
        checks=list(streams.checks),
    )


def _cut_short(request: GateRequest, streams: _Streams, sentence: str) -> Verdict:
    """No verdict, but what the gate had found by then is not lost."""
    decided = _decided(streams)
    if not decided:
        return broken(request.gate, f"{sentence}.")
    worst = combined(check.verdict for check in decided)
    first = next((check for check in decided if check.verdict is worst), decided[0])
    found = "none of them speaks against it" if worst is VerdictKind.PASS else f"{first.id}: {first.sentence}"
    said = f"{sentence}; {len(decided)} checks were decided by then: {found}"
    return broken(request.gate, said).model_copy(update={"checks": list(streams.checks)})


def _decided(streams: _Streams) -> list[Check]:
    return [check for check in streams.checks if not check.skipped]


def _how(code: int | None) -> str:
    if code is None:
        return "by force"
    if code >= 0:
        return f"with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"by signal {known.get(-code, -code)}"  # most real-time signals have no name
