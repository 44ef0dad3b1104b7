"""Options that several commands share, and how examples are shown."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from ..errors import NotFoundError, UsageError

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON on stdout (docs/cli.md has the schema).")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it is over; the exit code is its outcome.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0.0, metavar="SECONDS", help="With --wait: leave after that long, with exit code 13."
    ),
]
RolloutId = Annotated[str, typer.Argument(metavar="ID", help="A rollout, as r0003; `cutover history` lists them.")]


Overrule = Annotated[
    list[str] | None,
    typer.Option(
        "--overrule",
        metavar="RULE=REASON",
        help="Go on although this preflight rule (or check of a start: cards, kv-pool) refuses; the reason is kept.",
    ),
]


def overruled(words: list[str] | None) -> dict[str, str]:
    """Rule → reason. Raises `UsageError` for what is not RULE=REASON, and names the nearest of a rule that is none."""
    from launch.compat import unknown_rule

    from ..core.verify import CHECKS

    found: dict[str, str] = {}
    for word in words or ():
        rule, _, reason = word.partition("=")
        sentence = unknown_rule(rule)
        if sentence is not None and rule not in CHECKS:
            raise UsageError(f"--overrule: {sentence}")
        if not reason.strip():
            raise UsageError(f"--overrule {rule} takes a reason, which stays in the record: --overrule {rule}=REASON")
        found[rule] = reason.strip()
    return found


def examples(*lines: str) -> str:
    """For `epilog`: the lines as they would be typed. The leading backspace tells click not to fold them."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


_ID = re.compile(r"[A-Za-z0-9._@-]+")


def rollout_path(rollout_id: str) -> str:
    """Where the API has it. What cannot be an id is not found without asking."""
    if not _ID.fullmatch(rollout_id) or not rollout_id.strip("."):
        raise NotFoundError(f"there is no rollout {rollout_id}: `cutover history` lists them")
    return f"/v1/rollouts/{rollout_id}"


def release_path(release_id: str) -> str:
    """The same for a release."""
    if not _ID.fullmatch(release_id) or not release_id.strip("."):
        raise NotFoundError(f"there is no release {release_id}: `cutover release list` lists them")
    return f"/v1/releases/{release_id}"
