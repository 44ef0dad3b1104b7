"""Options that several commands share, and how examples are shown."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from ..errors import NotFoundError

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON on stdout (docs/cli.md has the schema).")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it is over; the exit code is its outcome.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0.0, metavar="SECONDS", help="With --wait: leave after that long, with exit code 13."
    ),
]
RolloutId = Annotated[str, typer.Argument(metavar="ID", help="A rollout, as r0003; `cutover history` lists them.")]


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
