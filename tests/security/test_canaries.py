"""Secrets and prompts with a mark in them, through a whole rollout: found where they belong, and nowhere else."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from own_ports import free_port

from controller.demo.stage import Stage

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def marks() -> dict[str, str]:
    """Told apart by their names, and by nobody guessed."""
    return {name: f"canary-{name}-{secrets.token_hex(8)}" for name in ("hub", "engine", "client", "wrong", "prompt")}


@pytest.fixture(scope="module")
def evening(tmp_path_factory, marks):
    """(stage, folder, secret of a token) after a rollout with an approval, users, a stranger and a gate run by hand."""
    folder = Path(tmp_path_factory.mktemp("canaries"))
    ports = [free_port() for _ in range(2)]
    keys, environment, profile = folder / "api-keys", folder / "secrets.env", folder / "gates.yaml"
    keys.write_text(f"{marks['client']}\n")
    environment.write_text(f"HF_TOKEN={marks['hub']}\nENGINE_API_KEY='{marks['engine']}'\n")
    for file in (keys, environment):
        file.chmod(0o600)
    profile.write_text("gates:\n  - {name: health, deadline_s: 60, settings: {probes: 1}}\n")
    settings = {
        "gpus": {"kind": "none", "count": 2},
        "bake": {"seconds": 1, "interval_s": 0.5},
        "api": f"127.0.0.1:{ports[0]}",
        "inner": f"127.0.0.1:{ports[1]}",
        "api_keys_file": str(keys),
        "approval_by_another": True,
    }
    with Stage(folder / "stage", settings) as stage:
        token = stage.post("/v1/tokens", {"name": "night", "role": "approve"})["secret"]
        _promote(stage, token, environment, profile)
        _ask(stage, marks)
        _run_a_gate(stage, marks, folder)
        yield stage, folder, token


def _promote(stage, token, environment, profile) -> None:
    text = (
        "name: marked\nserves: [emu]\nengine: emulator\nflags: [--start-s, '0.1', --ttft-ms, '10', --itl-ms, '3', "
        "--api-key-env, WANTED]\n"
        f"instances: {{a: {{gpus: 1}}}}\nstop_grace_s: 3\ngates: {profile}\nenv_file: {environment}\n"
    )
    rollout = stage.propose(text, "marked.yaml", require_approval=True)
    assert stage.until(lambda: stage.rollout(rollout)["phase"] == "awaiting_approval", 120), stage.rollout(rollout)
    own = stage.api.post(f"/v1/rollouts/{rollout}/approve")
    assert (own.status_code, own.json()["exit_code"]) == (403, 4)
    assert "somebody else has to approve it" in own.json()["error"]
    with httpx.Client(trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.post(f"http://{stage.config.api}/v1/rollouts/{rollout}/approve").status_code == 202
    done = stage.finish(rollout, 120)
    assert done["phase"] == "promoted", done["why"]


def _ask(stage, marks) -> None:
    body = {"model": "emu", "messages": [{"role": "user", "content": marks["prompt"]}], "max_tokens": 5}
    url = f"http://{stage.config.public}/v1/chat/completions"
    for key, status in (("client", 200), ("wrong", 401)):
        headers = {"Authorization": f"Bearer {marks[key]}"}
        with httpx.Client(trust_env=False, headers=headers, timeout=60) as client:
            assert client.post(url, json=body).status_code == status
            client.get(f"http://{stage.config.public}/v1/models?key={marks['client']}&token={marks['hub']}")


def _run_a_gate(stage, marks, folder) -> None:
    """As the model's users would, with their key, and with a page of it."""
    words = ["gate", "run", "--endpoint", f"http://{stage.config.public}", "--model", "emu", "--gate", "health"]
    words += [
        "--api-key-env",
        "MARKED_KEY",
        "--evidence",
        str(folder / "evidence"),
        "--html",
        str(folder / "page.html"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "controller", *words],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "MARKED_KEY": marks["client"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "said.txt").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def all_marks(evening, marks):
    """Those that were made on the way too: `ours` is the key that the daemon gave the engine."""
    stage, _, token = evening
    ours = stage.door().engine_key
    assert ours is not None
    return {**marks, "token": token, "ours": ours}


def test_the_engine_got_its_secrets(evening, marks, all_marks):
    """Else nothing here would say anything."""
    stage, _, _ = evening
    pids = [process.pid for process in psutil.process_iter() if _is_below(process, stage)]
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists()]
    assert any(marks["hub"].encode() in one and marks["engine"].encode() in one for one in environments)
    assert any(f"WANTED={all_marks['ours']}".encode() in one for one in environments)


def _is_below(process: psutil.Process, stage: Stage) -> bool:
    try:
        return process.cwd().startswith(str(stage.directory))
    except (psutil.Error, OSError):
        return False


def test_no_command_line_has_a_secret(all_marks):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        found = [name for name, mark in all_marks.items() if mark.encode() in words]
        assert found == [], path


def test_no_file_has_a_secret_but_those_it_was_written_into(evening, all_marks):
    """Journal with its WAL, releases, run directories, evidence, pages, logs of daemon, engine and front door."""
    stage, folder, _ = evening
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {
        (str(path.relative_to(folder)), name)
        for path in files
        for name, mark in all_marks.items()
        if mark.encode() in path.read_bytes()
    }
    state = stage.config.state_dir.relative_to(folder)
    ours = {(where, name) for where, name in found if name == "ours"}
    kept = [*stage.config.runs_dir.rglob("attempt.env"), *stage.config.gates_dir.rglob("attempt.env")]
    assert {where for where, _ in ours} == {
        f"{state}/frontdoor/engine.map",
        *(str(path.relative_to(folder)) for path in kept),
    }
    assert all((folder / where).stat().st_mode & 0o077 == 0 for where, _ in ours)
    assert found - ours == {("api-keys", "client"), ("secrets.env", "hub"), ("secrets.env", "engine")}
    names = {path.name for path in files}
    assert {"journal.sqlite", "daemon.log", "engine.log", "tokens.json", "keys.map", "page.html"} <= names


def test_no_answer_of_the_daemon_has_a_secret(evening, all_marks):
    stage, _, _ = evening
    status = stage.get("/v1/status")
    release = status["live"]["release"]
    attempt = status["live"]["attempts"][0]["id"]
    paths = [f"/v1/{name}" for name in ("status", "gpus", "rollouts", "events", "attempts", "releases", "tokens")]
    paths += [f"/v1/releases/{release}", "/v1/rollouts/r0001", f"/v1/attempts/{attempt}/log?offset=0", "/openapi.json"]
    for path in paths:
        answer = stage.api.get(path)
        assert answer.status_code == 200, path
        assert not any(mark in answer.text for mark in all_marks.values()), path


def test_what_is_ours_alone_is_closed_to_others(evening):
    """Nobody else may look into the state directory's parts that hold what users and engines said."""
    stage, _, _ = evening
    state = stage.config.state_dir
    closed = [state / "tokens.json", state / "frontdoor", *stage.config.runs_dir.iterdir()]
    for path in closed:
        assert path.stat().st_mode & 0o007 == 0, path
