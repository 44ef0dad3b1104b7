"""What may reach a terminal, and how an outcome is told."""

from __future__ import annotations

import pytest

from controller.cli.outcome import exit_code_of, sentence_of
from controller.cli.terminal import clean, cleaned, span
from controller.core.records import TERMINAL
from controller.errors import ExitCode


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain äöü → 语言\tand\nlines", "plain äöü → 语言\tand\nlines"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title of the window\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x9b31mC1", "31mC1"),
        ("bell\x07 back\x08 null\x00 del\x7f", "bell back null del"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("10 %\r50 %\r100 %\ndone", "100 %\ndone"),
        ("half a sequence \x1b[3", "half a sequence 3"),
        ("turned \u202eround\u2069", "turned round"),
    ],
)
def test_only_text_reaches_the_terminal(said, shown):
    assert clean(said) == shown
    assert cleaned({"a": [said, 1, None]}) == {"a": [shown, 1, None]}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.034, "0.03 s"), (4.2, "4.2 s"), (59.4, "59 s"), (250, "4 min 10 s"), (3600, "1 h"), (180_000, "2 d 2 h")],
)
def test_times_in_words(seconds, words):
    assert span(seconds) == words


def rollout(phase: str, **rest: object) -> dict[str, object]:
    over = phase in TERMINAL
    given = {
        "id": "r0001",
        "kind": "propose",
        "release": "x@1",
        "phase": phase,
        "over": over,
        "why": "",
        "abort_by": "",
    }
    return {**given, **rest}


def test_every_end_has_its_exit_code():
    codes = {phase.value: int(exit_code_of(rollout(phase.value))) for phase in TERMINAL}
    assert codes == {
        "promoted": 0,
        "rejected": 10,
        "inconclusive": 11,
        "refused": 5,
        "skipped": 5,
        "superseded": 5,
        "aborted": 1,
        "failed": 1,
        "rolled_back": 14,
        "rollback_failed": 15,
    }


def test_a_rollback_that_was_wanted_is_done():
    assert exit_code_of(rollout("rolled_back", kind="rollback")) is ExitCode.DONE
    assert exit_code_of(rollout("rolled_back"), wanted_back=True) is ExitCode.DONE
    assert exit_code_of(rollout("rollback_failed"), wanted_back=True) is ExitCode.ROLLBACK_FAILED
    assert exit_code_of(rollout("promoted"), wanted_back=True) is ExitCode.FAILED
    assert exit_code_of(rollout("baking")) is ExitCode.STILL_RUNNING


def test_an_abort_says_who():
    said = sentence_of(rollout("aborted", abort_by="ada", why="aborted by ada"))
    assert said == "r0001 x@1 is aborted by ada"
