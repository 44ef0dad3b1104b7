"""What of the past goes, and what never does."""

from __future__ import annotations

from fake_world import make_release

from controller.core.records import Phase
from controller.core.retention import DAY_S, Limit, Remnant, kept_attempts, kept_rollouts, to_remove

NOW_S = 100 * DAY_S
ROOM = Limit(30 * DAY_S, 1000)


def remnant(name, days, size_bytes=100):
    return Remnant(name, size_bytes, NOW_S - days * DAY_S)


def names(remnants, kept=(), limit=ROOM):
    return [r.name for r, _ in to_remove(remnants, kept, limit, NOW_S)]


def test_what_is_old_goes_and_what_is_young_stays():
    assert names([remnant("young", 3), remnant("old", 31), remnant("edge", 30)]) == ["old"]


def test_where_there_is_too_much_the_oldest_go_until_it_fits():
    assert names([remnant(str(day), day, 400) for day in (1, 2, 3, 4)]) == ["4", "3"]


def test_what_has_just_ended_stays_whatever_its_size():
    assert names([remnant("now", 0.01, 5000), remnant("yesterday", 1, 10)]) == ["yesterday"]


def test_what_is_kept_stays_and_counts():
    assert names([remnant("live", 90, 950), remnant("a", 2), remnant("b", 1)], kept={"live"}) == ["a", "b"]


def test_every_removal_says_why():
    why = {r.name: why for r, why in to_remove([remnant("old", 45), remnant("big", 1, 5000)], (), ROOM, NOW_S)}
    assert why["old"] == "it ended 45 days ago, and 30 are kept"
    assert "are kept" in why["big"]


def test_live_previous_and_what_is_open_is_kept(box):
    rollouts = {}
    for name in ("zero", "one", "two"):
        rollouts[name] = box.propose(make_release(name))
        assert box.finish(rollouts[name]) is Phase.PROMOTED
    waiting = box.propose(make_release("next"))
    assert kept_rollouts(box.state) == {rollouts["one"], rollouts["two"], waiting}
    kept = kept_attempts(box.state)
    assert {"one-a-2", "two-a-3"} <= kept
    assert "zero-a-1" not in kept


def test_what_a_rollout_may_return_to_is_kept_while_it_bakes(box):
    first = box.propose(make_release("one"))
    box.finish(first)
    second = box.propose(make_release("two"))
    box.run(lambda: box.phase(second) is Phase.BAKING)
    assert kept_rollouts(box.state) == {first, second}
