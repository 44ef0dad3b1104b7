"""`cutover uninstall`: the units go, state and users stay."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RefusedError
from .options import Json
from .service import Force, Root, User, config_of_service, listed, named_config, require_manager, systemctl, target_of
from .session import session_of

if TYPE_CHECKING:
    from ..units.files import Target


def uninstall(
    ctx: typer.Context,
    user: User = False,
    stop_everything: Annotated[
        bool, typer.Option("--stop-everything", help="Engines and the front door, too: users are cut.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed and run.")] = False,
    force: Force = False,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Stop the daemon and remove its units. State, configuration and drop-ins stay, and so do users.

    Engines and the front door go on serving, as at every stop of the daemon, and are named; --stop-everything ends
    them (`cutover stop` before it lets requests finish).
    """
    session = session_of(ctx, as_json=as_json)
    from ..units import production, written

    config = config_of_service(named_config(session), user=user)
    target = target_of(root, user=user)
    found = {path: written.look(path, Path(sys.prefix)) for path in target.every()}
    there = [path for path, how in found.items() if how is not written.Found.NEW]
    changed = [path for path in there if found[path] is written.Found.CHANGED]
    alive = [] if root else production.running(config)
    door_stays = not stop_everything and any(one["id"] == production.DOOR for one in alive)
    commands = [] if root else _undoing(target, door_stays=door_stays)
    if not dry_run:
        if root is None:
            require_manager(target)
        if changed and not force:
            raise RefusedError(f"changed by hand: {listed(changed)}; nothing was removed (--force removes them, too)")
        _undo(commands, there, lambda: production.end(config) if stop_everything and root is None else None)
    told = {
        "schema": 1,
        "dry_run": dry_run,
        "user": user,
        "removed": list(map(str, there)),
        "commands": commands,
        "state_dir": str(config.state_dir),
        "drop_ins": [str(path) for path in _drop_ins(target)],
        "still_running": [] if stop_everything else alive,
        "ended": alive if stop_everything else [],
    }
    if as_json:
        session.emit(told)
    else:
        _tell(told)


def _drop_ins(target: Target) -> list[Path]:
    return sorted(target.units.glob("cutover*.d"))


def _undoing(target: Target, *, door_stays: bool) -> list[list[str]]:
    """A door that goes on keeps its socket: systemd would not open it again for the daemon that is installed next."""
    door = [] if door_stays else ["cutover-frontdoor.socket"]
    return [
        [*systemctl(target), "disable", "--now", "cutover-nightly.timer"],
        [*systemctl(target), "disable", "--now", "cutover.service"],
        [*systemctl(target), "stop", "cutover-nightly.service", "cutover-attempt.socket", *door],
        [*systemctl(target), "daemon-reload"],
    ]


def _undo(commands: list[list[str]], files: list[Path], end_production: Callable[[], None]) -> None:
    """What systemd knows nothing of is no failure: half an installation has to go, too."""
    from ..units import manager

    for command in commands[:2]:  # nobody starts anything again from here on
        manager.ask(command)
    end_production()
    for command in commands[2:-1]:
        manager.ask(command)
    for path in files:
        path.unlink(missing_ok=True)
    for command in commands[-1:]:
        manager.do(command)


def _tell(told: dict[str, Any]) -> None:
    for path in told["removed"]:
        sys.stdout.write(f"{path}: {'would be removed' if told['dry_run'] else 'removed'}\n")
    for command in told["commands"]:
        sys.stdout.write(f"{'would run' if told['dry_run'] else 'ran'}: {' '.join(command)}\n")
    sys.stdout.write(f"{told['state_dir']} stays, with the journal, releases and evidence; so does the configuration\n")
    for path in told["drop_ins"]:
        sys.stdout.write(f"{path} stays\n")
    for one in told["ended"]:
        sys.stdout.write(f"{one['id']}: {'would be ended' if told['dry_run'] else 'ended'} (pid {one['pid']})\n")
    for one in told["still_running"]:
        sys.stdout.write(f"{one['id']} goes on: `kill -TERM {one['pid']}` ends it\n")
