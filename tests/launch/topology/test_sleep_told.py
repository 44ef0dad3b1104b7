"""Which release can sleep is decided by what its engine was told."""

from __future__ import annotations

import json

import pytest

from launch.sleep import can_sleep, sleeping
from launch.topology import parse

DEV = {"VLLM_SERVER_DEV_MODE": "1"}


def topology(engine, flags=(), env=None, **more):
    document = {
        "name": "n",
        "serves": ["m"],
        "engine": engine,
        "flags": list(flags),
        "env": env or {},
        "instances": {"a": {"gpus": 1}},
        **more,
    }
    if engine != "emulator":
        document |= {"model": "/models/m"}
    return parse(json.dumps(document), source="n.yaml", rules=False)


@pytest.mark.parametrize(
    ("expected", "engine", "flags", "env"),
    [
        (True, "vllm", ["--enable-sleep-mode"], DEV),
        (True, "vllm", ["--enable_sleep_mode"], DEV),
        (False, "vllm", ["--enable-sleep-mode", "--no-enable-sleep-mode"], DEV),
        (False, "vllm", ["--enable-sleep-mode"], {}),
        (False, "vllm", [], DEV),
        (True, "sglang", ["--enable-memory-saver", "--enable-weights-cpu-backup"], {}),
        (False, "sglang", ["--enable-memory-saver"], {}),
        (False, "llamacpp", [], {}),
        (True, "emulator", [], {}),
        (True, "emulator", ["--dialect", "sglang"], {}),
        (False, "emulator", ["--dialect", "llamacpp"], {}),
    ],
)
def test_what_it_was_told_decides(expected, engine, flags, env):
    assert can_sleep(topology(engine, flags, env)) is expected


def test_what_stands_behind_a_router_does_not_sleep():
    whole = topology("emulator", instances={"a": {"gpus": 1}, "b": {"gpus": 1}}, router={"kind": "smg"})
    assert not can_sleep(whole)


def test_a_pause_comes_before_the_release_of_memory_that_a_running_request_would_kill():
    how = sleeping(topology("sglang", ["--enable-memory-saver", "--enable-weights-cpu-backup"]), "a")
    assert [call.path for call in how.sleep] == ["/pause_generation", "/release_memory_occupation"]
    assert how.is_asleep is None
