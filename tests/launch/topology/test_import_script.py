"""A hand-written start script becomes a topology: what is known is taken, what is not is asked."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from launch.errors import LaunchError, TopologyError
from launch.importer import MARK, import_script

VLLM = "vllm.entrypoints.openai.api_server"


@pytest.fixture
def imported(tmp_path):
    """Import a script given as text."""

    def run(text, *, name="start.sh", port=None):
        script = tmp_path / name
        script.write_text(text)
        return import_script(script, port=port)

    return run


def test_a_plain_vllm_script(imported):
    result = imported(
        f"""#!/bin/bash
# production
export HF_HUB_OFFLINE=1 VLLM_USE_V1=1
export HF_TOKEN=hf_canary
MODEL=/models/Qwen-9B
source /opt/vllm/bin/activate
pkill -f api_server || true
cat <<END
python -m {VLLM} --model /not/this
END
CUDA_VISIBLE_DEVICES=0,1 nohup python -m {VLLM} --model $MODEL \\
    --served-model-name qwen qwen-9b --host 0.0.0.0 --port ${{PORT:-8000}} --api-key sk-canary \\
    --tensor-parallel-size 2 --max-model-len=65536  `# long` \\
    --compilation-config '{{"cudagraph_capture_sizes": [1, 2]}}' > vllm.log 2>&1 &
tail -f vllm.log
""".replace("  `# long`", "")
    )
    topology = result.topology
    assert topology is not None
    assert (topology.engine, topology.model, topology.serves) == ("vllm", "/models/Qwen-9B", ("qwen", "qwen-9b"))
    assert topology.command == ("/opt/vllm/bin/python", "-m", VLLM)
    assert topology.flags == (
        "--tensor-parallel-size",
        "2",
        "--max-model-len=65536",
        "--compilation-config",
        '{"cudagraph_capture_sizes": [1, 2]}',
    )
    assert topology.env == {"HF_HUB_OFFLINE": "1", "VLLM_USE_V1": "1"}
    assert topology.instances["a"].gpu_names == ("0", "1")
    assert "canary" not in result.topology_yaml + "".join(result.questions)
    assert result.questions[0] == "write HF_TOKEN into such a file (chmod 600)"
    assert "wants a key of its clients (--api-key): it is left out" in result.questions[1]
    assert len(result.questions) == 2
    assert f"# env_file: /etc/cutover/secrets.env   {MARK} write" in result.topology_yaml


def test_two_servers_and_a_router_are_one_topology(imported):
    result = imported(
        """
ARGS=(
  --model-path /models/Q   # AWQ
  --served-model-name q --tp-size 2 --reasoning-parser qwen3
)
CUDA_VISIBLE_DEVICES=0,1 /opt/sg/bin/python -m sglang.launch_server "${ARGS[@]}" --port 8001 &
CUDA_VISIBLE_DEVICES=2,3 /opt/sg/bin/python -m sglang.launch_server "${ARGS[@]}" --port 8002 &
sleep 60
smg launch --worker-urls http://127.0.0.1:8001 http://127.0.0.1:8002 --port 8000 --policy cache_aware
"""
    )
    topology = result.topology
    assert topology is not None
    assert {name: one.gpu_names for name, one in topology.instances.items()} == {"a": ("0", "1"), "b": ("2", "3")}
    assert topology.flags == ("--tp-size", "2", "--reasoning-parser", "qwen3")
    assert topology.router is not None
    assert topology.router.flags == ("--policy", "cache_aware")
    assert any("can clients switch thinking off?" in question for question in result.questions)


@pytest.mark.parametrize(
    ("line", "engine", "model"),
    [
        ("vllm serve Qwen/Qwen3-8B --max-model-len 4096", "vllm", "Qwen/Qwen3-8B"),
        ("exec setsid env A=1 vllm serve /m/q", "vllm", "/m/q"),
        ("cd /m && ./bin/llama-server -m q.gguf -c 4096 --alias q", "llamacpp", "/m/q.gguf"),
        ("python3 -u -m sglang.launch_server --model /m/q", "sglang", "/m/q"),
        ("numactl --cpunodebind=0 python -m sglang.launch_server --model-path=/m/q", "sglang", "/m/q"),
        ("if [ -f x ]; then rm x; fi\n(cd /m && vllm serve ./q) &", "vllm", "/m/q"),
        ("stop() { pkill vllm; }\nstop\nvllm serve /m/q", "vllm", "/m/q"),
        ("cutover-x; python -m launch.engines.emulator --model q", "emulator", None),
    ],
)
def test_ways_of_starting_a_server(imported, line, engine, model):
    result = imported(line + "\n")
    assert result.topology is not None, result.questions
    assert result.topology.engine == engine
    assert result.topology.model == model


def test_what_cannot_be_known_is_asked_at_its_place(imported):
    result = imported(
        f"""
