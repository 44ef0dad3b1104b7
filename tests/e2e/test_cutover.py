"""The whole path on real parts: daemon, HAProxy, shims, emulated engines, gates, clients."""

from __future__ import annotations

import os
import signal

import httpx
import psutil
import pytest

from controller.demo.stage import StageError
from launch import attempts as launched

pytestmark = pytest.mark.timeout(300)


def judge(tally):
    assert tally["sent"] > 0
    assert (tally["failed"], tally["truncated"]) == (0, 0), tally["first_problem"]


def shim_of(stage, attempt):
    identity = launched.observe(stage.config.runs_dir / attempt).identity
    return identity.pid, identity.start_ticks


def test_promote_reject_and_roll_back_under_load(stage, make, profile, clients):
    assert stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))["phase"] == "promoted"
    load = clients()
    second = stage.finish(stage.propose(make("two", "--itl-ms", "8"), "two.yaml", gates=profile))
    assert second["phase"] == "promoted", second["why"]
    assert second["plan"]["strategy"] == "blue-green"
    dead = make("bad", "--fault", "dies-loading")
    bad = stage.finish(stage.propose(dead, "bad.yaml", gates=profile))
    assert bad["phase"] == "failed"
    assert "exited with code 1" in bad["why"]
    assert stage.until(lambda: any(a["log_tail"] for a in stage.rollout(bad["id"])["attempts"]), 30.0)
    back = stage.finish(stage.post("/v1/rollback")["rollout"]["id"])
    assert back["phase"] == "rolled_back", back["why"]
    judge(load.stop())
    status = stage.get("/v1/status")
    assert status["live"]["release"].startswith("one@")
    with pytest.raises(StageError, match="is live already"):
        stage.propose(make("one"), "one.yaml", gates=profile)
    assert status["alarms"] == []


def test_healthy_but_silent_is_never_ready(stage, make, profile):
    """200 on /health, 200 on /v1/models, and no token ever."""
    silent = make("silent", "--fault", "silent", extra="start_timeout_s: 3\n")
    done = stage.finish(stage.propose(silent, "silent.yaml", gates=profile), 200)
    assert done["phase"] == "failed"
    assert "took longer than 18 s" in done["why"]


def test_a_router_stands_before_two_instances_through_a_whole_cutover(stage, make, profile, clients):
    pair = make(
        "pair",
        instances="{a: {gpus: 1}, b: {gpus: 1}}",
        extra="router: {kind: smg, flags: [--policy, cache_aware]}\n",
    )
    assert stage.finish(stage.propose(make("one", "--seed", "1"), "one.yaml", gates=profile))["phase"] == "promoted"
    load = clients()
    done = stage.finish(stage.propose(pair, "pair.yaml", gates=profile))
    assert done["phase"] == "promoted", done["why"]
    roles = {a["instance"]: a for a in done["attempts"]}
    assert set(roles) == {"a", "b", "router"}
    slots = [s for s in stage.get("/v1/status")["front_door"]["slots"] if s["backend"] == "public"]
    assert [s["attempt"] for s in slots if s["state"] == "ready"] == [roles["router"]["id"]]
    back = stage.finish(stage.post("/v1/rollback")["rollout"]["id"])
    assert back["phase"] == "rolled_back"
    judge(load.stop())


def test_kill_9_of_the_daemon_costs_nothing_and_adopts(stage, make, profile, clients):
    done = stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    attempt = done["attempts"][0]["id"]
    before = shim_of(stage, attempt)
    load = clients()
    for _ in range(3):
        stage.stop_daemon(signal.SIGKILL)
        stage.start_daemon()
        assert stage.until(lambda: stage.get("/v1/status")["live"]["attempts"], 20)
    assert shim_of(stage, attempt) == before
    judge(load.stop())


def test_front_door_that_is_killed_comes_back_with_the_committed_route(stage, make, profile, clients):
    stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    pid = stage.get("/v1/status")["front_door"]["pid"]
    os.kill(pid, signal.SIGKILL)

    def back():
        door = stage.get("/v1/status")["front_door"]
        return door["alive"] and door["pid"] != pid and [s["state"] for s in door["slots"]] == ["ready"]

    assert stage.until(back, 20)
    load = clients(2)
    assert stage.until(lambda: load.tally().get("complete", 0) > 2, 30)
    judge(load.stop())


def test_live_engine_that_dies_is_started_again(stage, make, profile):
    done = stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    first = done["attempts"][0]
    for pid in launched.observe(stage.config.runs_dir / first["id"]).pids:
        psutil.Process(pid).kill()

    def revived():
        attempts = stage.get("/v1/status")["live"]["attempts"]
        return [a for a in attempts if a["id"] != first["id"] and a["state"] == "ready"]

    assert stage.until(revived, 60)


def port_of(stage, attempt):
    return next(a["port"] for a in stage.get("/v1/status")["live"]["attempts"] if a["id"] == attempt)


@pytest.mark.slow
def test_live_that_writes_garbage_after_a_sleep_is_started_again(stage, make, profile):
    """Weights that did not come back whole: "!!!!!!!!", HTTP 200, and counters that move (vllm#29341)."""
    one = make("one", "--fault", "bang-after-wake")
    first = stage.finish(stage.propose(one, "one.yaml", gates=profile))["attempts"][0]["id"]
    engine = f"http://127.0.0.1:{port_of(stage, first)}"
    for path in ("/sleep?level=1", "/wake_up"):
        assert httpx.post(engine + path, timeout=20).status_code == 200

    def revived():
        attempts = stage.get("/v1/status")["live"]["attempts"]
        return [a for a in attempts if a["id"] != first and a["state"] == "ready"]

    assert stage.until(revived, 60)
    why = next(e["why"] for e in stage.get("/v1/events?limit=1000")["events"] if "nothing else" in e["why"])
    assert "output: the engine writes the character '!'" in why


def test_a_journal_that_is_lost_does_not_take_production_down(stage, make, profile, clients):
    stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    load = clients(2)
    stage.stop_daemon()
    for file in stage.config.state_dir.glob("journal.sqlite*"):
        file.unlink()
    with pytest.raises(StageError, match=r"is missing while one-a-1 run"):
        stage.start_daemon()
    judge(load.stop())


def test_a_number_that_no_database_holds_is_a_sentence(stage):
    answer = stage.api.get(f"/v1/events?after={10**30}")
    assert (answer.status_code, answer.json()["exit_code"]) == (422, 2)


def test_stopping_the_daemon_leaves_users_alone(stage, make, profile, clients):
    stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    load = clients(4)
    stage.stop_daemon()
    assert stage.until(lambda: load.tally().get("complete", 0) > 8, 60)
    judge(load.stop())
    stage.start_daemon()


def test_abort_leaves_nothing_behind(stage, make, profile):
    stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))
    rollout = stage.propose(make("two", "--fault", "never-ready"), "two.yaml", gates=profile)
    assert stage.until(lambda: stage.rollout(rollout)["phase"] == "starting", 30)
    stage.post(f"/v1/rollouts/{rollout}/abort")
    assert stage.finish(rollout)["phase"] == "aborted"
    assert stage.until(lambda: len([g for g in stage.get("/v1/status")["gpus"] if g["held_by"]]) == 2, 30)
    with pytest.raises(StageError, match="is over"):
        stage.post(f"/v1/rollouts/{rollout}/abort")
