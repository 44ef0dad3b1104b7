"""Swap and rolling on real parts: daemon, HAProxy, shims, emulated engines, and clients that stream all the while."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(300)

HALVES = "{a: {gpus: 2}, b: {gpus: 2}}"


def judge(tally):
    assert tally["sent"] > 0
    assert (tally["failed"], tally["truncated"]) == (0, 0), tally["first_problem"]


def test_a_swap_loses_no_request_and_going_back_wakes_or_starts_again(stage, make, profile, clients):
    whole = "{a: {gpus: 4}}"
    stage.finish(stage.propose(make("one", instances=whole), "one.yaml", gates=profile))
    two = make("two", "--fault", "bang-after-wake", instances=whole)
    refused = stage.finish(stage.propose(two, "two.yaml", gates=profile))
    assert refused["phase"] == "refused"
    assert "--strategy swap" in refused["why"]
    load = clients()
    done = stage.finish(stage.propose(two, "two.yaml", gates=profile, strategy="swap"))
    assert done["phase"] == "promoted", done["why"]
    assert done["plan"]["strategy"] == "swap"
    hold = stage.get("/v1/status")["front_door"]["hold"]
    assert hold["released"] > 0
    assert (hold["timed_out"], hold["full"]) == (0, 0)
    assert told(stage, done["id"])["sleep"] > 0, "one sleeps"
    two_runs = attempt_of(stage, "live")
    bad = stage.finish(
        stage.propose(
            make("bad", "--fault", "dies-loading", instances=whole), "bad.yaml", gates=profile, strategy="swap"
        )
    )
    assert bad["phase"] == "failed"
    assert stage.until(lambda: stage.get("/v1/status")["front_door"]["mode"] == "open", 60), "two serves again"
    assert stage.get("/v1/status")["live"]["release"].startswith("two@")
    assert stage.until(lambda: attempt_of(stage, "live")["state"] == "ready", 30)
    assert attempt_of(stage, "live")["id"] != two_runs["id"], "it woke up mad, and was started again"
    one_sleeps = attempt_of(stage, "previous")
    assert one_sleeps["state"] == "asleep"
    assert stage.get("/v1/status")["way_home"]["how"] == "asleep"
    asked = stage.post("/v1/rollback")
    assert [note for note in asked["notes"] if "comes back: it " in note], asked["notes"]
    back = stage.finish(asked["rollout"]["id"])
    assert back["phase"] == "rolled_back", back["why"]
    judge(load.stop())
    assert {**one_sleeps, "state": "ready"} == attempt_of(stage, "live")
    assert told(stage, back["id"])["wake"] > 0


def test_rolling_loses_no_request_and_never_darkens(stage, make, profile, clients):
    stage.finish(stage.propose(make("one", instances=HALVES), "one.yaml", gates=profile))
    load = clients()
    done = stage.finish(stage.propose(make("two", "--seed", "2", instances=HALVES), "two.yaml", gates=profile))
    assert done["phase"] == "promoted", done["why"]
    assert done["plan"]["strategy"] == "rolling"
    back = stage.finish(stage.post("/v1/rollback")["rollout"]["id"])
    assert back["phase"] == "rolled_back", back["why"]
    assert stage.until(lambda: len(ready(stage)) == 2, 60), "both instances of one serve"
    judge(load.stop())
    assert "dark_s" not in done["times"] | back["times"]


def attempt_of(stage, seat):
    """The one attempt of live or previous: what it is as a process, and its state."""
    (found,) = stage.get("/v1/status")[seat]["attempts"]
    run = stage.config.runs_dir / found["id"]
    ticks = json.loads((run / "shim.json").read_text())["start_ticks"]
    return {"id": found["id"], "pid": found["pid"], "start_ticks": ticks, "state": found["state"]}


def told(stage, rollout):
    """The parts of a dark time; the switch that ends it is recorded a moment after the rollout has ended."""
    assert stage.until(lambda: stage.get(f"/v1/rollouts/{rollout}")["dark"], 30)
    return stage.get(f"/v1/rollouts/{rollout}")["dark"]


def ready(stage):
    slots = stage.get("/v1/status")["front_door"]["slots"]
    return [s for s in slots if s["backend"] == "public" and s["state"] == "ready"]
