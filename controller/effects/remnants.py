"""Run directories, gate runs, releases and old logs on the disk: looked at, judged by `core.retention`, and removed."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch import attempts as launched
from launch.attempts import Status

from ..config import Config
from ..core.records import State
from ..core.retention import DAY_S, Limit, Remnant, kept_attempts, kept_rollouts, to_remove

EVIDENCE = "cutover-evidence-*"
"""What `cutover gate run` makes in the temporary directory when nobody said where."""

_GATE_RUN = re.compile(r"(r\d+)-.*")
_ATTEMPT = re.compile(r".*-\d+")
_RELEASE = re.compile(r"[^.].*@\w+")
_OLD_LOG_PARTS = ("engine.log.head", "engine.log.1")  # of a log that is still written to


@dataclass(frozen=True, slots=True)
class Removal:
    """One thing to remove: a directory with what belongs to it, or a file."""

    paths: tuple[Path, ...]
    size_bytes: int
    why: str
    written_wall_s: float = math.inf  # when it was looked at; what was written to since then stays


def removals(config: Config, state: State, now_wall_s: float) -> tuple[Removal, ...]:
    """What is to go below the state directory: nothing that runs, is live or previous, or of an open rollout."""
    age_s = config.keep.days * DAY_S
    runs = _of_runs(config, state, Limit(age_s, int(config.keep.runs_gib * (1 << 30))), now_wall_s)
    gates = _of_gates(config, state, Limit(age_s, int(config.keep.evidence_gib * (1 << 30))), now_wall_s)
    files = (*_of_door(config, age_s, now_wall_s), *_of_reports(config, age_s, now_wall_s))
    return (*runs, *gates, *files, *_of_releases(config, state, age_s, now_wall_s))


def stray_evidence(config: Config, now_wall_s: float) -> tuple[Removal, ...]:
    """This user's evidence in the temporary directory, where it is older than what is kept."""
    folders = sorted(Path(tempfile.gettempdir()).glob(EVIDENCE))
    mine = [_remnant(folder) for folder in folders if _is_own_directory(folder)]
    parent = Path(tempfile.gettempdir())
    old = to_remove(mine, (), Limit(config.keep.days * DAY_S, 1 << 62), now_wall_s)
    return tuple(Removal((parent / r.name,), r.size_bytes, why) for r, why in old)


def remove(removal: Removal) -> str:
    """Remove it, unless something lives in it after all; a sentence where it could not be."""
    folder = removal.paths[0]
    try:
        if folder.is_dir() and launched.observe(folder).status in {Status.RUNNING, Status.STRAYS}:
            return f"{folder} is kept: processes live in it"
        if folder.is_dir() and _remnant(folder).ended_wall_s > removal.written_wall_s:
            return f"{folder} is kept: it was written to just now"
        for path in removal.paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        return f"{error.filename or folder} could not be removed: {error.strerror}"
    return ""


def _of_runs(config: Config, state: State, limit: Limit, now_wall_s: float) -> Iterator[Removal]:
    remnants = [_remnant(folder) for folder in _folders(config.runs_dir) if _ATTEMPT.fullmatch(folder.name)]
    for remnant, why in to_remove(remnants, kept_attempts(state), limit, now_wall_s):
        yield Removal((config.runs_dir / remnant.name,), remnant.size_bytes, why)


def _of_gates(config: Config, state: State, limit: Limit, now_wall_s: float) -> Iterator[Removal]:
    kept = kept_rollouts(state)
    folders = [(m[1], folder) for folder in _folders(config.gates_dir) if (m := _GATE_RUN.fullmatch(folder.name))]
    staying = [folder.name for rollout, folder in folders if rollout in kept]
    for remnant, why in to_remove([_remnant(folder) for _, folder in folders], staying, limit, now_wall_s):
        folder = config.gates_dir / remnant.name
        yield Removal((folder, folder.with_name(f"{folder.name}.request.json")), remnant.size_bytes, why)


def _of_door(config: Config, age_s: float, now_wall_s: float) -> Iterator[Removal]:
    """Its log is capped by its shim; the parts of it that nobody writes to any more go by age."""
    for name in _OLD_LOG_PARTS:
        path = config.door_dir / "run" / name
        with contextlib.suppress(OSError):
            found = path.stat()
            remnant = Remnant(name, found.st_size, found.st_mtime)
            for old, why in to_remove([remnant], (), Limit(age_s, 1 << 62), now_wall_s):
                yield Removal((path,), old.size_bytes, why)


def _of_reports(config: Config, age_s: float, now_wall_s: float) -> Iterator[Removal]:
    """A report outlives the evidence that it names; it goes by age alone, with all of its renderings."""
    for page in sorted(config.reports_dir.glob("*.json")):
        with contextlib.suppress(OSError):
            parts = tuple(p for s in ("html", "md", "json") if (p := page.with_suffix(f".{s}")).is_file())
            found = [path.stat() for path in parts]
            remnant = Remnant(page.stem, sum(f.st_size for f in found), max(f.st_mtime for f in found))
            for old, why in to_remove([remnant], (), Limit(age_s, 1 << 62), now_wall_s):
                yield Removal(parts, old.size_bytes, why)


def _of_releases(config: Config, state: State, age_s: float, now_wall_s: float) -> Iterator[Removal]:
    """What the journal has forgotten, or never knew: proposals that were refused, arms that were only planned.

    Whoever freezes a topology again makes its release as young as a new one, before the journal hears of it.
    """
    needed = {*state.releases, *(arm.release for sweep in state.sweeps.values() for arm in sweep.arms)}
    for folder in _folders(config.releases_dir):
        if folder.name in needed or not _RELEASE.fullmatch(folder.name):
            continue
        found = _remnant(folder)
        if (unused_s := now_wall_s - found.ended_wall_s) > age_s:
            why = f"it was last frozen {unused_s / DAY_S:.0f} days ago, and nothing that is kept names it"
            yield Removal((folder,), found.size_bytes, why, found.ended_wall_s)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(folder for folder in parent.iterdir() if folder.is_dir() and not folder.is_symlink())
    except OSError:
        return []


def _is_own_directory(folder: Path) -> bool:
    """Anybody may make a name like that in a directory for everybody."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remnant(folder: Path) -> Remnant:
    """Its size on the disk, and when the newest file in it was written."""
    size_bytes, newest_s = 0, 0.0
    for found in _files(folder):
        size_bytes += found.st_blocks * 512
        newest_s = max(newest_s, found.st_mtime)
    return Remnant(folder.name, size_bytes, newest_s)


def _files(folder: Path) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):
        yield folder.stat(follow_symlinks=False)
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False)
