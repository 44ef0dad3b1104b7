"""Gates as child processes under a shim: a gate that hangs, leaks or crashes costs one verdict, never the daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates.contract import (
    MAX_DOCUMENT_BYTES,
    Deployment,
    GateRequest,
    Verdict,
    VerdictKind,
    broken,
    parse_verdict,
)
from launch import attempts as launched
from launch.attempts import AttemptSpec, Status
from launch.engine_key import KEY
from launch.errors import LaunchError

from ..core.actions import Outcome
from ..core.seen import GateSeen

_GRACE_S = 5.0
_DEADLINE_SLACK_S = 10.0  # the gate keeps its own deadline; the shim's is for one that does not


@dataclass(frozen=True, slots=True)
class GateOrder:
    """What a gate run needs besides its name."""

    endpoint: str
    model: str
    step: Mapping[str, Any]
    capability: Mapping[str, Any]
    baseline: Mapping[str, Any] | None
    engine: str
    live_endpoint: str | None = None
    live_model: str | None = None
    candidate: Deployment | None = None
    live: Deployment | None = None
    ledger: Path | None = None
    key: str | None = field(default=None, repr=False)
    """What the front door's own ways in and the engines want; told in the gate's environment alone."""


class GateRunner:
    """Runs lie under `gates/<run>`: request.json, verdict.json, evidence/."""

    def __init__(
        self,
        directory: Path,
        slack_s: float = _DEADLINE_SLACK_S,
        manager: Path | None = None,
        disk_is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`manager`: socket of a service manager that gives each run a unit of its own."""
        self.directory = directory
        self._disk_is_full = disk_is_full
        self._manager = manager
        self._slack_s = slack_s
        self._done: dict[str, GateSeen] = {}

    def start(self, run: str, gate: str, order: GateOrder) -> Outcome:
        run_dir = self.directory / run
        evidence = run_dir / "evidence"
        deadline_s = float(order.step["deadline_s"])
        request = GateRequest(
            gate=gate,
            endpoint=order.endpoint,
            model=order.model,
            api_key_env=KEY if order.key is not None else None,
            profile=dict(order.step.get("settings", {})),
            capability=dict(order.capability),
            baseline=order.baseline,
            deadline_s=deadline_s,
            evidence_dir=str(evidence),
            engine=order.engine or None,
            live_endpoint=order.live_endpoint,
            live_model=order.live_model,
            candidate=order.candidate,
            live=order.live,
            ledger=str(order.ledger) if order.ledger is not None else None,
        )
        command = order.step.get("command") or (sys.executable, "-m", "gates", gate)
        try:
            evidence.mkdir(parents=True, exist_ok=True, mode=0o700)
            request_file = self.directory / f"{run}.request.json"
            request_file.write_text(request.model_dump_json(indent=2) + "\n")
            launched.start(
                AttemptSpec(
                    attempt_id=run,
                    run_dir=run_dir,
                    argv=tuple(str(word) for word in command),
                    environment={KEY: order.key} if order.key is not None else {},
                    stdin=request_file,
                    stdout=run_dir / "verdict.json",
                    deadline_s=deadline_s + self._slack_s,
                    grace_s=_GRACE_S,
                    manager=self._manager,
                )
            )
        except (LaunchError, OSError) as error:
            return Outcome(False, f"gate {gate} could not be started: {error}")
        return Outcome(True)

    def look(self, run: str, gate: str) -> GateSeen | None:
        """The verdict of a run that is over, else None."""
        if run in self._done:
            return self._done[run]
        run_dir = self.directory / run
        seen = launched.observe(run_dir)
        if seen.status is Status.RUNNING:
            return None
        if seen.status is Status.STRAYS:
            launched.kill_strays(run_dir, force=True)
        verdict = self._verdict(run_dir, gate, seen)
        full = verdict.verdict is VerdictKind.ERROR and self._disk_is_full()  # whatever it died of, that is why
        sentence = f"the disk of {self.directory} is full: {verdict.sentence}" if full else verdict.sentence
        done = GateSeen(str(verdict.verdict), sentence, dict(verdict.measurements))
        self._done[run] = done
        return done

    def _verdict(self, run_dir: Path, gate: str, seen: launched.ProcessSeen) -> Verdict:
        if seen.reason == "deadline":
            return broken(gate, "the gate did not end by its deadline and was stopped")
        try:
            verdict = parse_verdict(_written(run_dir), gate)
        except OSError as error:
            return broken(gate, f"the gate left no verdict ({error.strerror}, {seen.reason})")
        # The exit code of a gate is not read, but where it broke it is the first thing that helps.
        if verdict.verdict is VerdictKind.ERROR and not verdict.checks and seen.exit_code != verdict.exit_code:
            return verdict.model_copy(update={"sentence": f"{verdict.sentence} ({_how_it_ended(run_dir, seen)})"})
        return verdict

    def stop(self, run: str) -> Outcome:
        run_dir = self.directory / run
        try:
            launched.request_stop(run_dir)
            launched.kill_strays(run_dir, force=True)
        except (LaunchError, OSError) as error:
            return Outcome(False, str(error))
        return Outcome(True)

    def report(self, run: str) -> dict[str, Any] | None:
        """The whole verdict of a run, for people."""
        try:
            verdict = parse_verdict(_written(self.directory / run))
        except OSError:
            return None
        return {**json.loads(verdict.model_dump_json()), "evidence_dir": str(self.directory / run / "evidence")}


def _written(run_dir: Path) -> bytes:
    """What a gate wrote to stdout: bytes, for it may be any program, and no more than shows that it is too much."""
    with (run_dir / "verdict.json").open("rb") as file:
        return file.read(MAX_DOCUMENT_BYTES + 1)


def _how_it_ended(run_dir: Path, seen: launched.ProcessSeen) -> str:
    if seen.signal is not None:
        how = f"killed by signal {seen.signal}"
    else:
        how = f"exit code {seen.exit_code}" if seen.exit_code is not None else seen.reason
    words = [line.strip() for line in launched.log_tail(run_dir, 5).splitlines() if line.strip()]
    return f"{how}; its last words: {words[-1][:200]}" if words else how
