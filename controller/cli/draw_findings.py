"""What preflight found, as a person reads it: refusals first, each with its rule, its remedy and its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from launch.compat import Report
    from launch.release import Release

_STYLES = {"refuse": "bold red", "warn": "yellow"}


def draw_findings(release: Release, report: Report) -> Iterator[Text]:
    """One paragraph per finding, then what could not be judged here, then the sum."""
    from rich.text import Text

    everywhere = len(release.topology.instances)
    for finding in report.findings:
        text = Text.assemble((finding.level.value, _STYLES[finding.level.value]), f"  {finding.rule}")
        if len(finding.instances) < everywhere:
            text.append(f"  instance {', '.join(finding.instances)}", "dim")
        text.append(f"\n  {finding.sentence}")
        yield text.append(f"\n  {'; '.join(finding.source)}", "dim")
    rules: dict[str, list[str]] = {}
    for rule, why in report.untold:
        rules.setdefault(why, []).append(rule)
    for why, untold in rules.items():
        yield Text(f"not judged: {', '.join(untold)}: {why}", "dim")
    yield Text(_sum(release, report))


def _sum(release: Release, report: Report) -> str:
    refusals = len(report.refused())
    warnings = len(report.findings) - refusals
    if not report.findings:
        return f"{release.id}: nothing that is known speaks against it"
    parts = [_counted(refusals, "refusal"), _counted(warnings, "warning")]
    return f"{release.id}: {', '.join(part for part in parts if part)}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number > 1 else ''}" if number else ""
