"""Cards are given back when their memory is back; closed cards go to nobody; a proposal may wait for its cards."""

from __future__ import annotations

import pytest

from controller.core import actions as act
from controller.core.alarms import alarms
from controller.core.dark import dark_parts
from controller.core.records import AttemptState, Closed, Phase
from controller.core.seen import Life
from controller.core.table import IllegalMove

BY_ITSELF = "it can be had again by itself once it is there"


@pytest.fixture
def swapped(box, release):
    """TP4 was live with 20 GB in use on each card, and a swap has begun: its processes are gone, the memory is not."""
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.finish(box.propose(release("one", gpus=4)))
    box.world.memory_mib = dict.fromkeys(range(4), 20_000)
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: box.state.attempts["one-a-1"].gone_at_s is not None)
    return rollout


def test_a_lease_ends_when_the_memory_is_back(box, swapped):
    box.settle_for(20)
    assert box.state.attempts["one-a-1"].holds
    assert box.phase(swapped) is Phase.LEASING
    box.world.memory_mib = dict.fromkeys(range(4), 300)  # within the slack
    assert box.finish(swapped) is Phase.PROMOTED
    assert dark_parts(box.state, box.state.rollouts[swapped])["memory"] >= 20


def test_memory_that_never_returns_is_a_quarantined_card(box, swapped):
    box.world.memory_mib = {0: 10, 1: 10, 2: 59_000, 3: 10}
    box.finish(swapped)
    assert box.phase(swapped) in {Phase.REFUSED, Phase.FAILED}
    closed = box.state.closed["gpu-2"]
    assert not closed.by
    assert "gpu-2 shows 59000 MiB in use 60 s after one-a-1 was gone" in closed.why
    assert any(
        "gpu-2 is quarantined" in text for text in alarms(box.state, box.world.observe(box.state), box.loop.policy)
    )
    assert not box.state.attempts["one-a-1"].holds
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.run(lambda: not box.state.closed)  # it came back late
    box.run(lambda: box.state.is_served() and not box.state.closed)


def test_a_card_that_cannot_be_read_is_not_free(box, swapped):
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.world.untrusted = {1}
    box.settle_for(20)
    assert box.phase(swapped) is Phase.LEASING
    box.world.untrusted = set()
    assert box.finish(swapped) is Phase.PROMOTED


def test_a_stranger_on_the_card_is_not_our_memory(box, swapped):
    box.world.memory_mib = {0: 10, 1: 10, 2: 5_000, 3: 10}
    box.world.foreign[2] = "pid 7 (a job) holds 5000 MiB"
    box.finish(swapped)
    assert box.phase(swapped) is Phase.REFUSED
    assert "a job" in box.state.rollouts[swapped].why
    assert not box.state.closed


def test_a_card_that_fell_off_the_bus_is_not_said_to_hold_memory_and_returns_with_the_card(box, swapped):
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.world.gpus = 3
    box.run(lambda: "gpu-3" in box.state.closed)
    closed = box.state.closed["gpu-3"]
    assert closed.unseen
    assert closed.why == "gpu-3 is not in the inventory 60 s after one-a-1 was gone"
    raised = [
        text for text in alarms(box.state, box.world.observe(box.state), box.loop.policy) if "quarantined" in text
    ]
    assert raised == [f"gpu-3 is quarantined: {closed.why}; look at `cutover gpus` and `dmesg`; {BY_ITSELF}"]
    box.world.gpus = 4
    box.run(lambda: not box.state.closed)
    assert box.finish(swapped) is not Phase.PROMOTED  # it was refused for the card, and live is back
    box.run(lambda: box.state.is_served() and not box.state.closed)


def test_a_card_that_comes_back_full_is_quarantined_for_its_memory(box, swapped):
    box.world.memory_mib = {0: 10, 1: 10, 2: 59_000, 3: 10}
    box.world.untrusted = {2}
    box.run(lambda: "gpu-2" in box.state.closed)
    assert "gpu-2 cannot be read" in box.state.closed["gpu-2"].why
    box.world.untrusted = set()
    box.run(lambda: not box.state.closed["gpu-2"].unseen)
    assert box.state.closed["gpu-2"].why.startswith("gpu-2 shows 59000 MiB in use since it is there again")
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.run(lambda: not box.state.closed)


