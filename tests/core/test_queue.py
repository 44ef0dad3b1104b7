"""A long queue: arms that wait for the same are looked at once, everybody else for himself."""

from __future__ import annotations

from dataclasses import replace

from fake_world import make_release

from controller.core.queue import first_of_each
from controller.core.records import Attempt, Instance, Kind, Options, Phase, Release, Rollout, State

OF_A_SWEEP = Options(window="nightly", trial=True, sweep="s0001")


def waiting(*arms: tuple[Release, Options]) -> State:
    """A rollout for each, in this order; all of them wait."""
    rollouts = {
        f"r{n:04d}": Rollout(f"r{n:04d}", Kind.PROPOSE, release.id, "somebody", 0.0, options=options)
        for n, (release, options) in enumerate(arms, 1)
    }
    return State(releases={release.id: release for release, _ in arms}, rollouts=rollouts)


def looked_at(state: State) -> list[str]:
    return [rollout.id for rollout in first_of_each(state)]


def arms(count: int, options: Options = OF_A_SWEEP) -> list[tuple[Release, Options]]:
    return [(make_release(f"arm{n}", gpus=1), options) for n in range(count)]


def test_arms_that_differ_in_settings_only_are_looked_at_once():
    assert looked_at(waiting(*arms(1000))) == ["r0001"]


def test_arms_of_other_shape_or_of_another_sweep_are_looked_at_too():
    larger = make_release("larger", gpus=2)
    slower = replace(make_release("slower", gpus=1), start_timeout_s=9.0)
    pinned = replace(make_release("pinned"), instances=(Instance("a", "engine", 1, ("3",), "/health", fronted=True),))
    others = [(release, OF_A_SWEEP) for release in (larger, slower, pinned)]
    later = arms(1, replace(OF_A_SWEEP, sweep="s0002"))
    assert looked_at(waiting(*arms(2), *others, *later)) == ["r0001", "r0003", "r0004", "r0005", "r0006"]


def test_proposals_of_people_are_each_looked_at():
    assert looked_at(waiting(*arms(3, Options(window="nightly")))) == ["r0001", "r0002", "r0003"]


def test_an_arm_with_a_past_is_looked_at_for_itself():
    """What was tried has measured times, and yields for longer each time."""
    state = waiting(*arms(5))
    again = replace(state.rollouts["r0003"], again_for="r0000")
    over = replace(state.rollouts["r0004"], id="r0009", phase=Phase.SKIPPED)
    started = Attempt("arm4-a-1", "r0005", state.rollouts["r0005"].release, "a", "engine", (), 1, 1)
    rollouts = {**state.rollouts, "r0003": again, "r0009": over}
    assert looked_at(replace(state, rollouts=rollouts, attempts={started.id: started})) == [
        "r0001",
        "r0003",
        "r0004",
        "r0005",
    ]
