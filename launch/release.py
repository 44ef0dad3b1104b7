"""A release: a topology frozen with its launch scripts and its provenance, under the digest of all three.

On disk a release is a folder ``<name>@<digest8>`` with ``topology.yaml``, ``scripts/<instance>.sh`` and
``manifest.json``. It is written once, whole, and checked against its digest whenever it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch import provenance
from launch.engines.base import engine
from launch.errors import LaunchError, ReleaseError, ReleaseNotFound
from launch.release_diff import Change, ReleaseDiff, compare
from launch.render import render
from launch.routers.base import router
from launch.topology import Topology, parse
from launch.topology_rules import ROUTER

__all__ = [
    "Change",
    "InstanceSpec",
    "Release",
    "ReleaseDiff",
    "diff",
    "freeze",
    "list_releases",
    "load_release",
    "save",
]

SCHEMA = 1
_DIGEST_SHOWN = 8
_LISTED_MAX = 8


@dataclass(frozen=True)
class InstanceSpec:
    """What somebody who starts an instance must know about it."""

    name: str
    role: str
    """``engine`` or ``router``."""
    gpu_count: int
    gpus: tuple[str, ...] | None
    """Explicit indices or UUIDs; None when any ``gpu_count`` GPUs will do."""
    health_path: str
    port_count: int
    """Consecutive ports to reserve: the main one and the internal ones."""
    start_after: tuple[str, ...]
    """Instances that must be ready before this one starts."""
    fronted: bool
    """True for what the front door sends requests to: the router where there is one, else every engine."""


@dataclass(frozen=True)
class Release:
    """An immutable release. `scripts` maps instance names to bash text; the router's key is ``router``."""

    id: str
    name: str
    digest: str
    topology: Topology
    scripts: Mapping[str, str]
    manifest: Mapping[str, Any]

    def instances(self) -> tuple[InstanceSpec, ...]:
        """The instances in start order: engines by name, then the router."""
        kind = engine(self.topology.engine)
        engines = tuple(
            InstanceSpec(
                name=name,
                role="engine",
                gpu_count=instance.gpu_count,
                gpus=instance.gpu_names,
                health_path=kind.health_path,
                port_count=kind.port_count(self.topology.flags),
                start_after=(),
                fronted=self.topology.router is None,
            )
            for name, instance in sorted(self.topology.instances.items())
        )
        if self.topology.router is None:
            return engines
        front = router(self.topology.router.kind)
        return (
            *engines,
            InstanceSpec(
                name=ROUTER,
                role="router",
                gpu_count=0,
                gpus=None,
                health_path=front.health_path,
                port_count=front.port_count,
                start_after=tuple(spec.name for spec in engines),
                fronted=True,
            ),
        )


def freeze(topology: Topology, *, check_paths: bool = True) -> Release:
    """Make the release of a topology on this box: resolve programs, look at files, render scripts, take the digest.

    Reads model files and the engine's package, writes nothing, runs nothing but git. With `check_paths` false (a
    topology of another box) what is missing is listed in ``manifest["unknown"]`` instead of refused.
    """
    found = provenance.gather(topology, check_paths=check_paths)
    scripts = render(
        topology,
        command=found.command,
        router_command=found.router_command,
        script_text=found.script_text,
    )
    identity = json.loads(json.dumps(found.identity))
    digest = _digest(topology, scripts, identity)
    release_id = f"{topology.name}@{digest[:_DIGEST_SHOWN]}"
    manifest = {
        "schema": SCHEMA,
        "id": release_id,
        "name": topology.name,
        "digest": digest,
        "identity": identity,
        "scripts": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(scripts.items())},
        "env_file": topology.env_file,
        "needs_admin": list(found.needs_admin),
        "notes": list(found.notes),
        "unknown": list(found.unknown),
        "checked": check_paths,
    }
    return Release(release_id, topology.name, digest, topology, scripts, manifest)


