"""The report as a terminal shows it: what blocks first, with sentence, rule and evidence; what passed in few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gates.report import Outcome, counts_in_words, tally_of
from gates.visible import printable

__all__ = ["drawn", "printable"]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from gates.contract import Check
    from gates.report import RunReport, Step

_STYLES: Final = {
    "fail": "bold red",
    "error": "bold magenta",
    "inconclusive": "yellow",
    "waived": "cyan",
    "warned": "yellow",
    "pass": "green",
    "passed": "green",
    "skipped": "dim",
}
_FEW: Final = 12
"""A gate with no more checks than this shows each that passed on a line of its own."""
_MAX_PATHS: Final = 3


def drawn(report: RunReport) -> RenderableType:
    """The whole report, for a rich console of 80 columns and more."""
    head = _text(f"{report.model} at {report.endpoint}", "bold")
    parts: list[RenderableType] = [head]
    for step in report.steps:
        parts += ["", *_gate(step, report.evidence_dir)]
    return Group(*parts, "", *_conclusion(report))


def _conclusion(report: RunReport) -> Iterator[RenderableType]:
    waived = [check for step in report.steps for o, check in step.checks if o is Outcome.WAIVED]
    if waived:
        reasons = "; ".join(f"{check.id}: {check.waived or 'no reason is given'}" for check in waived)
        yield _text(f"waived: {reasons}", _STYLES["waived"])
    evidence = [f"evidence in {report.evidence_dir}"] if report.evidence_dir else []
    counts = [counts_in_words(report.counts)] if report.counts else []
    about = "; ".join([*counts, f"profile {report.profile}", f"{report.duration_s:.1f} s", *evidence])
    yield _text(about, "dim")
    # The verdict is the last line, as everywhere.
    yield _text(f"{report.verdict}: {report.sentence}", _STYLES[report.verdict])


def _gate(step: Step, evidence_dir: str) -> Iterator[RenderableType]:
    name = f"{step.gate} (observing)" if step.observe else step.gate
    if step.verdict is None:
        yield Text.assemble((printable(name), "bold"), "  -  ", printable(step.why_not))
        return
    kind = str(step.verdict.verdict)
    yield Text.assemble(
        (printable(name), "bold"),
        "  ",
        (kind, _STYLES[kind]),
        f"  {counts_in_words(step.counts)}" if step.counts else "",
        (f"  {step.verdict.duration_s:.1f} s", "dim"),
    )
    yield Padding(_text(step.verdict.sentence), (0, 0, 0, 2))
    yield Padding(_checks(step, evidence_dir), (0, 0, 0, 2))
    for notice in _waivers(step):
        yield Padding(_text(f"waiver: {notice}", _STYLES["waived"]), (0, 0, 0, 2))


def _waivers(step: Step) -> Iterator[str]:
    """Every waiver every time, also one that has expired or is not needed any more."""
    notices = step.verdict.measurements.get("waivers") if step.verdict is not None else None
    for notice in notices if isinstance(notices, list) else ():
        sentence = notice.get("sentence") if isinstance(notice, dict) else None
        if isinstance(sentence, str):
            yield sentence


def _checks(step: Step, evidence_dir: str) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, max_width=28, overflow="ellipsis")
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    brief = [pair for pair in step.checks if _is_brief(pair[0], step)]
    for outcome, check in step.checks:
        if (outcome, check) not in brief:
            grid.add_row(*_row(outcome, check, evidence_dir))
    for outcome in (Outcome.PASSED, Outcome.SKIPPED):
        rows = [check for found, check in brief if found is outcome]
        if rows:
            grid.add_row(*_summary(outcome, rows))
    return grid


def _is_brief(outcome: Outcome, step: Step) -> bool:
    return outcome in (Outcome.PASSED, Outcome.SKIPPED) and sum(step.counts.values()) > _FEW


def _row(outcome: Outcome, check: Check, evidence_dir: str) -> tuple[RenderableType, ...]:
    said = Text(printable(check.sentence.removeprefix("skipped: ")))  # the column before says so
    for label, text in _details(outcome, check, evidence_dir):
        said.append(f"\n{label} ", "dim")
        said.append(printable(text), "dim" if label == "rule" else "")
    style = _STYLES[outcome]
    return (_text(check.id, "" if outcome is Outcome.PASSED else "bold"), _text(outcome, style), said)


def _details(outcome: Outcome, check: Check, evidence_dir: str) -> Iterator[tuple[str, str]]:
    if outcome is Outcome.WAIVED:
        yield "waived", check.waived or "no reason is given"
    tally = tally_of(check.measurements)
    if outcome in (Outcome.PASSED, Outcome.SKIPPED):
        if tally is not None and tally.words not in check.sentence:
            yield "tried", tally.words
        return
    if check.rule:
        yield "rule", check.rule
    if tally is not None:
        yield "tried", tally.words
    layer = check.measurements.get("layer")
    if isinstance(layer, str) and layer not in check.sentence:
        yield "layer", layer
    # The last line names the directory: what follows it is enough, and is never broken in two.
    for path in check.evidence[:_MAX_PATHS]:
        yield "evidence", path.removeprefix(f"{evidence_dir}/") if evidence_dir else path


def _summary(outcome: Outcome, checks: list[Check]) -> tuple[RenderableType, ...]:
    """All of one outcome in a row."""
    said = _skipped(checks) if outcome is Outcome.SKIPPED else _passed(checks)
    return (_text(str(len(checks))), _text(outcome, _STYLES[outcome]), said)


def _passed(checks: list[Check]) -> Text:
    """Ids, and for what was tried several times how often it was right."""
    said = Text()
    for number, check in enumerate(sorted(checks, key=lambda one: one.id)):
        said.append(f"{', ' if number else ''}{printable(check.id)}")
        tally = tally_of(check.measurements)
        if tally is not None:
            least = f" ≥ {tally.lower_bound * 100:.0f} %" if tally.lower_bound is not None else ""
            said.append(f" {tally.right}/{tally.n}{least}", "dim")
    return said


def _skipped(checks: list[Check]) -> Text:
    """Ids by the reason that they share."""
    by_reason: dict[str, list[str]] = {}
    for check in checks:
        by_reason.setdefault(check.sentence.removeprefix("skipped: "), []).append(check.id)
    lines = [Text.assemble(printable(", ".join(ids)), (f": {printable(why)}", "dim")) for why, ids in by_reason.items()]
    return Text("\n").join(lines)


def _text(text: Any, style: str = "") -> Text:
    return Text(printable(str(text)), style=style)
