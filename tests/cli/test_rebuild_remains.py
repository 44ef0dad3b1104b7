"""What a journal is made of again may contradict itself: copies, old records, files of nobody."""

from __future__ import annotations

import json

import pytest
from fake_world import make_release

from controller.cli.rebuild import _agreeing, _owner, _port
from controller.core.invariants import violations
from controller.core.rebuilt import Found, rebuild
from controller.core.records import AttemptState, Now

OWNED = {"rollout": "r0001", "release": "n@1", "instance": "a", "gpus": ["gpu-0"], "slot": 3, "memory_before_mib": {}}


def found(name, port, slot, **more):
    release = make_release(name.partition("-")[0])
    return Found(name, release, release.instances[0].name, "r0001", port, 1, 1, "boot-1", slot, **more)


def test_of_two_that_claim_one_place_users_own_stays():
    strangers: list[str] = []
    one, copy, old = found("n-a-1", 18_000, 3, serves=True), found("n-a-9", 18_000, 3), found("n-a-2", 18_010, 3)
    other = found("n-a-4", 18_020, None)
    assert [f.id for f in _agreeing([copy, old, one, other], strangers)] == ["n-a-1", "n-a-4"]
    assert sorted(strangers) == [
        "n-a-2: it claims the slot 3 of n-a-1",
        "n-a-9: it claims the port 18000 of n-a-1 and the slot 3 of n-a-1",
    ]


def test_of_two_on_one_card_users_own_has_it_and_the_other_is_stopped():
    """Whatever the reason: a sleeper that nobody could ask, a card that was declared twice."""
    strangers: list[str] = []
    live = found("n-a-2", 18_010, 2, serves=True, gpus=("gpu-2", "gpu-3"))
    other = found("n-a-1", 18_000, 1, gpus=("gpu-3",))
    agreed = _agreeing([other, live], strangers)
    assert {f.id: f.sleeps for f in agreed} == {"n-a-2": False, "n-a-1": True}
    assert strangers == [], "who is stopped is known"
    state = rebuild(agreed, Now("boot-1", 100.0, 1e9), 0, 0)
    assert (violations(state), state.previous) == ([], None)
    assert state.attempts["n-a-1"].state is AttemptState.RETIRING


def test_a_sleeper_has_no_card_that_anybody_could_want():
    asleep = found("n-a-1", 18_000, 1, gpus=("gpu-3",), sleeps=True)
    strangers: list[str] = []
    assert len(_agreeing([asleep, found("n-a-2", 18_010, 2, gpus=("gpu-3",))], strangers)) == 2
    assert strangers == []


@pytest.mark.parametrize(
    "change",
    [{"gpus": None}, {"gpus": [1]}, {"slot": "3"}, {"memory_before_mib": [1]}, {"release": 7}, {"rollout": None}],
)
def test_an_owner_that_no_daemon_has_written_is_none(tmp_path, change):
    (tmp_path / "owner.json").write_text(json.dumps(OWNED))
    assert _owner(tmp_path) == OWNED
    (tmp_path / "owner.json").write_text(json.dumps(OWNED | change))
    assert _owner(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b"{"])
def test_garbage_is_no_owner(tmp_path, content):
    (tmp_path / "owner.json").write_bytes(content)
    assert _owner(tmp_path) == {}


@pytest.mark.parametrize(("port", "number"), [("18000", 18_000), ("", 0), ("x", 0), ("-1", 0)])
def test_a_port_is_a_number(port, number):
    assert _port({"PORT": port}) == number
