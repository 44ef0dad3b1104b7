"""What a journal is made of again: who is live, who was, and who is stopped."""

from __future__ import annotations

from dataclasses import replace

from fake_world import make_release

from controller.core.invariants import violations
from controller.core.policy import Policy
from controller.core.rebuilt import Found, rebuild
from controller.core.records import AttemptState, Now, Seat
from controller.core.rules import decide
from controller.core.seen import Seen

NOW = Now("boot-1", 100.0, 1_700_000_000.0)


def found(name, rollout, number, **more):
    release = make_release(name)
    instance = release.instances[0].name
    return Found(
        f"{name}-{instance}-{number}",
        release,
        instance,
        rollout,
        18_000 + 10 * number,
        1000 + number,
        99,
        "boot-1",
        slot=number,
        gpus=(f"gpu-{2 * number}", f"gpu-{2 * number + 1}"),
        **more,
    )


def test_who_serves_is_live_and_who_ran_before_it_is_previous():
    state = rebuild([found("new", "r0004", 7, serves=True), found("old", "r0002", 3, drains=True)], NOW, 9, 8)
    assert (state.live, state.previous) == (
        Seat(make_release("new").id, "r0004"),
        Seat(make_release("old").id, "r0002"),
    )
    assert (state.rollout_seq, state.attempt_seq) == (9, 8)
    assert violations(state) == []
    assert all(a.exposed for a in state.attempts.values())


def test_a_candidate_is_neither_and_is_stopped():
    state = rebuild([found("new", "r0004", 7), found("old", "r0002", 3, serves=True)], NOW, 0, 0)
    assert state.live.rollout == "r0002"
    assert state.previous is None
    assert (state.rollout_seq, state.attempt_seq) == (4, 7)
    assert violations(state) == []


def test_a_release_of_which_an_instance_is_gone_is_no_way_back():
    half = replace(found("old", "r0002", 3), release=make_release("old", instances=2))
    state = rebuild([found("new", "r0004", 7, serves=True), half], NOW, 0, 0)
    assert state.previous is None


def test_in_the_middle_of_a_switch_the_newer_one_is_live():
    both = [found("old", "r0002", 3, serves=True), found("new", "r0004", 7, serves=True)]
    assert rebuild(both, NOW, 0, 0).live.rollout == "r0004"


def test_a_sleeper_is_stopped_and_holds_no_card_of_live():
    sleeper = replace(found("old", "r0002", 3, sleeps=True), gpus=("gpu-14", "gpu-15"))
    state = rebuild([found("new", "r0004", 7, serves=True), sleeper], NOW, 0, 0)
    asleep = state.attempts[sleeper.id]
    assert (asleep.state, asleep.holds_cards, state.previous) == (AttemptState.RETIRING, False, None)
    assert violations(state) == []


def test_after_a_reboot_what_was_live_comes_back(box):
    """Nothing runs; the front door's files still say whom users were sent to."""
    gone = replace(found("new", "r0004", 1, serves=True), running=False, boot_id="boot-0", gpus=("gpu-0", "gpu-1"))
    box.journal.begin_with(rebuild([gone], box.world.now(), 0, 0), "rebuilt", box.world.now())
    box.run(lambda: box.state.is_served() and not box.state.attempts[gone.id].holds)
    assert box.state.live.release == gone.release.id
    assert [a.id for a in box.state.seat_attempts(box.state.live)] == ["new-a-2"]


def test_a_rebuilt_journal_can_be_decided_upon():
    state = rebuild([found("new", "r0004", 7, serves=True), found("odd", "r0009", 8)], NOW, 0, 0)
    world_door = Seen(NOW, door=_door())
    assert decide(state, world_door, Policy()).why


def _door():
    from controller.core.route import DoorSeen

    return DoorSeen(alive=True)
