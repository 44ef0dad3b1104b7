"""The page of checks is written from the register, and says of each what the register says."""

from __future__ import annotations

from pathlib import Path

from gates.acceptance import register
from gates.acceptance.check import Deterministic
from gates.checklist import markdown
from gates.invariants import RULES

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def test_the_published_page_is_the_register() -> None:
    stale = "run `python -m gates.checklist > docs/checks.md`"
    assert PAGE.read_text(encoding="utf-8") == markdown(), stale


def test_every_check_and_rule_has_one_row_with_what_it_catches() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| **")]
    assert len(rows) == len(register.checks()) + len(RULES)
    for check in register.checks():
        (row,) = [row for row in rows if row.startswith(f"| **{check.id}** {check.name} |")]
        assert check.catches in row
        assert str(check.tier) in row
        assert row.count(" | ") == 5, "a stray bar breaks the table"


def test_severity_and_place_are_those_of_the_run() -> None:
    rows = {line.split("**")[1]: line for line in markdown().splitlines() if line.startswith("| **")}
    assert "| standard, last |" in rows["P09"]
    assert "| standard, alone |" in rows["J24"]
    assert "| standard, afterwards |" in rows["J10"]
    assert "| B90 | blocks |" in rows["J01"]
    assert "| 2 of 18 | blocks |" in rows["J07"]
    assert "| warns |" in rows["F11"]
    assert "| shown |" in rows["J05t"]
    assert rows["O02"].endswith(r"| I\* |")


def test_the_rule_of_a_check_says_how_its_variants_are_asked() -> None:
    for check in register.checks():
        if isinstance(check.rule, Deterministic):
            assert ("each streamed and whole" in check.rule_words) == (len(check.modes) == 2), check.id
