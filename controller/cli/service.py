"""What `cutover install` and `cutover uninstall` share: for whom, where, and with whom they talk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NotAllowedError, RefusedError
from .session import Session

if TYPE_CHECKING:
    from ..config import Config
    from ..units.files import Facts, Target
    from ..units.written import Piece

User = Annotated[
    bool, typer.Option("--user/--system", help="For this user's own manager, or (the default) for the box.")
]
Root = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Of an image below DIR: only the files; nothing is asked or run."),
]
Force = Annotated[bool, typer.Option("--force", help="Also what somebody has changed by hand.")]


def named_config(session: Session) -> Path | None:
    """The configuration that somebody named here: the unit has to name it, too."""
    named = session.config_path or (Path(told) if (told := os.environ.get("CUTOVER_CONFIG")) else None)
    return named.resolve() if named else None


def config_of_service(named: Path | None, *, user: bool) -> Config:
    """As the daemon will find it: a service of the box does not look into root's home."""
    from ..config import load_config

    environment = {**os.environ, "CUTOVER_CONFIG": ""}
    if not user:
        environment |= {"HOME": "/var/lib/cutover", "XDG_CONFIG_HOME": ""}
    return load_config(named, environment, system=not user)


def target_of(root: Path | None, *, user: bool) -> Target:
    from ..units.files import Target

    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    home = named if named.is_absolute() else Path.home() / ".config"  # a relative one counts as none (XDG basedir)
    return Target(user, (root or Path("/")).resolve(), home.resolve())


def pieces_of(named: Path | None, config: Config, target: Target) -> list[Piece]:
    """Every file of the service as it would be written now, and what is there."""
    from ..units import files, written

    made = files.files(target, _facts(named, config, target))
    return [written.piece(path, text, Path(sys.prefix)) for path, text in made.items()]


def _facts(named: Path | None, config: Config, target: Target) -> Facts:
    from ..units import place
    from ..units.files import Facts

    return Facts(
        cutover=place.command(),
        python=place.python(),
        own_unit=place.shim_program(),
        writable=(config.state_dir, *([config.lock_dir] if config.lock_dir else [])),
        config=named,
        windows=config.windows,
        roots_locks=config.locks_dir if not target.user and place.is_roots_alone(config.locks_dir) else None,
    )


def systemctl(target: Target) -> list[str]:
    return ["systemctl", *(["--user"] if target.user else [])]


def require_manager(target: Target) -> None:
    from ..units import manager

    if not manager.is_booted():
        raise RefusedError(manager.WITHOUT)
    if not target.user and os.geteuid() != 0:
        raise NotAllowedError("a service of the box is root's to install: `sudo cutover install`, or use --user")


def listed(paths: Iterable[Path]) -> str:
    return ", ".join(map(str, paths))
