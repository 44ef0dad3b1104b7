"""`cutover serve`: the daemon in this process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import typer

from .backup import as_owner
from .session import session_of


def serve(ctx: typer.Context) -> None:
    """Run the daemon.

    Until SIGTERM or SIGINT. Engines and the front door outlive it; the next daemon adopts them.
    """
    session = session_of(ctx)
    config = session.config()
    as_owner(config)
    _log_to_stderr()
    from ..daemon import Daemon

    daemon = Daemon(config)
    daemon.run()
    raise typer.Exit(1 if daemon.broken else 0)


def _log_to_stderr() -> None:
    """For people where a terminal is, else one JSON object a line."""
    import structlog

    on_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not on_terminal),
            structlog.processors.StackInfoRenderer(),
            _without_controls,
            *(
                [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]  # none with locals
                if on_terminal
                else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Forgiving(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class _Forgiving:
    """A stream that takes nothing (a file on a full disk, a pipe without a reader) must not stop who writes to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _without_controls(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What an engine said may be quoted in a sentence; a terminal must not act on it."""
    from .terminal import cleaned

    return {key: cleaned(value) for key, value in event.items()}
