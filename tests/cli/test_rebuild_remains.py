"""What a journal is made of again may contradict itself: copies, old records, files of nobody."""

from __future__ import annotations

import json

import pytest
from fake_world import make_release

from controller.cli.rebuild import _agreeing, _owner, _port
from controller.core.rebuilt import Found

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
