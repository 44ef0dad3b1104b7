"""What people see while gates run: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeGuard

from gates.teller import waiting_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Heard = Mapping[str, Any]
"""One line of progress: `gate`, and any of `started`, `left`, `check`, `verdict`, `sentence`, `log`, `skipped`, `warn`,
`waived`, `done`, `of`, `requests`, `ended`; `in_flight` and `oldest_s` while nothing ends: what is waited for."""

_PLAIN_EVERY_S: Final = 10.0
"""So often a plain log is told how far a gate is, where it says nothing else."""
_A_LIFETIME_S: Final = 1e9
_GUESS_AFTER_S: Final = 3.0
_GUESS_AFTER_SHARE: Final = 0.05


@dataclass(frozen=True)
class Position:
    """Where a run stands: which gate, what it does, how many of how many. Times on the monotonic clock."""

    gate: str = ""
    left: tuple[str, ...] = ()
    doing: str = ""
    done: int | None = None
    of: int | None = None
    requests: int | None = None
    started_s: float = 0.0
    waits: tuple[int, float] | None = None
    """So many requests wait for their answers, the oldest since; None once anything else was told."""

    def after(self, fields: Heard, now_s: float) -> Position:
        """The position that one more line tells. Gates are foreign programs: what is misshapen is passed over."""
        if fields.get("started"):
            left = fields.get("left")
            names = tuple(str(name) for name in left) if isinstance(left, list | tuple) else ()
            return Position(str(fields.get("gate", "")), names, started_s=now_s)
        in_flight, oldest_s = fields.get("in_flight"), fields.get("oldest_s")
        if _is_count(in_flight) and _is_time(oldest_s):
            return replace(self, waits=(in_flight, now_s - oldest_s))
        counted = {key: fields[key] for key in ("done", "of", "requests") if _is_count(fields.get(key))}
        doing = fields.get("check") or fields.get("sentence")
        return replace(self, **counted, doing=doing if isinstance(doing, str) and doing else self.doing, waits=None)

    def left_s(self, now_s: float) -> float | None:
        """How long the gate will still take if it goes on like this; None while nobody can tell."""
        passed_s = now_s - self.started_s
        if not self.done or not self.of or passed_s < _GUESS_AFTER_S or self.done < self.of * _GUESS_AFTER_SHARE:
            return None
        return passed_s * max(0, self.of - self.done) / self.done

    def how_far(self) -> str:
        """``37 of 93 checks, 412 requests``; empty when the gate does not say."""
        parts = []
        if self.done is not None:
            parts.append(f"{self.done} of {self.of} checks" if self.of else f"{self.done} checks")
        if self.requests is not None:
            parts.append(f"{self.requests} requests")
        return ", ".join(parts)

    def words(self, now_s: float) -> str:
        """Everything on one line, what matters most first."""
        guess_s = self.left_s(now_s)
        about = f", about {_span(guess_s)} left" if guess_s is not None else ""
        then = f"then {', '.join(self.left)}" if self.left else ""
        doing = waiting_words(self.waits[0], now_s - self.waits[1]) if self.waits is not None else self.doing
        parts = [self.how_far(), f"{_span(now_s - self.started_s)}{about}", doing, then]
        return " · ".join([self.gate, *(part for part in parts if part)])


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _A_LIFETIME_S


def _span(seconds: float) -> str:
    whole = round(max(0.0, seconds))
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


@contextlib.contextmanager
def shown(stream: TextIO | None = None, *, console: Console | None = None) -> Iterator[Callable[[Heard], None]]:
    """A listener for `run_profile(on_progress=…)`, thread-safe. `stream` is stderr unless given; on a terminal one line
    is kept up to date and what did not pass stays above it, elsewhere every line of a gate is a line.
    """
    from rich.console import Console as RichConsole

    target = console or RichConsole(file=stream or sys.stderr, markup=False, highlight=False, emoji=False)
    if not target.is_terminal or target.is_dumb_terminal:
        yield _Plain(target.file).hear
        return
    from rich.live import Live

    line = _LiveLine(target)
    with Live(get_renderable=line.renderable, console=target, transient=True, refresh_per_second=4):
        yield line.hear


class _Plain:
    """One line per word from a gate; counts alone only now and then."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._position = Position()
        self._told_s = time.monotonic()

    def hear(self, fields: Heard) -> None:
        with self._lock:
            now_s = time.monotonic()
            self._position = self._position.after(fields, now_s)
            line = _said(fields)
            if line is None and now_s - self._told_s >= _PLAIN_EVERY_S:
                line = self._position.words(now_s)
            if line is not None:
                self._told_s = now_s
                self._stream.write(_one_line(line) + "\n")
                self._stream.flush()


class _LiveLine:
    """The line that is kept up to date."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._position = Position(started_s=time.monotonic())

    def hear(self, fields: Heard) -> None:
        from rich.text import Text

        with self._lock:
            self._position = self._position.after(fields, time.monotonic())
        line = _said(fields) if _stays(fields) else None
        if line is not None:
            style = "red" if fields.get("verdict") in ("fail", "error") else ""
            self._console.print(Text(_one_line(line), style=style), soft_wrap=True)

    def renderable(self) -> RenderableType:
        from rich.text import Text

        with self._lock:
            words = self._position.words(time.monotonic())
        return Text(_one_line(words), style="dim", no_wrap=True, overflow="ellipsis")


def _stays(fields: Heard) -> bool:
    """What a person should still see when the line has gone on: ends of gates, and checks that did not pass."""
    bad = fields.get("verdict") not in (None, "pass") or fields.get("warn")
    return bool(fields.get("ended") or "log" in fields or (bad and not fields.get("skipped")))


def _said(fields: Heard) -> str | None:
    """A line of progress in words; None when it only counts."""
    said = fields.get("sentence") or fields.get("log") or ("started" if fields.get("started") else "")
    if not said and "verdict" not in fields and "check" not in fields:
        return None
    left = f" (then {', '.join(str(name) for name in fields['left'])})" if fields.get("left") else ""
    verdict = f"{_outcome(fields)}: " if "verdict" in fields else ""
    if fields.get("skipped"):
        said = str(said).removeprefix("skipped: ")
    check = f" {fields['check']}" if "check" in fields else ""
    return f"{fields.get('gate')}{check}: {verdict}{said}{left}"


def _outcome(fields: Heard) -> str:
    """The word for how a check ended: a waiver or a warning is never hidden behind the pass that it gives."""
    if fields.get("skipped"):
        return "skipped"
    if fields.get("waived"):
        return "waived"
    verdict = str(fields["verdict"])
    return "warning" if verdict == "pass" and fields.get("warn") else verdict


def _one_line(text: str) -> str:
    from gates.report_terminal import printable

    return " ".join(printable(text).split())
