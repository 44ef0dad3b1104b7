"""Commands about what waits: look at the queue, take something out of it, change its order."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, RolloutId, rollout_path
from .session import session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.text import Text


def queue(ctx: typer.Context, as_json: Json = False) -> None:
    """List what waits, in order: for which window, for what besides, and until when.

    Windows are set in cutover.yaml (`schedule`).
    """
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get("/v1/queue")
    if as_json:
        session.emit(answer)
        return
    from .terminal import show

    show(draw_queue(answer))


def withdraw(ctx: typer.Context, rollout: RolloutId, as_json: Json = False) -> None:
    """Take a proposal back that has not begun."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post(f"{rollout_path(rollout)}/withdraw")
    if session.as_json:
        session.emit(answer)
        return
    sys.stdout.write(f"{rollout} ({answer['rollout']['release']}) is withdrawn\n")


def reorder(
    ctx: typer.Context,
    rollout: RolloutId,
    priority: Annotated[
        int,
        typer.Argument(min=-1000, max=1000, help="Higher goes first; 0 is what a proposal has that asks for nothing."),
    ],
    as_json: Json = False,
) -> None:
    """Give a proposal that waits another PRIORITY.

    Among equals the oldest goes first; rollbacks go before everything.
    """
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post(f"{rollout_path(rollout)}/priority", {"priority": priority}, keyed=False)
    if session.as_json:
        session.emit(answer)
        return
    sys.stdout.write(f"{rollout} has priority {priority}; `cutover queue` shows the order\n")


def draw_queue(answer: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    from .terminal import clock

    for window in answer["windows"]:
        yield _window(window)
    if not answer["windows"]:
        yield Text("no window is configured: proposals run when their turn comes (`schedule` in cutover.yaml)", "dim")
    freeze = answer["freeze"]
    if freeze:
        until = f" until {clock(freeze['until_wall_s'])}" if freeze["until_wall_s"] else ""
        yield Text(f"FROZEN by {freeze['by']}{until}: {freeze['why']}", style="bold blue")
    if not answer["queue"]:
        yield Text("nothing waits")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "release", "window", "priority", "expires", "waits for"):
        table.add_column(name, overflow="fold", no_wrap=name not in {"release", "waits for"})
    for _, following in groupby(answer["queue"], key=lambda each: (each["sweep"] or each["id"], each["priority"])):
        waiting, *others = following
        kind = "" if waiting["kind"] == "propose" else f" ({waiting['kind']})"
        trial = f" (arm of {waiting['sweep']})" if waiting["sweep"] else " (trial)" if waiting["trial"] else ""
        more = f", and {len(others)} more" if others else ""
        table.add_row(
            waiting["id"],
            f"{waiting['release']}{kind}{trial}{more}",
            waiting["window"] or "—",
            str(waiting["priority"]),
            clock(waiting["expires"]),
            waiting["waits_for"],
        )
    yield table


def _window(window: dict[str, Any]) -> Text:
    from rich.text import Text

    zone = window["timezone"]
    if window["open"]:
        return Text(f"window {window['name']} is open until {window['closes_local']} ({zone})", style="green")
    return Text(f"window {window['name']} opens {window['next_local']} ({zone})")
