"""A topology to vary, a fake venv with an engine's package in it, a model folder, and real bash to run scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.topology import parse

SMALL = """\
name: qwen-tp2x2
serves: [qwen3.8-27b]
engine: sglang
command: [/opt/sglang/bin/python, -m, sglang.launch_server]
model: /models/Qwen3.8-27B
flags: [--tp-size, 2, --context-length, 262144, --mem-fraction-static, 0.90]
env: {HF_HUB_OFFLINE: 1}
instances: {a: {gpus: 2}, b: {gpus: 2}}
router: {kind: smg, flags: [--policy, cache_aware]}
"""


@pytest.fixture
def small():
    """The text of a small SGLang topology with a router."""
    return SMALL


@pytest.fixture
def changed(small):
    """Parse the small topology with replacements: changed(("gpus: 2", "gpus: 4"), …)."""

    def parse_changed(*replacements):
        text = small
        for before, after in replacements:
            assert before in text, before
            text = text.replace(before, after)
        return parse(text, source="box.yaml")

    return parse_changed


@pytest.fixture
def printer(tmp_path):
    """A program that prints its arguments and environment, NUL after each."""
    program = tmp_path / "printer"
    program.write_text('#!/bin/bash\nprintf \'%s\\0\' "$#" "$@"\nexec env -0\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def run_script(tmp_path):
    """Run the text of a launch script by hand: run_script(text, PORT="8001") → what the printer got."""

    def run(text, **environment):
        script = tmp_path / "by-hand.sh"
        script.write_bytes(text.encode())
        script.chmod(0o500)
        base = {"PATH": os.environ["PATH"], "HOST": "127.0.0.1", "PORT": "8001"}
        result = subprocess.run(
            [str(script)], env={**base, **environment}, capture_output=True, check=False, timeout=60
        )
        script.unlink()
        assert result.returncode == 0, result.stderr
        count, *words = result.stdout.decode().removesuffix("\0").split("\0")
        argv, variables = words[: int(count)], words[int(count) :]
        return {"argv": argv, "env": dict(variable.split("=", 1) for variable in variables)}

    return run


@pytest.fixture
def make_venv(tmp_path):
    """A folder laid out as a venv with a package in it: make_venv("vllm", "0.32.0") → the interpreter's path."""

    def make(package, version, *, distribution=None, name="venv"):
        site = tmp_path / name / "lib" / "python3.11" / "site-packages"
        (site / package).mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").write_text("version = 3.11.7\n")
        (tmp_path / name / "bin").mkdir()
        python = tmp_path / name / "bin" / "python"
        python.symlink_to(sys.executable)
        source = f"__version__ = {version!r}\n"
        (site / package / "__init__.py").write_text(source)
        info = site / f"{(distribution or package).replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution or package}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{package}/__init__.py,sha256={_record_hash(source)},{len(source)}\n")
        return python

    return make


def _record_hash(text):
    import base64
    import hashlib

    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def model(tmp_path):
    """A small model folder with two shards and an index."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for shard in shards:
        (folder / shard).write_bytes(shard.encode() * 100)
    index = {"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def topologies():
    """The folder of the topologies that are shipped."""
    import launch

    return Path(launch.__file__).parent / "topologies"
