"""The server that somebody started by hand and that listens on a port now: its command, environment and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from launch.engines.base import secret_name
from launch.errors import LaunchError
from launch.ports import listening_pids
from launch.server_command import ServerCommand, recognise, with_absolute_program

_TELLING_PREFIXES = (
    "VLLM_", "SGLANG_", "SGL_", "LLAMA_", "GGML_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "CUDA_",
    "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "OMP_", "MKL_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "PYTHONPATH",
)  # fmt: skip
_ANSWER_TIMEOUT_S = 3.0


class NothingListens(LaunchError):  # noqa: N818  # named for what is the case
    """No process that we may see listens on the port."""

    exit_code = 3


@dataclass(frozen=True)
class RunningServer:
    """What runs. Values of secret-like names are not here, only their names."""

    pid: int
    folder: Path
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    command: ServerCommand | None
    serves: tuple[str, ...]
    """The names its /v1/models answers with; empty when it does not answer us."""


def look(port: int) -> RunningServer:
    """The server on `port`: the listening process, or the parent of it that has a server's command line."""
    pids = listening_pids(port)
    if not pids:
        raise NothingListens(
            f"port {port}: no process that we may see listens there; name the port of the running server, "
            "or run this as the user who started it",
        )
    try:
        process = psutil.Process(pids[0])
        family = [process, *process.parents()]
        server = next((one for one in family if recognise(one.cmdline()) is not None), process)
        environment = server.environ()
        argv, folder = tuple(server.cmdline()), Path(server.cwd())
    except psutil.Error as error:
        raise LaunchError(
            f"port {port}: process {pids[0]} cannot be looked into ({error}); run this as its user"
        ) from error
    return RunningServer(
        pid=server.pid,
        folder=folder,
        environment={name: value for name, value in sorted(environment.items()) if _telling(name)},
        secrets=tuple(sorted(name for name in environment if name.startswith(_TELLING_PREFIXES) and secret_name(name))),
        command=_command(argv, folder, environment),
        serves=_served_names(port),
    )


def _command(argv: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> ServerCommand | None:
    recognised = recognise(argv)
    if recognised is None:
        return None
    venv = Path(environment["VIRTUAL_ENV"]) if environment.get("VIRTUAL_ENV") else None
    words = with_absolute_program(
        recognised.command, folder=folder, venv=venv, search_path=environment.get("PATH", "/usr/bin:/bin")
    )
    fields = {**recognised.__dict__, "command": words}
    return ServerCommand(**fields)


def _telling(name: str) -> bool:
    """Environment that changes what an engine does; a login shell brings a hundred other names."""
    return name.startswith(_TELLING_PREFIXES) and not secret_name(name)


def _served_names(port: int) -> tuple[str, ...]:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False, timeout=_ANSWER_TIMEOUT_S)
        return tuple(str(model["id"]) for model in answer.json()["data"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return ()
