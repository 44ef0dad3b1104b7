"""What of the journal is told, how urgent it is, and that the same happening has the same id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import Box as Played
from fake_world import FakeWorld, make_release

from controller.core import actions as act
from controller.core.night_records import Arm, Night, NightState, OnSuccess, Sweep
from controller.core.policy import Policy
from controller.core.records import Closed, Kind, Options, Phase, Rollout, Seat, State
from controller.core.table import Event as Happening
from controller.core.takeover import BY
from controller.loop import Loop
from controller.notify.events import LONGEST, event_from, event_of, sentence
from controller.notify.kinds import Severity
from controller.notify.standing import FORGET_S, SETTLE_S, Standing
from controller.store.journal import Journal, Line

ROLLOUT = Rollout("r0003", Kind.PROPOSE, "one@00000000", "alice", 1_790_000_000.0, why="because")
LINE = Line(7, 1_790_000_100.0, "Move", "r0003", "because", {})


def told(action="Move", **changes):
    state = State(rollouts={"r0003": replace(ROLLOUT, **changes)})
    return event_of(replace(LINE, action=action), state)


@pytest.mark.parametrize(
    ("changes", "kind", "severity"),
    [
        ({"phase": Phase.FAILED}, "failed", "warning"),
        ({"phase": Phase.REFUSED}, "failed", "warning"),
        ({"phase": Phase.REJECTED}, "failed", "warning"),
        ({"phase": Phase.INCONCLUSIVE}, "failed", "warning"),
        ({"phase": Phase.SKIPPED}, "failed", "warning"),
        ({"phase": Phase.ABORTED}, "failed", "warning"),
        ({"phase": Phase.ABORTED, "abort_by": BY}, "failed", "warning"),
        ({"phase": Phase.REJECTED, "options": Options(trial=True)}, "failed", "info"),
        ({"phase": Phase.SKIPPED, "kind": Kind.MEASURE}, "failed", "info"),
        ({"phase": Phase.PROMOTED}, "promoted", "info"),
        ({"phase": Phase.AWAITING_APPROVAL}, "needs_approval", "warning"),
        ({"phase": Phase.ROLLED_BACK}, "rolled_back", "warning"),
        ({"phase": Phase.ROLLED_BACK, "kind": Kind.ROLLBACK}, "rolled_back", "info"),
        (
            {"phase": Phase.ROLLED_BACK, "kind": Kind.ROLLBACK, "instead_of": Seat("two@1", "r0001")},
            "rolled_back",
            "critical",
        ),
        ({"phase": Phase.ROLLBACK_FAILED}, "rollback_failed", "critical"),
    ],
)
def test_where_a_rollout_stands(changes, kind, severity):
    event = told(**changes)
    assert (event.kind, event.severity) == (kind, severity)
    assert (event.rollout, event.release, event.wall_s) == ("r0003", "one@00000000", LINE.wall_s)
    assert event.id == f"r0003.{changes['phase']}.1790000000"
    assert "r0003" in event.sentence
    assert "\n" not in event.sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": Phase.STARTING},
        {"phase": Phase.BAKING},
        {"phase": Phase.MEASURED},  # the report tells it
        {"phase": Phase.SUPERSEDED},
        {"phase": Phase.ABORTED, "abort_by": "alice"},  # who knows
    ],
)
def test_what_is_not_told(changes):
    assert told(**changes) is None


def test_what_is_tried_again_by_itself_is_no_warning():
    assert told("TryAgain", phase=Phase.SKIPPED, options=Options(window="nightly")).severity is Severity.INFO
    assert told("TryAgain", phase=Phase.FAILED).severity is Severity.WARNING


def test_every_end_of_a_played_evening_is_told(tmp_path):
    """Whatever action leads there: by the real loop, core and journal."""
    world, journal = FakeWorld(), Journal(tmp_path / "journal.sqlite")
    played = Played(Loop(journal, world, Policy(bake_s=5.0)), world, journal)
    played.finish(played.propose(make_release("one")))
    world.verdicts["toolcalls"] = ["fail"]
    played.finish(played.propose(make_release("two")))
    played.finish(played.propose(make_release("three")))
    played.finish(played.rollback())
    played.finish(played.propose(make_release("large", gpus=9)))
    waiting = played.propose(make_release("four"), require_approval=True)
    played.run(lambda: played.phase(waiting) is Phase.AWAITING_APPROVAL)
    lines = journal.lines(0)
    events = [event for line in lines if (event := event_of(line, played.state))]
    journal.close()
    assert {event.rollout: str(event.kind) for event in events} == {
        "r0001": "promoted",
        "r0002": "failed",
        "r0003": "promoted",
        "r0004": "rolled_back",
        "r0005": "failed",
        waiting: "needs_approval",
    }
    assert {event.rollout: event.id.split(".")[1] for event in events} == {
        rollout.id: rollout.phase.value for rollout in played.state.rollouts.values()
    }


def test_only_what_ends_or_waits_is_looked_at():
    assert told("RecordSwitch", phase=Phase.PROMOTED) is None
    assert event_of(replace(LINE, rollout="r0009"), State()) is None


def test_lines_of_a_real_journal(box):
    """The details are as the journal has them, not as this test believes."""
    night = Night("nightly@2026-11-30", "nightly", "2026-11-30", 1.0, 2.0)
    box.do(act.NoteNight(night))
    box.do(act.NoteNight(replace(night, state=NightState.CLOSED, why="2 rollouts began, 0 proposals wait")))
    box.do(act.NoteNight(replace(night, id="nightly@2026-12-01", state=NightState.MISSED, why="nobody was awake")))
    box.do(act.CloseCard("GPU-1a", Closed("alice", "the fan", 5.0)))
    box.do(act.CloseCard("GPU-2b", Closed("", "9 GiB did not come back", 1_790_000_000.0)))
    rollout = box.propose()
    box.move(rollout, Happening.ABORTED, "waited too long")
    lines = box.journal.lines(0)
    events = [event for line in lines if (event := event_of(line, box.journal.state))]
    assert [(e.id, e.kind, e.severity) for e in events] == [
        ("nightly@2026-11-30.closed", "report", "info"),
        ("nightly@2026-12-01.missed", "missed", "warning"),
        ("GPU-2b.quarantined.1790000000", "quarantined", "warning"),
        ("r0001.aborted.1790000000", "failed", "warning"),
    ]
    assert "`cutover report --night nightly@2026-11-30`" in events[0].sentence
    assert events[0].night == "nightly@2026-11-30"
    assert events[2].gpu == "GPU-2b"
    assert [line.seq for line in box.journal.lines(lines[2].seq, limit=2)] == [lines[3].seq, lines[4].seq]


def test_a_sweep_that_is_decided(box):
    release = make_release("fp8")
    sweep = Sweep("", "mtp", "alice", 0.0, OnSuccess.REPORT, (Arm("kv=fp8", release.id),))
    box.do(act.FileSweep(sweep, (release,), Options(), ()))
    box.do(act.ConcludeSweep("s0001", ""), "no arm is better")
    events = [event for line in box.journal.lines(0) if (event := event_of(line, box.journal.state))]
    assert [(e.id, e.kind, e.severity) for e in events] == [("s0001.decided", "sweep", "info")]
    assert events[0].sentence == "sweep s0001 (mtp) is decided: no arm is better; `cutover sweep show s0001`"


def test_a_record_is_the_event_again():
    from dataclasses import asdict

    event = told(phase=Phase.REJECTED)
    assert event_from(asdict(event)) == event


def test_sentences_are_one_line_of_bounded_length():
    assert sentence("a\x1b[31m red\nline\u202e \t x") == "a [31m red line x"
    assert len(sentence("x" * 5000)) == LONGEST


def test_an_alarm_is_told_when_it_has_stood_for_a_while(clock):
    standing = Standing({}, clock.now())
    assert standing.look(["the front door does not answer"], clock.now()) == []
    clock.turn(SETTLE_S)
    (event,) = standing.look(["the front door does not answer"], clock.now())
    assert (event.kind, event.severity, event.sentence) == ("alarm", "critical", "the front door does not answer")
    clock.turn(60)
    assert standing.look(["the front door does not answer"], clock.now()) == []


def test_an_alarm_that_the_box_heals_itself_calls_nobody(clock):
    standing = Standing({}, clock.now())
    for _ in range(5):
        assert standing.look(["the front door does not answer"], clock.now()) == []
        clock.turn(SETTLE_S / 2)
        assert standing.look([], clock.now()) == []
        clock.turn(SETTLE_S)


def test_figures_in_an_alarm_are_not_news(clock):
    standing = Standing({}, clock.now())
    told = []
    for turn in range(5):
        told += standing.look([f"a-1 does not end since {40 + turn} s and holds GPU-0"], clock.now())
        clock.turn(SETTLE_S)
    assert len(told) == 1
    standing.look(["a-2 does not end since 40 s and holds GPU-0"], clock.now())
    clock.turn(SETTLE_S)
    assert len(standing.look(["a-2 does not end since 50 s and holds GPU-0"], clock.now())) == 1


def test_an_alarm_that_comes_back_after_a_while_is_another(clock):
    standing = Standing({}, clock.now())
    ids = set()
    for pause_s in (FORGET_S / 2, FORGET_S, 0.0):
        standing.look(["live is down"], clock.now())
        clock.turn(SETTLE_S)
        ids |= {event.id for event in standing.look(["live is down"], clock.now())}
        standing.look([], clock.now())
        clock.turn(pause_s)
        standing.look([], clock.now())
    assert len(ids) == 2


def test_an_alarm_that_stands_is_not_told_again_by_the_next_daemon(clock):
    before = Standing({}, clock.now())
    before.look(["live is down"], clock.now())
    clock.turn(SETTLE_S)
    assert before.look(["live is down"], clock.now())
    after = Standing(before.told, clock.now())
    for _ in range(3):
        assert after.look(["live is down"], clock.now()) == []
        clock.turn(SETTLE_S)
