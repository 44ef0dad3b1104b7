"""Commands that need no daemon: the emulated engine and the demonstration."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .options import Json
from .session import session_of


class DemoStrategy(StrEnum):
    BLUE_GREEN = "blue-green"
    ROLLING = "rolling"
    SWAP = "swap"


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
    strategy: Annotated[
        DemoStrategy,
        typer.Option("--strategy", help="blue-green: with free cards; rolling, swap: all four cards serve."),
    ] = DemoStrategy.BLUE_GREEN,
    night: Annotated[
        bool, typer.Option("--night", help="Three candidates wait for a window, and a report tells of it.")
    ] = False,
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
    if engine is DemoEngine.VLLM and strategy is not DemoStrategy.BLUE_GREEN:
        raise UsageError(f"--strategy {strategy.value} is played with the emulator; leave out --engine vllm")
    if night and (engine is DemoEngine.VLLM or strategy is not DemoStrategy.BLUE_GREEN):
        raise UsageError("--night is played with the emulator and with free cards; leave out --engine and --strategy")
    from ..demo import main

    done = main(engine.value, strategy=strategy.value, night=night, yes=yes, as_json=as_json, keep=keep_state)
    raise typer.Exit(done)
