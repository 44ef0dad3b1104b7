"""Live makes room: swap and rolling through the real core and the real store, in a fake world of four cards."""

from __future__ import annotations

import pytest

from controller.core import actions as act
from controller.core.policy import Policy
from controller.core.records import AttemptState, Closed, Kind, Phase
from controller.core.route import Mode, SlotState
from controller.core.seen import Life


def serving(box) -> set[str]:
    """Releases that the front door sends users to."""
    return {slot.release for slot in box.world.route.public if slot.state is SlotState.READY}


def watched(box, until, limit_s: float = 3000.0) -> list[tuple[Mode, frozenset[str]]]:
    """What the front door showed on the way, without repetitions."""
    shown: list[tuple[Mode, frozenset[str]]] = []

    def look() -> bool:
        now = (box.world.route.mode, frozenset(serving(box)))
        if not shown or shown[-1] != now:
            shown.append(now)
        return until()

    box.run(look, limit_s)
    return shown


def ended(box, rollout: str):
    return lambda: box.state.rollouts[rollout].ended_wall_s is not None


@pytest.fixture
def full(box, release):
    """TP4 is live on all four cards."""
    box.finish(box.propose(release("one", gpus=4)))
    return box


@pytest.fixture
def halves(box, release):
    """TP2×2 is live: a on cards 0 and 1, b on 2 and 3."""
    box.finish(box.propose(release("one", gpus=2, instances=2)))
    return box


# --- swap -------------------------------------------------------------------------------------------------------------


def test_a_swap_has_to_be_wanted_and_the_refusal_says_how(full, release):
    rollout = full.propose(release("two", gpus=4))
    assert full.finish(rollout) is Phase.REFUSED
    why = full.state.rollouts[rollout].why
    assert "GPU 0, 1, 2, 3 serve users" in why
    assert "propose with --strategy swap" in why


def test_swap_holds_requests_from_the_drain_to_the_switch(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    shown = watched(full, ended(full, rollout))
    assert full.phase(rollout) is Phase.PROMOTED
    assert shown == [
        (Mode.OPEN, frozenset({"one@00000000"})),
        (Mode.HOLD, frozenset()),
        (Mode.OPEN, frozenset({"two@00000000"})),
    ]
    times = full.state.rollouts[rollout].times
    assert times["dark_s"] >= times["starting"] > 0
    assert (full.state.live.release, full.state.previous.release) == ("two@00000000", "one@00000000")
    assert full.running() == {"two@00000000"}


def test_swap_stops_nobody_before_its_streams_are_through(full, release):
    slot = full.state.attempts["one-a-1"].slot
    full.world.in_flight[slot] = 2
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: full.world.route.mode is Mode.HOLD)
    full.settle()
    assert full.state.attempts["one-a-1"].state is AttemptState.RETIRING
    full.world.in_flight[slot] = 0
    assert full.finish(rollout) is Phase.PROMOTED


def test_swap_cuts_what_outlives_its_drain_and_counts_it(full, release):
    slot = full.state.attempts["one-a-1"].slot
    full.world.in_flight[slot] = 2
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    before_s = full.world.clock_s
    full.run(lambda: any(isinstance(e, act.CutSlot) for e in full.world.done))
    assert full.world.clock_s - before_s == pytest.approx(full.loop.policy.swap_drain_s, abs=10)
    assert full.finish(rollout) is Phase.PROMOTED
    assert any("2 requests are cut" in entry.why for entry in full.journal.entries())


def test_the_story_of_a_rollout_tells_who_made_room_for_it(full, release):
    """Whoever watches a swap sees live drain, what was cut, and when it was gone: not only that cards became free."""
    full.world.in_flight[full.state.attempts["one-a-1"].slot] = 1
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    assert full.finish(rollout) is Phase.PROMOTED
    told = [entry.why for entry in full.journal.entries(rollout=rollout)]
    for words in ("its cards are needed by", "1 request is cut", "stop one-a-1", "one-a-1 is gone"):
        assert any(words in why for why in told), words


