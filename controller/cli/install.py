"""`cutover install`: the product as a service of systemd."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import CutoverError, RefusedError
from .options import Json
from .service import (
    Force,
    Root,
    User,
    config_of_service,
    listed,
    named_config,
    pieces_of,
    require_manager,
    systemctl,
    target_of,
)
from .session import session_of

if TYPE_CHECKING:
    from ..config import Config
    from ..units.files import Target
    from ..units.written import Piece


def install(
    ctx: typer.Context,
    user: User = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be written and run.")] = False,
    force: Force = False,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Write the units of systemd that run this cutover as a service, check them, and say what to do next.

    Nothing is started. Repeating it changes nothing, but for what the configuration or another version changes. A unit
    that was changed by hand is shown as a difference and left alone, with exit code 5. --dry-run needs no systemd.
    """
    session = session_of(ctx, as_json=as_json)
    from ..units import manager, place, written

    named, target = named_config(session), target_of(root, user=user)
    config = config_of_service(named, user=user)
    pieces = pieces_of(named, config, target)
    closed = "" if user or root else place.closed_to_the_service(place.command())
    commands = [] if root else _commands(target, pieces)
    told = {
        "schema": 1,
        "dry_run": dry_run,
        "user": user,
        "files": [{"path": str(p.path), "found": p.found, "text": p.text, "diff": p.diff} for p in pieces],
        "commands": commands,
        "exposure": {},
        "problems": [closed] if closed else [],
        "next": _next(config, target),
    }
    if not dry_run:
        _require(target, pieces, closed, force=force, of_this_box=root is None)
        for piece in pieces:
            if piece.found is not written.Found.SAME:
                written.write(piece)
        for command in commands:
            manager.do(command)
        told["exposure"] = {} if user or root else manager.exposure()
    if as_json:
        session.emit(told)
    else:
        _tell(told)
    raise typer.Exit(5 if closed else 0)


# --- what there is ----------------------------------------------------------------------------------------------------


def _units(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    from ..units.files import UNITS

    return [(p.path.name, p.text) for p in pieces if p.path.name in UNITS]


# --- what is to be done -----------------------------------------------------------------------------------------------


def _commands(target: Target, pieces: Iterable[Piece]) -> list[list[str]]:
    by_path = {
        target.sysusers: ["systemd-sysusers", str(target.sysusers)],
        target.tmpfiles: ["systemd-tmpfiles", "--create", str(target.tmpfiles)],
    }
    return [
        *(by_path[piece.path] for piece in pieces if piece.path in by_path),
        [*systemctl(target), "daemon-reload"],
        # One that waits already has to wait for what it says now.
        [*systemctl(target), "try-restart", "cutover-nightly.timer"],
    ]


def _require(target: Target, pieces: list[Piece], closed: str, *, force: bool, of_this_box: bool) -> None:
    """Raises the first reason for which nothing may be written."""
    from ..units import manager
    from ..units.written import Found

    if of_this_box:
        require_manager(target)
    if closed:
        raise RefusedError(closed)
    changed = [piece for piece in pieces if piece.found is Found.CHANGED]
    if changed and not force:
        raise RefusedError(
            f"changed by hand: {listed(p.path for p in changed)}; nothing was written. Put the change into a drop-in "
            "(`systemctl edit`) and take what is new with --force:\n" + "\n".join(p.diff for p in changed)
        )
    if of_this_box and not force and (words := manager.verify(_units(pieces), user=target.user)):
        raise CutoverError(f"systemd-analyze has something against these units, nothing was written (--force): {words}")


# --- words ------------------------------------------------------------------------------------------------------------


def _next(config: Config, target: Target) -> list[str]:
    """What a person does now, in order."""
    ctl = " ".join(systemctl(target))
    person = os.environ.get("SUDO_USER") or "NAME"
    mine = [] if target.user else [f"usermod -aG cutover {person}   # who may talk to the daemon; others stay outside"]
    linger = ["loginctl enable-linger   # or all of it ends when you log out"] if target.user else []
    timer = [f"{ctl} enable --now cutover-nightly.timer   # each window leaves a line in the journal, or a failed unit"]
    return [
        *linger,
        f"{ctl} enable --now cutover   # where it runs already: {ctl} restart cutover, nobody is cut",
        *(timer if config.windows else []),
        *mine,
        "cutover doctor   # what is missing on this box",
        "cutover import start.sh --port 8000 -o live.yaml && cutover propose live.yaml --wait   # what runs today",
    ]


def _tell(told: dict[str, Any]) -> None:
    done = "would be written" if told["dry_run"] else "written"
    words = {"new": done, "older": f"{done}, in place of an older one", "same": "there already"}
    for file in told["files"]:
        how = words.get(file["found"], f"{done} over what was changed by hand")
        sys.stdout.write(f"{file['path']}: {how}\n")
        if told["dry_run"]:
            sys.stdout.write("".join(f"    {line}\n" if line else "\n" for line in file["text"].splitlines()))
            sys.stdout.write(file["diff"])
    for command in told["commands"]:
        sys.stdout.write(f"{'would run' if told['dry_run'] else 'ran'}: {' '.join(command)}\n")
    for service, level in told["exposure"].items():
        sys.stdout.write(f"{service}: exposure {level} (systemd-analyze security; 0 is best, 10 worst)\n")
    sys.stdout.write("next:\n" + "".join(f"    {line}\n" for line in told["next"]))
    for problem in told["problems"]:
        sys.stderr.write(f"cutover: {problem}\n")
