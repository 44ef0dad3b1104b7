"""Imports run one way; a wrong arrow fails here, with the file and the import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ("controller", "launch", "gates")
# What a room may import, of the product. `controller.x` also means everything below it.
ALLOWED = {
    "launch": ("launch",),
    "gates": ("gates",),
    "controller.core": ("controller.core",),
    "controller.crashpoints": (),
    "controller.rounds": (),
    "controller.wholefile": (),
    "controller.errors": (),
    "controller.config": (
        "controller.config", "controller.core", "controller.durations", "controller.errors",
        "controller.notify.target", "launch",
    ),
    "controller.notify": (
        "controller.core", "controller.notify", "controller.store", "controller.errors", "controller.wholefile",
    ),
    "controller.store": ("controller.core", "controller.store", "controller.errors", "controller.crashpoints"),
    "controller.effects": (
        "controller.core", "controller.effects", "controller.config", "controller.errors", "controller.wholefile",
        "launch", "gates",
    ),
    "controller.loop": ("controller.core", "controller.effects.ports", "controller.store", "controller.crashpoints"),
    "controller.housekeeper": (
        "controller.rounds", "controller.core", "controller.store", "controller.effects", "controller.config",
    ),
    "controller.report": (
        "controller.report", "controller.rounds", "controller.core", "controller.store", "controller.effects",
        "controller.config", "controller.errors", "controller.wholefile", "gates",
    ),
    "controller.units": (
        "controller.units", "controller.core.window", "controller.config", "controller.errors", "controller.wholefile",
        "launch",
    ),
    "controller.catalogue": ("controller.core", "launch", "gates"),
    "controller.api": (
        "controller.api", "controller.core", "controller.store", "controller.catalogue", "controller.config",
        "controller.errors", "controller.wholefile",
        "launch", "gates",
    ),
    "controller.daemon": ("controller", "launch"),
    "controller.demo": (
        "controller.demo", "controller.config", "controller.effects.frontdoor", "controller.errors", "launch", "gates",
    ),
    "controller.cli": ("controller", "launch", "gates"),
    "controller.__main__": ("controller.cli",),
    "controller": (),
}  # fmt: skip
PURE = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",  # calendars; who asks it for the time is found below
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "math",
    "operator",
    "statistics",
    "typing",
}


def modules() -> Iterator[tuple[str, Path]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            yield name, path


def imports(name: str, path: Path) -> Iterator[tuple[int, str]]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, target
            for alias in node.names:
                if not node.module:
                    yield node.lineno, f"{target}.{alias.name}"


def room(name: str) -> str:
    return max((r for r in ALLOWED if name == r or name.startswith(r + ".")), key=len)


def is_below(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def test_arrows_run_one_way():
    wrong = []
    for name, path in modules():
        for line, target in imports(name, path):
            if target.split(".")[0] not in PRODUCT or target in {"controller", "launch", "gates"}:
                continue
            if not any(is_below(target, allowed) for allowed in ALLOWED[room(name)]):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert wrong == []


def test_core_is_pure():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path in modules()
        if is_below(name, "controller.core")
        for line, target in imports(name, path)
        if target.split(".")[0] not in PURE and not is_below(target, "controller.core")
    ]
    assert wrong == []


def test_only_the_clock_reads_time():
    """Time is an argument: the core, the store and the loop never ask for it, nor a calendar for today."""
    timeless = [
        (name, path)
        for name, path in modules()
        if any(is_below(name, r) for r in ("controller.core", "controller.store", "controller.loop", "controller.api"))
    ]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path in timeless
        for line, target in imports(name, path)
        if target.split(".")[0] == "time"
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} asks for {node.attr}"
        for _, path in timeless
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"} and _is_calendar(node.value)
    ]
    assert wrong == []


def _is_calendar(node: ast.expr) -> bool:
    """``datetime.now``, ``datetime.datetime.now``; not ``self.now``."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in {"datetime", "date"}


@pytest.mark.parametrize("word", ["mock.patch", "monkeypatch.setattr", "MagicMock"])
def test_fakes_not_patches(word):
    found = [p for p in (ROOT / "tests").rglob("*.py") if p != Path(__file__) and word in p.read_text()]
    assert found == []