source /etc/vllm.env
export LD_LIBRARY_PATH=/opt/cuda/lib:$LD_LIBRARY_PATH
no-such-python -m x || python -m {VLLM} --model /m/q --max-num-seqs $(nproc) --uds /tmp/s
"""
    )
    text = result.topology_yaml
    assert text.count(MARK) == len(result.questions) + 1  # the first line explains the mark
    before, _, after = text.partition('flags: [--max-num-seqs, "$(nproc)"]')
    assert "computes $(nproc) when it starts" in before.splitlines()[-1]
    assert after
    for asked in ("computes $(nproc)", "reads /etc/vllm.env first", "LD_LIBRARY_PATH=", "--uds /tmp/s is not taken"):
        assert any(asked in question for question in result.questions), asked


@pytest.mark.parametrize(
    "text",
    [
        "for gpu in 0 1; do\n  python -m " + VLLM + " --model /m/q &\ndone\n",
        "start() {\n  vllm serve /m/q\n}\nstart\n",
        "docker run vllm/vllm-openai --model q\n",
        "echo 'unclosed\n",
        "case $1 in\n  a) vllm serve /m/a ;;\n  b) vllm serve /m/b ;;\nesac\n",
        "if true; then\n  vllm serve /m/q\nfi\n",
    ],
)
def test_a_script_beyond_us_stays_a_script(imported, tmp_path, text):
    result = imported(text)
    assert result.topology is not None
    assert result.topology.engine == "script"
    assert result.topology.script == str(tmp_path / "start.sh")
    assert any("docs/launch-contract.md" in question for question in result.questions)


def test_servers_with_other_flags_are_not_mixed(imported):
    result = imported("vllm serve /m/a --port 8001 &\nvllm serve /m/b --port 8002 &\n")
    assert result.topology is not None
    assert result.topology.model == "/m/a"
    assert any("starts 1 more server(s) with other flags" in question for question in result.questions)


def test_what_is_no_script_is_refused(tmp_path):
    with pytest.raises(TopologyError, match="cannot be read: No such file"):
        import_script(tmp_path / "none.sh")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\xff")
    with pytest.raises(TopologyError, match="not a text file"):
        import_script(binary)


def test_nothing_on_the_port_is_said(imported):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody can be found there
        with pytest.raises(LaunchError, match="no process that we may see listens there") as refused:
            imported("vllm serve /m/q\n", port=held.getsockname()[1])
    assert refused.value.exit_code == 3


@pytest.fixture
def emulator(tmp_path):
    """A real emulated engine, started by hand; (port, process)."""
    port_file = tmp_path / "port"
    words = ["--port", "0", "--port-file", str(port_file), "--model", "real-name", "--itl-ms", "7", "--start-s", "0"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_canary"}
    process = subprocess.Popen(
        [sys.executable, "-m", "launch.engines.emulator", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip() and _answers(int(port_file.read_text()))):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield int(port_file.read_text())
    finally:
        process.kill()
        process.wait()


def _answers(port):
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).status == 200
    return False


def test_what_runs_is_preferred_to_what_the_script_says(imported, emulator):
    result = imported(
        f"{sys.executable} -m launch.engines.emulator --model old --itl-ms 5 --port 8000\n", port=emulator
    )
    topology = result.topology
    assert topology is not None, result.questions
    assert topology.serves == ("real-name",)
    assert topology.flags[topology.flags.index("--itl-ms") + 1] == "7"
    assert topology.command == (sys.executable, "-m", "launch.engines.emulator")
    assert topology.env["HF_HUB_OFFLINE"] == "1"
    assert "flags: the script says --itl-ms 5; process" in result.topology_yaml
    assert "canary" not in result.topology_yaml
    assert any("HF_TOKEN" in question for question in result.questions)


def test_a_wild_script_is_imported_from_what_runs(imported, emulator):
    result = imported("docker run x\n", port=emulator)
    assert result.topology is not None
    assert (result.topology.engine, result.topology.serves) == ("emulator", ("real-name",))
    assert "the script could not be read" in result.topology_yaml
