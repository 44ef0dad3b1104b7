"""Engines that want a key, through a whole evening: cutover under load, rollback, deaths of daemon and front door.

With client keys at the front door and without; and what a stranger on the box gets who has none.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from own_ports import free_port

from controller.demo.load import KEY as LOAD_KEY
from controller.demo.stage import Clients, Stage
from launch import attempts as launched
from launch.engine_key import KEY, read_key

pytestmark = pytest.mark.timeout(300)

CLIENT = "sk-client-0123456789abcdef"
GUARDED = ("--api-key-env", "ENGINE_WANTS")
ASKED = {"model": "emu", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


def status_of(address: str, key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx.Client(trust_env=False, headers=headers, timeout=60) as client:
        return client.post(f"http://{address}/v1/chat/completions", json=ASKED).status_code


def live(stage):
    return stage.get("/v1/status")["live"]["attempts"][0]


def identity(stage, attempt):
    return launched.observe(stage.config.runs_dir / attempt).identity


def promote(stage, make, profile, name, *flags):
    done = stage.finish(stage.propose(make(name, *flags), f"{name}.yaml", gates=profile))
    assert done["phase"] == "promoted", done["why"]
    return done


def judge(tally):
    assert tally["sent"] > 0
    assert (tally["failed"], tally["truncated"]) == (0, 0), tally["first_problem"]


def holders(folder: Path, secret: str) -> set[str]:
    """Names of the files that have it; every one of them closed to others."""
    found = [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    return {path.name for path in found}


@pytest.mark.slow
def test_with_client_keys_through_every_death(tmp_path, make, profile, monkeypatch):
    keys = tmp_path / "keys"
    keys.write_text(f"{CLIENT}\n")
    keys.chmod(0o600)
    settings = {
        "gpus": {"kind": "none", "count": 4}, "bake": {"seconds": 1, "interval_s": 0.5}, "start_s": 90,
        "api_keys_file": str(keys), "inner": f"127.0.0.1:{free_port()}",
    }  # fmt: skip
    with Stage(tmp_path / "stage", settings) as stage:
        promote(stage, make, profile, "one", *GUARDED)
        first = live(stage)
        key = read_key(stage.config.runs_dir / first["id"])
        monkeypatch.setenv(LOAD_KEY, CLIENT)
        load = Clients(f"http://{stage.config.public}", "emu", 4, 40, tmp_path / "clients.log")
        _strangers_get_nothing(stage, f"127.0.0.1:{first['port']}", key)
        promote(stage, make, profile, "two", *GUARDED, "--itl-ms", "8")
        assert read_key(stage.config.runs_dir / live(stage)["id"]) == key, "one key behind one front door"
        _the_daemon_dies_and_finds_it_again(stage)
        back = stage.finish(stage.post("/v1/rollback")["rollout"]["id"])
        assert back["phase"] == "rolled_back", back["why"]
        judge(load.stop())
        _the_door_dies(stage)
        _the_door_loses_all_its_files(stage, key)
        assert live(stage)["id"] == first["id"]
        assert stage.get("/v1/status")["alarms"] == []
        _the_key_is_nobody_elses(stage, tmp_path, key)


def _strangers_get_nothing(stage, port, key):
    """Neither at the engine's own port nor at the daemon's ways in; clients' keys open the doors, not the engine."""
    for address in (port, stage.config.public, stage.config.inner, stage.config.preview):
        assert status_of(address) == 401, address
    assert status_of(port, CLIENT) == 401
    assert status_of(stage.config.public, CLIENT) == 200
    assert status_of(port, key) == 200


def _the_daemon_dies_and_finds_it_again(stage):
    before = identity(stage, live(stage)["id"])
    stage.stop_daemon(signal.SIGKILL)
    stage.start_daemon()
    assert identity(stage, live(stage)["id"]) == before
    assert stage.until(lambda: status_of(stage.config.public, CLIENT) == 200, 30)


def _the_door_dies(stage):
    before = stage.door().read().pid
    os.kill(before, signal.SIGKILL)
    assert stage.until(lambda: (now := stage.door().read()).alive and now.pid != before, 30)
    assert stage.until(lambda: status_of(stage.config.public, CLIENT) == 200, 30)


def _the_door_loses_all_its_files(stage, key):
    """A door that is made anew brings what the engines that live want, not a key that nobody knows."""
    stage.stop_daemon()
    stage.door().stop()
    shutil.rmtree(stage.config.door_dir)
    stage.start_daemon()
    assert stage.door().engine_key == key
    assert stage.until(lambda: status_of(stage.config.public, CLIENT) == 200, 30)


def _the_key_is_nobody_elses(stage, folder, key):
    names = ("status", "rollouts", "events", "attempts", "releases")
    paths = [f"/v1/{name}" for name in names] + [f"/v1/attempts/{live(stage)['id']}/log?offset=0"]
    assert not any(key in stage.api.get(path).text for path in paths)
    assert holders(folder, key) == {"attempt.env", "engine.map"}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in path.read_bytes(), path
        except OSError:
            continue


@pytest.mark.slow
def test_without_client_keys_from_engines_that_want_none_to_one_that_does(tmp_path, make, profile, monkeypatch):
    """As after an upgrade: what runs was started without a key, and has to be adopted and rolled back to.

    Those that want one stand behind a router, which has to bring it to them.
    """
    settings = {
        "gpus": {"kind": "none", "count": 4}, "bake": {"seconds": 1, "interval_s": 0.5}, "start_s": 90,
        "engine_keys": "off",
    }  # fmt: skip
    with Stage(tmp_path / "stage", settings) as stage:
        promote(stage, make, profile, "one")
        assert stage.door().engine_key is None
        stage.stop_daemon()
        stage.door().stop()
        stage.config_file.write_text(stage.config_file.read_text().replace("engine_keys: 'off'", "engine_keys: auto"))
        stage.start_daemon()
        monkeypatch.setenv(LOAD_KEY, "anything-at-all")
        load = Clients(f"http://{stage.config.public}", "emu", 4, 40, tmp_path / "clients.log")
        pair = make("pair", *GUARDED, instances="{a: {gpus: 1}, b: {gpus: 1}}", extra="router: {kind: smg}\n")
        done = stage.finish(stage.propose(pair, "pair.yaml", gates=profile))
        assert done["phase"] == "promoted", done["why"]
        for attempt in stage.get("/v1/status")["live"]["attempts"]:
            assert status_of(f"127.0.0.1:{attempt['port']}") == 401, attempt["id"]
        process = launched.observe(stage.config.runs_dir / live(stage)["id"]).child_pid
        assert f"{KEY}={stage.door().engine_key}".encode() in Path(f"/proc/{process}/environ").read_bytes()
        assert stage.finish(stage.post("/v1/rollback")["rollout"]["id"])["phase"] == "rolled_back"
        judge(load.stop())
