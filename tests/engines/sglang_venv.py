"""SGLang on the CPU, in a virtual environment of its own: for tests only, and so without the product's care for users.

The published wheel asks for CUDA kernels that have no use on a CPU, so it is installed without its dependencies and
they are named here. What it misses then is one function, which `VLLM_STANDIN` gives it.
"""

import fcntl
import os
import shutil
import subprocess
import venv
from pathlib import Path

from launch.engines.venv import default_cache_dir

SGLANG_VERSION = "0.5.23"
INSTALLED_BYTES = 7_000_000_000
STEP_TIMEOUT_S = 3600.0

DEPENDENCIES = """
aiohttp anthropic blobfile compressed-tensors datasets deepseek-recipe distro easydict einops fastapi gguf interegular
IPython llguidance mistral_common modelscope msgspec ninja numba numpy nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4
orjson outlines==0.1.11 packaging partial_json_parser pillow prometheus-client psutil pybase64 pydantic
python-multipart pyzmq requests scipy sentencepiece setproctitle smg-grpc-servicer soundfile tiktoken tml-renderers
tokenizers==0.23.2 transformers==5.19.0 uvicorn uvloop watchfiles xgrammar==0.2.7 xxhash zstandard build tqdm
"""
STEPS = (
    ("install", "torch==2.14.1", "torchvision==0.29.1"),
    ("install", "--no-deps", f"sglang=={SGLANG_VERSION}"),
    ("install", "torch==2.14.1", *DEPENDENCIES.split()),
)
# Without its own CPU kernels SGLang takes its rotary embedding from vLLM; this is that function, in plain torch.
VLLM_STANDIN = '''"""The one function that SGLang takes from vLLM on a CPU without kernels of its own."""

import torch


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    """Rotate query and key [tokens, heads * head_size] in place; the cache has cosines, then sines [positions, dim]."""
    cos, sin = cos_sin_cache[positions.flatten()].float().unsqueeze(1).chunk(2, dim=-1)
    for states in (query, key):
        if states is None:
            continue
        heads = states.view(positions.numel(), -1, head_size)
        turned = heads[..., : 2 * cos.shape[-1]]
        pair = turned.float().chunk(2, dim=-1) if is_neox else (turned.float()[..., ::2], turned.float()[..., 1::2])
        rotated = (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin)
        turned.copy_(torch.cat(rotated, dim=-1) if is_neox else torch.stack(rotated, dim=-1).flatten(-2))
'''
IMPORTS = "import torch, torchvision, transformers, sglang.srt.server_args, vllm._custom_ops"


def home() -> Path:
    return default_cache_dir() / "engines" / f"sglang-cpu-{SGLANG_VERSION}"


def _recipe() -> str:
    return "\n".join([*map(" ".join, STEPS), VLLM_STANDIN])


def python() -> Path | None:
    """The interpreter of a complete environment; None when there is none yet."""
    stamp = home() / ".cutover-complete"
    return home() / "bin" / "python" if stamp.is_file() and stamp.read_text() == _recipe() else None


def ensure() -> Path:
    """Make the environment where there is none: gigabytes and minutes. A second caller waits for the first."""
    home().parent.mkdir(parents=True, exist_ok=True)
    with home().with_name(f"{home().name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return python() or _build()


def _build() -> Path:
    shutil.rmtree(home(), ignore_errors=True)
    venv.create(home(), with_pip=True, symlinks=True)
    interpreter = home() / "bin" / "python"
    for verb, *packages in STEPS:
        _run(str(interpreter), "-m", "pip", verb, "--no-input", "--no-cache-dir", "--progress-bar=off", *packages)
    (site_packages,) = (home() / "lib").glob("python3.*/site-packages")
    standin = site_packages / "vllm"
    standin.mkdir()
    (standin / "__init__.py").touch()
    (standin / "_custom_ops.py").write_text(VLLM_STANDIN)
    _run(str(interpreter), "-c", IMPORTS)
    (home() / ".cutover-complete").write_text(_recipe())
    return interpreter


def _run(*argv: str) -> None:
    """One step, its output in install.log."""
    with (home() / "install.log").open("a") as log:
        ran = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=STEP_TIMEOUT_S,
            check=False,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
    assert ran.returncode == 0, f"{' '.join(argv)[:200]} ended with {ran.returncode}: see {home() / 'install.log'}"


if __name__ == "__main__":
    print(ensure())
