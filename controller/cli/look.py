"""Commands that look: they change nothing."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .options import Json, RolloutId, rollout_path
from .session import session_of


def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Show what is live, what is tried, and who holds which card."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get("/v1/status")
    if as_json:
        session.emit(answer)
        return
    from .draw_status import draw_status
    from .terminal import show

    show(draw_status(answer))


def history(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many, the newest.")] = 20,
    as_json: Json = False,
) -> None:
    """List every rollout with its outcome, the newest first."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get("/v1/rollouts", limit=limit)
    if as_json:
        session.emit(answer)
        return
    from .draw_rollout import draw_history
    from .terminal import console

    if not answer["rollouts"]:
        sys.stdout.write("nothing was ever proposed here: `cutover propose FILE`\n")
        return
    console().print(draw_history(answer["rollouts"]))


def show(ctx: typer.Context, rollout: RolloutId, as_json: Json = False) -> None:
    """Show one rollout: its plan, gates, times, and every why."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get(rollout_path(rollout))
    if as_json:
        session.emit(answer)
        return
    from . import terminal
    from .draw_rollout import draw_rollout

    terminal.show(draw_rollout(answer))


def watch(
    ctx: typer.Context,
    rollout: Annotated[str | None, typer.Argument(metavar="[ID]", help="A rollout; without: everything.")] = None,
    as_json: Json = False,
) -> None:
    """Follow a rollout, or everything, as it happens.

    Ends with the rollout, and with the exit code of its outcome. Without ID it goes on until Ctrl-C.
    """
    session = session_of(ctx, as_json=as_json)
    from .follow import follow_all, follow_rollout, reporter_for, tell_end
    from .outcome import exit_code_of

    client = session.client()
    if rollout is not None:
        client.get(rollout_path(rollout))  # an id that does not exist is told before a footer is drawn
    reporter = reporter_for(session)
    try:
        if rollout is None:
            follow_all(client, reporter)
            return
        ended = follow_rollout(client, rollout, reporter, None)
    finally:
        reporter.close()
    if as_json:
        session.emit_line(ended)
    else:
        tell_end(session, ended)
    raise typer.Exit(exit_code_of(ended))
