"""The key that an engine wants of its clients: how it is told, and where its attempt keeps it.

It travels in the environment of the attempt, which only the attempt's own user can read: never in argv.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launch.engines.base import engine
from launch.routers.base import router
from launch.topology_rules import ROUTER

if TYPE_CHECKING:
    from launch.release import Release
    from launch.topology import Topology

KEY = "CUTOVER_API_KEY"
"""The variable of the launch contract; an engine has a name of its own for it besides."""


def new_key() -> str:
    """256 bits, in characters that no header, shell or list of keys gives a meaning."""
    return f"ek-{secrets.token_urlsafe(32)}"


def key_variables(topology: Topology, instance: str) -> tuple[str, ...] | None:
    """The names by which the instance reads its key from its environment; None when it cannot be told one so.

    A router stands before engines that want it: it brings it to them, and wants it of its own clients.
    """
    if topology.router is not None and router(topology.router.kind).with_key is None:
        return None
    own = engine(topology.engine).key_variables(topology.flags)
    if own is None:
        return None
    return (KEY,) if instance == ROUTER else (KEY, *own)


def given_key(release: Release, instance: str, key: str | None) -> Mapping[str, str]:
    """What the environment of an attempt needs, so that its engine wants `key`; nothing where there is none.

    Nor behind a router whose script an earlier version rendered: it would be turned away by its own workers.
    """
    unaware = release.topology.router is not None and KEY not in release.scripts[ROUTER]
    names = key_variables(release.topology, instance) or ()
    return {} if key is None or unaware else dict.fromkeys(names, key)


def read_key(run_dir: Path) -> str | None:
    """The key of the attempt in `run_dir`; None for one that was started without, or whose facts cannot be read."""
    try:
        facts = shlex.split((run_dir / "attempt.env").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # gone with its directory, or overwritten: its engine lives on all the same
        return None
    given = dict(fact.split("=", 1) for fact in facts if "=" in fact)
    return given.get(KEY) or None
