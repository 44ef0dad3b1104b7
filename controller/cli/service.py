"""What `cutover install` and `cutover uninstall` share: for whom, where, and with whom they talk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NotAllowedError, RefusedError
from .session import Session

if TYPE_CHECKING:
    from ..config import Config
    from ..units.files import Target

User = Annotated[
    bool, typer.Option("--user/--system", help="For this user's own manager, or (the default) for the box.")
]
Root = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Of an image below DIR: only the files; nothing is asked or run."),
]
Force = Annotated[bool, typer.Option("--force", help="Also what somebody has changed by hand.")]


def config_of_service(session: Session, *, user: bool) -> Config:
    """As the daemon will find it: a service of the box does not look into root's home."""
    from ..config import load_config

    environment = dict(os.environ)
    if not user:
        environment |= {"HOME": "/var/lib/cutover", "XDG_CONFIG_HOME": ""}
    return load_config(session.config_path, environment, system=not user)


def target_of(root: Path | None, *, user: bool) -> Target:
    from ..units.files import Target

    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Target(user, (root or Path("/")).resolve(), home.resolve())


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
