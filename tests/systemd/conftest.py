"""One Debian, booted once for all tests of this room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import container
import debian_tree
import pytest
from container import Container
from operator_kit import Box

VERSIONS = ("0.1.0", "0.1.1")  # what is installed, and what it is upgraded to


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    missing = debian_tree.what_is_missing() or container.what_is_missing()
    if missing:
        pytest.skip(missing)
    tree = debian_tree.tree()
    place = tmp_path_factory.mktemp("init")
    wheels = place / "wheels"
    try:
        shutil.copytree(debian_tree.wheelhouse(debian_tree.python_of(tree)), wheels)
        for version in VERSIONS:
            debian_tree.product_wheel(version, wheels)
        with Container(tree, wheels, place) as booted:
            yield Box(booted, VERSIONS)
    finally:
        shutil.rmtree(place)
