"""Where `cutover.yaml` lies, and how it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from launch.errors import LaunchError
from launch.strict_yaml import read

from ..errors import UsageError
from .mistakes import told
from .settings import Config

SYSTEM_STATE, SYSTEM_SOCKET = Path("/var/lib/cutover"), Path("/run/cutover/cutover.sock")


def is_of_the_system(state_dir: Path = SYSTEM_STATE) -> bool:
    """Whether this user's daemon is the box's: root, or whom the system's state directory was made for."""
    try:
        return os.geteuid() in {0, state_dir.stat().st_uid}
    except OSError:
        return False


def default_paths(environment: Mapping[str, str], *, system: bool) -> tuple[Path, Path]:
    """State directory and socket when the configuration names none."""
    if system:
        return SYSTEM_STATE, SYSTEM_SOCKET
    home = Path(environment.get("HOME", "/"))
    state = Path(environment.get("XDG_STATE_HOME") or home / ".local/state")
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or state)
    return state / "cutover", runtime / "cutover" / "cutover.sock"


def search_path(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "/"))
    return [
        Path("/etc/cutover/cutover.yaml"),
        Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "cutover" / "cutover.yaml",
    ]


def load_config(
    path: Path | None = None, environment: Mapping[str, str] | None = None, *, system: bool | None = None
) -> Config:
    """Read the configuration: `path`, else `$CUTOVER_CONFIG`, else the first that exists of the usual places.

    `system`: whether it is that of the box's daemon; None: as this user is. Raises `UsageError` (exit code 2) with
    file, line and key.
    """
    environment = os.environ if environment is None else environment
    named = path or (Path(environment["CUTOVER_CONFIG"]) if environment.get("CUTOVER_CONFIG") else None)
    file = named or next((p for p in search_path(environment) if p.is_file()), None)
    state_dir, socket = default_paths(environment, system=is_of_the_system() if system is None else system)
    defaults: dict[str, Any] = {"state_dir": state_dir, "socket": socket}
    if file is None:
        return Config(**defaults)
    if file.exists() and not file.is_file():
        raise UsageError(f"the configuration {file} is not a file; name one, or leave it out")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration {file} cannot be read: {error}") from error
    if not text.strip():
        return Config(**defaults).read_from(str(file))
    return parse_config(text, str(file), defaults)


def parse_config(text: str, source: str, defaults: Mapping[str, Any]) -> Config:
    """The configuration of `text`. Raises `UsageError` with everything that is wrong in it, a line each."""
    try:
        document = read(text, source=source, typed=lambda _: True, what="a configuration")
    except LaunchError as error:
        raise UsageError(str(error)) from error
    given = dict(document.value)
    if str(given.get("state_dir", "")).startswith("/") and "socket" not in given:
        # A state directory of one's own means a daemon of one's own: it gets a socket of its own.
        given["socket"] = str(Path(str(given["state_dir"])) / "cutover.sock")
    try:
        return Config(**{**defaults, **given}).read_from(source)
    except ValidationError as error:
        raise UsageError(told(error, document)) from error
