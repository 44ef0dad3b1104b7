"""A window that is open now, on real parts: what waits for it runs in order, and what waits for another one waits."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from test_cutover import judge

from controller.demo.stage import Clients, Stage, StageError

pytestmark = pytest.mark.timeout(300)


def of_the_day(at_s: float) -> str:
    return time.strftime("%H:%M", time.gmtime(at_s))


@pytest.fixture
def stage(tmp_path: Path):
    now_s = time.time()
    settings = {
        "gpus": {"kind": "none", "count": 4},
        "bake": {"seconds": 1, "interval_s": 0.5},
        "drain_s": 30,
        "start_s": 60,
        "schedule": {"start": of_the_day(now_s - 120), "duration": "2h", "timezone": "UTC"},
        "schedules": {"later": {"start": of_the_day(now_s + 6 * 3600), "duration": "2h", "timezone": "UTC"}},
    }
    with Stage(tmp_path / "stage", settings) as box:
        yield box


def waiting(stage: Stage) -> dict[str, str]:
    return {entry["id"]: entry["waits_for"] for entry in stage.get("/v1/queue")["queue"]}


def test_a_night_by_itself(stage, make, profile, tmp_path):
    assert stage.finish(stage.propose(make("one"), "one.yaml", gates=profile))["phase"] == "promoted"
    stage.post("/v1/freeze", {"why": "they are all filed first"})
    night = {"gates": profile, "window": "nightly"}
    broken = stage.propose(make("broken", "--fault", "dies-loading"), "broken.yaml", **night)
    better = stage.propose(make("better", "--seed", "2"), "better.yaml", **night)
    trial = stage.propose(make("trial", "--seed", "3"), "trial.yaml", **night, priority=3, trial=True)
    later = stage.propose(make("later", "--seed", "4"), "later.yaml", gates=profile, window="later")
    old = stage.propose(make("twice", "--seed", "5"), "twice.yaml", gates=profile, window="later")
    new = stage.propose(make("twice", "--seed", "6"), "twice.yaml", gates=profile, window="later")
    assert stage.rollout(old)["phase"] == "superseded"
    assert list(waiting(stage)) == [trial, broken, better, later, new]
    load = Clients(f"http://{stage.config.public}", "emu", 6, 60, tmp_path / "clients.log")
    try:
        stage.post("/v1/unfreeze")
        assert stage.finish(trial)["phase"] == "measured"
        stage.stop_daemon(signal.SIGKILL)
        stage.start_daemon()
        assert stage.finish(broken)["phase"] == "failed"
        done = stage.finish(better)
    finally:
        sums = load.stop()
    assert done["phase"] == "promoted", done["why"]
    judge(sums)
    assert stage.get("/v1/status")["live"]["release"].startswith("better@")
    assert "window later opens" in waiting(stage)[later]
    stage.post(f"/v1/rollouts/{later}/withdraw")
    assert stage.finish(later)["phase"] == "aborted"


def test_what_cannot_be_is_refused_when_it_is_proposed(stage, make, profile):
    for options, said in (
        ({"window": "nigthly"}, "there is no window nigthly (configured: nightly, later)"),
        ({"window": "later", "expires_at": time.time() + 60}, "window later opens later than that"),
        ({"finish_by": time.time() - 60}, "that time is over"),
        ({"window": "nightly", "bake_s": 10_000}, "and window nightly is open for 2.0 h"),
    ):
        with pytest.raises(StageError, match=said.replace("(", r"\(").replace(")", r"\)")):
            stage.propose(make("one"), "one.yaml", gates=profile, **options)