def test_swap_is_given_up_when_no_stream_may_be_cut(full, release):
    full.loop.policy = Policy(bake_s=30.0, swap_drain_cuts=False)
    full.world.in_flight[full.state.attempts["one-a-1"].slot] = 1
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    assert full.finish(rollout) is Phase.FAILED
    assert "1 request still runs after 300 s of drain; live goes on" in full.state.rollouts[rollout].why
    full.settle()
    assert full.world.processes["one-a-1"].life is Life.RUNNING, "it was never stopped"
    assert serving(full) == {"one@00000000"}
    assert full.world.route.mode is Mode.OPEN


@pytest.mark.parametrize("spoil", ["gate", "start", "abort", "foreign"])
def test_a_candidate_that_fails_in_the_dark_brings_the_old_one_back(full, release, spoil):
    if spoil == "gate":
        full.world.verdicts["toolcalls"] = ["fail"]
    if spoil == "start":
        full.world.cannot_start["a"] = "no such model"
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    if spoil == "abort":
        full.run(lambda: full.phase(rollout) is Phase.GATING)
        full.ask(act.AskAbort(rollout, "tester"))
    if spoil == "foreign":
        full.run(lambda: full.world.route.mode is Mode.HOLD)
        full.world.foreign[1] = "pid 7 (a job) holds 100 MiB"
    full.finish(rollout)
    full.world.cannot_start.clear()
    full.world.foreign.clear()
    full.run(lambda: serving(full) == {"one@00000000"})
    assert full.state.live.release == "one@00000000"
    assert full.world.route.mode is Mode.OPEN
    assert full.state.rollouts[rollout].times["dark_s"] > 0
    assert full.state.rollouts[rollout].dark_since_s is None


def test_a_candidate_that_writes_garbage_does_not_keep_users_waiting_for_its_start_to_end(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: full.phase(rollout) is Phase.STARTING and "two-a-2" in full.world.processes)
    full.world.processes["two-a-2"].garbage = True
    before_s = full.world.clock_s
    assert full.finish(rollout) is Phase.FAILED
    assert full.world.clock_s - before_s < 60
    assert "two-a-2) did not come up: the engine writes '!' only" in full.state.rollouts[rollout].why
    full.run(lambda: serving(full) == {"one@00000000"})


def test_nothing_new_begins_before_what_made_room_is_back(full, release):
    full.world.verdicts["toolcalls"] = ["fail"]
    first = full.propose(release("two", gpus=4), strategy="swap")
    second = full.propose(release("three", gpus=4), strategy="swap")
    full.finish(first)
    full.run(lambda: full.phase(second) is not Phase.QUEUED)
    assert serving(full) == {"one@00000000"}


def test_a_swapped_release_that_bakes_badly_is_swapped_back(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: full.phase(rollout) is Phase.BAKING)
    process = next(p for name, p in full.world.processes.items() if name.startswith("two"))
    process.silent = True
    full.world.in_flight[full.state.attempts["two-a-2"].slot] = 3  # nobody waits for what will never come
    assert full.finish(rollout, limit_s=60) is Phase.ROLLED_BACK
    full.settle()
    assert serving(full) == {"one@00000000"}
    assert "two@00000000" not in full.running()


def test_a_swapped_release_is_compared_with_what_live_showed_before_the_dark(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: any(name.startswith("two") for name in full.world.processes))
    next(p for name, p in full.world.processes.items() if name.startswith("two")).ttft_s = 5.0
    assert full.finish(rollout) is Phase.ROLLED_BACK
    assert any("before it was 100 ms" in entry.why for entry in full.journal.entries(rollout=rollout))


def test_manual_rollback_of_a_swap_holds_and_swaps_back(full, release):
    full.finish(full.propose(release("two", gpus=4), strategy="swap"))
    back = full.rollback()
    shown = watched(full, ended(full, back))
    full.settle()
    assert full.phase(back) is Phase.ROLLED_BACK
    assert (Mode.HOLD, frozenset()) in shown
    assert serving(full) == {"one@00000000"}
    assert (full.state.live.release, full.state.previous.release) == ("one@00000000", "two@00000000")


