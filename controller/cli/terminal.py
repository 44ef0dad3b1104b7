"""What reaches a person's terminal: text without control characters, one console, times in words."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

PIPED_WIDTH = 160  # where nobody says how wide the reader is, a line should not be folded early

# Engines, gates and proposers write what they like. Escape sequences (CSI, OSC and the rest), C0 and C1 controls and
# marks that turn the reading direction never reach the terminal; newline and tab do.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-_]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TRAILING = re.compile(r"[ \t]+(?=\n)")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")  # a progress bar: only its last state is worth reading


def clean(text: str) -> str:
    """The text without anything a terminal would act on."""
    return _CONTROLS.sub("", _ESCAPES.sub("", _OVERWRITTEN.sub("", text)))


def cleaned(document: Any) -> Any:
    """The same for every text of a JSON document."""
    if isinstance(document, str):
        return clean(document)
    if isinstance(document, list):
        return [cleaned(item) for item in document]
    if isinstance(document, dict):
        return {key: cleaned(value) for key, value in document.items()}
    return document


class _Trimmed:
    """A stream that gets no blanks at the ends of lines: tables are padded to a width that no pipe has."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_TRAILING.sub("", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no highlighting, no emoji."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    file = stream if stream.isatty() else cast("IO[str]", _Trimmed(stream))
    return Console(file=file, stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


def log_to_stderr() -> None:
    """For commands that look with parts of the daemon: what those log is no part of an answer."""
    import structlog

    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr), cache_logger_on_first_use=False)


def show(parts: Iterable[RenderableType]) -> None:
    """Print one after the other. Lines are never folded: a command or a path in them must survive being copied."""
    from rich.text import Text

    out = console()
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, Text))


def plain_text(parts: Iterable[RenderableType]) -> str:
    """The same for a file: no colours, no width."""
    import io

    from rich.console import Console
    from rich.text import Text

    file = io.StringIO()
    out = Console(file=cast("IO[str]", _Trimmed(file)), markup=False, highlight=False, emoji=False, width=PIPED_WIDTH)
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, Text))
    return file.getvalue()


def clock(wall_s: float | None) -> str:
    """Local time of day; the date too when it was not today."""
    if wall_s is None:
        return "—"
    then, today = time.localtime(wall_s), time.localtime()
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def span(seconds: float | None) -> str:
    """`0.03 s`, `12 s`, `4 min 10 s`, `3 h 5 min`, `2 d 3 h`."""
    if seconds is None:
        return "—"
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    for size_s, name, small_s, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size_s:
            rest = whole % size_s // small_s
            return f"{whole // size_s} {name}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def since(wall_s: float | None) -> str:
    """How long ago, on the wall clock."""
    return span(max(0.0, time.time() - wall_s)) if wall_s is not None else "—"
