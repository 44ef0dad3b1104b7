"""Options that several commands share, and how examples are shown."""

from __future__ import annotations

from typing import Annotated

import typer

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
