"""Commands that need no daemon: the emulated engine and the demonstration."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import Json
from .session import session_of


class DemoEngine(StrEnum):
    EMULATOR = "emulator"
    VLLM = "vllm"


def emulate(ctx: typer.Context) -> None:
    """Run an emulated engine: see `cutover emulate --help`."""
    session_of(ctx)
    from launch.engines.emulator.__main__ import main

    raise typer.Exit(main(ctx.args, prog="cutover emulate"))


def demo(
    ctx: typer.Context,
    engine: Annotated[DemoEngine, typer.Option("--engine", help="What to serve with.")] = DemoEngine.EMULATOR,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before something large is installed.")] = False,
    keep_state: Annotated[
        Path | None,
        typer.Option("--keep-state", metavar="DIR", help="Use this directory and leave everything in it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """See the whole path once, without a GPU.

    Two promotions, a rejection, a bake gone bad, a rollback, with clients talking to it all the time.
    """
    session_of(ctx, as_json=as_json)
    from ..demo import main

    raise typer.Exit(main(engine.value, yes=yes, as_json=as_json, keep=keep_state))
