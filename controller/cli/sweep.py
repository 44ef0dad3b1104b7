"""`cutover sweep FILE`: a matrix of topologies, each tried and none switched to; list, show and withdraw sweeps."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ..errors import NotFoundError
from .ask import Gates, Strategy, _noted, _profile
from .moment import moment
from .options import Json, Overrule, examples, overruled, rollout_path
from .session import session_of

RUN = "run"


class _FileFirst(TyperGroup):
    """``cutover sweep FILE`` is ``cutover sweep run FILE``: what is no command's name is a file, or an option of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Its own, its commands, and then what FILE takes: nobody looks for that behind a name that may be left out."""
        super().format_options(ctx, formatter)
        command = self.commands[RUN]
        of_run = type(ctx)(command, info_name=RUN, parent=ctx)
        rows = (each.get_help_record(of_run) for each in command.get_params(of_run) if "--help" not in each.opts)
        with formatter.section("With FILE (as `cutover sweep run FILE`)"):
            formatter.write_dl([row for row in rows if row is not None])


app = typer.Typer(
    cls=_FileFirst,
    help="Try every combination of a topology's matrix (its key `sweep`) beside live, and say which is better.",
    no_args_is_help=True,
    subcommand_metavar="FILE [OPTIONS] | COMMAND",
    rich_markup_mode=None,
    epilog=examples(
        "cutover sweep qwen27b-mtp.yaml --dry-run",
        "cutover sweep qwen27b-mtp.yaml --window nightly --on-success ask",
        "cutover sweep show s0001 --json",
    ),
)
SweepId = Annotated[str, typer.Argument(metavar="ID", help="A sweep, as s0001; `cutover sweep list` lists them.")]


@app.command(
    RUN,
    epilog=examples(
        "cutover sweep run qwen27b-mtp.yaml --dry-run",
        "cutover sweep run qwen27b-mtp.yaml --window nightly --expires 3d",
        "cutover sweep run qwen27b-mtp.yaml --window nightly --on-success switch --skip-refused --json",
    ),
)
def run(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A topology with a key `sweep` (docs/sweeps.md).")],
    window: Annotated[
        str, typer.Option("--window", metavar="NAME", help="Arms begin only while this window is open; else now.")
    ] = "",
    on_success: Annotated[
        Literal["report", "ask", "switch"] | None,
        typer.Option(
            "--on-success", help="The best arm is only named, proposed and held for approval, or proposed. [report]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Freeze and examine every arm, list them, and file nothing.")
    ] = False,
    skip_refused: Annotated[
        bool, typer.Option("--skip-refused", help="Leave out arms that are refused; else one refuses all of them.")
    ] = False,
    strategy: Strategy = "auto",
    gates: Gates = None,
    overrule: Overrule = None,
    priority: Annotated[
        int,
        typer.Option("--priority", min=-1000, max=1000, help="Among those that wait, higher goes first; proposals: 0."),
    ] = -1,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="WHEN", help="Arms not begun by then (3d, 06:00, 2026-12-01) are skipped."),
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Kept with every arm.")] = "",
    as_json: Json = False,
) -> None:
    """Try every arm of FILE: started, judged, compared with live, and stopped again; `run` may be left out.

    Production stays as it is, unless --on-success proposes the best arm, with gates of its own.
    """
    session = session_of(ctx, as_json=as_json)
    body = {
        **_sweep(file),
        "window": window,
        "on_success": on_success,
        "skip_refused": skip_refused,
        "strategy": strategy,
        "gates": _profile(gates),
        "overruled": overruled(overrule),
        "priority": priority,
        "expires_at": moment("--expires", expires, time.time()),
        "note": note,
    }
    client = session.client()
    answer = client.post("/v1/sweeps/look", body, keyed=False) if dry_run else client.post("/v1/sweeps", body)
    if as_json:
        session.emit(answer)
        return
    _noted(answer["sheet"], as_json=False)
    if dry_run:
        from .draw_sweep import draw_sheet
        from .terminal import show as tell

        tell(draw_sheet(answer["sheet"]))
        return
    _filed(answer)


@app.command("list", epilog=examples("cutover sweep list", "cutover sweep list --json | jq -r '.sweeps[].pick'"))
def listed(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many, the newest.")] = 20,
    as_json: Json = False,
) -> None:
    """List sweeps, the newest first: what was picked, or what is left."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get("/v1/sweeps", limit=limit)
    if as_json:
        session.emit(answer)
        return
    if not answer["sweeps"]:
        sys.stdout.write("nothing was ever swept here: `cutover sweep FILE`\n")
        return
    from .draw_sweep import draw_sweeps
    from .terminal import console

    console().print(draw_sweeps(answer["sweeps"]))


@app.command(epilog=examples("cutover sweep show s0001", "cutover sweep show s0001 --json | jq '.arms[0]'"))
def show(ctx: typer.Context, sweep: SweepId, as_json: Json = False) -> None:
    """Show one sweep: its arms in order, each against live with its bounds, the pick, and what is left."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get(_path(sweep))
    if as_json:
        session.emit(answer)
        return
    from .draw_sweep import draw_sweep
    from .terminal import show as tell

    tell(draw_sweep(answer))


@app.command(epilog=examples("cutover sweep withdraw s0001", "cutover sweep withdraw s0001 --json"))
def withdraw(ctx: typer.Context, sweep: SweepId, as_json: Json = False) -> None:
    """Take a sweep back: the arm that runs is ended, those that wait are not begun."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post(f"{_path(sweep)}/withdraw")
    if as_json:
        session.emit(answer)
        return
    sys.stdout.write(f"{sweep} ({answer['name']}) is {answer['why']}; what was measured stays in the ledger\n")


def _sweep(file: Path) -> dict[str, Any]:
    """The file's text for the daemon. Expanded here first: a mistake needs no daemon to be told."""
    from launch import sweep
    from launch.topology import text_of

    text = text_of(file)
    sweep.parse(text, source=str(file))
    return {"topology": text, "source": str(file.absolute())}


def _path(sweep: str) -> str:
    try:
        rollout_path(sweep)
    except NotFoundError:
        raise NotFoundError(f"there is no sweep {sweep}: `cutover sweep list` lists them") from None
    return f"/v1/sweeps/{sweep}"


def _filed(answer: dict[str, Any]) -> None:
    sweep, refused = answer["sweep"], [arm for arm in answer["sheet"]["arms"] if arm["refused"]]
    for arm in refused:
        sys.stderr.write(f"left out, {arm['name']}: {arm['refused']}\n")
    count = len(sweep["arms"])
    more = f"; {answer['sentence']}" if answer["sentence"] else ""
    arms = f"{count} arm{'s' * (count != 1)}" + (f", {len(refused)} left out" if refused else "")
    sys.stdout.write(f"{sweep['id']} (sweep {sweep['name']}, {arms}) is filed{more}\n")
    sys.stdout.write(f"look at it with `cutover sweep show {sweep['id']}`\n")
