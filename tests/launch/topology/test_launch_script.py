"""Launch scripts, run by real bash: what the engine gets is what the topology says."""

import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launch.engines.base import flag_name
from launch.errors import TopologyError
from launch.render import render
from launch.topology import Topology, parse

VLLM = {
    "name": "box",
    "serves": ["m", "alias"],
    "engine": "vllm",
    "model": "/models/m",
    "instances": {"a": {"gpus": 2}},
}

# Any text but NUL: spaces, quotes, dollars, backslashes, newlines, globs, other alphabets, control characters.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
VALUES = WORDS.filter(lambda word: flag_name(word) is None)
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{3,12}", fullmatch=True)


def vllm(**changes):
    return Topology.model_validate(VLLM | changes)


def scripts_of(topology, printer):
    return render(topology, command=(str(printer),), router_command=(str(printer), "launch"))


def test_the_engine_gets_model_names_address_and_the_flags_in_order(printer, run_script):
    topology = vllm(flags=["--max-num-seqs", "8", "--enforce-eager", "--max-model-len", "4096"])
    ran = run_script(scripts_of(topology, printer)["a"], CUTOVER_PORT_FIRST="18001")
    ours = "--model /models/m --served-model-name m alias --host 127.0.0.1 --port 8001"
    assert " ".join(ran["argv"]) == f"{ours} --max-num-seqs 8 --enforce-eager --max-model-len 4096"
    assert ran["env"]["VLLM_PORT"] == "18001"
    assert ran["env"]["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"


@pytest.mark.parametrize(
    ("environment", "port"),
    [({}, "9001"), ({"CUTOVER_PORT_FIRST": "18001"}, "18001"), ({"CUTOVER_PORT_FIRST": "8001"}, "8002")],
)
def test_internal_ports_are_never_the_main_one(printer, run_script, environment, port):
    assert run_script(scripts_of(vllm(), printer)["a"], **environment)["env"]["VLLM_PORT"] == port


def test_the_topology_may_choose_what_we_only_suggest(printer, run_script):
    topology = vllm(env={"VLLM_PORT": "30000", "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "1"})
    ran = run_script(scripts_of(topology, printer)["a"])
    assert ran["env"]["VLLM_PORT"] == "30000"
    assert ran["env"]["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "1"


def test_vllm_serve_takes_the_model_as_its_first_word(printer, run_script):
    topology = vllm(command=["vllm", "serve"])
    text = render(topology, command=(str(printer), "serve"))["a"]
    assert run_script(text)["argv"][:3] == ["serve", "/models/m", "--served-model-name"]


def test_sglang_gets_its_internal_ports_unless_it_has_them(changed, printer, run_script):
    text = scripts_of(changed(("[--tp-size,", "[--enable-dp-attention, --tp-size,")), printer)["a"]
    argv = run_script(text, CUTOVER_PORT_FIRST="18001")["argv"]
    assert argv[argv.index("--nccl-port") + 1] == "18001"
    assert argv[argv.index("--dist-init-addr") + 1] == "127.0.0.1:18002"
    text = scripts_of(changed(("[--tp-size,", "[--nccl-port, 4000, --tp-size,")), printer)["a"]
    argv = run_script(text)["argv"]
    assert argv.count("--nccl-port") == 1
    assert "--dist-init-addr" not in argv


@pytest.mark.parametrize(
    ("model", "words"), [("/m/x.gguf", ["--model", "/m/x.gguf"]), ("org/x", ["--hf-repo", "org/x"])]
)
def test_llama_server_loads_a_file_or_a_hub_repository(printer, run_script, model, words):
    topology = vllm(engine="llamacpp", model=model, flags=["-c", "4096"])
    argv = run_script(scripts_of(topology, printer)["a"])["argv"]
    assert argv == [*words, "--alias", "m,alias", "--host", "127.0.0.1", "--port", "8001", "-c", "4096"]


def test_a_router_gets_one_word_per_worker(changed, printer, run_script):
    workers = "http://127.0.0.1:8001 http://127.0.0.1:8002"
    text = scripts_of(changed(), printer)["router"]
    argv = run_script(text, CUTOVER_WORKERS=workers, PORT="8000", CUTOVER_PORT_FIRST="18001")["argv"]
    assert argv[:5] == ["launch", "--host", "127.0.0.1", "--port", "8000"]
    assert argv[5:9] == ["--prometheus-host", "127.0.0.1", "--prometheus-port", "18001"]
    assert argv[9:12] == ["--worker-urls", *workers.split()]
    assert argv[12:14] == ["--worker-startup-check-interval", "1"]
    assert argv[14:] == ["--disable-tokenizer-autoload", "--policy", "cache_aware"]


def test_missing_facts_of_the_attempt_are_asked_for(changed, printer, tmp_path):
    script = tmp_path / "router.sh"
    script.write_text(scripts_of(changed(), printer)["router"])
    for environment, asked in [
        ({}, "HOST: address"),
        ({"HOST": "h"}, "PORT: port"),
        ({"HOST": "h", "PORT": "1"}, "WORKERS"),
    ]:
        ran = subprocess.run(
            ["bash", str(script)], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.returncode != 0
        assert asked in ran.stderr


def test_explicit_gpus_hold_by_hand_and_give_way_to_the_attempt(printer, run_script):
    text = scripts_of(vllm(instances={"a": {"gpus": [2, "GPU-5a"]}}), printer)["a"]
    assert run_script(text)["env"]["CUDA_VISIBLE_DEVICES"] == "2,GPU-5a"
    assert run_script(text, CUDA_VISIBLE_DEVICES="GPU-7")["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    counted = scripts_of(vllm(), printer)["a"]
    assert "CUDA_VISIBLE_DEVICES" not in run_script(counted)["env"]
    assert run_script(counted, CUDA_VISIBLE_DEVICES="")["env"]["CUDA_VISIBLE_DEVICES"] == ""


def test_secrets_are_read_when_the_instance_starts(printer, run_script, tmp_path):
    secrets = tmp_path / "it's secret.env"
    secrets.write_text('HF_TOKEN="hf_1"\n')
    text = scripts_of(vllm(env_file=str(secrets)), printer)["a"]
    assert "hf_1" not in text
    assert run_script(text)["env"]["HF_TOKEN"] == "hf_1"
    secrets.write_text("HF_TOKEN=hf_2\n")
    assert run_script(text)["env"]["HF_TOKEN"] == "hf_2"


def test_a_secrets_file_cannot_move_the_server(printer, tmp_path):
    secrets = tmp_path / "secrets.env"
    secrets.write_text("PORT=1\n")
    script = tmp_path / "a.sh"
    script.write_text(scripts_of(vllm(env_file=str(secrets)), printer)["a"])
    ran = subprocess.run(
        ["bash", str(script)],
        env={"HOST": "127.0.0.1", "PORT": "8001"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode != 0
    assert "PORT: readonly variable" in ran.stderr


def test_instances_differ_by_their_own_environment_only(printer, run_script):
    topology = vllm(
        env={"OMP": "0-7", "X": "1"}, instances={"a": {"gpus": 1}, "b": {"gpus": 1, "env": {"OMP": "8-15"}}}
    )
    scripts = scripts_of(topology, printer)
    assert run_script(scripts["a"])["env"]["OMP"] == "0-7"
    environment = run_script(scripts["b"])["env"]
    assert (environment["OMP"], environment["X"]) == ("8-15", "1")


def script_topology(**changes):
    return Topology.model_validate(
        {"name": "own", "serves": ["m"], "engine": "script", "script": "/srv/start.sh", "instances": {"a": {"gpus": 1}}}
        | changes
    )


def test_a_script_of_the_user_runs_as_it_is(printer, run_script):
    text = f"""#!/bin/sh -u
PORT=${{PORT:-9999}}   # scripts do this
false                  # and go on after this
exec {printer} --listen "$HOST:$PORT" --from "$CUTOVER_SCRIPT_DIR" "$@"
"""
    topology = script_topology(flags=["--x", "a b"], env={"FOO": "1"})
    script = render(topology, command=(), script_text=text)["a"]
    ran = run_script(script)
    assert ran["argv"] == ["--listen", "127.0.0.1:8001", "--from", "/srv", "--x", "a b"]
    assert ran["env"]["FOO"] == "1"
    assert "\nset -u\n" in script


def test_a_script_in_another_language_is_refused():
    with pytest.raises(TopologyError, match="takes a bash or sh script: wrap the program in one"):
        render(script_topology(), command=(), script_text="#!/usr/bin/env python3\nprint()\n")


@given(values=st.lists(VALUES, max_size=4), environment=st.dictionaries(NAMES, WORDS, max_size=3))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_word_survives_bash_as_it_was(printer, run_script, values, environment):
    flags = [word for number, value in enumerate(values) for word in (f"--flag-{number}", value)]
    environment = {f"X_{name}": value for name, value in environment.items()}
    ran = run_script(scripts_of(vllm(flags=flags, env=environment), printer)["a"])
    assert ran["argv"][9:] == flags
    assert {name: ran["env"][name] for name in environment} == environment


@given(st.permutations(sorted(VLLM)))
@settings(max_examples=10, deadline=None)
def test_same_topology_same_bytes_whatever_the_order_of_keys(order):
    topology = Topology.model_validate({key: VLLM[key] for key in order})
    assert render(topology, command=("x",)) == render(vllm(), command=("x",))


def test_a_script_is_readable(changed):
    assert render(
        changed(
            ("a: {gpus: 2}, b: {gpus: 2}", "a: {gpus: 2}"),
        ),
        command=("/opt/sglang/bin/python", "-m", "x"),
    )["a"] == (
        """\
#!/usr/bin/env bash
# qwen-tp2x2, instance a: sglang serves qwen3.8-27b on 2 GPUs.
# Rendered by Cutover from a topology; a change belongs there.
# By hand: HOST=127.0.0.1 PORT=8001 ./a.sh

set -euo pipefail
: "${HOST:?address to listen on, e.g. HOST=127.0.0.1}"
: "${PORT:?port to listen on, e.g. PORT=8001}"
internal_port=${CUTOVER_PORT_FIRST:-$((PORT + 1000))}  # internal sockets count up from here
[[ $internal_port != "$PORT" ]] || internal_port=$((PORT + 1))

readonly HOST PORT CUDA_VISIBLE_DEVICES  # a secrets file cannot move the server

export HF_HUB_OFFLINE=1

exec /opt/sglang/bin/python -m x \\
  --model-path /models/Qwen3.8-27B \\
  --served-model-name qwen3.8-27b \\
  --host "$HOST" \\
  --port "$PORT" \\
  --nccl-port "$internal_port" \\
  --tp-size 2 \\
  --context-length 262144 \\
  --mem-fraction-static 0.90
"""
    )


def test_parsing_gives_what_the_models_take():
    assert (
        parse("{name: box, serves: [m, alias], engine: vllm, model: /models/m, instances: {a: {gpus: 2}}}", source="x")
        == vllm()
    )
