"""A gate's lines of progress, and the sign of life while nothing ends."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from gates.progress import Position, shown
from gates.teller import Teller


def told(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_what_is_waited_for() -> None:
    teller = Teller(io.StringIO(), "acceptance", 0.0)
    assert teller.waits() is None
    with (
        teller.request("http://a") as alone,
        teller.request("http://b") as elsewhere,
        teller.request("http://a") as two,
    ):
        assert (alone, elsewhere, two) == (1, 1, 2)
        teller.now_s = lambda: time.monotonic() + 42
        waits = teller.waits()
        assert waits is not None
        assert (waits["in_flight"], waits["sentence"]) == (3, "3 requests wait for their answers, the oldest for 42 s")
        assert waits["oldest_s"] == pytest.approx(42, abs=0.5)
    assert teller.waits() is None


class Heard(io.StringIO):
    """Says when so many lines were written."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.enough = threading.Event()
        self._left = lines

    def flush(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.enough.set()


def test_a_silent_gate_says_what_it_waits_for() -> None:
    stream = Heard(2)
    teller = Teller(stream, "acceptance", time.monotonic())
    with teller.heartbeat(0.005), teller.request("http://a"):
        assert stream.enough.wait(30)
    first = told(stream)[0]
    assert (first["gate"], first["in_flight"]) == ("acceptance", 1)
    assert str(first["sentence"]).startswith("1 request waits for its answer, for ")


def test_nobody_is_told_that_nothing_is_waited_for() -> None:
    stream = io.StringIO()
    with Teller(stream, "acceptance", time.monotonic()).heartbeat(0.001):
        threading.Event().wait(0.02)
    assert stream.getvalue() == ""


def test_lines_of_many_threads_do_not_mix() -> None:
    stream = io.StringIO()
    teller = Teller(stream, "g", 0.0)
    threads = [threading.Thread(target=lambda: [teller.line({"n": n}) for n in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told(stream)) == 200


WAITS = {
    "gate": "g",
    "in_flight": 3,
    "oldest_s": 42.0,
    "sentence": "3 requests wait for their answers, the oldest for 42 s",
}


def test_a_live_line_counts_on_while_it_waits() -> None:
    start = Position().after({"gate": "g", "started": True, "left": []}, 100.0).after({"check": "J01"}, 110.0)
    waiting = start.after(WAITS, 160.0)
    assert waiting.words(165.0) == "g · 1 min 5 s · 3 requests wait for their answers, the oldest for 47 s"
    assert waiting.after({"requests": 7}, 170.0).words(170.0) == "g · 7 requests · 1 min 10 s · J01"
    assert start.after({"in_flight": 3, "oldest_s": 10**400}, 160.0).waits is None
    assert start.after({"in_flight": True, "oldest_s": "x"}, 160.0).waits is None


def test_a_plain_log_has_it_as_a_line_and_a_terminal_does_not_keep_it(tmp_path: Path) -> None:
    plain = io.StringIO()
    with shown(plain) as hear:
        hear(WAITS)
    assert plain.getvalue() == "g: 3 requests wait for their answers, the oldest for 42 s\n"
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=90, color_system=None, legacy_windows=False)
    with shown(stream, console=console) as hear:
        hear({"gate": "g", "started": True, "left": []})
        hear(WAITS)
    assert "g: 3 requests" not in stream.getvalue()
