"""`cutover doctor`: is this box able to serve, and what would help. Works with and without a daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import CutoverError
from .options import Json
from .session import Session, session_of

if TYPE_CHECKING:
    from ..config import Config
    from .checks import Check


def doctor(
    ctx: typer.Context,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="The journal is lost or damaged: make a new one of what runs. No daemon may run."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Look whether this box is in order; say what would help.

    Exit code 1 when something is not; a hint (–) is no fault. Works with and without a daemon.
    """
    from .terminal import log_to_stderr

    session = session_of(ctx, as_json=as_json)
    log_to_stderr()
    if rebuild:
        _rebuild(session)
        return
    found = list(_checks(session))
    healthy = all(check.ok is not False for check in found)
    if as_json:
        session.emit({"schema": 1, "ok": healthy, "checks": [asdict(check) for check in found]})
    else:
        _draw(found)
    raise typer.Exit(0 if healthy else 1)


def _rebuild(session: Session) -> None:
    from .rebuild import document, rebuild_journal, words

    told = document(rebuild_journal(session.config()))
    if session.as_json:
        session.emit(told)
    else:
        sys.stdout.write("".join(f"{sentence}\n" for sentence in words(told)))


def _checks(session: Session) -> Iterator[Check]:
    from .checks import Check

    try:
        config = session.config()
    except CutoverError as error:
        yield Check("configuration", False, str(error), "nothing else can be looked at before that")
        return
    yield Check("configuration", True, config.source)
    yield from _box(session, config)


def _box(session: Session, config: Config) -> Iterator[Check]:
    from ..effects.clock import Clock
    from . import checks
    from .check_service import service
    from .check_strays import strays
    from .check_windows import windows

    now = Clock().now()
    status, held, daemon = _ask_daemon(session, config)
    runs = checks.look_at_runs(config)
    yield daemon
    yield checks.state_directory(config, status)
    yield checks.journal(config)
    yield checks.ledger(config)
    yield checks.backup(config, now.wall_s)
    yield checks.disk(config)
    yield checks.haproxy(config)
    yield checks.router()
    yield from checks.addresses(config, status)
    yield checks.instance_ports(config, runs.ports)
    yield checks.gpus(config, status, runs)
    yield checks.front_door(status, config)
    yield checks.live(status)
    yield checks.alarms(status)
    yield from windows(config, now.wall_s)
    yield from service(config)
    if config.notify:
        from .notify import check

        yield check(config)
    gate_runs = {name: "gate" for name in runs.running if (config.gates_dir / name).is_dir()}
    yield strays(runs, None if held is None else gate_runs | held)


def _ask_daemon(session: Session, config: Config) -> tuple[dict[str, Any] | None, dict[str, str] | None, Check]:
    """The daemon's status, whose its attempts are that hold something, and how it answered."""
    from .check_strays import whose
    from .checks import Check, never_started
    from .client import NoDaemonError

    try:
        client = session.client()
        status = client.get("/v1/status")
        listed = client.get("/v1/attempts")["attempts"]
    except NoDaemonError as error:
        if session.socket_path is None and never_started(config):
            hint = f"not started yet: nothing is in {config.state_dir}"
            return None, None, Check("daemon", None, hint, "`cutover serve`, or `systemctl start cutover`")
        return None, None, Check("daemon", False, str(error))
    except CutoverError as error:
        return None, None, Check("daemon", False, str(error))
    return (
        status,
        whose(status, listed),
        Check("daemon", True, f"version {status['version']} answers on {client.socket}"),
    )


def _draw(found: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    from .terminal import clean, console

    signs = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("–", "dim")}
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for check in found:
        text = Text(clean(check.sentence))
        if check.remedy and check.ok is not True:
            text.append(f"\n→ {clean(check.remedy)}", "yellow")
        grid.add_row(Text(*signs[check.ok]), check.name, text)
    console().print(grid)
    sys.stdout.flush()
