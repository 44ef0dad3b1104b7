"""Reports are written by themselves, stay when their evidence goes, and never stand in anybody's way."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_world import make_release
from report_kit import EVENING_S, taipei
from small_disk_kit import fill, small_disk

from controller.config import Config
from controller.core.records import Phase
from controller.effects.remnants import removals, remove
from controller.errors import NotFoundError
from controller.report.keeper import ReportKeeper, Sources

NIGHT = "nightly@2026-11-30"
WINDOW = {"start": "02:00", "duration": "4h", "timezone": "Asia/Taipei"}


def keeper_of(box, directory: Path, *, evidence: bool = True, **others: Any) -> ReportKeeper:
    """`others`: sources that stand for those of the box."""
    config = Config(state_dir=directory, socket=directory / "s", schedule=WINDOW)
    report = {"checks": [{"id": "J07", "verdict": "fail", "sentence": "3 of 40 leak", "evidence": []}]}
    sources = Sources(
        box.world.now,
        lambda: box.world.observe(box.state),
        lambda: ["an alarm"],
        lambda _: report if evidence else None,
        directory / "engine.log",
    )
    return ReportKeeper(config, box.journal, replace(sources, **others))


def log_line(wall_s: float, **more: object) -> str:
    said = {
        "end_ms": int(wall_s * 1000), "door": "public", "slot": "s1", "attempt": "a", "slot_attempt": "a",
        "method": "POST", "path": "/v1/chat/completions", "status": 200, "header_ms": 5, "held_ms": "-", "hold": "-",
        "end": "--",
    }  # fmt: skip
    return json.dumps({**said, **more}) + "\n"


def written(directory: Path) -> set[str]:
    return {path.name for path in (directory / "reports").iterdir()} if (directory / "reports").is_dir() else set()


def test_it_is_there_in_the_morning(lived, tmp_path):
    with (tmp_path / "engine.log").open("w") as log:
        log.write(log_line(EVENING_S))
        log.write(log_line(taipei(3).timestamp(), held_ms="2000", hold="released"))
        log.write(log_line(taipei(5).timestamp(), end="sD"))
        log.write(log_line(taipei(7).timestamp(), status=500))
    keeper = keeper_of(lived, tmp_path)
    keeper.look()
    assert written(tmp_path) == {f"{NIGHT}.html", f"{NIGHT}.md", f"{NIGHT}.json"}
    assert keeper.alarms == ()
    document = json.loads((tmp_path / "reports" / f"{NIGHT}.json").read_text())
    assert {key: document["users"][key] for key in ("requests", "held", "cut", "errors_5xx", "lost", "since")} == {
        "requests": 2, "held": 1, "cut": 1, "errors_5xx": 0, "lost": 1, "since": None,
    }  # fmt: skip
    assert "better@11111111" in (tmp_path / "reports" / f"{NIGHT}.html").read_text()
    assert document["present"]["alarms"] == ["an alarm"]


def test_what_is_kept_is_told_when_evidence_and_log_are_gone(lived, tmp_path):
    (tmp_path / "engine.log").write_text(log_line(EVENING_S) + log_line(taipei(3).timestamp()))
    keeper_of(lived, tmp_path).look()
    (tmp_path / "engine.log").unlink()
    later = keeper_of(lived, tmp_path, evidence=False).report(NIGHT)
    failed = [gate for one in later.rollouts for gate in one.gates if gate.findings]
    assert failed
    assert failed[0].kept
    assert later.users is not None
    assert later.users.requests == 1
    for name in ("html", "md", "json"):
        (tmp_path / "reports" / f"{NIGHT}.{name}").unlink()
    anew = keeper_of(lived, tmp_path, evidence=False).report(NIGHT)
    assert anew.users is None
    assert not any(gate.kept for one in anew.rollouts for gate in one.gates)
    assert [one.outcome for one in anew.rollouts] == [one.outcome for one in later.rollouts]


def test_how_things_stand_is_told_as_of_now(box, tmp_path):
    box.finish(box.propose(make_release("first")))
    box.finish(box.propose(make_release("second")))
    box.until_wall(6, 5)
    keeper = keeper_of(box, tmp_path)
    keeper.look()
    assert keeper.report(NIGHT).present.live == "second@00000000"
    box.finish(box.rollback())
    told = keeper.report(NIGHT)
    assert (told.present.live, told.night.live_after) == ("first@00000000", "second@00000000")


def test_a_broken_report_is_made_anew(lived, tmp_path):
    keeper = keeper_of(lived, tmp_path)
    keeper.look()
    (tmp_path / "reports" / f"{NIGHT}.json").write_text('{"schema": "cutover-report/0"}')
    assert keeper.report(NIGHT).schema == "cutover-report/1"


def test_a_place_that_takes_nothing_is_an_alarm_and_no_more(lived, tmp_path):
    (tmp_path / "reports").write_text("a file where the directory should be")
    keeper = keeper_of(lived, tmp_path)
    keeper.look()
    assert len(keeper.alarms) == 1
    assert f"the report of {NIGHT} cannot be written to {tmp_path}/reports" in keeper.alarms[0]
    assert keeper.report(NIGHT).rollouts
    (tmp_path / "reports").unlink()
    keeper.look()
    assert keeper.alarms == ()
    assert f"{NIGHT}.json" in written(tmp_path)


def test_a_full_disk_gets_nothing_half_and_all_of_it_when_there_is_room(lived, tmp_path):
    with small_disk(tmp_path, 1) as disk:
        asked: list[str] = []
        keeper = keeper_of(lived, disk, gate_report=asked.append)
        fill(disk)
        for _ in range(3):
            keeper.look()
        made = len(asked)
        assert written(disk) == set()
        assert "No space left on device" in keeper.alarms[0]
        (disk / "hog").unlink()
        keeper.look()
        assert written(disk) == {f"{NIGHT}.html", f"{NIGHT}.md", f"{NIGHT}.json"}
        assert len(set(asked)) == len(asked) == made, "it is made once, not again with every look"


def test_what_could_not_be_made_for_a_moment_is_made_later(lived, tmp_path):
    broken = [sqlite3.OperationalError("disk I/O error")]
    clock, tried = [lived.world.now()], []

    def gate_report(run: str) -> None:
        tried.append(run)
        for error in broken:
            raise error

    keeper = keeper_of(lived, tmp_path, gate_report=gate_report, now=lambda: clock[-1])
    keeper.look()
    keeper.look()
    assert len(keeper.alarms) == len(tried) == 1
    broken.clear()
    clock.append(replace(clock[0], boot_s=clock[0].boot_s + 601))
    keeper.look()
    assert keeper.alarms == ()
    assert f"{NIGHT}.json" in written(tmp_path)


def test_an_open_night_is_not_written_and_can_be_asked_for(box, tmp_path):
    box.finish(box.propose(make_release("first")))
    box.until_wall(3)
    keeper = keeper_of(box, tmp_path)
    keeper.look()
    assert written(tmp_path) == set()
    assert keeper.report(NIGHT).night.state == "open"
    with pytest.raises(NotFoundError, match="there is no night nightly@2026-11-29"):
        keeper.report("nightly@2026-11-29")


def test_a_missed_night_is_written_too(box, tmp_path):
    box.finish(box.propose(make_release("first")))
    box.propose(make_release("next"), window="nightly")
    box.world.set_wall(taipei(9).timestamp())
    box.settle()
    keeper_of(box, tmp_path).look()
    assert "The window was missed" in (tmp_path / "reports" / f"{NIGHT}.md").read_text()


def test_what_one_waited_for_is_known_after_the_window_has_closed(box, tmp_path):
    box.finish(box.propose(make_release("first")))
    box.propose(make_release("giant", gpus=9), window="nightly")
    keeper = keeper_of(box, tmp_path)
    for hour in (3, 4, 5, 6):
        box.until_wall(hour)
        keeper.look()
    box.until_wall(6, 5)
    keeper.look()
    (told,) = keeper.report(NIGHT).not_begun
    assert told.why.startswith("its cards are not to be had: ")


def test_a_night_that_ended_in_the_dark_is_written_when_it_is_light(box, tmp_path):
    box.finish(box.propose(make_release("first")))
    box.until_wall(6, 5)
    box.journal.state = replace(
        box.state,
        rollouts={**box.state.rollouts, "r0001": replace(box.state.rollouts["r0001"], night=NIGHT, dark_since_s=1.0)},
    )
    keeper = keeper_of(box, tmp_path)
    keeper.look()
    assert written(tmp_path) == set()
    box.world.clock_s += 1200  # nobody waits for ever
    keeper.look()
    assert f"{NIGHT}.json" in written(tmp_path)


def test_reports_go_by_age_and_do_not_come_back(lived, tmp_path):
    keeper = keeper_of(lived, tmp_path)
    keeper.look()
    config = Config(state_dir=tmp_path, socket=tmp_path / "s", schedule=WINDOW)
    newest_s = max(path.stat().st_mtime for path in (tmp_path / "reports").iterdir())
    assert [r for r in removals(config, lived.state, newest_s + 86_400) if "reports" in str(r.paths[0])] == []
    (old,) = [r for r in removals(config, lived.state, newest_s + 31 * 86_400) if "reports" in str(r.paths[0])]
    assert {path.suffix for path in old.paths} == {".html", ".md", ".json"}
    assert remove(old) == ""
    assert written(tmp_path) == set()
    far = replace(lived.world.now(), wall_s=lived.world.now().wall_s + 31 * 86_400)
    later = ReportKeeper(
        config,
        lived.journal,
        Sources(lambda: far, lambda: None, list, lambda _: None, tmp_path / "engine.log"),
    )
    later.look()
    assert written(tmp_path) == set()


def test_the_thread_starts_and_ends(lived, tmp_path):
    keeper = keeper_of(lived, tmp_path)
    keeper.start()
    keeper.stop()
    assert lived.phase("r0005") is Phase.PROMOTED


def test_one_night_that_cannot_be_told_keeps_no_other_from_being(lived, tmp_path):
    keeper = keeper_of(lived, tmp_path)
    broken = replace(lived.state.nights[NIGHT], id="broken@2026-11-29", opens_wall_s=float("nan"))
    before = lived.journal.state
    lived.journal.state = replace(before, nights={broken.id: broken, **before.nights})
    try:
        keeper.look()
    finally:
        lived.journal.state = before
    assert [alarm.partition(":")[0] for alarm in keeper.alarms] == ["the report of broken@2026-11-29 cannot be made"]
    assert f"{NIGHT}.json" in written(tmp_path)


def test_before_anything_was_live_nobody_is_lost(box, tmp_path):
    box.until_wall(2, 5)
    box.finish(box.propose(make_release("first")))
    with (tmp_path / "engine.log").open("w") as log:
        log.write(log_line(taipei(2, 4).timestamp(), status=503, end="LR", attempt="-", slot_attempt="-"))
        log.write(log_line(taipei(2, 30).timestamp()))
    box.until_wall(3)
    users = keeper_of(box, tmp_path).report(NIGHT).users
    assert users is not None
    assert (users.requests, users.lost) == (1, 0)


def test_what_is_written_outlives_what_the_journal_has_of_it(lived, tmp_path):
    keeper = keeper_of(lived, tmp_path)
    keeper.look()
    before = lived.journal.state
    lived.journal.state = replace(before, nights={})
    try:
        told = keeper.report(NIGHT)
        (tmp_path / "x.json").write_bytes((tmp_path / "reports" / f"{NIGHT}.json").read_bytes())
        for stranger in ("nightly@2026-11-01", "../x", "..", "", "x", "nightly@2026-11-30/../../x"):
            with pytest.raises(NotFoundError, match="there is no night"):
                keeper.report(stranger)
    finally:
        lived.journal.state = before
    assert (told.night.live_after, told.present.live) == ("better@11111111", "better@11111111")
