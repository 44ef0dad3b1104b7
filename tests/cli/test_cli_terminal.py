"""What may reach a terminal, and how an outcome is told."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from controller.cli.draw_rollout import draw_history
from controller.cli.draw_status import draw_status, hold_line
from controller.cli.follow import tell_end
from controller.cli.outcome import exit_code_of, sentence_of
from controller.cli.reporters import Lines, still
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
        "measured": 0,
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


def drawn(part: object, width: int) -> list[str]:
    out = Console(width=width, file=StringIO(), markup=False, emoji=False)
    out.print(part)
    return out.file.getvalue().splitlines()


def test_history_can_be_read_in_a_narrow_terminal():
    why = "instance a (qwen27b-tp2x2-a-12) did not come up: exited with code 1 (exited)"
    given = {"asked_by": "ada", "created": 0.0, "ended": 12.0, "why": why}
    shown = "\n".join(drawn(draw_history([rollout("failed", **{**given, "release": "qwen27b-tp2x2@1a2b3c4d"})]), 80))
    assert "r0001" in shown
    assert "qwen27b-tp2x2@1a2b3c4d" in shown
    assert "by ada" in shown
    assert why in " ".join(shown.split())
    assert len(shown.splitlines()) <= 4


@pytest.mark.parametrize(("width", "rows"), [(80, 1), (60, 2), (160, 1)])
def test_four_cards_fit_a_terminal_of_80_columns(width, rows):
    card = {"foreign": [], "held_by": "qwen27b-tp2x2-router-12", "memory_total_mib": None, "trusted": True}
    door = {"alive": False, "public": "127.0.0.1:8000", "why": "down"}
    status = {
        "alarms": [], "freeze": None, "live": None, "previous": None, "rollout": None, "queue": [], "now": "nothing",
        "front_door": door, "gpus": [{**card, "index": index} for index in range(4)],
    }  # fmt: skip
    lines = [line for part in draw_status(status) for line in drawn(part, width)]
    tops = [line for line in lines if "GPU" in line]
    assert [len(tops), sum(line.count("GPU") for line in tops)] == [rows, 4]
    assert max(len(line) for line in lines) <= width


def test_a_card_that_is_not_trusted_is_not_called_free():
    card = {
        "foreign": [],
        "held_by": None,
        "memory_total_mib": None,
        "trusted": False,
        "why": "GPU is lost",
        "index": 0,
    }
    door = {"alive": False, "public": "127.0.0.1:8000", "why": "down"}
    status = {
        "alarms": [], "freeze": None, "live": None, "previous": None, "rollout": None, "queue": [], "now": "nothing",
        "front_door": door, "gpus": [card, {**card, "held_by": "one-a-1", "index": 1}],
    }  # fmt: skip
    shown = "\n".join(line for part in draw_status(status) for line in drawn(part, 80))
    assert shown.count("GPU is lost") == shown.count("untrusted") == 2
    assert "one-a-1" in shown
    assert "free" not in shown


def test_a_cordoned_card_shows_who_serves_on_it_too():
    closed = {"by": "boss", "why": "the fan", "since_wall_s": 0.0}
    card = {"foreign": [], "held_by": "one-a-1", "memory_total_mib": None, "trusted": True, "index": 0}
    attempt = {"id": "one-a-1", "state": "ready", "gpus": ["gpu-0"], "port": 1, "pid": 1, "probe": None}
    live = {"release": "one", "serves": ["m"], "since": 0.0, "rollout": "r0001", "running": True, "attempts": [attempt]}
    status = {
        "alarms": [], "freeze": None, "live": live, "previous": None, "rollout": None, "queue": [], "now": "nothing",
        "front_door": {"alive": False, "public": "127.0.0.1:8000", "why": "down"},
        "gpus": [{**card, "closed": closed}],
    }  # fmt: skip
    shown = "\n".join(line for line in drawn(draw_status(status)[1], 80))
    assert "one-a-1 live" in shown
    assert "cordoned by boss" in shown


def test_a_way_back_that_asks_its_target_says_so():
    """A minute of probes of a release that is sick looked like a rollback that hangs."""
    sick = {"ok": False, "layer": "timeout", "sentence": "no token within 5 s"}
    target = {"id": "one-a-1", "state": "ready", "probe": sick}
    rollout = {"id": "r3", "release": "two@1", "phase": "rolling_back", "phase_s": 20.0, "gate": None, "attempts": []}
    status = {"rollout": rollout, "queue": [], "freeze": None, "now": "", "previous": {"attempts": [target]}}
    assert still(status).endswith("rolling back 20 s · one-a-1 has to generate first (timeout: no token within 5 s)")
    target["state"] = "waking"
    assert still(status).endswith(" · one-a-1 is waking")
    target |= {"state": "ready", "probe": {"ok": True}}
    assert still(status).endswith("still rolling back 20 s")


def test_who_waits_at_the_front_door_and_who_waited_is_one_line():
    none = {"oldest_s": 0.0, "released": 0, "timed_out": 0, "left": 0, "refused": 0, "full": 0}
    assert hold_line(0, none) == ""
    assert hold_line(3, {**none, "oldest_s": 12.0}) == "3 held, the first for 12 s"
    ended = {**none, "released": 40, "timed_out": 2, "left": 1}
    line = "nobody held now; of those before, 40 went on, 2 waited too long, 1 left while waiting"
    assert hold_line(0, ended) == line
    assert hold_line(1, ended).startswith("1 held, the first for ")


def test_an_end_that_has_more_to_say_tells_where():
    assert told("failed").endswith("`cutover show r0001`\n")
    assert told("rejected").endswith("`cutover show r0001`\n")
    assert "cutover show" not in told("promoted")
    assert "cutover show" not in told("rolled_back", kind="rollback")


def told(phase: str, **rest: object) -> str:
    out = StringIO()
    with redirect_stderr(out):
        tell_end(SimpleNamespace(as_json=False), rollout(phase, **rest))
    return out.getvalue()


def test_an_abort_says_who():
    said = sentence_of(rollout("aborted", abort_by="ada", why="aborted by ada"))
    assert said == "r0001 x@1 is aborted by ada"


def test_lines_say_what_goes_on_when_nothing_happened_for_long():
    def said(still_s: float, **status: object) -> str:
        stream = StringIO()
        Lines(stream, still_s).status({"rollout": None, "queue": [], "freeze": None, "now": "nothing to do", **status})
        return stream.getvalue()

    gate = {"gate": "acceptance", "index": 2, "started_at_s": 0.0}
    active = {
        "id": "r0003", "release": "two@1", "phase": "awaiting_approval", "phase_s": 70.0, "gate": gate,
        "profile": [1, 2, 3, 4], "attempts": [],
    }  # fmt: skip
    assert "r0003  still awaiting approval 1 min 10 s · gate acceptance (3/4)" in said(0.0, rollout=active)
    assert said(60.0, rollout=active) == ""
    assert said(0.0) == ""
    frozen = {"by": "root", "why": "exam week", "since_wall_s": 0.0}
    waiting = said(0.0, queue=[{"id": "r0004"}], freeze=frozen)
    assert waiting.endswith("r0004  still queued: root has frozen the box (exam week)\n")
