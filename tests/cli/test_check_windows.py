"""What doctor says of windows, and of extras that can be installed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.cli.check_windows import windows
from controller.config import parse_config

NOW_S = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
NOON = "schedules: {noon: {start: '12:15', duration: 45m, timezone: UTC}}\n"
NIGHTLY = "schedule: {start: '02:00', duration: 4h, timezone: Asia/Taipei}\n"


@pytest.fixture
def said(tmp_path):
    places = {"state_dir": tmp_path, "socket": tmp_path / "s"}
    return lambda text: list(windows(parse_config(text, "cutover.yaml", places), NOW_S))


def test_windows_that_are_in_order_are_named_with_their_next_opening(said):
    (check,) = said(NIGHTLY + NOON)
    assert check.ok is True
    assert "nightly: Tue 2026-12-01 02:00 (Asia/Taipei), for 4 h" in check.sentence
    assert "noon: Mon 2026-11-30 12:15 (UTC), for 45 min" in check.sentence
    assert said("slots: 4\n") == []


@pytest.mark.parametrize(("patience", "hint"), [("44m", False), ("45m", True), ("2h", True)])
def test_a_patience_that_outlasts_a_window_is_warned_of(said, patience, hint):
    (check,) = said(f"{NIGHTLY}{NOON}quiet: {{patience: {patience}}}\n")
    assert (check.ok is None) is hint
    assert ("and noon for 45 min: without a quiet moment" in check.sentence) is hint
    assert bool(check.remedy) is hint
