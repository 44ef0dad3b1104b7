"""Names that lead out of their folder, and files that the daemon may read and whoever asks may not."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from controller.api.named_files import is_kept_for_secrets, read_for
from controller.errors import NotAllowedError
from gates.errors import GateUsageError
from launch import topology as topologies
from launch.errors import LaunchError

STRANGER = 65_533
TOPOLOGY = "name: named\nserves: [emu]\nengine: emulator\ninstances: {a: {gpus: 1}}\n"
OUT = (
    "..",
    "../x",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    ".",
    "~",
    "$HOME",
    "a\0b",
    "-rf",
    "%2e%2e",
    "\u2024\u2024",
)


@pytest.fixture
def public_folder():
    """A folder that everybody may enter; those of the test runner are closed."""
    folder = Path(tempfile.mkdtemp(prefix="cutover-named-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", OUT)
def test_a_topology_and_its_instances_are_called_by_plain_names(name):
    for text in (
        TOPOLOGY.replace("named", json.dumps(name)),
        TOPOLOGY.replace("{a:", "{" + json.dumps(name) + ":"),
        TOPOLOGY + f"env: {{{json.dumps(name)}: x}}\n",
        TOPOLOGY + f"env_file: {json.dumps(name.lstrip('/'))}\n",
    ):
        with pytest.raises(LaunchError):
            topologies.parse(text, source="t.yaml")


@pytest.mark.parametrize(
    "name", [*OUT, "..%2f..%2fetc%2fpasswd", "..%5c", "%00", "r0001%2f..", "x" * 3000, "@", "named@"]
)
def test_no_id_leads_out_of_its_folder(guarded, name):
    from urllib.parse import quote

    for spelled in (quote(name, safe=""), quote(name, safe="/%")):
        for method, path in (
            ("GET", "/v1/rollouts/{}"), ("GET", "/v1/attempts/{}/log"), ("GET", "/v1/releases/{}"),
            ("GET", "/v1/releases/{}/diff/{}"), ("POST", "/v1/rollouts/{}/abort"), ("POST", "/v1/rollouts/{}/approve"),
            ("POST", "/v1/tokens/{}/revoke"), ("POST", "/v1/gpus/{}/uncordon"), ("GET", "/v1/events?rollout={}"),
            ("GET", "/v1/nights/{}/report"),
        ):  # fmt: skip
            answer = guarded.stage.api.request(method, path.format(spelled, spelled))
            assert answer.status_code in {200, 307, 404, 405, 409, 422}, (path, name, answer.text[:200])
            assert "root:" not in answer.text
            if answer.status_code == 200:
                assert path == "/v1/events?rollout={}" or set(answer.json()) != {"text"}


def test_a_file_is_read_for_whoever_could_read_it(public_folder):
    file = public_folder / "gates.yaml"
    file.write_text("gates: []\n")
    file.chmod(0o644)
    assert read_for(STRANGER, file).text == "gates: []\n"
    assert read_for(STRANGER, file).ours
    file.chmod(0o666)
    assert not read_for(STRANGER, file).ours
    file.chmod(0o600)
    with pytest.raises(NotAllowedError, match="chmod o"):
        read_for(STRANGER, file)
    assert read_for(os.geteuid(), file).ours
    link = public_folder / "link.yaml"
    link.symlink_to(file)
    with pytest.raises(NotAllowedError):
        read_for(STRANGER, link)
    file.chmod(0o644)
    public_folder.chmod(0o700)
    with pytest.raises(NotAllowedError):
        read_for(STRANGER, file)


def test_what_is_no_file_is_no_profile(public_folder):
    os.mkfifo(public_folder / "fifo")
    (public_folder / "large").write_text("x" * 300_000)
    (public_folder / "bytes").write_bytes(b"\xff\xfe")
    for name in ("fifo", "large", "bytes", ".", "missing", "x/y", "\0"):
        with pytest.raises(GateUsageError):
            read_for(os.geteuid(), public_folder / name)
    with pytest.raises(GateUsageError, match="not a file"):
        read_for(STRANGER, Path("/dev/null"))


def test_nobody_reads_a_file_of_the_daemon_by_calling_it_a_profile(guarded, public_folder):
    """Errors quote what they find: of `/etc/shadow` they would quote the digests of passwords."""
    secret = public_folder / "shadow"
    secret.write_text("root:CANARY-5e1f:19000:0:99999:7:::\ngates: CANARY-5e1f\n")
    secret.chmod(0o600)
    _, view = guarded.token("view")
    _, propose = guarded.token("propose")
    for token, path in ((view, "/v1/plan"), (propose, "/v1/rollouts")):
        with guarded.tcp(token) as client:
            for body in ({"topology": TOPOLOGY, "gates": str(secret)}, {"topology": f"{TOPOLOGY}gates: {secret}\n"}):
                answer = client.post(path, json=body)
                assert (answer.status_code, answer.json()["exit_code"]) == (403, 4), answer.text
                assert "CANARY" not in answer.text
            own_set = public_folder / "own.yaml"
            own_set.write_text(f"gates: [{{name: own-set, settings: {{file: {secret}}}}}]\n")
            answer = client.post(path, json={"topology": TOPOLOGY, "gates": str(own_set)})
            assert answer.status_code in {403, 422}
            assert "CANARY" not in answer.text


def test_nobody_runs_a_program_as_the_daemon_by_writing_a_profile(guarded, public_folder):
    _, propose = guarded.token("propose")
    profile = public_folder / "own.yaml"
    profile.write_text("gates: [{name: mine, run: [/bin/true]}]\n")
    with guarded.tcp(propose) as client:
        profile.chmod(0o666)
        answer = client.post("/v1/rollouts", json={"topology": TOPOLOGY, "gates": str(profile)})
        assert (answer.status_code, answer.json()["exit_code"]) == (403, 4), answer.text
        assert "needs admin" in answer.json()["error"]
        profile.chmod(0o644)
        assert client.post("/v1/plan", json={"topology": TOPOLOGY, "gates": str(profile)}).status_code == 200


OPENS = [
    "name: named\nserves: [emu]\nengine: script\nscript: SCRIPT\ninstances: {a: {gpus: 1}}\n",
    "name: named\nserves: [emu]\nengine: vllm\nmodel: org/m\ncommand: [/bin/sh, -c, id]\ninstances: {a: {gpus: 1}}\n",
    f"{TOPOLOGY}env: {{LD_PRELOAD: /tmp/x.so}}\n",
    f"{TOPOLOGY}env: {{PYTHONPATH: /tmp}}\n",
    f"{TOPOLOGY}env: {{PATH: /tmp}}\n",
    f"{TOPOLOGY}env: {{BASH_ENV: /tmp/x}}\n",
    f"{TOPOLOGY}env_file: /etc/passwd\n",
    f"{TOPOLOGY}env_file: /etc/cutover/../passwd\n",
]


@pytest.mark.parametrize("text", OPENS)
def test_what_opens_the_box_needs_an_admin(guarded, text, tmp_path):
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/bash\nexec sleep 1\n")
    _, approve = guarded.token("approve")
    with guarded.tcp(approve) as client:
        answer = client.post("/v1/rollouts", json={"topology": text.replace("SCRIPT", str(script))})
    assert (answer.status_code, answer.json()["exit_code"]) == (403, 4), answer.text
    assert "needs admin" in answer.json()["error"]


@pytest.mark.parametrize("axis", ["env.LD_PRELOAD: [null, /tmp/x.so]", "command: [[/bin/sh, -c, id]]"])
def test_an_arm_of_a_sweep_opens_no_more_than_a_proposal(guarded, axis):
    matrix = f"{TOPOLOGY}gates: demo\nsweep: {{{axis}}}\n"
    _, approve = guarded.token("approve")
    with guarded.tcp(approve) as client:
        for path in ("/v1/sweeps", "/v1/sweeps/look"):
            answer = client.post(path, json={"topology": matrix, "skip_refused": True})
            assert (answer.status_code, answer.json()["exit_code"]) == (403, 4), answer.text
            assert "needs admin" in answer.json()["error"]
    _, view = guarded.token("view")
    with guarded.tcp(view) as client:
        for path in ("/v1/sweeps", "/v1/sweeps/look", "/v1/sweeps/s0001/withdraw"):
            assert client.post(path, json={"topology": matrix}).status_code == 403


def test_secrets_lie_where_the_administrator_puts_them(tmp_path):
    assert is_kept_for_secrets("/etc/cutover/secrets.env")
    for path in ("/etc/cutover/../shadow", "/etc/cutover.env", "/root/x", str(tmp_path)):
        assert not is_kept_for_secrets(path)
