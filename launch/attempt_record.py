"""What a shim wrote about an attempt: shim.json when it started, exit.json when the program ended."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.identity import Identity


@dataclass(frozen=True, slots=True)
class StartRecord:
    """``identity`` is None when the file is there and cannot be believed."""

    identity: Identity | None
    child_pid: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ExitRecord:
    exit_code: int | None
    signal: int | None
    reason: str
    exited_at_s: float | None  # None: nobody has written it down
    tree_empty: bool  # the shim saw the last process of the tree end


def read_start(run_dir: Path) -> StartRecord | None:
    """None when no shim has ever recorded itself here."""
    document = _read(run_dir / "shim.json")
    if document is None:
        return None
    match document:
        case {"pid": int(pid), "start_ticks": int(ticks), "boot_id": str(boot), "restarts": int(restarts), **rest}:
            child = rest.get("child_pid")
            identity = Identity(pid, ticks, boot, str(run_dir))
            return StartRecord(identity, child if isinstance(child, int) else None, restarts)
    return StartRecord(None)


def read_exit(run_dir: Path, identity: Identity | None) -> ExitRecord | None:
    """How the run of exactly this shim ended; None while it has not, or when the record is another's or damaged."""
    document = _read(run_dir / "exit.json") or {}
    if identity is None:
        return None
    of_this_run = {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id}
    if of_this_run.items() <= document.items():
        match document:
            case {
                "exit_code": int() | None as code,
                "signal": int() | None as number,
                "reason": str(reason),
                "exited_at_s": int() | float() as at_s,
                "tree_empty": bool(tree_empty),
            }:
                return ExitRecord(code, number, reason, float(at_s), tree_empty)
    return None


def told_exit(identity: Identity) -> ExitRecord | None:
    """The same from the name of a shim that lives: it tells it there while the disk takes no record."""
    try:
        name = Path(f"/proc/{identity.pid}/comm").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    found = _TOLD.fullmatch(name)
    if found is None:
        return None
    code = None if found[2] == "None" else int(found[2])
    number = -code if code is not None and code < 0 else None
    reason = _REASONS.get(found[1], "ended")
    return ExitRecord(code if number is None else None, number, reason, None, found[3] == "1")


_TOLD = re.compile(r"ended ([a-z])(-?\d+|None) ([01])")
_REASONS = {"e": "exited", "k": "killed", "s": "stopped", "d": "deadline", "n": "not started"}


def _read(path: Path) -> dict[str, Any] | None:
    """None when the file is not there; empty when it is not an object of JSON."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
