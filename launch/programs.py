"""From the words of a command to the program on this box that they start, and whether we know that command."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.errors import ProvenanceError

_VERSION_SUFFIX = re.compile(r"\d+(\.\d+)*$")


@dataclass(frozen=True)
class Command:
    """A command's words; ``found`` tells whether the first one is the absolute path of an executable of this box."""

    words: tuple[str, ...]
    found: bool

    @property
    def program(self) -> Path:
        return Path(self.words[0])


def resolve(words: Sequence[str], *, what: str, remedy: str, required: bool) -> Command:
    """Make the program's path absolute.

    A bare name is looked for beside our own interpreter first (what the product's extras install lies there), except
    ``python``, which means the box's; then in PATH. Missing and `required` is a ProvenanceError naming `what`.
    """
    name = words[0]
    path = name if "/" in name else _beside_us(name) or shutil.which(name)
    if path is not None and os.access(path, os.X_OK) and Path(path).is_file():
        return Command((str(Path(path).absolute()), *words[1:]), found=True)
    if required:
        where = "does not exist, or is not executable" if "/" in name else "is not in PATH"
        raise ProvenanceError(f"{what}: the program {name} {where}; {remedy}")
    return Command(tuple(words), found=False)


def is_known(words: Sequence[str], known: frozenset[tuple[str, ...]]) -> bool:
    """True when the command is one of `known`, whatever folder and version its program has."""
    base_name = _VERSION_SUFFIX.sub("", Path(words[0]).name)
    return (base_name, *words[1:]) in known


def interpreter(command: Command) -> Path | None:
    """The Python interpreter that a command runs: itself, or the one in a console script's first line."""
    if not command.found:
        return None
    if _VERSION_SUFFIX.sub("", command.program.name) == "python":
        return command.program
    with command.program.open("rb") as file:
        first = file.readline(512)
    if not first.startswith(b"#!"):
        return None
    path = Path(first[2:].decode("utf-8", errors="replace").strip())
    return path if _VERSION_SUFFIX.sub("", path.name) == "python" else None


def _beside_us(name: str) -> str | None:
    if _VERSION_SUFFIX.sub("", name) == "python":
        return None
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else None
