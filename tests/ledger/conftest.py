from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gates.ledger.store import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger that does not exist yet, on a box where it is always the same moment."""
    return Ledger(tmp_path / "state" / "ledger.sqlite", now=lambda: datetime(2026, 11, 30, 12, 0, tzinfo=UTC))
