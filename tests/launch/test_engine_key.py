"""The key that engines want: under which name each reads it, where it lies, and who wins where a file has another."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys

import pytest

from launch.engine_key import KEY, given_key, key_variables, new_key, read_key
from launch.release import freeze
from launch.render import render
from launch.topology import parse

SMG = "router: {kind: smg}\n"
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
        (topology("vllm", router=SMG), (KEY, "VLLM_API_KEY")),
        (topology("sglang", router=SMG), None),
    ],
)
def test_each_engine_reads_it_under_names_of_its_own(wanted, names):
    assert key_variables(wanted, "a") == names


def test_a_router_brings_it_where_its_engines_can_want_it():
    assert key_variables(topology("vllm", router=SMG), "router") == (KEY,)
    assert key_variables(topology("sglang", router=SMG), "router") is None


@pytest.mark.parametrize("router", ["", SMG])
def test_what_an_attempt_is_given(router):
    release = freeze(topology("vllm", router=router), check_paths=False)
    assert given_key(release, "a", "ek-1") == {KEY: "ek-1", "VLLM_API_KEY": "ek-1"}
    assert given_key(release, "a", None) == {}


def test_a_router_of_an_earlier_version_is_not_turned_away_by_its_own_workers():
    """Its frozen script does not bring a key: so nobody in that release wants one."""
    release = freeze(topology("vllm", router=SMG), check_paths=False)
    assert given_key(release, "router", "ek-1") == {KEY: "ek-1"}
    before = {**release.scripts, "router": "exec smg launch\n"}
    old = dataclasses.replace(release, scripts=before)
    assert [given_key(old, name, "ek-1") for name in ("a", "router")] == [{}, {}]


def test_a_router_has_it_among_its_arguments_where_nobody_else_can_read_them(tmp_path):
    """The program reads `--api-key`; the process was started without it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    program = folder / "smg"
    program.write_text(
        "import sys\nprint(sys.argv[1:])\nprint(open('/proc/self/cmdline').read().replace(chr(0), ' '))\n"
    )
    program.chmod(0o700)
    link = tmp_path / "smg"
    link.symlink_to(program)
    wanted = topology("vllm", router=SMG)
    script = render(wanted, command=["vllm"], router_command=[str(link), "launch"])["router"]
    told = {"HOST": "127.0.0.1", "PORT": "1", "CUTOVER_WORKERS": "http://127.0.0.1:2", KEY: "ek-1"}
    done = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, check=True, timeout=30,
        env={"PATH": os.environ["PATH"], **told},
    )  # fmt: skip
    words, shown = done.stdout.splitlines()
    assert words.endswith("'--api-key', 'ek-1']")
    assert words.startswith("['launch', '--host', '127.0.0.1'")
    assert "ek-1" not in shown
    assert "--worker-urls http://127.0.0.1:2" in shown


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
    ours = given_key(freeze(with_file, check_paths=False), "a", "ek-ours")
    key, argv = started(tmp_path, with_file, **ours)
    assert key == "ek-ours"
    assert "ek-ours" not in argv
    assert started(tmp_path, with_file)[0] == "theirs", "started by hand, or with engine_keys off"
    assert started(tmp_path, topology("vllm"), **ours)[0] == "ek-ours", "no line is needed where there is no file"


def test_scripts_of_topologies_without_a_file_stay_the_bytes_they_were():
    """Else every release would get another digest for nothing."""
    assert KEY not in render(topology("vllm"), command=["vllm"])["a"]
    assert KEY in render(topology("vllm", extra="env_file: /etc/cutover/x.env\n"), command=["vllm"])["a"]
    for engine in ("sglang", "emulator"):
        assert KEY not in "".join(render(topology(engine, router=SMG), command=["x"], router_command=["smg"]).values())
    assert KEY not in render(topology("sglang", extra="env_file: /etc/cutover/x.env\n"), command=["python"])["a"]
