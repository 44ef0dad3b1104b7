"""Every promise of docs/promises.md names tests that exist, or says openly that it is not shown."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (P\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w*]+)`(?: \(([a-z, ]+)\))?")
OPEN = "*not shown*"
MARKS = ("init", "kills", "slow", "campaign", "engines")
ROOTS = re.compile(r"\b(?:small_disk|breakable_disk|geteuid)\b")
PROMISES = 20


def rows(text: str) -> dict[str, tuple[str, str, str]]:
    return {number: (promise, bound, shown) for number, promise, bound, shown in ROW.findall(text)}


def names_in(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def needs_of(path: Path, name: str) -> set[str]:
    """What a plain run would leave out or skip: the markers of a test, `root` where its fixtures want it."""
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    ours = [functions[name]] if name in functions else []
    for node in ours:  # and its fixtures, as far as they stand beside it
        ours += [functions[a.arg] for a in node.args.args if a.arg in functions and functions[a.arg] not in ours]
    module = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n.targets[0])]
    said = "\n".join(ast.unparse(node) for node in [*module, *ours])
    return {mark for mark in MARKS if f"mark.{mark}" in said} | ({"root"} if ROOTS.search(said) else set())


def complaints(text: str) -> list[str]:
    found = [f"P{n} is not listed" for n in range(1, PROMISES + 1) if f"P{n}" not in rows(text)]
    for number, (_, bound, shown) in rows(text).items():
        named = TEST.findall(shown)
        if not named and OPEN not in shown:
            found.append(f"{number} names no test and does not say that it is not shown")
        if not bound.strip():
            found.append(f"{number} has no bound")
        for file, name, said in named:
            needs = needs_of(ROOT / file, name)
            if needs != set(filter(None, said.split(", "))):
                found.append(f"{number}: {file}::{name} needs ({', '.join(sorted(needs)) or 'nothing'})")
            there = names_in(ROOT / file)
            if not there or (name != "*" and name not in there):
                found.append(f"{number} names {file}::{name}, which is not there")
    return found


def test_every_promise_names_tests_that_exist():
    text = (ROOT / "docs" / "promises.md").read_text()
    open_ones = [f"{n}{shown.split(OPEN, 1)[1]}" for n, (_, _, shown) in rows(text).items() if OPEN in shown]
    if open_ones:  # in the summary of every run, so that nobody forgets
        warnings.warn("promises not shown:\n  " + "\n  ".join(open_ones), stacklevel=1)
    assert complaints(text) == []


CANARIES = " ".join(
    f"`tests/security/test_canaries.py::test_{name}`"
    for name in (
        "no_command_line_has_a_secret",
        "no_file_has_a_secret_but_those_it_was_written_into",
        "no_answer_of_the_daemon_has_a_secret",
    )
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("| P8 |", "| X8 |"), "P8 is not listed"),
        (
            ("::test_a_reboot_brings_production_back` (init)", "::test_a_reboot_brings_production_back`"),
            "P21: tests/sys",
        ),
        (("::test_a_repeated_key_does_nothing`", "::test_that_was_renamed`"), "P15 names tests/store/test_journal.py"),
        ((f"| 0 planted words found | {CANARIES}", "| 0 planted words found | none"), "P20 names no test"),
    ],
)
def test_a_promise_without_its_test_is_found(change, said):
    text = (ROOT / "docs" / "promises.md").read_text()
    assert text.count(change[0]) == 1
    assert any(complaint.startswith(said) for complaint in complaints(text.replace(*change)))
