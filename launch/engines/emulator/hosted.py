"""An emulated engine inside this process: ready in a millisecond, for tests and campaigns that need hundreds of them.

It serves real sockets from a thread of its own. Timing is only as good as the host leaves it; the engine that keeps
its times is a process (`testing.emulator`).
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import uvloop

from .__main__ import build_parser, settings_from
from .connection import Connection
from .engine import Engine, Exit
from .faults import FaultError, Group
from .pacer import Pacer
from .routes import Routes
from .settings import Settings

_BACKLOG = 2048
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class HostedEmulator:
    """A served engine. `url` is without `/v1`."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def hosted(*flags: str, model: str = "emu") -> Iterator[HostedEmulator]:
    """Serve an engine with these command line flags on a free port until the block ends.

    Raises `FaultError` for faults of an engine's life: they would end the host.
    """
    settings = _settings([*flags, "--model", model])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        host = _Host(settings, listener)
        thread = threading.Thread(target=host.run, name="emulator", daemon=True)
        thread.start()
        try:
            if not host.ready.wait(_WAIT_S):
                raise RuntimeError(f"the hosted emulator is not ready after {_WAIT_S:g} s")
            yield HostedEmulator(listener.getsockname()[1])
        finally:
            host.stop()
            thread.join(_WAIT_S)


def _settings(flags: Sequence[str]) -> Settings:
    settings = settings_from(build_parser().parse_args(flags))
    for setting in settings.faults:
        if setting.fault.group is Group.LIFE:
            raise FaultError(f"fault {setting.fault.name!r} needs an engine of its own process; start one for it")
    return settings


class _Host:
    """One engine on one event loop in one thread."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self.ready = threading.Event()
        self._settings = settings
        self._listener = listener
        self._loop = uvloop.new_event_loop()
        self._stopped = asyncio.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it ended by itself
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        pacer = Pacer(loop)
        engine = Engine(self._settings, pacer, None, Exit(1))
        routes = Routes(engine)
        connections: set[Connection] = set()
        server = await loop.create_server(
            lambda: Connection(routes.serve, pacer, connections), sock=self._listener, backlog=_BACKLOG
        )
        engine.become_ready()
        self.ready.set()
        await self._stopped.wait()
        server.close()
        engine.cut_all()
        for connection in [*connections]:
            connection.cut()
        pacer.close()
