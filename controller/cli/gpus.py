"""`cutover gpus`: every card, who is on it, and how near the others are."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .session import Session, session_of

if TYPE_CHECKING:
    from .client import Client

REDRAW_S = 2.0  # as often as the daemon asks NVML


def gpus(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Draw it anew every 2 s until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show every GPU: memory, power, who holds it or sits on it, and the host's own memory and disk.

    With --watch --json one document per line.
    """
    session = session_of(ctx, as_json=as_json)
    client = session.client()
    answer = client.get("/v1/gpus")
    if watch:
        client.patient = True
        _watch(session, client, answer)
    elif as_json:
        session.emit(answer)
    else:
        _print(answer)


def _watch(session: Session, client: Client, answer: dict[str, Any]) -> None:
    if session.as_json:
        while True:
            session.emit_line(answer)
            answer = _next(client)
    if not sys.stdout.isatty():
        while True:
            _print(answer)
            sys.stdout.write("\n")
            answer = _next(client)
    _redraw(client, answer)


def _next(client: Client) -> dict[str, Any]:
    time.sleep(REDRAW_S)
    return client.get("/v1/gpus")


def _print(answer: dict[str, Any]) -> None:
    from .draw_gpus import draw_gpus
    from .terminal import show

    show(draw_gpus(answer))
    sys.stdout.flush()


def _redraw(client: Client, answer: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.live import Live

    from .draw_gpus import draw_gpus
    from .terminal import console

    with Live(Group(*draw_gpus(answer)), console=console(), auto_refresh=False) as live:
        while True:
            answer = _next(client)
            live.update(Group(*draw_gpus(answer)), refresh=True)
