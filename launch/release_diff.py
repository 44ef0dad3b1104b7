"""What changed between two releases: for people as text, for programs as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launch.engines.base import flag_name
from launch.topology import Topology

ABSENT = "(absent)"
_SHOWN_MAX = 100


@dataclass(frozen=True)
class Change:
    """One difference: a dotted place, and the values before and after (None where it was or is not there)."""

    part: str
    """``topology`` or ``provenance``."""
    where: str
    before: Any
    after: Any


@dataclass(frozen=True)
class ReleaseDiff:
    """The differences from release `before` to release `after`, ids both."""

    before: str
    after: str
    changes: tuple[Change, ...]
    scripts: Mapping[str, tuple[str, ...]]
    """Per launch script the lines of a unified diff; only scripts that differ."""

    def __bool__(self) -> bool:
        """True when anything differs."""
        return bool(self.changes or self.scripts)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        return {
            "before": self.before,
            "after": self.after,
            "changes": [asdict(change) for change in self.changes],
            "scripts": {name: list(lines) for name, lines in self.scripts.items()},
        }

    def text(self) -> str:
        """The same for people: what changed in the topology, in what it runs, in the scripts."""
        if not self:
            return f"{self.before} and {self.after} do not differ\n"
        lines = [f"{self.before} → {self.after}"]
        for part in ("topology", "provenance"):
            changed = [change for change in self.changes if change.part == part]
            lines += [f"\n{part}"] * bool(changed)
            lines += [f"  {one.where}: {_shown(one.before)} → {_shown(one.after)}" for one in changed]
        for name, script in self.scripts.items():
            lines += [f"\nscript {name}", *(f"  {line}" for line in script)]
        return "\n".join(lines) + "\n"


def compare(
    ids: tuple[str, str],
    *,
    topologies: tuple[Topology, Topology],
    identities: tuple[Mapping[str, Any], Mapping[str, Any]],
    scripts: tuple[Mapping[str, str], Mapping[str, str]],
) -> ReleaseDiff:
    """The differences between two releases, given by their parts."""
    before, after = topologies
    changes = [
        *_changes("topology", _with_flags(before.canonical()), _with_flags(after.canonical())),
        *_changes("provenance", _with_named_files(identities[0]), _with_named_files(identities[1])),
    ]
    if before.flags != after.flags and _by_name(before.flags) == _by_name(after.flags):
        changes.append(Change("topology", "flags (order)", " ".join(before.flags), " ".join(after.flags)))
    return ReleaseDiff(*ids, tuple(changes), _script_diffs(*scripts))


def _changes(part: str, before: Any, after: Any, where: str = "") -> Iterator[Change]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            place = f"{where}.{key}" if where else str(key)
            yield from _changes(part, before.get(key), after.get(key), place)
        return
    yield Change(part, where, before, after)


def _with_flags(topology: dict[str, Any]) -> dict[str, Any]:
    """Flags by name, so that one changed value reads as that, and not as another list."""
    topology["flags"] = _by_name(topology["flags"])
    if topology["router"] is not None:
        topology["router"]["flags"] = _by_name(topology["router"]["flags"])
    return topology


def _by_name(flags: Sequence[str]) -> dict[str, Any]:
    """``{"--tp-size": "2", …}``; a flag without a value is True, a repeated one has all its values."""
    named: dict[str, list[str]] = {}
    name = ""
    for word in flags:
        found = flag_name(word)
        if found is None:
            named.setdefault(name, []).append(word)
            continue
        name = found
        named.setdefault(name, []).extend([word.split("=", 1)[1]] if "=" in word else [])
    return {key: " ".join(words) if words else True for key, words in named.items()}


def _with_named_files(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The model's file list by file name."""
    named = dict(identity)
    model = named.get("model")
    if isinstance(model, dict) and "files" in model:
        named["model"] = {**model, "files": {file["name"]: _file(file) for file in model["files"]}}
    return named


def _file(file: Mapping[str, Any]) -> str:
    digest = file.get("sha256") or file.get("sample_sha256")
    return f"{file['size_bytes']} bytes, {str(digest)[:12]}"


def _script_diffs(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    differing = {}
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
            differing[name] = tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))
    return differing


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if value is True:
        return "(given)"
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"
