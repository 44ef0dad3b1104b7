"""Whoever names an extra of pyproject.toml names one that it has, in the same words everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from controller.cli.checks import how_to_get

ROOT = Path(__file__).parents[2]


def test_texts_name_extras_that_there_are():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "controller").rglob("*.py"))]
    texts = {path: path.read_text() for path in files}
    by_package = [str(path) for path, text in texts.items() if re.search(r"\bcutover\[[a-z]", text)]
    assert by_package == [], "the project's name is no package to be had: `.[extra]` in the checkout, or its wheel"
    named = {extra for text in texts.values() for extra in re.findall(r"(?:'\.|\.whl)\[([a-z]+)\]'", text)}
    assert {"router", "notify"} <= named <= extras


def test_doctor_says_it_like_the_readme():
    assert "pip install '.[router]'" in how_to_get("router")
    assert "pip install '.[router]'" in (ROOT / "README.md").read_text()
