"""A profile's gates against one endpoint, one child process after the other, and the report of what they said."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gates import catalog, child
from gates.capability import read_capability
from gates.contract import GateRequest, Verdict, VerdictKind, combined
from gates.errors import GateUsageError
from gates.profile import GateStep, Profile, load
from gates.report import PAGE_NAME, RunReport, Step
from gates.wire import parse_endpoint

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    Progress = Callable[[Mapping[str, Any]], None]

_ROOT = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class Subject:
    """What is judged, and what is known about it."""

    endpoint: str
    model: str
    evidence_dir: Path
    api_key_env: str | None = None
    capability: Mapping[str, Any] | None = None
    baseline: Mapping[str, Any] | None = None
    engine: str | None = None
    metrics_url: str | None = None
    live_endpoint: str | None = None
    live_model: str | None = None


def run_profile(  # noqa: PLR0913 - the door of the room: everything a gate may be told, by name
    endpoint: str,
    model: str,
    profile: Profile | str | Path,
    *,
    only: Sequence[str] = (),
    evidence_dir: Path | None = None,
    api_key_env: str | None = None,
    capability: Mapping[str, Any] | None = None,
    baseline: Mapping[str, Any] | None = None,
    engine: str | None = None,
    metrics_url: str | None = None,
    live_endpoint: str | None = None,
    live_model: str | None = None,
    checks: Sequence[str] = (),
    on_progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> RunReport:
    """Judge `endpoint` (base URL, with or without ``/v1``) by `profile`, a `Profile` or the name or path of one.

    `only` picks gates by name; `checks` (ids, group letters) lets the acceptance gates ask these alone, and one that
    none of them can ask is refused. `baseline` is handed to every gate as it is; a report of an earlier run (its JSON)
    may be given instead, and each gate then gets the measurements of its own earlier verdict. `live_endpoint` is
    production, for what is asked of both: nothing that loads or may hurt it is. `evidence_dir` may hold earlier runs:
    this one then gets a directory of its own in it, which the report names. `on_progress` is called from other threads.
    Blocks until all gates are done or `cancel` is set. Raises `GateUsageError` when the question itself is wrong; what
    the endpoint or a gate does wrong is in the report.
    """
    parse_endpoint(endpoint)
    if live_endpoint is not None:
        parse_endpoint(live_endpoint)
    if not model or not model.isprintable():
        raise GateUsageError(f"The model name {model!r} is empty or not printable; expected a served model name.")
    read_capability(capability or {})
    chosen = profile if isinstance(profile, Profile) else load(profile)
    if only:
        chosen = chosen.only(only)
    if checks:
        chosen = _with_checks(chosen, checks, only)
    with _evidence_in(evidence_dir, [step.name for step in chosen.gates]) as directory:
        subject = Subject(endpoint, model, directory, api_key_env, capability, baseline, engine, metrics_url)
        subject = replace(subject, live_endpoint=live_endpoint, live_model=live_model)
        report = _run(subject, chosen, on_progress, cancel)
    return report if directory.is_dir() else replace(report, evidence_dir="")


@contextlib.contextmanager
def _evidence_in(wanted: Path | None, gates: Sequence[str]) -> Iterator[Path]:
    """The directory for evidence, absolute. One that nobody asked for goes again when nothing was left in it."""
    if wanted is not None:
        yield _own_place(wanted.absolute(), gates)
        return
    directory = Path(tempfile.mkdtemp(prefix="cutover-evidence-"))
    try:
        yield directory
    finally:
        if not any(path.is_file() for path in directory.rglob("*")):
            shutil.rmtree(directory, ignore_errors=True)


def _own_place(wanted: Path, gates: Sequence[str]) -> Path:
    """`wanted`, or ``run-2``, ``run-3`` … in it where earlier runs have been: no run writes among another's files."""
    places = itertools.chain([wanted], (wanted / f"run-{number}" for number in itertools.count(2)))
    return next(place for place in places if _claimed(place, gates))


def _claimed(place: Path, gates: Sequence[str]) -> bool:
    try:
        if any((place / name).exists() for name in (*gates, PAGE_NAME)):
            return False
        place.mkdir(parents=True, exist_ok=True)
        for name in gates[:1]:
            (place / name).mkdir()
    except OSError as error:
        # Of two runs that begin at once only one can make it.
        if isinstance(error, FileExistsError) and place.is_dir():
            return False
        raise _unwritable(place, error.strerror) from None
    return True


def _unwritable(directory: Path, why: str | None) -> GateUsageError:
    return GateUsageError(f"Evidence cannot be written to {directory}: {why}.")


