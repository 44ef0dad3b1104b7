"""How a rollout that is over is told: its exit code and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ExitCode

_EXIT_CODES: Mapping[str, ExitCode] = {
    "promoted": ExitCode.DONE,
    "measured": ExitCode.DONE,
    "refused": ExitCode.REFUSED,
    "skipped": ExitCode.REFUSED,
    "superseded": ExitCode.REFUSED,
    "rejected": ExitCode.REJECTED,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "aborted": ExitCode.FAILED,
    "failed": ExitCode.FAILED,
    "rolled_back": ExitCode.ROLLED_BACK,
    "rollback_failed": ExitCode.ROLLBACK_FAILED,
}
STYLES: Mapping[str, str] = {
    "promoted": "green",
    "measured": "green",
    "rolled_back": "yellow",
    "inconclusive": "yellow",
    "aborted": "yellow",
    "withdrawn": "dim",
    "superseded": "dim",
    "skipped": "dim",
    "rejected": "red",
    "refused": "red",
    "failed": "red",
    "rollback_failed": "bold red",
}


def exit_code_of(rollout: Mapping[str, Any], *, wanted_back: bool = False) -> ExitCode:
    """`wanted_back`: somebody asked for the release before it, so that `rolled_back` is what they wanted."""
    if not rollout["over"]:
        return ExitCode.STILL_RUNNING
    phase = rollout["phase"]
    if wanted_back or rollout["kind"] == "rollback":
        if phase == "rolled_back":
            return ExitCode.DONE
        if phase == "promoted":
            return ExitCode.FAILED  # it was too late: what should have gone is live
    return _EXIT_CODES[phase]


def outcome_of(rollout: Mapping[str, Any]) -> str:
    """Its phase, or what people call its end: `withdrawn`."""
    return str(rollout.get("outcome", rollout["phase"]))


def sentence_of(rollout: Mapping[str, Any]) -> str:
    """`r0003 demo-c@1a2b3c4d is rejected: gate smoke: …`"""
    phase = outcome_of(rollout).replace("_", " ")
    by = f" by {rollout['abort_by']}" if rollout["phase"] == "aborted" and rollout["abort_by"] else ""
    why = "" if by and rollout["why"] == f"{phase}{by}" else rollout["why"]
    state = f"is {phase}{by}" if rollout["over"] else f"is still {phase}"
    return f"{rollout['id']} {rollout['release']} {state}" + (f": {why}" if why else "")
