"""Proposals that are refused or have to wait, each with its sentence."""

from __future__ import annotations

from dataclasses import replace

from controller.core.records import Phase


def test_more_instances_than_places_at_the_front_door_are_refused(box, release):
    box.loop.policy = replace(box.loop.policy, slots=4)
    box.finish(box.propose(release("one", gpus=0, instances=2)))
    rollout = box.propose(release("two", gpus=0, instances=3))
    assert box.finish(rollout) is Phase.REFUSED
    assert "3 places at the front door are needed and 2 of 4 can be had" in box.state.rollouts[rollout].why


def test_more_instances_than_port_blocks_are_refused(box, release):
    box.loop.policy = replace(box.loop.policy, port_first=20000, port_last=20029)
    box.finish(box.propose(release("one", gpus=0, instances=2)))
    rollout = box.propose(release("two", gpus=0, instances=2))
    assert box.finish(rollout) is Phase.REFUSED
    assert "2 blocks of ports are needed and 1 of 3 can be had" in box.state.rollouts[rollout].why


def test_places_of_what_gives_way_are_waited_for(box, release):
    box.loop.policy = replace(box.loop.policy, slots=3)
    box.finish(box.propose(release("one", gpus=1, instances=2)))
    box.finish(box.propose(release("two", gpus=2)))
    assert box.finish(box.propose(release("three", gpus=1, instances=2))) is Phase.PROMOTED


def test_too_large_is_refused(box, release):
    rollout = box.propose(release("big", gpus=8))
    assert box.finish(rollout) is Phase.REFUSED
    assert "needs 8 GPUs and this box has 4" in box.state.rollouts[rollout].why


def test_candidate_must_serve_what_live_serves(box, release):
    box.finish(box.propose(release("one", serves=("m", "n"))))
    rollout = box.propose(release("two"))
    assert box.finish(rollout) is Phase.REFUSED
    assert box.finish(box.propose(release("two"), force=True)) is Phase.PROMOTED


def test_live_gives_way_to_nobody(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    rollout = box.propose(release("two"))
    assert box.finish(rollout) is Phase.REFUSED
    assert "serve users" in box.state.rollouts[rollout].why


def test_foreign_process_is_named(box, release):
    box.world.foreign = {n: f"pid {n} (somebody's job)" for n in range(4)}
    rollout = box.propose(release("one"))
    assert box.finish(rollout) is Phase.REFUSED
    assert "somebody's job" in box.state.rollouts[rollout].why
