"""What a run of gates says: as data with a stable schema. `report_terminal` and `page` show it to people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from gates.contract import Verdict, VerdictKind, first_problem
from gates.errors import GateUsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gates.contract import Check

SCHEMA: Final = 1
PAGE_NAME: Final = "report.html"
"""A run's page beside its evidence."""
_MAX_BYTES: Final = 64 * 1024 * 1024


class Outcome(StrEnum):
    """How a check is shown, in the order in which people want to read: what blocks first."""

    FAIL = "fail"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"
    WAIVED = "waived"
    WARNED = "warned"
    PASSED = "passed"
    SKIPPED = "skipped"


def outcome_of(check: Check) -> Outcome:
    """A waiver is never hidden behind the pass that it gives."""
    if check.skipped:
        return Outcome.SKIPPED
    if check.waived is not None:
        return Outcome.WAIVED
    if check.verdict is not VerdictKind.PASS:
        return Outcome(check.verdict.value)
    return Outcome.WARNED if check.warn else Outcome.PASSED


@dataclass(frozen=True)
class Tally:
    """How often something was tried and how often it was right; `production`: the same of what is live."""

    n: int
    right: int
    lower_bound: float | None = None
    production: tuple[int, int] | None = None

    @property
    def words(self) -> str:
        """``40 of 42 right, at least 85.9 % (production 41 of 42)``."""
        least = f", at least {self.lower_bound * 100:.1f} %" if self.lower_bound is not None else ""
        before = f" (production {self.production[1]} of {self.production[0]})" if self.production else ""
        return f"{self.right} of {self.n} right{least}{before}"


def tally_of(measurements: Mapping[str, Any]) -> Tally | None:
    """The figures of a check that was tried several times. Gates are foreign programs: other shapes are no tally."""
    counted = _counted(measurements)
    if counted is None:
        return None
    bound = measurements.get("lower_bound")
    bound = float(bound) if isinstance(bound, int | float) and 0 <= bound <= 1 else None
    before = measurements.get("production")
    return Tally(*counted, bound, _counted(before) if isinstance(before, Mapping) else None)


def _counted(figures: Mapping[str, Any]) -> tuple[int, int] | None:
    n, right = figures.get("n"), figures.get("right")
    return (n, right) if isinstance(n, int) and isinstance(right, int) and n > 0 else None


@dataclass(frozen=True)
class Step:
    """One gate of the run; without a verdict it was not run, and `why_not` says why."""

    gate: str
    observe: bool
    verdict: Verdict | None
    why_not: str

    @property
    def checks(self) -> list[tuple[Outcome, Check]]:
        """The checks, what blocks first; those of one outcome in the order in which they were decided."""
        found = [(outcome_of(check), check) for check in self.verdict.checks] if self.verdict else []
        order = list(Outcome)
        return sorted(found, key=lambda pair: order.index(pair[0]))

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many checks came out how; only what there is, in the order of `Outcome`."""
        counted = Counter(outcome for outcome, _ in self.checks)
        return {outcome: counted[outcome] for outcome in Outcome if counted[outcome]}


def counts_in_words(counts: Mapping[Outcome, int]) -> str:
    """``2 failed, 1 waived, 40 passed``."""
    words = {Outcome.FAIL: "failed", Outcome.ERROR: "broken"}
    return ", ".join(f"{count} {words.get(outcome, outcome)}" for outcome, count in counts.items())


@dataclass(frozen=True)
class RunReport:
    """The outcome of a profile. `verdict` counts the gates that decide; observing ones are shown only."""

    endpoint: str
    model: str
    profile: str
    verdict: VerdictKind
    steps: tuple[Step, ...]
    started_at: str
    duration_s: float
    evidence_dir: str
    """Empty when the run left no evidence."""

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    @property
    def sentence(self) -> str:
        """Why, in one sentence."""
        decided = [step for step in self.steps if step.verdict is not None and not step.observe]
        for step in decided:
            if step.verdict is not None and step.verdict.verdict is self.verdict and self.exit_code:
                return f"{step.gate}: {step.verdict.sentence}"
        not_run = next((step for step in self.steps if step.verdict is None), None)
        if not_run is not None:
            return f"{not_run.gate}: {not_run.why_not}"
        if not decided:
            return "no gate decides in this profile"
        return f"{len(decided)} gates passed" if len(decided) > 1 else "1 gate passed"

    @property
    def counts(self) -> dict[Outcome, int]:
        """Over all gates, observing ones too."""
        counted = sum((Counter(step.counts) for step in self.steps), Counter[Outcome]())
        return {outcome: counted[outcome] for outcome in Outcome if counted[outcome]}

    def to_dict(self) -> dict[str, Any]:
        """Schema 1, described in docs/gates.md."""
        return {
            "schema": SCHEMA,
            "endpoint": self.endpoint,
            "model": self.model,
            "profile": self.profile,
            "verdict": str(self.verdict),
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "started_at": self.started_at,
            "duration_s": self.duration_s,
            "evidence_dir": self.evidence_dir,
            "steps": [
                {
                    "gate": step.gate,
                    "observe": step.observe,
                    "why_not": step.why_not or None,
                    "verdict": step.verdict.model_dump(mode="json") if step.verdict else None,
                }
                for step in self.steps
            ],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    def text(self, width: int = 120) -> str:
        """What a terminal shows, without colours."""
        from rich.console import Console

        buffer = StringIO()
        Console(file=buffer, width=width, no_color=True, highlight=False).print(self.table())
        return buffer.getvalue()

    def table(self) -> RenderableType:
        """For a rich console."""
        from gates.report_terminal import drawn

        return drawn(self)


def read_report(path: Path) -> RunReport:
    """A report that was saved with ``--json``. Raises `GateUsageError`."""
    expected = "expected the --json report of a gate run"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise GateUsageError(f"{path}: is larger than {_MAX_BYTES // 1024**2} MiB; {expected}.")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise GateUsageError(f"{path}: is not JSON; {expected}.") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise GateUsageError(f'{path}: has no "schema": {SCHEMA}; {expected}.')
    try:
        return _report(document)
    except ValidationError as error:
        raise GateUsageError(f"{path}: {first_problem(error)}; {expected}.") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GateUsageError(f"{path}: something in it is missing or misshapen ({error!r}); {expected}.") from None


def _report(document: Mapping[str, Any]) -> RunReport:
    return RunReport(
        endpoint=str(document["endpoint"]),
        model=str(document["model"]),
        profile=str(document["profile"]),
        verdict=VerdictKind(document["verdict"]),
        steps=tuple(_step(step) for step in document["steps"]),
        started_at=str(document["started_at"]),
        duration_s=float(document["duration_s"]),
        evidence_dir=str(document["evidence_dir"]),
    )


def _step(step: Mapping[str, Any]) -> Step:
    verdict = None if step["verdict"] is None else Verdict.model_validate(step["verdict"])
    return Step(str(step["gate"]), bool(step["observe"]), verdict, str(step.get("why_not") or ""))