def test_a_way_back_that_fails_in_the_dark_leaves_live_as_it_was(full, release):
    full.finish(full.propose(release("two", gpus=4), strategy="swap"))
    back = full.rollback()
    full.run(lambda: full.world.route.mode is Mode.HOLD)
    full.world.cannot_start["a"] = "no such model"
    assert full.finish(back) is Phase.ROLLBACK_FAILED
    full.world.cannot_start.clear()
    full.run(lambda: serving(full) == {"two@00000000"})


@pytest.mark.parametrize("blind_s", [5.0, 2000.0])
def test_a_way_back_outlasts_a_moment_in_which_a_card_cannot_be_read(full, release, blind_s):
    """NVML that is silent for a moment is no reason to give up the way back and to start the worse release again."""
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: full.phase(rollout) is Phase.BAKING)
    full.ask(act.AskAbort(rollout, "tester"))
    full.run(lambda: full.state.attempts["two-a-2"].state is AttemptState.STOPPED)
    full.world.untrusted, sees_s = {1}, full.world.clock_s + blind_s
    full.run(lambda: full.world.clock_s >= sees_s)
    full.world.untrusted = set()
    assert full.finish(rollout) is (Phase.ROLLED_BACK if blind_s < 60.0 else Phase.ROLLBACK_FAILED)
    full.settle()
    assert len(serving(full)) == 1


