"""Three ways to show what happens: lines for a pipe, lines above a live footer for a terminal, JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol

from .terminal import clean, clock, console, span

if TYPE_CHECKING:
    from rich.text import Text

Document = Mapping[str, Any]


class Reporter(Protocol):
    """Where `follow` tells what it sees."""

    def event(self, entry: Document) -> None:
        """A line of the journal."""

    def status(self, document: Document) -> None:
        """The daemon's newest status."""

    def note(self, text: str) -> None:
        """Something about the watching itself."""

    def close(self) -> None:
        """Nothing more will come."""


def is_routine(entry: Document) -> bool:
    """A sample of the bake that has nothing to say; the footer counts them."""
    return bool(entry["action"] == "RecordSample" and str(entry["why"]).endswith("as good as before"))


def line_of(entry: Document) -> str:
    about = entry["rollout"] or entry["subject"]
    failed = f" ({entry['outcome']})" if str(entry["outcome"] or "").startswith("failed") else ""
    return f"{clock(entry['wall_s'])}  {about:<6} {entry['why']}{failed}"


STILL_S = 20.0


def still(status: Document) -> str:
    """What goes on, or what is waited for; empty when nothing is."""
    rollout, queue, freeze = status["rollout"], status["queue"], status["freeze"]
    if rollout is not None:
        how = "".join(part for part, _ in footer_parts(rollout, 0.0)[1:])
        return f"{clock(time.time())}  {rollout['id']:<6} still {how}{_way_back(status)}"
    if not queue:
        return ""
    why = f"{freeze['by']} has frozen the box ({freeze['why']})" if freeze is not None else status["now"]
    return f"{clock(time.time())}  {queue[0]['id']:<6} still queued: {why}"


def _way_back(status: Document) -> str:
    """What a rollback asks of its target before users go there; empty where it loads, or is not the release before."""
    rollout, target = status["rollout"], status.get("previous")
    if rollout["phase"] != "rolling_back" or target is None:
        return ""
    for attempt in target["attempts"]:
        probe = attempt["probe"]
        if attempt["state"] == "ready" and not (probe and probe["ok"]):
            heard = f"{probe['layer']}: {probe['sentence']}" if probe else "nothing heard yet"
            return f" · {attempt['id']} has to generate first ({heard})"
        if attempt["state"] != "ready":
            return f" · {attempt['id']} is {attempt['state'].replace('_', ' ')}"
    return ""


class Lines:
    """One plain line per event; after a while without one, a line that says what still goes on."""

    def __init__(self, stream: IO[str] | None = None, still_s: float = STILL_S) -> None:
        self._stream = stream or sys.stdout
        self._still_s = still_s
        self._told_s = time.monotonic()

    def event(self, entry: Document) -> None:
        if not is_routine(entry):
            self._write(line_of(entry))

    def status(self, document: Document) -> None:
        """Lines tell what happened; how it is now, only where nothing happened for long."""
        if time.monotonic() - self._told_s >= self._still_s and (line := still(document)):
            self._write(line)

    def note(self, text: str) -> None:
        self._write(f"cutover: {clean(text)}", sys.stderr)

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, text: str, stream: IO[str] | None = None) -> None:
        self._told_s = time.monotonic()
        target = stream or self._stream
        target.write(text + "\n")
        target.flush()


class JsonLines(Lines):
    """One JSON document per event."""

    def event(self, entry: Document) -> None:
        self._write(json.dumps(dict(entry), ensure_ascii=False))

    def status(self, document: Document) -> None:
        """Events only."""


class Live:
    """Lines above, and below them a footer that moves."""

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._console = console()
        self._footer = _Footer()
        self._live = RichLive(self._footer, console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def event(self, entry: Document) -> None:
        if not is_routine(entry):
            self._console.print(line_of(entry), style=_style(entry), soft_wrap=True)

    def status(self, document: Document) -> None:
        self._footer.take(document)

    def note(self, text: str) -> None:
        self._console.print(clean(text), style="yellow", soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def _style(entry: Document) -> str:
    if str(entry["outcome"] or "").startswith("failed"):
        return "red"
    return "bold" if entry["action"] in {"CommitCutover", "CommitRollback"} else ""


class _Footer:
    """Drawn four times a second from the newest status; the seconds go on in between."""

    def __init__(self) -> None:
        self._status: Document | None = None
        self._taken_s = 0.0

    def take(self, status: Document) -> None:
        self._status, self._taken_s = status, time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text

        text = Text(no_wrap=True, overflow="ellipsis")
        if self._status is None:
            return text
        rollout = self._status["rollout"]
        if rollout is None:
            return text.append(f"· {self._status['now']}", "dim")
        for part, style in footer_parts(rollout, time.monotonic() - self._taken_s):
            text.append(part, style)
        return text


def footer_parts(rollout: Document, later_s: float) -> list[tuple[str, str]]:
    """Phase and its age, the gate that runs, what the bake has seen. `later_s`: how old `rollout` is."""
    phase_s = (rollout["phase_s"] or 0.0) + later_s
    phase = str(rollout["phase"]).replace("_", " ")
    parts = [(f"▶ {rollout['id']} {rollout['release']} ", "bold"), (f"{phase} {span(phase_s)}", "cyan")]
    if rollout["gate"]:
        # The journal's clock of this machine, so that a gate's age needs no word from the daemon.
        gate_s = time.clock_gettime(time.CLOCK_BOOTTIME) - rollout["gate"]["started_at_s"]
        number = f"{rollout['gate']['index'] + 1}/{len(rollout['profile'])}"
        parts.append((f" · gate {rollout['gate']['gate']} ({number}) {span(max(0.0, gate_s))}", ""))
    if rollout["phase"] == "baking":
        bake = rollout["bake"]
        parts.append((f" · {bake['samples']} samples", ""))
        parts.append((f", {bake['bad_streak']} bad in a row" if bake["bad_streak"] else "", "red"))
    starting = [a["id"] for a in rollout["attempts"] if a["state"] == "starting"]
    if starting:
        parts.append((f" · loading {', '.join(starting)}", ""))
    return parts