def test_an_instance_of_live_does_not_return_to_a_quarantined_card(box, release):
    box.world.memory_mib = dict.fromkeys(range(4), 10)
    box.finish(box.propose(release("one", gpus=1)))
    box.world.memory_mib[0] = 20_000
    box.world.processes["one-a-1"].life = Life.EXITED
    box.run(lambda: "gpu-0" in box.state.closed)
    box.run(lambda: "one-a-2" in box.state.attempts and box.state.is_served())
    assert box.state.seat_attempts(box.state.live)[0].gpus == ("gpu-1",)


def test_a_cordoned_card_goes_to_nobody(box, release):
    box.ask(act.CloseCard("gpu-3", Closed("boss", "the fan is broken", 0.0)))
    rollout = box.propose(release("one", gpus=4))
    assert box.finish(rollout) is Phase.REFUSED
    why = box.state.rollouts[rollout].why
    assert why.startswith("4 GPUs are needed and 3 of 4 can be had (GPU 3 is cordoned by boss: the fan is broken)")
    assert "`cutover uncordon 3` opens that one again" in why
    with pytest.raises(IllegalMove):
        box.ask(act.CloseCard("gpu-3", Closed("boss", "again", 0.0)))
    box.ask(act.OpenCard("gpu-3"))
    assert box.finish(box.propose(release("one", gpus=4))) is Phase.PROMOTED


def test_a_proposal_waits_for_a_job_to_end_and_lets_others_pass(box, release):
    box.world.foreign[0] = "pid 7 (regen) holds 9000 MiB"
    waits = box.propose(release("one", gpus=4), wait_for_free_s=600.0)
    other = box.propose(release("two", gpus=2))
    assert box.finish(other) is Phase.PROMOTED
    assert box.phase(waits) is Phase.QUEUED
    box.settle()
    assert f"{waits} waits for its cards" in box.loop.why
    assert "regen" in box.loop.why


def test_a_job_that_ends_lets_the_waiting_proposal_begin(box, release):
    box.world.foreign[0] = "pid 7 (regen) holds 9000 MiB"
    waits = box.propose(release("one", gpus=4), wait_for_free_s=600.0)
    box.settle_for(60)
    assert box.phase(waits) is Phase.QUEUED
    box.world.foreign.clear()
    assert box.finish(waits) is Phase.PROMOTED


def test_patience_ends_in_a_refusal_that_names_who_is_in_the_way(box, release):
    box.world.foreign[0] = "pid 7 (regen) holds 9000 MiB"
    waits = box.propose(release("one", gpus=4), wait_for_free_s=100.0)
    assert box.finish(waits) is Phase.REFUSED
    assert "regen" in box.state.rollouts[waits].why
    assert all(a.state is AttemptState.STOPPED for a in box.state.attempts.values())


def test_nobody_is_refused_for_cards_that_nobody_can_see(box, release):
    box.world.gpus_why = "NVML hangs"
    box.world.untrusted = {0, 1, 2, 3}
    rollout = box.propose(release("one", gpus=2))
    box.settle_for(60)
    assert box.phase(rollout) is Phase.PREFLIGHT
    assert any("NVML hangs" in text for text in alarms(box.state, box.world.observe(box.state), box.loop.policy))
    box.world.gpus_why = ""
    box.world.untrusted = set()
    assert box.finish(rollout) is Phase.PROMOTED


def test_cards_that_stay_unseen_end_the_rollout_with_the_reason(box, release):
    box.world.gpus_why = "NVML hangs"
    box.world.untrusted = {0, 1, 2, 3}
    rollout = box.propose(release("one", gpus=2))
    assert box.finish(rollout) is Phase.FAILED
    assert box.state.rollouts[rollout].why == "preflight took longer than 120 s: NVML hangs"