def save(release: Release, root: Path) -> Path:
    """Write the release below `root` and return its folder. All or nothing; saving it again changes nothing."""
    folder = root / release.id
    try:
        root.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            saved = load_release(root, release.id)
            if saved.digest != release.digest:
                raise ReleaseError(f"{folder}: holds another release with the same first digits; move it away")
            os.utime(folder)  # the newest of its name again
            return folder
        _write(release, root, folder)
    except OSError as error:
        raise ReleaseError(f"{folder}: the release cannot be saved: {error.strerror}") from error
    return folder


def load_release(root: Path, release_id: str) -> Release:
    """Read a saved release: by its id, a unique beginning of it, or a bare name (its newest release)."""
    folder = root / _find(root, release_id)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        text = (folder / "topology.yaml").read_text(encoding="utf-8")
        topology = parse(text, source=str(folder / "topology.yaml"), rules=False)
        names = [*topology.instances, *([ROUTER] if topology.router is not None else [])]
        scripts = {name: (folder / "scripts" / f"{name}.sh").read_bytes().decode("utf-8") for name in sorted(names)}
        digest = _digest(topology, scripts, manifest["identity"])
        if digest != manifest["digest"] or folder.name != manifest["id"]:
            raise ReleaseError(f"{folder}: the release was changed after it was saved; freeze its topology again")
    except LaunchError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"{folder}: the saved release is damaged ({error}); freeze its topology again") from error
    return Release(manifest["id"], topology.name, digest, topology, scripts, manifest)


def list_releases(root: Path) -> tuple[str, ...]:
    """Ids of the saved releases, the newest first."""
    try:
        if not root.is_dir():
            return ()
        folders = [folder for folder in root.iterdir() if "@" in folder.name and (folder / "manifest.json").is_file()]
        newest_first = sorted(folders, key=lambda folder: (-folder.stat().st_mtime_ns, folder.name))
    except PermissionError as error:
        raise ReleaseError(
            f"the releases in {root} cannot be read: {error.strerror}; ask the user who owns them"
        ) from error
    return tuple(folder.name for folder in newest_first if not folder.name.startswith("."))


def diff(a: Release, b: Release) -> ReleaseDiff:
    """What changes from `a` to `b`."""
    return compare(
        (a.id, b.id),
        topologies=(a.topology, b.topology),
        identities=(a.manifest["identity"], b.manifest["identity"]),
        scripts=(a.scripts, b.scripts),
    )


def _digest(topology: Topology, scripts: Mapping[str, str], identity: Mapping[str, Any]) -> str:
    """SHA-256 of canonical JSON: keys sorted, no spaces; the order of lists (flags) counts."""
    document = {"schema": SCHEMA, "topology": topology.canonical(), "scripts": dict(scripts), "provenance": identity}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _find(root: Path, wanted: str) -> str:
    known = list_releases(root)
    if wanted in known:
        return wanted
    named = [one for one in known if one.partition("@")[0] == wanted]
    if named:
        return named[0]
    begun = [one for one in known if wanted and one.startswith(wanted)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise ReleaseNotFound(f"{wanted!r} begins the ids of {len(begun)} releases: {_listed(begun)}; write more of it")
    have = f"saved are {_listed(known)}" if known else "none is saved yet"
    raise ReleaseNotFound(f"there is no release {wanted!r}; {have}")


def _listed(ids: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(ids) - _LISTED_MAX} more" if len(ids) > _LISTED_MAX else ""
    return ", ".join(ids[:_LISTED_MAX]) + more


def _write(release: Release, root: Path, folder: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{release.id}.", dir=root))
    try:
        temporary.chmod(0o750)
        (temporary / "scripts").mkdir(mode=0o750)
        _file(temporary / "topology.yaml", release.topology.to_yaml(), 0o440)
        for name, text in release.scripts.items():
            _file(temporary / "scripts" / f"{name}.sh", text, 0o500)
        _file(temporary / "manifest.json", json.dumps(dict(release.manifest), indent=2, sort_keys=True) + "\n", 0o440)
        for directory in (temporary / "scripts", temporary):
            _sync(directory)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else somebody saved the same release just now
                raise
        _sync(root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _file(path: Path, text: str, mode: int) -> None:
    with path.open("xb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
