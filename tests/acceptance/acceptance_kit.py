"""What the tests of the acceptance checks share besides fixtures."""

from __future__ import annotations

from gates.contract import Verdict


def failed_checks(verdict: Verdict) -> set[str]:
    return {check.id for check in verdict.checks if check.verdict == "fail"}
