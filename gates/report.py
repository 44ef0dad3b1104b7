"""What a run of gates says: as data with a stable schema, and as a table for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gates.contract import Check, Verdict, VerdictKind

SCHEMA: Final = 1
_COLOURS: Final = {"pass": "green", "fail": "bold red", "inconclusive": "yellow", "error": "magenta"}


@dataclass(frozen=True)
class Step:
    """One gate of the run; without a verdict it was not run, and `why_not` says why."""

    gate: str
    observe: bool
    verdict: Verdict | None
    why_not: str


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
        return f"{len(decided)} gates passed" if decided else "no gate decides in this profile"

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
        """The table without colours."""
        from rich.console import Console

        buffer = StringIO()
        Console(file=buffer, width=width, no_color=True, highlight=False).print(self.table())
        return buffer.getvalue()

    def table(self) -> RenderableType:
        """For a rich console."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table("gate", "check", "verdict", "what was seen", title=f"{self.model} at {self.endpoint}")
        grid.columns[3].overflow = "fold"
        for step in self.steps:
            for row in _rows(step, self.evidence_dir):
                grid.add_row(*row)
            grid.add_section()
        line = (
            f"{self.verdict}: {self.sentence} ({self.profile}, {self.duration_s:.1f} s, evidence {self.evidence_dir})"
        )
        return Group(grid, Text(line, style=_COLOURS[self.verdict]))


def _rows(step: Step, evidence_dir: str) -> list[tuple[RenderableType, ...]]:
    from rich.text import Text

    name = f"{step.gate} (observing)" if step.observe else step.gate
    if step.verdict is None:
        return [(name, "", Text("-"), Text(step.why_not))]
    kind = str(step.verdict.verdict)
    seconds = f"{step.verdict.duration_s:.1f} s"
    head = (name, Text(seconds), Text(kind, style=_COLOURS[kind]), Text(step.verdict.sentence))
    return [head, *[_check_row(check, evidence_dir) for check in step.verdict.checks]]


def _check_row(check: Check, evidence_dir: str) -> tuple[RenderableType, ...]:
    from rich.text import Text

    kind = "skipped" if check.skipped else str(check.verdict)
    shown = check.sentence.removeprefix("skipped: ")  # the column before says so
    if check.evidence and not check.skipped and check.verdict != "pass":
        shown += f"\n{check.evidence[0].removeprefix(f'{evidence_dir}/')}"  # the last line names the directory
    return ("", check.id, Text(kind, style=_COLOURS.get(kind, "dim")), Text(shown))
