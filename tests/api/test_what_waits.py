"""What people see of proposals that wait: the API's answers, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fake_world import Box, FakeWorld, make_release
from structlog.testing import capture_logs

from controller.api import views, views_queue, views_sweeps
from controller.cli.draw_rollout import draw_rollout
from controller.cli.draw_status import attempt_line
from controller.cli.draw_sweep import draw_sweep
from controller.cli.outcome import sentence_of
from controller.cli.terminal import plain_text
from controller.core import actions as act
from controller.core.night_records import Arm, OnSuccess, Sweep
from controller.core.policy import Policy
from controller.core.records import Options
from controller.core.seen import Life
from controller.core.window import Schedule
from controller.loop import Loop
from controller.store.journal import Journal

ZONE = ZoneInfo("Asia/Taipei")
NIGHTLY = Schedule("nightly", time(2), 4 * 3600.0, ZONE, "Asia/Taipei")
EVENING_S = datetime(2026, 11, 29, 20, 0, tzinfo=ZONE).timestamp()
HOUR_S = 3600.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """It is evening, something is live, and the window opens at two."""
    journal, world = Journal(tmp_path / "journal.sqlite"), FakeWorld()
    world.set_wall(EVENING_S)
    made = Box(Loop(journal, world, Policy(bake_s=1.0, schedules={"nightly": NIGHTLY})), world, journal)
    with capture_logs():
        made.finish(made.propose(make_release("first")))
        yield made
    journal.close()


def shown(box: Box, rollout_id: str) -> tuple[dict[str, Any], str]:
    """The document of `GET /v1/rollouts/{id}` without its events, and how `show` draws it."""
    state, seen, policy = box.state, box.world.observe(box.state), box.loop.policy
    record = state.rollouts[rollout_id]
    waits = views_queue.waiting(record, state, seen, policy) if rollout_id in {r.id for r in state.queue} else None
    more = {"waiting": waits, "approval_s": views_queue.approval_s(record, policy), "reports": {}, "events": []}
    document = {**views.rollout(state, record, seen), **more}
    return document, plain_text(draw_rollout(document))


def test_show_has_for_what_and_until_when_a_proposal_waits(box):
    day_s = EVENING_S + 24 * HOUR_S
    asked = {"window": "nightly", "priority": 5, "require_approval": True, "approval_s": 2 * HOUR_S}
    waits = box.propose(make_release("next"), **asked, expires_wall_s=day_s, finish_by_wall_s=day_s + HOUR_S)
    box.settle()
    document, drawn = shown(box, waits)
    assert document["waiting"]["waits_for"] == "window nightly opens Mon 2026-11-30 02:00 (Asia/Taipei)"
    assert (document["waiting"]["expires"], document["approval_s"]) == (day_s, 2 * HOUR_S)
    assert "for: window nightly opens Mon 2026-11-30 02:00 (Asia/Taipei)\nwindow nightly, priority 5\n" in drawn
    assert drawn.index(": skipped\n") < drawn.index(": everything is as it was\n")
    assert "an approval is needed before the cutover, and waited for 2 h\n" in drawn


def test_what_waits_for_cards_says_who_has_them_and_how_long_it_is_patient(box):
    box.world.foreign[3] = "pid 7 (regen) holds 9000 MiB"
    waits = box.propose(make_release("next", gpus=4), wait_for_free_s=600.0)
    box.settle_for(100.0)
    said = shown(box, waits)[0]["waiting"]["waits_for"]
    assert said.startswith("its cards, for 500 s more at most: ")
    assert "GPU 3: pid 7 (regen) holds 9000 MiB" in said


def test_what_has_begun_waits_for_nothing_and_what_has_passed_for_a_word(box):
    asked = box.propose(make_release("next"), require_approval=True)
    box.run(lambda: box.phase(asked).value == "awaiting_approval")
    document, drawn = shown(box, asked)
    assert document["waiting"] is None
    assert f"waited for 1 d, 0.00 s of them are over: `cutover approve {asked}`" in drawn
    assert "\nwaits\n" not in shown(box, "r0001")[1]


def test_what_was_taken_back_before_it_began_is_withdrawn_and_not_aborted(box):
    gone = box.propose(make_release("gone"), window="nightly")
    box.ask(act.AskAbort(gone, "bob"))
    box.settle()
    document, drawn = shown(box, gone)
    assert (document["phase"], document["outcome"], document["why"]) == ("aborted", "withdrawn", "withdrawn by bob")
    assert drawn.startswith(f"{gone} propose gone@00000000 withdrawn\nwithdrawn by bob\nasked by tester")
    assert "aborted" not in drawn
    assert sentence_of(document) == f"{gone} gone@00000000 is withdrawn by bob"
    ran = box.propose(make_release("ran"))
    box.run(lambda: box.phase(ran).value == "gating")
    box.ask(act.AskAbort(ran, "bob"))
    box.finish(ran)
    assert shown(box, ran)[0]["outcome"] == "aborted"


@pytest.mark.parametrize(
    ("window", "waits"),
    [("nightly", "not begun: 3 arms wait for window nightly"), ("", "not begun: 3 arms wait for their turn")],
)
def test_a_sweep_of_which_nothing_is_known_has_no_verdict(box, window, waits):
    releases = tuple(make_release(f"arm{number}") for number in range(3))
    arms = tuple(Arm(f"n={number}", release.id) for number, release in enumerate(releases))
    profile = ({"name": "health", "deadline_s": 10.0},)
    sweep = Sweep("", "numbers", "alice", 0.0, OnSuccess.REPORT, arms)
    box.file(act.FileSweep(sweep, releases, Options(window=window), profile))

    def told() -> dict[str, Any]:
        seen = box.world.observe(box.state)
        return views_sweeps.sweep(box.state, box.state.sweeps["s0001"], seen, box.loop.policy)

    assert (told()["why"], told()["leads"], told()["left"]) == (waits, None, 3)
    assert views_sweeps.sweeps(box.state, 5)["sweeps"][0]["why"] == waits
    assert plain_text(draw_sweep(told())).splitlines()[1] == waits
    if window:
        box.ask(act.WithdrawSweep("s0001", "bob"))
        box.settle()
        assert {(arm["phase"], arm["outcome"], arm["why"]) for arm in told()["arms"]} == {
            ("aborted", "withdrawn", "withdrawn by bob")
        }
    else:
        box.run(lambda: box.phase("r0002").value == "starting")
        assert told()["why"] == "no arm is over yet: 1 of 3 runs"
        box.finish("r0002")
        assert told()["why"].startswith("so far, with 2 of 3 arms to come: ")


def test_status_says_whose_pid_it_shows_and_what_lives_when_that_is_dead(box):
    (live,) = box.state.seat_attempts(box.state.live)
    shown = views.attempt(live, box.world.observe(box.state))
    assert (shown["shim_alive"], shown["pids"]) == (True, [live.pid])
    assert f"shim {live.pid}" in attempt_line(shown).plain
    box.world.processes[live.id].life = Life.STRAYS
    seen = replace(box.world.observe(box.state), pids={live.id: (71, 72)})
    shown = views.attempt(live, seen)
    assert (shown["shim_alive"], shown["pids"]) == (False, [71, 72])
    assert "shim dead, pids 71, 72 live" in attempt_line(shown).plain


def test_live_after_a_way_back_names_it(box):
    """Its own rollout was at another time than the one that is shown."""
    first = box.state.live.rollout
    assert views.seat(box.state, box.state.live, None)["back_by"] is None
    box.finish(box.propose(make_release("second", gpus=2)))
    back = box.rollback()
    box.finish(back)
    shown = views.seat(box.state, box.state.live, None)
    assert (shown["rollout"], shown["back_by"]) == (first, back)
