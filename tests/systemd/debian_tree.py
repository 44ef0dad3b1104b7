"""A small Debian that boots, and the wheels that are installed into it: both are made once and kept under the cache.

Mirror and keys are those of this machine's apt, the index is that of its pip; neither is named here. What is kept is
known by a digest of its recipe, and every run works on a copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = {"mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container"}  # program → the Debian package it is in
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3", "python3-venv")
NOT_WANTED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "console-getty.service")
LEAVE_OUT = ("man", "doc", "locale", "info")  # of /usr/share
PRODUCT = ("controller", "launch", "gates", "systemd")
BUILD_TIMEOUT_S = 480
PIP = (sys.executable, "-m", "pip")
VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)


def what_is_missing() -> str:
    """Why no container can be booted here, in one sentence; empty when one can."""
    if os.geteuid() != 0:
        return "booting a Debian tree needs root"
    missing = sorted({package for program, package in TOOLS.items() if shutil.which(program) is None})
    if missing:
        return f"not installed here: {', '.join(missing)} (apt-get install {' '.join(missing)})"
    if not _sources():
        return "this machine has no Debian or Ubuntu package sources to make a tree from"
    return ""


def tree() -> Path:
    """The tree as it was made; never boot it itself."""
    recipe = [_suite(), *PACKAGES, *NOT_WANTED, *LEAVE_OUT, *(path.read_text() for path in _sources())]
    return _kept("init-tree", recipe, _make_tree)


def wheelhouse(python: str) -> Path:
    """Everything that the product needs, for that Python (`3.11`), without the product."""
    wanted = _requirements()
    return _kept("init-wheels", [python, *wanted], lambda folder: _download(folder, python, wanted))


def product_wheel(version: str | None, into: Path) -> Path:
    """The wheel of this checkout; `version` instead of its own makes another one of the same code."""
    with tempfile.TemporaryDirectory(prefix="cutover-wheel-") as folder:
        source = Path(folder)
        for name in PRODUCT:
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "LICENSE"):
            shutil.copy(ROOT / name, source / name)
        text = (ROOT / "pyproject.toml").read_text()
        (source / "pyproject.toml").write_text(VERSION.sub(f'version = "{version}"', text) if version else text)
        before = set(into.glob("*.whl"))
        build = [*PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), "."]
        _run(build, cwd=source, PYTHONPATH=str(_builder()))
    [made] = set(into.glob("*.whl")) - before
    return made


def _builder() -> Path:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return _kept("init-builder", wanted, lambda folder: _run([*PIP, "install", "-q", "--target", str(folder), *wanted]))


def python_of(system: Path) -> str:
    """`3.11`, of the tree's own interpreter."""
    return (system / "usr/bin/python3").readlink().name.removeprefix("python")


def _kept(kind: str, recipe: list[str], make: Callable[[Path], None]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutover"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"{kind}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]}"
    if not kept.is_dir():
        new = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=cache))
        try:
            new.chmod(0o755)
            make(new)
            new.rename(kept)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for older in cache.glob(f"{kind}-*"):  # one is enough
            if older != kept:
                shutil.rmtree(older)
    return kept


def _suite() -> str:
    words = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return words.get("VERSION_CODENAME", "").strip('"')


def _sources() -> list[Path]:
    """The apt sources of the distribution itself, in the old format or the new one; no third parties."""
    folder = Path("/etc/apt")
    usual = [folder / "sources.list", *(folder / "sources.list.d" / f"{n}.sources" for n in ("debian", "ubuntu"))]
    suite = _suite()
    names_it = re.compile(rf"^[^#]*\b{suite}\b", re.MULTILINE)
    return [path for path in usual if suite and path.is_file() and names_it.search(path.read_text())]


def _make_tree(folder: Path) -> None:
    masks = " ".join(f'"$1/etc/systemd/system/{unit}"' for unit in NOT_WANTED)
    _run(
        [
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEAVE_OUT),
            '--aptopt=Acquire::Languages "none"',
            f'--customize-hook=for unit in {masks}; do ln -sf /dev/null "$unit"; done',
            *(_suite(), str(folder), *map(str, _sources())),
        ]
    )


def _requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted([*project["dependencies"], *project["optional-dependencies"]["router"]])


def _download(folder: Path, python: str, wanted: list[str]) -> None:
    where = ["--dest", str(folder), "--only-binary", ":all:", "--python-version", python]
    _run([*PIP, "download", "-q", *where, *wanted])


def _run(argv: list[str], cwd: Path | None = None, **environment: str) -> None:
    around = {**os.environ, **environment}
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False, env=around
    )
    assert done.returncode == 0, f"{' '.join(argv[:4])} … ended with {done.returncode}:\n{done.stdout}{done.stderr}"
