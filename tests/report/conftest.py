"""A night that was lived through once, for all tests that only look at it; and boxes of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report_kit import NightBox, busy_night, night_box
from structlog.testing import capture_logs


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NightBox]:
    yield from busy_night(tmp_path_factory.mktemp("night"))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[NightBox]:
    with night_box(tmp_path) as made, capture_logs():
        yield made
