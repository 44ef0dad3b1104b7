"""The preflight rules at the desk: what is refused, what is noted with the plan, what somebody has overruled."""

from __future__ import annotations

from collections.abc import Mapping

from launch.compat import Finding, Report, unknown_rule

from ..core.verify import CHECKS
from ..errors import RefusedError, UsageError


def require_known(overruled: Mapping[str, str]) -> None:
    """Raises `UsageError` for a rule or a check of starts that does not exist, or a reason that is none."""
    for rule, reason in overruled.items():
        sentence = unknown_rule(rule)
        if sentence is not None and rule not in CHECKS:
            raise UsageError(sentence)
        if not reason.strip():
            raise UsageError(f"to overrule {rule} takes a reason: it stays in the rollout's record")


def require_passed(report: Report, release: str, overruled: Mapping[str, str]) -> None:
    """Raises `RefusedError` with the first finding that refuses and that nobody overruled."""
    refusals = report.refused(overruled)
    if not refusals:
        return
    first = refusals[0]
    others = ", ".join(finding.rule for finding in refusals[1:])
    more = f"; refused too by {others}" if others else ""
    raise RefusedError(
        f"preflight refuses {release}: {first.sentence} (rule {first.rule}{more}); "
        f"who knows better proposes with --overrule {first.rule}=REASON"
    )


def notes(report: Report, overruled: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each finding, to be shown with the plan."""
    return tuple(_note(finding, overruled.get(finding.rule)) for finding in report.findings)


def _note(finding: Finding, reason: str | None) -> str:
    said = f"preflight: {finding.sentence} (rule {finding.rule})"
    return f"{said}; overruled: {reason}" if reason is not None else said
