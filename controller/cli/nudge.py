"""`cutover nudge`: the loop looks now, and says what it waits for."""

from __future__ import annotations

import sys

import typer

from .options import Json
from .session import session_of


def nudge(ctx: typer.Context, as_json: Json = False) -> None:
    """Make the daemon look now, and say what it waits for.

    Nothing depends on it: the daemon has its own clock. The nightly timer asks, so that a night in which no daemon runs
    is seen as a failed unit. Exit code 0 also with nothing to do; 1 when no daemon answers, or it hangs.
    """
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post("/v1/nudge", keyed=False)
    if as_json:
        session.emit(answer)
    else:
        for line in (answer["sentence"], *(w["sentence"] for w in answer["windows"]), *answer["alarms"]):
            sys.stdout.write(f"{line}\n")
    raise typer.Exit(0 if answer["looked"] else 1)