def test_a_swap_does_not_wait_for_an_approval_in_the_dark(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap", require_approval=True)
    assert full.finish(rollout) is Phase.REFUSED
    assert "in the dark" in full.state.rollouts[rollout].why


def test_a_reboot_in_the_dark_brings_back_what_was_live(full, release):
    rollout = full.propose(release("two", gpus=4), strategy="swap")
    full.run(lambda: full.phase(rollout) is Phase.STARTING)
    full.world.reboot()
    full.finish(rollout)
    full.run(lambda: serving(full) == {"one@00000000"})
    assert full.state.live.release == "one@00000000"


def test_restart_of_a_release_that_fills_the_box(full):
    rollout = full.propose(full.state.releases["one@00000000"], Kind.RESTART, force=True, strategy="any")
    assert full.finish(rollout) is Phase.PROMOTED
    full.settle()
    assert serving(full) == {"one@00000000"}


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_rolling_is_never_dark(halves, release):
    rollout = halves.propose(release("two", gpus=2, instances=2))
    shown = watched(halves, ended(halves, rollout))
    assert halves.phase(rollout) is Phase.PROMOTED
    assert {mode for mode, _ in shown} == {Mode.OPEN}
    assert all(releases for _, releases in shown), "somebody serves at every step"
    plan = halves.state.rollouts[rollout].plan
    assert (plan["strategy"], plan["first"], plan["gives_way"]) == ("rolling", ("a",), ("one-a-1",))
    assert "dark_s" not in halves.state.rollouts[rollout].times
    assert halves.state.rollouts[rollout].times["completing"] > 0
    assert len([s for s in halves.world.route.public if s.state is SlotState.READY]) == 2
    assert halves.running() == {"two@00000000"}


def test_what_fits_beside_live_in_part_is_rolled_in_and_nobody_makes_room_first(box, release):
    """TP2 on half of the cards to TP2×2: its first instance needs no card of live, so nothing has to be dark."""
    box.finish(box.propose(release("one", gpus=2)))
    rollout = box.propose(release("two", gpus=2, instances=2))
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    assert serving(box) == {"one@00000000"}
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    shown = watched(box, ended(box, rollout))
    assert box.phase(rollout) is Phase.PROMOTED
    assert all(mode is Mode.OPEN and releases for mode, releases in shown)
    plan = box.state.rollouts[rollout].plan
    assert (plan["strategy"], plan["first"], plan["gives_way"], plan["later"]) == (
        "rolling",
        ("a",),
        (),
        ("one-a-1",),
    )
    assert "live is whole while the candidate is tried, then a serves alone until the rest is up" in plan["notes"][0]
    shown = watched(box, ended(box, box.rollback()))
    box.settle()
    assert all(mode is Mode.OPEN and releases for mode, releases in shown)
    assert serving(box) == {"one@00000000"}


@pytest.mark.parametrize("spoil", ["gate", "second", "abort"])
def test_a_candidate_that_fails_beside_live_leaves_it_untouched(box, release, spoil):
    box.finish(box.propose(release("one", gpus=2)))
    if spoil == "gate":
        box.world.verdicts["toolcalls"] = ["fail"]
    if spoil == "second":
        box.world.cannot_start["b"] = "no such model"
    rollout = box.propose(release("two", gpus=2, instances=2))
    if spoil == "abort":
        box.run(lambda: box.phase(rollout) is Phase.COMPLETING)
        box.ask(act.AskAbort(rollout, "tester"))
    shown = watched(box, ended(box, rollout))
    box.settle()
    assert all(mode is Mode.OPEN and releases for mode, releases in shown)
    assert box.phase(rollout) is (Phase.REJECTED if spoil == "gate" else Phase.ROLLED_BACK)
    assert serving(box) == {"one@00000000"}
    assert box.running() == {"one@00000000"}


def test_what_all_cards_together_do_not_hold_is_refused_before_anybody_is_tried(halves, release):
    """Found by hand: 16 instances and one cordoned card kept the daemon busy for 4 s, 20 for a minute."""
    halves.ask(act.CloseCard("gpu-3", Closed("boss", "the fan is broken", 0.0)))
    rollout = halves.propose(release("two", gpus=2, instances=2), strategy="rolling")
    assert halves.finish(rollout) is Phase.REFUSED
    assert "4 GPUs are needed and 3 of 4 can be had" in halves.state.rollouts[rollout].why


def test_rolling_keeps_half_of_live_until_the_gates_have_passed(halves, release):
    halves.world.verdicts["toolcalls"] = ["hang"]
    rollout = halves.propose(release("two", gpus=2, instances=2))
    halves.run(lambda: halves.phase(rollout) is Phase.GATING)
    halves.settle()
    states = {a.id: a.state for a in halves.state.attempts.values()}
    assert states["one-a-1"] is AttemptState.STOPPED
    assert states["one-b-2"] is AttemptState.READY
    assert serving(halves) == {"one@00000000"}
    assert [s.release for s in halves.world.route.preview] == ["two@00000000"]


def test_a_rolled_candidate_that_is_rejected_gives_the_cards_back_first(halves, release):
    halves.world.verdicts["toolcalls"] = ["fail"]
    rollout = halves.propose(release("two", gpus=2, instances=2))
    after = halves.propose(release("three", gpus=2, instances=2))
    assert halves.finish(rollout) is Phase.REJECTED
    halves.run(lambda: halves.phase(after) is not Phase.QUEUED)
    ready = [a.id for a in halves.state.seat_attempts(halves.state.live) if a.state is AttemptState.READY]
    assert len(ready) == 2
    assert halves.finish(after) is Phase.PROMOTED


def test_a_drain_that_is_aborted_serves_again_without_a_start(halves, release):
    halves.world.in_flight[halves.state.attempts["one-a-1"].slot] = 1
    rollout = halves.propose(release("two", gpus=2, instances=2))
    halves.run(lambda: halves.state.attempts["one-a-1"].state is AttemptState.RETIRING)
    halves.ask(act.AskAbort(rollout, "tester"))
    halves.finish(rollout)
    halves.settle()
    assert halves.state.attempts["one-a-1"].state is AttemptState.READY
    assert "one-a-3" not in halves.state.attempts


def test_an_abort_while_completing_goes_back_to_what_is_left_at_once(halves, release):
    slot = halves.state.attempts["one-b-2"].slot
    halves.world.in_flight[slot] = 1  # b drains for long
    rollout = halves.propose(release("two", gpus=2, instances=2))
    halves.run(lambda: halves.state.attempts["one-b-2"].state is AttemptState.RETIRING)
    assert halves.phase(rollout) is Phase.COMPLETING
    halves.ask(act.AskAbort(rollout, "tester"))
    shown = watched(halves, ended(halves, rollout))
    assert halves.phase(rollout) is Phase.ROLLED_BACK
    assert {mode for mode, _ in shown} == {Mode.OPEN}
    halves.world.in_flight.clear()
    halves.settle()
    assert serving(halves) == {"one@00000000"}
    assert len(halves.state.seat_attempts(halves.state.live)) == 2
    assert halves.running() == {"one@00000000"}


@pytest.mark.parametrize("how", ["bake", "manual"])
def test_the_way_back_of_a_rolled_release_is_rolled_too(halves, release, how):
    rollout = halves.propose(release("two", gpus=2, instances=2))
    if how == "bake":
        halves.run(lambda: halves.phase(rollout) is Phase.BAKING)
        halves.ask(act.AskAbort(rollout, "tester"))
        back = rollout
    else:
        halves.finish(rollout)
        back = halves.rollback()
    shown = watched(halves, ended(halves, back))
    assert halves.phase(back) is Phase.ROLLED_BACK
    shown += watched(halves, lambda: len(halves.state.seat_attempts(halves.state.live)) == 2)
    halves.settle()
    assert {mode for mode, _ in shown} == {Mode.OPEN}
    assert all(releases for _, releases in shown), "somebody serves at every step"
    assert serving(halves) == {"one@00000000"}
    assert halves.running() == {"one@00000000"}
    ready = [a for a in halves.state.seat_attempts(halves.state.live) if a.state is AttemptState.READY]
    assert {a.instance for a in ready} == {"a", "b"}


def test_a_second_rollback_before_the_first_is_through_is_not_torn_between_two_releases(halves, release):
    """Whoever drains for the release that is live is wanted back: it is recalled once, and stays."""
    halves.finish(halves.propose(release("two", gpus=2, instances=2)))
    stays = next(a for a in halves.state.attempts.values() if a.id.startswith("two-b"))
    halves.world.in_flight = {stays.slot: 1}
    first = halves.rollback()
    halves.finish(first)
    halves.settle()
    assert halves.state.attempts[stays.id].state is AttemptState.RETIRING
    second = halves.rollback()
    begun = halves.journal.last_seq()
    assert halves.finish(second, limit_s=120.0) is Phase.ROLLED_BACK
    halves.settle()
    assert serving(halves) == {"two@00000000"}
    assert halves.journal.last_seq() - begun < 60
    halves.world.in_flight = {}
    halves.settle()
    assert serving(halves) == {"two@00000000"}
    assert len([a for a in halves.state.seat_attempts(halves.state.live) if a.state is AttemptState.READY]) == 2


def test_a_second_instance_that_does_not_come_up_rolls_back(halves, release):
    rollout = halves.propose(release("two", gpus=2, instances=2))
    halves.run(lambda: halves.phase(rollout) is Phase.COMPLETING)
    halves.world.cannot_start["b"] = "no memory"
    shown = watched(halves, ended(halves, rollout))
    assert halves.phase(rollout) is Phase.ROLLED_BACK
    assert all(releases for _, releases in shown)
    halves.world.cannot_start.clear()
    halves.settle()
    assert serving(halves) == {"one@00000000"}


def test_the_second_half_does_not_start_on_a_card_that_cannot_be_read(halves, release):
    rollout = halves.propose(release("two", gpus=2, instances=2))
    halves.run(lambda: halves.phase(rollout) is Phase.COMPLETING)
    halves.world.untrusted = {3}
    halves.settle_for(30)
    assert halves.state.unborn(halves.state.rollouts[rollout].seat) == ("b",)
    assert serving(halves) == {"two@00000000"}
    halves.world.untrusted = set()
    assert halves.finish(rollout) is Phase.PROMOTED


def test_four_small_ones_make_room_for_two_of_two_cards(box, release):
    box.finish(box.propose(release("one", gpus=1, instances=4)))
    rollout = box.propose(release("two", gpus=2, instances=2))
    shown = watched(box, ended(box, rollout))
    assert box.phase(rollout) is Phase.PROMOTED
    assert {mode for mode, _ in shown} == {Mode.OPEN}
    assert len(box.state.rollouts[rollout].plan["gives_way"]) == 2


def test_a_router_makes_rolling_impossible_and_the_plan_says_so(box, release):
    box.finish(box.propose(release("one", gpus=2, instances=2, router=True)))
    rollout = box.propose(release("two", gpus=2, instances=2), strategy="any")
    assert box.finish(rollout) is Phase.PROMOTED
    plan = box.state.rollouts[rollout].plan
    assert plan["strategy"] == "swap"
    assert any("router" in text for text in plan["why_not"])


def test_what_is_to_give_way_and_falls_silent_first_is_not_started_again_meanwhile(box, release):
    """Found by a seeded history: a router that was started again waited for engines that had made room, for ever."""
    box.finish(box.propose(release("one", gpus=2, instances=2, router=True)))
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: box.phase(rollout) is Phase.LEASING)
    router = next(a for a in box.state.attempts.values() if a.role == "router")
    box.world.processes[router.id].life = Life.EXITED
    assert box.finish(rollout) is Phase.PROMOTED
    assert [a.id for a in box.state.attempts.values() if a.role == "router"] == [router.id]


