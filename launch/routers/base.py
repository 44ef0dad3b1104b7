"""What a router inside a topology is to us: an instance that starts after its workers, and stands in front of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from launch.engines.base import Expand, Line, Program

if TYPE_CHECKING:
    from launch.topology import Topology

WORKERS = Expand("${workers[@]}")
"""One word per URL of CUTOVER_WORKERS; the launch script fills the array."""


class Router(Program, Protocol):
    """A kind of router. Implementations are stateless; get one with :func:`router`."""

    kind: ClassVar[str]
    default_command: ClassVar[tuple[str, ...]]
    package: ClassVar[str | None] = None
    health_path: ClassVar[str]
    port_count: ClassVar[int] = 10
    with_key: ClassVar[str | None] = None
    """Python by which its program, a Python script, is given CUTOVER_API_KEY where nobody else can read it. That is the
    key that its workers want, and that it wants of its own clients then. None: engines behind it have no key.
    """

    def arguments(self, topology: Topology) -> tuple[Line, ...]:
        """What we add before the user's flags, the worker list included."""
        ...


def router(kind: str) -> Router:
    """The router of this kind; KeyError when there is none (a topology is checked before)."""
    return routers()[kind]


def routers() -> Mapping[str, Router]:
    """Every router by kind."""
    from launch.routers.smg import Smg

    return {Smg.kind: Smg()}
