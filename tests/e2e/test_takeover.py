"""Production that is killed again and again, on real parts: given up, and the release before takes over."""

from __future__ import annotations

import psutil
import pytest

from controller.demo.stage import Stage
from launch import attempts as launched

pytestmark = pytest.mark.timeout(300)
SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 1, "interval_s": 0.5},
    "start_s": 90,
    "keep_previous_warm": False,
    "watch": {"restart_budget": 1, "when_live_keeps_dying": "last-known-good"},
}


@pytest.fixture
def stage(tmp_path):
    with Stage(tmp_path / "stage", SETTINGS) as box:
        yield box


def serving(stage, release):
    """The attempt that serves users, when it is one of this release."""
    live = stage.get("/v1/status")["live"]
    ready = [a["id"] for a in live["attempts"] if a["state"] == "ready"]
    return ready[0] if ready and live["release"].startswith(f"{release}@") else None


def kill_engine(stage, attempt):
    shim = launched.observe(stage.config.runs_dir / attempt).identity
    psutil.Process(shim.pid).children()[0].kill()


@pytest.mark.slow
def test_the_release_before_takes_over_from_one_that_is_killed_again_and_again(stage, make, profile):
    for name in ("good", "bad"):
        done = stage.finish(stage.propose(make(name), f"{name}.yaml", gates=profile))
        assert done["phase"] == "promoted", done["why"]
    first = serving(stage, "bad")
    kill_engine(stage, first)
    assert stage.until(lambda: serving(stage, "bad") not in {None, first}, 60.0)
    kill_engine(stage, serving(stage, "bad"))
    assert stage.until(lambda: serving(stage, "good"), 120.0), stage.get("/v1/status")["now"]
    last = stage.get("/v1/rollouts")["rollouts"][-1]
    assert (last["kind"], last["asked_by"]) == ("rollback", "the daemon")
    assert last["instead_of"].startswith("bad@")
    assert stage.until(lambda: stage.get("/v1/status")["alarms"], 30.0)
    alarm = stage.get("/v1/status")["alarms"][0]
    assert "kept dying and good@" in alarm
    assert "took over by itself" in alarm
