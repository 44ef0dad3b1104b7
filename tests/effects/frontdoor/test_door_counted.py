"""What users met between two moments, counted from access logs as HAProxy writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.core.route import Counted
from controller.effects.frontdoor.counted import count


def line(end_s: float, **more: object) -> str:
    said = {
        "end_ms": int(end_s * 1000), "door": "public", "slot": "s1", "attempt": "a", "slot_attempt": "a",
        "method": "POST", "path": "/v1/chat/completions", "status": 200, "header_ms": 5, "total_ms": 9,
        "held_ms": "-", "hold": "-", "bytes": 1, "end": "--", "retries": "0", "client": "127.0.0.1",
    }  # fmt: skip
    return json.dumps({**said, **more}, separators=(",", ":")) + "\n"


DOOR = {"slot": "<NOSRV>", "attempt": "-", "slot_attempt": "-", "status": 503, "end": "LR", "header_ms": -1}


def counted(log: Path, *lines: str, since: float = 0.0, until: float = 1e9) -> Counted:
    log.write_text("".join(lines))
    (found,), _ = count(log, [(since, until)])
    return found


@pytest.mark.parametrize(
    ("more", "expected", "lost"),
    [
        ({}, {}, 0),
        ({"hold": "released", "held_ms": "2500"}, {"held": 1, "released": 1, "longest_wait_s": 2.5}, 0),
        ({**DOOR, "hold": "timed_out", "held_ms": "60000"}, {"held": 1, "timed_out": 1, "longest_wait_s": 60.0}, 1),
        ({**DOOR, "hold": "full"}, {"refused": 1}, 1),
        ({**DOOR, "hold": "refused", "held_ms": "10"}, {"held": 1, "refused": 1, "longest_wait_s": 0.01}, 1),
        (DOOR, {"refused": 1}, 1),
        (
            {"hold": "left", "held_ms": "900", "status": -1, "end": "CR"},
            {"held": 1, "left": 1, "longest_wait_s": 0.9},
            0,
        ),
        ({"end": "sD"}, {"cut": 1}, 1),
        ({"end": "KD"}, {"cut": 1}, 1),
        ({"status": 500}, {"errors_5xx": 1}, 1),
        ({"status": 502, "end": "SH", "attempt": "-"}, {"errors_5xx": 1}, 1),
        ({"end": "CD"}, {}, 0),
    ],
    ids=[
        "well",
        "held",
        "timed out",
        "full",
        "refused",
        "none live",
        "gave up",
        "engine cut",
        "we cut",
        "500",
        "502",
        "left",
    ],
)
def test_every_way_to_end_is_counted_once(tmp_path, more, expected, lost):
    found = counted(tmp_path / "log", line(10, **more))
    assert found == Counted(requests=1, **expected)
    assert found.lost == lost


def test_only_users_at_the_public_address_within_the_time(tmp_path):
    found = counted(
        tmp_path / "log",
        "[NOTICE] (1) : haproxy version is 2.8\n",
        line(9.9),
        line(10.0),
        line(11, door="preview"),
        line(12, path="/health", **DOOR),
        '{"end_ms":13000,"door":"pu',
        "\n",
        line(20.0),
        since=10.0,
        until=20.0,
    )
    assert found == Counted(requests=1)


def test_across_a_cut_of_the_log_and_spans_that_overlap(tmp_path):
    (tmp_path / "log.1").write_text(line(5) + line(10))
    (tmp_path / "log").write_text(line(15) + line(25))
    spans, since = count(tmp_path / "log", [(0, 100), (8, 20), (90, 100)])
    assert [one.requests for one in spans] == [4, 2, 0]
    assert since == 5.0
    (tmp_path / "log.1").unlink()
    assert count(tmp_path / "log", [(0, 100)]) == ((Counted(requests=2),), 0.0)


def test_without_a_log_nobody_knows(tmp_path):
    assert count(tmp_path / "log", [(0, 10)]) == ((Counted(),), None)


def test_a_long_log_is_entered_near_the_beginning_of_the_night(tmp_path):
    log = tmp_path / "log"
    with log.open("w") as file:
        for second in range(9_000):  # several of the steps in which the beginning is looked for
            file.write(line(second))
    assert log.stat().st_size > 2 << 20
    for since in (0.0, 8_990.0):
        (found,), _ = count(log, [(since, 1e9)])
        assert found.requests == 9_000 - since
