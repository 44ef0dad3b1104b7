"""The locks of a sleeper's cards are others' while it sleeps, and its own again when it is woken."""

from __future__ import annotations

import pytest

from launch.attempts import Status, observe, request_stop
from launch.errors import LaunchError
from launch.lending import lend, reclaim


@pytest.fixture
def sleeper(attempts, tmp_path, until):
    card = tmp_path / "cutover-GPU-1.lock"
    run_dir, _ = attempts.start(argv=("sleep", "1000"), name="first", locks=(card,))
    until(lambda: observe(run_dir).child_pid)
    return run_dir, card


def test_a_lent_card_starts_somebody_else_and_comes_back(sleeper, attempts, until):
    run_dir, card = sleeper
    lend(run_dir)
    lend(run_dir)  # found, not done again
    second_dir, second = attempts.start(argv=("sleep", "1000"), name="second", locks=(card,))
    until(lambda: observe(second_dir).child_pid)
    with pytest.raises(LaunchError, match=f"is locked by pid {second.pid}"):
        reclaim(run_dir)
    assert observe(run_dir).status is Status.RUNNING, "who cannot have its cards lives on"
    request_stop(second_dir)
    until(lambda: observe(second_dir).status is Status.EXITED)
    reclaim(run_dir)
    third_dir, _ = attempts.start(argv=("sleep", "1000"), name="third", locks=(card,))
    seen = until(lambda: (look := observe(third_dir)).status is Status.EXITED and look)
    assert f"{card} is locked" in seen.reason


def test_who_lends_its_cards_is_stopped_like_any_other(sleeper, until):
    run_dir, _ = sleeper
    lend(run_dir)
    request_stop(run_dir)
    assert until(lambda: (look := observe(run_dir)).status is Status.EXITED and look).reason == "stopped"
