"""A disk that takes no writes any more under a running daemon: for a while, and for good."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from small_disk_kit import breakable_disk, end_all_in

from controller.demo.stage import Clients, Stage, StageError
from launch import attempts

SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 0, "interval_s": 0.5},
    "drain_s": 30,
    "start_s": 90,
    "ballast_mib": 2,
    "hold_s": 2,
}


@pytest.fixture
def disk(tmp_path):
    with breakable_disk(tmp_path, 64) as found:
        yield found


def alarm(stage, words):
    return any(words in sentence for sentence in stage.get("/v1/status")["alarms"])


def doctor(stage):
    command = [sys.executable, "-m", "controller", "--config", str(stage.config_file), "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def only_readable(stage, *, on):
    """The kernel refuses every change of the journal's files, root's too; it does not remount a disk that is in use."""
    files = [str(path) for path in stage.config.state_dir.glob("journal.sqlite*")]
    done = subprocess.run(["chattr", "+i" if on else "-i", *files], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("files cannot be made immutable here")


@pytest.mark.skipif(shutil.which("chattr") is None, reason="there is no chattr")
def test_a_disk_that_takes_no_writes(disk, make, profile, tmp_path):
    """Users are served, rollback says why it cannot be, doctor says it; when writes are taken again, all goes on."""
    place, break_it = disk
    with Stage(place, SETTINGS) as stage:
        load = None
        try:
            for name in ("first", "second"):
                rollout = stage.propose(make(name, extra=f"gates: {profile}\n"), name)
                assert stage.finish(rollout)["phase"] == "promoted"
            load = Clients(f"http://{stage.config.public}", "emu", 4, 60, tmp_path / "clients.log")
            pids = {a["id"]: a["pid"] for a in stage.get("/v1/status")["live"]["attempts"]}

            only_readable(stage, on=True)
            with pytest.raises(StageError, match=r"cannot be written .*nothing was filed"):
                stage.post("/v1/rollback", {})
            only_readable(stage, on=False)
            back = stage.post("/v1/rollback", {})["rollout"]["id"]
            assert stage.finish(back)["phase"] == "rolled_back"
            assert stage.get("/v1/status")["live"]["release"].startswith("first@")

            break_it()
            assert stage.until(lambda: alarm(stage, "is read-only"), 20), "said before anybody needs the way back"
            with pytest.raises(StageError, match=r"cannot be written .*nothing was filed"):
                stage.post("/v1/rollback", {})
            found = doctor(stage)["journal"]
            assert found["ok"] is False
            assert "read-only" in found["sentence"] or "read-only" in found["remedy"], found
            assert "traffic is not touched" in found["remedy"]
            assert stage.get("/v1/status")["live"]["attempts"][0]["pid"] not in pids.values()
            sums = load.stop()
            assert sums["sent"] > 0
            assert not sums.get("failed"), sums

            # The limit: what cannot be written down is not done. Live is not started again meanwhile, and that is said.
            live = stage.get("/v1/status")["live"]["attempts"][0]
            os.kill(engine_of(stage, live["id"]), signal.SIGKILL)
            assert stage.until(lambda: alarm(stage, "cannot be written"), 20)
            assert stage.until(lambda: doctor(stage)["live"]["ok"] is False, 20)
        finally:
            if load is not None:
                load.stop()
            end_all_in(place)


def engine_of(stage, attempt):
    """The engine's own process, not its shim."""
    return max(attempts.observe(stage.config.runs_dir / attempt).pids)