def _with_checks(profile: Profile, checks: Sequence[str], only: Sequence[str]) -> Profile:
    """Only the acceptance gates that can ask one of these checks, asking these alone. Raises `GateUsageError`."""
    from gates.acceptance import register
    from gates.acceptance.reach import out_of_reach, reach_as_written

    register.select(checks)
    steps = [step for step in profile.gates if step.name in ("smoke", "acceptance")]
    if not steps:
        raise GateUsageError(f"Profile {profile.name!r} has neither gate smoke nor acceptance, so it asks no checks.")
    reaches = [reach_as_written(step.name, step.settings) for step in steps]
    missed = out_of_reach(checks, reaches)
    if missed is not None:
        most = max((reach.tier for reach in reaches), key=lambda tier: tier.order)
        asks = f"gate {' and '.join(step.name for step in steps)} of profile {profile.name!r}"
        goes = f", and {asks} {'go' if len(steps) > 1 else 'goes'} up to {most}" if missed.needs else ""
        raise GateUsageError(f"{missed.why}{goes}: it would not be asked. {_remedy(missed.needs, only)}")
    asked = tuple(
        replace(step, settings={**step.settings, "checks": list(checks)})
        for step, reach in zip(steps, reaches, strict=True)
        if reach.of(checks)
    )
    return replace(profile, gates=asked)


def _remedy(needs: str | None, only: Sequence[str]) -> str:
    if needs is None:
        return "Take it out there, or use another profile."
    gate = " --gate acceptance" if only and "acceptance" not in only else ""
    return f"Use --profile {needs}{gate}, or set `tier: {needs}` for the gate in a profile of your own."


def _run(subject: Subject, profile: Profile, on_progress: Progress | None, cancel: threading.Event | None) -> RunReport:
    started_at, started_s = datetime.now(UTC), time.monotonic()
    steps: list[Step] = []
    blocked_by: str | None = None
    for position, step in enumerate(profile.gates):
        if cancel is not None and cancel.is_set():
            blocked_by = blocked_by or "the run was cancelled"
        if blocked_by:
            steps.append(Step(step.name, step.observe, None, f"not run: {blocked_by}"))
            continue
        if on_progress is not None:
            left = [later.name for later in profile.gates[position + 1 :]]
            on_progress({"gate": step.name, "started": True, "number": position + 1, "left": left})
        verdict = _judge(subject, step, on_progress, cancel)
        steps.append(Step(step.name, step.observe, verdict, ""))
        if verdict.verdict in (VerdictKind.FAIL, VerdictKind.ERROR) and step.stop_early and not step.observe:
            blocked_by = f"gate {step.name} said {verdict.verdict}"
        if on_progress is not None:
            on_progress({"gate": step.name, "verdict": verdict.verdict, "sentence": verdict.sentence, "ended": True})
    return RunReport(
        endpoint=subject.endpoint,
        model=subject.model,
        profile=profile.name,
        verdict=_overall(steps),
        steps=tuple(steps),
        started_at=started_at.isoformat(timespec="milliseconds"),
        duration_s=round(time.monotonic() - started_s, 3),
        evidence_dir=str(subject.evidence_dir),
    )


def _overall(steps: list[Step]) -> VerdictKind:
    kinds = [step.verdict.verdict for step in steps if step.verdict is not None and not step.observe]
    cancelled = any(step.verdict is None for step in steps) and combined(kinds) is VerdictKind.PASS
    # A run that was cancelled between two gates has not seen everything: it must not pass.
    return VerdictKind.ERROR if cancelled else combined(kinds)


def _judge(subject: Subject, step: GateStep, on_progress: Progress | None, cancel: threading.Event | None) -> Verdict:
    request = GateRequest(
        gate=step.name,
        endpoint=subject.endpoint,
        model=subject.model,
        api_key_env=subject.api_key_env,
        profile=step.settings,
        capability=subject.capability or {},
        baseline=_baseline_of(subject.baseline, step.name),
        deadline_s=step.deadline_s,
        evidence_dir=str(subject.evidence_dir / step.name),
        engine=subject.engine,
        metrics_url=subject.metrics_url,
        live_endpoint=subject.live_endpoint,
        live_model=subject.live_model,
    )
    command, environment = _program(step)
    try:
        return child.run_gate(command, request, on_progress=on_progress, cancel=cancel, environment=environment)
    except OSError as error:
        raise _unwritable(subject.evidence_dir, error.strerror) from None


def _program(step: GateStep) -> tuple[list[str], dict[str, str]]:
    if step.command is not None:
        return list(step.command), {}
    gate = catalog.find(step.name)
    # -P: the working directory is the evidence directory, and nothing in there is ever imported.
    return [sys.executable, "-P", "-m", "gates", gate.name], {"PYTHONPATH": _ROOT, "PYTHONUNBUFFERED": "1"}


def _baseline_of(baseline: Mapping[str, Any] | None, gate: str) -> Mapping[str, Any] | None:
    """An earlier report is cut down to what this gate measured then; anything else goes through as it is."""
    steps = baseline.get("steps") if baseline else None
    if not isinstance(steps, list):
        return baseline
    for step in steps:
        if isinstance(step, Mapping) and step.get("gate") == gate and isinstance(step.get("verdict"), Mapping):
            return {"measurements": step["verdict"].get("measurements", {})}
    return None
