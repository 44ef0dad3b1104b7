"""Real vLLM with the key that the daemon gives it: what the key closes, what it does not, and whose counts."""

from __future__ import annotations

import httpx
import pytest
import yaml

from controller.demo import vllm as vllm_demo
from controller.demo.stage import Stage

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

HEALTH = "gates:\n  - {name: health, deadline_s: 200, settings: {probes: 1}}\n"
ASKED = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture
def release(vllm_python, tmp_path):
    """One instance, with a key of the user's own in its file of secrets."""
    secrets, profile = tmp_path / "secrets.env", tmp_path / "gates.yaml"
    secrets.write_text("VLLM_API_KEY=the-users-own\n")
    secrets.chmod(0o600)
    profile.write_text(HEALTH)
    topology = yaml.safe_load(vllm_demo.topology("vllm-tiny-tp1x2.yaml", vllm_python))
    one = {"a": topology["instances"]["a"]}
    return {**topology, "name": "keyed", "instances": one, "env_file": str(secrets), "gates": str(profile)}


def test_a_stranger_on_the_box_is_turned_away_where_vllm_looks_at_a_key(release, one_engine_at_a_time, tmp_path):
    bake = {"seconds": 3, "interval_s": 2, "latency_factor": 10.0, "latency_slack_s": 5.0}
    with Stage(tmp_path / "stage", {**vllm_demo.SETTINGS, "bake": bake, "start_s": 900}) as stage:
        done = stage.finish(stage.propose(yaml.safe_dump(release, sort_keys=False), "keyed.yaml"), 1200)
        assert done["phase"] == "promoted", done["why"]
        engine = f"http://127.0.0.1:{stage.get('/v1/status')['live']['attempts'][0]['port']}"
        ours = stage.door().engine_key
        body = {**ASKED, "model": release["serves"][0]}

        def status(url: str, key: str | None = None) -> int:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            with httpx.Client(trust_env=False, timeout=120) as client:
                return client.post(url, json=body, headers=headers).status_code

        assert status(f"{engine}/v1/chat/completions") == 401
        assert status(f"{engine}/v1/chat/completions", "the-users-own") == 401
        assert status(f"{engine}/v1/chat/completions", ours) == 200
        assert status(f"http://{stage.config.public}/v1/chat/completions", "a-clients") == 200
        assert status(f"{engine}/invocations") == 200, "vLLM has closed it: docs/security.md says that it is open"
        holders = {p.name for p in tmp_path.rglob("*") if p.is_file() and ours.encode() in p.read_bytes()}
        assert holders == {"attempt.env", "engine.map"}