def test_a_router_that_is_kept_does_not_wait_for_engines_that_nobody_starts_again(box, release):
    """Found by a seeded history: it held its port and its slot for ever."""
    box.finish(box.propose(release("one", gpus=1, instances=2, router=True)))
    router = next(a for a in box.state.attempts.values() if a.role == "router")
    engine = next(a for a in box.state.attempts.values() if a.role != "router")
    rollout = box.propose(release("two", gpus=1))
    box.run(lambda: box.phase(rollout) is Phase.GATING)
    box.world.start_s = 1e9
    box.world.processes[engine.id].life = box.world.processes[router.id].life = Life.EXITED
    box.run(lambda: len([a for a in box.state.attempts.values() if a.role == "router"]) == 2)
    assert box.finish(rollout) is Phase.PROMOTED
    loads = next(a for a in box.state.attempts.values() if a.state is AttemptState.STARTING)
    box.world.processes[loads.id].life = Life.EXITED
    box.settle()
    assert not [a for a in box.state.attempts.values() if a.state is AttemptState.PLANNED]


def test_an_engine_of_a_kept_router_that_was_to_make_room_is_gone_although_nobody_needs_its_card_any_more(box, release):
    """Found by a seeded history: it drained for ever, because its router was there still, where no user is."""
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.finish(box.propose(release("two", gpus=1)))
    rollout = box.propose(release("three", gpus=3))
    box.run(lambda: any(a.state is AttemptState.RETIRING for a in box.state.attempts.values()))
    box.ask(act.AskAbort(rollout, "tester"))
    box.settle()
    assert box.phase(rollout) is Phase.ABORTED
    assert [
        a.id for a in box.state.attempts.values() if a.state in {AttemptState.RETIRING, AttemptState.STOPPING}
    ] == []


def test_a_rollback_while_something_is_only_tried_says_whose_wish_ended_it(halves, release):
    halves.finish(halves.propose(release("two", gpus=2, instances=2)))
    tried = halves.propose(release("three", gpus=2, instances=2))
    halves.run(lambda: halves.phase(tried) is Phase.STARTING)
    halves.finish(halves.rollback())
    assert halves.state.rollouts[tried].why == "aborted by tester, who wants one@00000000 back"
