"""Storage that fails under a real daemon while users are served: its own small disk that is full, files that vanish."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from small_disk_kit import fill, small_disk

from controller.demo.stage import Clients, Stage, StageError
from launch.attempts import observe

SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 600, "interval_s": 0.5},
    "drain_s": 30,
    "start_s": 90,
    "ballast_mib": 2,
}


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 24) as place:
        yield place


@pytest.fixture
def clients_of():
    """Load on a stage of the test's own."""
    started = []

    def begin(stage):
        log = stage.directory.parent / "clients.log"
        load = Clients(f"http://{stage.config.public}", "emu", 4, 60, log)
        started.append(load)
        return load

    yield begin
    for load in started:
        load.stop()


@contextlib.contextmanager
def freed(place):
    """Whatever happens: a shim that ends waits for room to write that down."""
    try:
        yield
    finally:
        (place / "hog").unlink(missing_ok=True)


def ready(stage):
    return next((a["id"] for a in stage.get("/v1/status")["live"]["attempts"] if a["state"] == "ready"), None)


def said(stage, words):
    return [alarm for alarm in stage.get("/v1/status")["alarms"] if words in alarm]


def test_on_a_full_disk_users_are_served_and_the_way_back_is_open(disk, make, profile, clients_of):
    """Full in the middle of a bake: an abort takes users back to the release before, nothing new is begun."""
    with Stage(disk, SETTINGS) as stage, freed(disk):
        first = stage.propose(make("first", extra=f"gates: {profile}\n"), "first", bake_s=0)
        assert stage.finish(first)["phase"] == "promoted"
        second = stage.propose(make("second", extra=f"gates: {profile}\n"), "second")
        assert stage.until(lambda: stage.rollout(second)["phase"] == "baking", 60)
        assert stage.until((stage.config.state_dir / "ballast").exists, 20)
        load = clients_of(stage)
        # SQLite's log has room of its own for a while: people ask until that is used up.
        for number in range(2000):
            fill(disk)
            stage.post("/v1/freeze", {"why": f"number {number}"})
            if not (stage.config.state_dir / "ballast").exists():
                break
        assert stage.until(lambda: said(stage, "its ballast is spent"), 20)
        with pytest.raises(StageError, match="nothing new is begun"):
            stage.propose(make("third", extra=f"gates: {profile}\n"), "third")
        stage.post(f"/v1/rollouts/{second}/abort")
        assert stage.finish(second)["phase"] == "rolled_back"
        assert stage.get("/v1/status")["live"]["release"].startswith("first@")
        sums = load.stop()
        assert sums["sent"] > 0
        assert not sums.get("failed"), sums

        live = stage.get("/v1/status")["live"]["attempts"][0]["id"]
        os.kill(observe(stage.config.runs_dir / live).child_pid, signal.SIGKILL)
        assert stage.until(lambda: ready(stage) not in {None, live}, 40), "production that dies is started again"
        assert not (stage.config.state_dir / "ballast").exists()
        (disk / "hog").unlink()
        assert stage.until(lambda: not said(stage, "ballast"), 20)
        assert (stage.config.state_dir / "ballast").exists()
