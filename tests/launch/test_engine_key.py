"""The key that engines want: under which name each reads it, where it lies, and who wins where a file has another."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from launch.engine_key import KEY, given_key, key_variables, new_key, read_key
from launch.render import render
from launch.topology import parse

MODEL = {"vllm": "/models/m", "sglang": "/models/m", "llamacpp": "/models/m.gguf"}


def topology(engine="vllm", *, flags=(), router="", extra=""):
    model = f"model: {MODEL[engine]}\n" if engine in MODEL else ""
    listed = ", ".join(flags)
    text = f"name: n\nserves: [m]\nengine: {engine}\n{model}flags: [{listed}]\ninstances: {{a: {{gpus: 1}}}}\n"
    return parse(f"{text}{router}{extra}", source="n.yaml")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (topology("vllm"), (KEY, "VLLM_API_KEY")),
        (topology("llamacpp"), (KEY, "LLAMA_API_KEY")),
        (topology("sglang"), None),  # it reads a key from argv alone, which everybody on the box may read
        (topology("emulator"), None),
        (topology("emulator", flags=("--api-key-env", "MINE")), (KEY, "MINE")),
        (topology("emulator", flags=("--api-key-env=MINE",)), (KEY, "MINE")),
        (topology("script", extra="script: /srv/start.sh\n"), (KEY,)),
        (topology("vllm", router="router: {kind: smg}\n"), None),  # smg takes its workers' key from argv alone
    ],
)
def test_each_engine_reads_it_under_names_of_its_own(wanted, names):
    assert key_variables(wanted, "a") == names
    given = given_key(wanted, "a", "ek-1")
    assert given == dict.fromkeys(names or (), "ek-1")
    assert given_key(wanted, "a", None) == {}


def test_a_router_itself_has_none():
    assert key_variables(topology("vllm", router="router: {kind: smg}\n"), "router") is None


def test_no_two_are_the_same_and_no_shell_reads_anything_into_one():
    keys = {new_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(shlex.quote(key) == key and len(key) > 40 and "," not in key for key in keys)


def test_it_is_read_from_the_attempts_own_facts(tmp_path):
    assert read_key(tmp_path) is None, "one that was never started"
    facts = tmp_path / "attempt.env"
    facts.write_text("HOST=127.0.0.1\nCUTOVER_WORKERS=''\n")
    assert read_key(tmp_path) is None, "one that an earlier version started"
    facts.write_text(f"HOST=127.0.0.1\nCUTOVER_WORKERS='a=b c'\n{KEY}=ek-1_-x\nVLLM_API_KEY=ek-1_-x\n")
    assert read_key(tmp_path) == "ek-1_-x"


def started(tmp_path, release, **environment):
    """What the engine's program finds in its environment and in its arguments."""
    program = tmp_path / "engine"
    program.write_text('#!/bin/sh\necho "$VLLM_API_KEY"\necho "$@"\n')
    program.chmod(0o700)
    script = render(release, command=[str(program)])["a"]
    done = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, check=True, timeout=30,
        env={"PATH": "/usr/bin:/bin", "HOST": "127.0.0.1", "PORT": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_key_in_the_users_own_file_gives_way_to_the_one_that_probes_bring(tmp_path):
    file = tmp_path / "secrets.env"
    file.write_text("VLLM_API_KEY=theirs\nHF_TOKEN=hub\n")
    with_file = topology("vllm", extra=f"env_file: {file}\n")
    ours = given_key(with_file, "a", "ek-ours")
    key, argv = started(tmp_path, with_file, **ours)
    assert key == "ek-ours"
    assert "ek-ours" not in argv
    assert started(tmp_path, with_file)[0] == "theirs", "started by hand, or with engine_keys off"
    assert started(tmp_path, topology("vllm"), **ours)[0] == "ek-ours", "no line is needed where there is no file"


def test_scripts_of_topologies_without_a_file_stay_the_bytes_they_were():
    """Else every release would get another digest for nothing."""
    assert KEY not in render(topology("vllm"), command=["vllm"])["a"]
    assert KEY in render(topology("vllm", extra="env_file: /etc/cutover/x.env\n"), command=["vllm"])["a"]
    assert KEY not in render(topology("sglang", extra="env_file: /etc/cutover/x.env\n"), command=["python"])["a"]
