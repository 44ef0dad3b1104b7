"""One invocation of the command line: where the daemon is, and how the answer is wanted."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from ..config import Config
    from .client import Client


@dataclass(slots=True)
class Session:
    """Filled by the global options; `as_json` by the command, so that errors are told in the same way."""

    config_path: Path | None = None
    socket_path: Path | None = None
    as_json: bool = False

    def config(self) -> Config:
        """Raises `UsageError` with file, line and key."""
        from ..config import load_config

        return load_config(self.config_path)

    def client(self) -> Client:
        """To the daemon that the options or the configuration name. Nothing is sent yet."""
        from .client import Client

        if self.socket_path is not None:
            return Client(self.socket_path, "--socket")
        from ..config import SYSTEM_SOCKET, default_paths, is_of_the_system

        config = self.config()
        socket, source = config.socket, config.source
        if socket == default_paths(os.environ, system=is_of_the_system())[1] and not os.path.exists(socket):  # noqa: PTH110 - False where Path.exists raises: a folder that is not ours to search
            # A person without a configuration of their own, on a box with the system's daemon. They may not be let
            # into its folder, and then are told so.
            socket = SYSTEM_SOCKET if os.path.isdir(SYSTEM_SOCKET.parent) else socket  # noqa: PTH112
        return Client(socket, source)

    def emit(self, document: Any) -> None:
        """One JSON document on stdout."""
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def emit_line(self, document: Any) -> None:
        """One JSON document on one line, where many follow each other."""
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def session_of(ctx: typer.Context, *, as_json: bool = False) -> Session:
    """The invocation's session; every command asks for it first, so that even its errors come as JSON."""
    session = ctx.obj
    assert isinstance(session, Session)  # noqa: S101 - `main` puts it there
    session.as_json = as_json
    return session
