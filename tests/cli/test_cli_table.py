"""The tables of docs/cli.md against the commands and options that there are, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from controller.cli.app import app

LINES = (Path(__file__).parents[2] / "docs" / "cli.md").read_text().splitlines()


@cache
def commands() -> dict[str, Any]:
    """Every command by the words that it is called with; a group that does nothing itself is not one."""
    return dict(_below(typer.main.get_command(app), ""))


def _below(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        words = f"{name} {word}".strip()
        if hasattr(command, "commands"):
            yield from _below(command, words)
            if command.invoke_without_command:
                yield words, command
        else:
            yield words, command


def rows(title: str) -> list[list[str]]:
    start = LINES.index(f"## {title}")
    end = next((n for n, line in enumerate(LINES) if n > start and line.startswith("## ")), len(LINES))
    table = [line for line in LINES[start:end] if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def named(cell: str, known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """``(command, what stands behind it)`` of each piece of code; a lone word belongs to the group of the first."""
    group = ""
    for code in re.findall(r"`([^`]+)`", cell):
        words = re.match(r"[a-z ]*[a-z]", code)
        if words is None:
            continue
        full = next((name for name in (f"{group} {words[0]}", words[0]) if name in known), None)
        name = full or next((n for n in (" ".join(words[0].split()[:k]) for k in (2, 1)) if n in known), words[0])
        group = group or words[0].split()[0]
        yield ("sweep run" if name == "sweep" else name), code


def test_every_command_is_in_the_table_and_every_row_is_a_command():
    known = commands()
    told = [name for row in rows("Commands") for name, _ in named(row[0], {**known, "sweep": None})]
    assert set(told) == set(known)


def test_options_in_the_table_are_options():
    known = commands()
    wrong = []
    for row in rows("Commands"):
        of_row = [name for name, _ in named(row[0], {**known, "sweep": None})]
        options = {o for name in of_row for each in known[name].params for o in (*each.opts, *each.secondary_opts)}
        wrong += [(row[0], o) for o in re.findall(r"--[a-z][a-z-]*", " ".join(row[:2])) if o not in options]
    assert wrong == []


def test_every_answer_in_json_is_described():
    told = " ".join(row[0] for row in rows("JSON"))
    answers = [name for name, command in commands().items() if any("--json" in each.opts for each in command.params)]
    untold = [
        name
        for name in answers
        if not re.search(rf"`(?:{name}|{name.removesuffix(' run')} FILE|{name} [A-Z].*?)`", told)
    ]
    assert untold == []
