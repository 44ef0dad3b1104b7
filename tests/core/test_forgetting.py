"""What of the past leaves the journal, and what never does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import make_release
from pydantic import TypeAdapter

from controller.core import actions as act
from controller.core.continuity import broken_steps
from controller.core.forgetting import KEEP, forget, to_forget
from controller.core.history import gates_s, start_s, stop_s
from controller.core.night_records import Arm, Night, NightState, OnSuccess, Sweep
from controller.core.policy import Policy
from controller.core.records import Kind, Phase, State
from controller.core.retention import DAY_S
from controller.core.table import IllegalMove
from controller.core.takeover import last_known_good
from controller.store.journal import Journal

NOTHING_KEPT = act.KeepOfThePast(newest=0, measured=0, good=1)
FOREVER_S = 1e12


def gone(box, keep=NOTHING_KEPT, before_wall_s=FOREVER_S):
    return to_forget(box.state, before_wall_s, keep)


def forgotten(box, keep=NOTHING_KEPT):
    """The state after it, judged by the oracle."""
    action = gone(box, keep)
    after = forget(box.state, action, box.world.now(), "")
    assert broken_steps(box.state, after, None, box.loop.policy) == []
    return after


def test_what_has_ended_long_ago_goes_and_what_is_young_stays(box):
    for name in ("a", "b", "c", "d"):
        box.finish(box.propose(make_release(name)))
    box.world.clock_s += 40 * DAY_S
    for name in ("e", "f"):
        box.finish(box.propose(make_release(name)))
    limit_s = box.world.now().wall_s - 30 * DAY_S
    action = gone(box, before_wall_s=limit_s)
    assert action.rollouts == ("r0001", "r0002", "r0003", "r0004")
    assert action.attempts == ("a-a-1", "b-a-2", "c-a-3", "d-a-4")
    assert action.releases == ("a@00000000", "b@00000000"), "c and d were previous and live when e came, as r0005 says"
    assert gone(box, before_wall_s=box.world.now().wall_s - 50 * DAY_S).rollouts == ()


def test_the_newest_stay_whatever_their_age(box):
    for name in ("a", "b", "c", "d"):
        box.finish(box.propose(make_release(name)))
    assert gone(box, KEEP) == act.Forget(FOREVER_S, KEEP)
    assert gone(box, replace(NOTHING_KEPT, newest=3)).rollouts == ("r0001",)


def test_live_previous_what_is_open_and_what_it_plans_with_stays(box):
    for name in ("a", "b", "c"):
        box.finish(box.propose(make_release(name)))
    box.settle()
    waiting = box.propose(make_release("d"))
    box.run(lambda: box.phase(waiting) is Phase.GATING)
    after = forgotten(box)
    assert list(after.rollouts) == ["r0002", "r0003", waiting]
    assert after.live == box.state.live
    assert after.previous == box.state.previous
    assert after.held == box.state.held
    box.journal.forget(FOREVER_S, box.world.now(), NOTHING_KEPT)
    assert box.finish(waiting) is Phase.PROMOTED
    box.rollback()
    box.run(lambda: box.state.live.release.startswith("c@"))


def test_what_plans_are_made_of_stays_for_releases_that_were_tried_last(box):
    """Measured times: of start, stop and gates."""
    for _ in range(2):
        for name in ("a", "b", "c"):
            box.finish(box.propose(make_release(name)))
            box.settle()
    policy = Policy()

    def figures(state):
        return [
            (start_s(state, name, policy), stop_s(state, name), gates_s(state, name, ()))
            for name in sorted(box.state.releases)
        ]

    after = forgotten(box, replace(NOTHING_KEPT, measured=10))
    assert len(after.rollouts) < len(box.state.rollouts)
    assert figures(after) == figures(box.state)
    assert all(start is not None and gates is not None for start, _, gates in figures(after))
    fewer = forgotten(box, replace(NOTHING_KEPT, measured=2))
    assert start_s(fewer, "a@00000000", policy) is None


def test_the_last_known_good_release_stays_and_so_does_what_was_found_against_one(box):
    """Else a release that was rejected since would be good again as soon as that is forgotten."""
    for name in ("a", "b", "c", "d", "e"):
        box.finish(box.propose(make_release(name)))
        box.settle()
    box.world.verdicts["toolcalls"] = ["fail"]
    assert box.finish(box.propose(make_release("c"))) is Phase.REJECTED
    box.rollback()
    box.run(lambda: box.state.live.release.startswith("d@"))
    box.settle()
    assert last_known_good(box.state).release == "b@00000000"
    for measured in (0, 10):
        after = forgotten(box, act.KeepOfThePast(newest=0, measured=measured, good=1))
        assert last_known_good(after).release == "b@00000000"


def test_an_open_night_and_an_undecided_sweep_keep_what_they_refer_to(box):
    for name in ("a", "b", "c", "d"):
        box.finish(box.propose(make_release(name)))
        box.settle()
    night = Night("nightly@2026-01-02", "nightly", "2026-01-02", 2 * DAY_S, 3 * DAY_S, baseline="r0001")
    before = replace(night, id="nightly@2026-01-01", date="2026-01-01", opens_wall_s=DAY_S, baseline="")
    arms = (Arm("x", "b@00000000", rollout="r0002"),)
    sweep = Sweep("s0001", "sweep", "tester", 0.0, OnSuccess.REPORT, arms)
    old = replace(before, state=NightState.CLOSED, ended_wall_s=2 * DAY_S)
    state = replace(box.state, nights={before.id: old, night.id: night}, sweeps={sweep.id: sweep})

    action = to_forget(state, FOREVER_S, NOTHING_KEPT)
    assert (action.rollouts, action.nights, action.sweeps) == ((), (before.id,), ())
    over = replace(night, state=NightState.CLOSED, ended_wall_s=3 * DAY_S)
    decided = replace(sweep, decided_wall_s=3 * DAY_S)
    state = replace(state, nights={before.id: old, night.id: over}, sweeps={sweep.id: decided})
    action = to_forget(state, FOREVER_S, NOTHING_KEPT)
    assert "r0001" in action.rollouts
    assert action.sweeps == ("s0001",)
    assert action.nights == (before.id,), "by the newest of a window anybody knows that the one before is over"


def test_what_somebody_needs_by_now_is_not_forgotten(box):
    for name in ("a", "b", "c"):
        box.finish(box.propose(make_release(name)))
        box.settle()
    action = gone(box)
    assert action.rollouts == ("r0001",)
    box.propose(make_release("a"))
    with pytest.raises(IllegalMove, match="a moment ago"):
        forget(replace(box.state, previous=box.state.rollouts["r0001"].seat), action, box.world.now(), "")


# --- in the store ---


def test_it_is_gone_from_the_disk_and_the_next_daemon_reads_the_same(box, tmp_path):
    for name in ("a", "b", "c", "d"):
        box.finish(box.propose(make_release(name)))
        box.settle()
    box.journal.request("key", "tester", "freeze", box.world.now(), lambda _: (act.SetFreeze(None), "thawed"))
    box.world.clock_s += 1.0
    told = box.journal.forget(box.world.now().wall_s, box.world.now(), NOTHING_KEPT)
    assert told == "2 rollouts, 2 attempts"
    again = Journal(tmp_path / "journal.sqlite")
    kept = TypeAdapter(State)
    assert kept.dump_json(again.state) == kept.dump_json(box.state)
    assert list(again.state.rollouts) == ["r0003", "r0004"]
    assert {e.rollout for e in again.entries(limit=10_000)} <= {"", "r0003", "r0004"}
    assert again.entries(limit=10_000)[-1].action == "Forget"
    assert again._db.execute("SELECT count(*) FROM requests").fetchone() == (0,)
    again.close()
    assert box.propose(make_release("e")) == "r0005", "numbers go on"


def test_there_is_nothing_to_do_twice(box):
    box.finish(box.propose(make_release("a")))
    box.settle()
    box.journal.forget(FOREVER_S, box.world.now(), NOTHING_KEPT)
    seq = box.journal.last_seq()
    assert box.journal.forget(box.world.now().wall_s - DAY_S, box.world.now(), NOTHING_KEPT) == ""
    assert box.journal.last_seq() == seq


def test_rollouts_are_read_in_the_order_of_their_numbers(box, tmp_path):
    """The ten-thousandth is not the oldest."""
    for name in ("a", "b"):
        box.finish(box.propose(make_release(name)))
        box.settle()
    with box.journal._db as db:
        state = replace(box.state, rollout_seq=9998)
        box.journal._save(state)
        db.execute("SELECT 1")
    box.journal.state = state
    waiting = [box.propose(make_release(name), window="nightly") for name in ("c", "d", "e")]
    assert waiting == ["r9999", "r10000", "r10001"]
    again = Journal(tmp_path / "journal.sqlite")
    assert [name for name in again.state.rollouts if name in waiting] == waiting
    assert [r.id for r in again.state.queue if r.kind is Kind.PROPOSE] == waiting
    again.close()
