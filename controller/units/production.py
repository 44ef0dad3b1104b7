"""What runs under shims: it outlives the daemon, and its units."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch import attempts
from launch.attempts import ProcessSeen, Status

from ..config import Config
from ..errors import CutoverError

_PATIENCE_S = 30.0  # beyond the grace that each was promised
_POLL_S = 0.1
DOOR = "frontdoor"


def running(config: Config) -> list[dict[str, Any]]:
    """Who runs, the front door first: `id`, and the `pid` of its shim or of what a dead one has left."""
    door = config.door_dir / "run"
    return [{"id": DOOR if run_dir == door else run_dir.name, "pid": _pid(seen)} for run_dir, seen in _alive(config)]


def end(config: Config) -> None:
    """Ask every shim to end its tree, the front door last, and wait. Raises `CutoverError` for who does not go."""
    door = config.door_dir / "run"
    engines = [run_dir for run_dir, _ in _alive(config) if run_dir != door]
    _end(engines)
    _end([door])


def _end(run_dirs: list[Path]) -> None:
    for run_dir in run_dirs:
        attempts.request_stop(run_dir)
    give_up_at_s = time.monotonic() + max(map(_grace_s, run_dirs), default=0.0) + _PATIENCE_S
    while left := [run_dir for run_dir in run_dirs if _lives(attempts.observe(run_dir))]:
        for run_dir in left:
            attempts.kill_strays(run_dir, force=False)  # does nothing while a shim lives
        if time.monotonic() > give_up_at_s:
            raise CutoverError(f"these do not end: {', '.join(d.name for d in left)}; `cutover doctor` names them")
        time.sleep(_POLL_S)


def _pid(seen: ProcessSeen) -> int:
    return seen.identity.pid if seen.identity and seen.status is Status.RUNNING else min(seen.pids, default=0)


def _grace_s(run_dir: Path) -> float:
    try:
        return float(json.loads((run_dir / "attempt.json").read_text())["grace_s"])
    except (OSError, ValueError, KeyError):
        return 0.0


def _alive(config: Config) -> Iterator[tuple[Path, ProcessSeen]]:
    for run_dir in (config.door_dir / "run", *_below(config.runs_dir), *_below(config.gates_dir)):
        if _lives(seen := attempts.observe(run_dir)):
            yield run_dir, seen


def _lives(seen: ProcessSeen) -> bool:
    return seen.status is Status.RUNNING or bool(seen.pids)


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
