"""Public bugs behind the checks: what clients of real engines saw on the wire, and where it was reported.

The catalogue is `data/bugs.yaml`. It says why a check exists, and what else somebody should look at when it fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

Mode = Literal["stream", "whole", "both", "differs"]
Seen = Literal["thread", "excerpt", "title"]

_FILE: Final = Path(__file__).parent / "data" / "bugs.yaml"
_WHOLE: Final = re.compile(r"[A-Z]\d\d(?!\d)")
_MODE_WORDS: Final[dict[Mode, str]] = {
    "stream": "streamed answers only",
    "whole": "whole answers only",
    "both": "streamed and whole",
    "differs": "streamed and whole, each in its own way",
}


@dataclass(frozen=True)
class Bug:
    """One row of the catalogue."""

    row: int
    kind: str
    """The family: stream assembly, leaks, tool_choice, feedback, thinking, garbling."""
    reports: tuple[str, ...]
    """As `vllm#10781`: repository and number of the issue or pull request."""
    shape: str
    """What the client received, in one sentence."""
    mode: Mode
    """In which answers it shows; `differs`: in both, and differently."""
    needs: tuple[str, ...]
    """What brings it out: load, history, thinking, thinking off, configuration. Empty: nothing special."""
    faults: tuple[str, ...]
    """How the emulated engine makes it; empty for traffic that is legal."""
    checks: tuple[str, ...]
    """Ids of the checks that look for it."""
    seen: Seen
    """How much of the report was read: the thread, an excerpt, or only its title."""
    note: str = ""

    @property
    def circumstances(self) -> str:
        """Mode and needs, in words."""
        needs = f"; needs {', '.join(self.needs)}" if self.needs else ""
        return f"{_MODE_WORDS[self.mode]}{needs}"


def _catalogue() -> tuple[Bug, ...]:
    families: dict[str, list[dict[str, Any]]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return tuple(_bug(kind, row) for kind, rows in families.items() for row in rows)


def _bug(kind: str, row: dict[str, Any]) -> Bug:
    lists = {key: tuple(row.get(key, ())) for key in ("reports", "needs", "faults", "checks")}
    return Bug(**{**row, **lists}, kind=kind)


ALL: Final = _catalogue()
"""Every row, in the order of the catalogue."""


def bugs_of(check_id: str) -> tuple[Bug, ...]:
    """The bugs that the check or rule `check_id` (as ``J07``) looks for; empty when there is none.

    A part of a check, as ``J07.model`` or ``F13c``, looks for those of the whole.
    """
    whole = _WHOLE.match(check_id)
    return tuple(bug for bug in ALL if whole and whole.group() in bug.checks)


def bugs_of_fault(name: str) -> tuple[Bug, ...]:
    """The bugs that the emulated engine makes with its fault `name` (as ``args_tail_cut``)."""
    return tuple(bug for bug in ALL if name in bug.faults)
