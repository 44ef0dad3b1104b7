"""The catalogue of public bugs is whole and can be asked."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from gates.bugs import ALL, bugs_of, bugs_of_fault


def test_every_row_once():
    # A number stays with its row: those that came later stand in their family all the same.
    assert sorted(bug.row for bug in ALL) == list(range(1, 172))


def test_the_totals_of_the_survey():
    assert list(Counter(bug.kind for bug in ALL).values()) == [53, 32, 21, 18, 20, 27]
    assert Counter(bug.mode for bug in ALL) == {"stream": 59, "whole": 6, "differs": 3, "both": 103}
    needs = Counter(need.removesuffix(" off") for bug in ALL for need in bug.needs)
    assert needs == {"history": 27, "thinking": 28, "configuration": 32, "load": 9}
    assert sum("#" in report for bug in ALL for report in bug.reports) == 291


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: str(bug.row))
def test_each_row_says_something(bug):
    assert bug.reports
    assert all(re.fullmatch(r"[\w.-]+(/[\w.-]+)?#\d+", report) for report in bug.reports if report != "vLLM 0.32 code")
    assert bug.shape.endswith((".", "`"))
    assert "\n" not in bug.shape
    assert bug.seen in {"thread", "excerpt", "title"}
    assert all(re.fullmatch(r"[PJFTOA]\d\d", check) for check in bug.checks)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]+", fault) for fault in bug.faults)
    assert bug.checks or bug.note, "a row that no check looks for says why"
    assert bug.faults or "legal" in bug.note


def test_asked_by_check_and_by_fault():
    assert [bug.row for bug in bugs_of("J24")] == [20, 72]
    assert bugs_of("J24")[0].reports == ("vllm#49249",)
    assert [bug.row for bug in bugs_of_fault("swap_requests")] == [157]
    assert [bug.row for bug in bugs_of("J27")] == [167, 171]
    assert [bug.row for bug in bugs_of_fault("html_escaped")] == [167]
    assert [bug.row for bug in bugs_of_fault("html_unescaped")] == [171]
    assert [bug.row for bug in bugs_of("J28")] == [bug.row for bug in bugs_of_fault("int_rounded")] == [168]
    assert [bug.row for bug in bugs_of_fault("prompt_last_system") if bug in bugs_of("F08n")] == [169]
    assert "needs load" in bugs_of_fault("swap_requests")[0].circumstances
    assert bugs_of("J24.model") == bugs_of("J24b") == bugs_of("J24")
    assert bugs_of("J240") == bugs_of("health") == ()
    assert bugs_of("X99") == bugs_of_fault("no_such") == ()
