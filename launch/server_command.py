"""Recognising a model server's command line, and taking it apart into what a topology says of it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.engines import base
from launch.engines.base import Program, engine
from launch.render import grouped
from launch.routers.base import router

_WRAPPERS = frozenset({"numactl", "taskset", "nice", "ionice", "chrt", "stdbuf"})
_PYTHON = re.compile(r"python[\d.]*")
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "launch.engines.emulator": "emulator",
}
_SCRIPTS = {("vllm", "serve"): "vllm", ("sglang", "serve"): "sglang", ("smg", "launch"): "smg"}
_MODEL_FLAGS = frozenset({"--model", "--model-path", "-m", "--hf-repo", "-hf", "-hfr"})
_NAME_FLAGS = frozenset({"--served-model-name", "--alias", "-a"})
_SECRET_FLAGS = frozenset({"--api-key", "--admin-api-key", "--hf-token", "-hft", "--ssl-keyfile-password"})
_QUIET_FLAGS = frozenset({"--host", "--worker-urls", "--prometheus-host", "--prometheus-port"})


@dataclass(frozen=True)
class ServerCommand:
    """A server's command line in a topology's terms; ``engine`` is ``smg`` for a router."""

    engine: str
    command: tuple[str, ...]
    model: str | None
    serves: tuple[str, ...]
    flags: tuple[str, ...]
    port: int | None
    secrets: tuple[str, ...]
    """Flags that carried a secret; their values are not kept."""
    refused: tuple[str, ...]
    """Other flags that a topology does not accept, with their values."""


def recognise(words: Sequence[str]) -> ServerCommand | None:
    """The server that these words start; None when they start something else."""
    start = 0 if words and Path(words[0]).name not in _WRAPPERS else 1
    for position in range(start, len(words) if start else min(1, len(words))):
        match = _program(words[position:])
        if match is not None:
            name, length = match
            after = position + length
            return _taken_apart(name, (*words[:position], *_without_interpreter(words[position:after])), words[after:])
    return None


def _program(words: Sequence[str]) -> tuple[str, int] | None:
    """Engine and number of leading words, when `words` begin with a server's program."""
    skipped = 0
    if _PYTHON.fullmatch(Path(words[0]).name):
        while skipped + 1 < len(words) and re.fullmatch(r"-[uOBEsI]+", words[skipped + 1]):
            skipped += 1
        if tuple(words[skipped + 1 : skipped + 2]) == ("-m",):
            name = _MODULES.get(words[skipped + 2]) if len(words) > skipped + 2 else None
            return (name, skipped + 3) if name is not None else None
        skipped += 1  # python /venv/bin/vllm serve: how a console script looks once it runs
    rest = words[skipped:]
    if not rest:
        return None
    program = Path(rest[0]).name
    if program == "llama-server":
        return "llamacpp", skipped + 1
    name = _SCRIPTS.get((program, rest[1])) if len(rest) > 1 else None
    return (name, skipped + 2) if name is not None else None


def _without_interpreter(words: Sequence[str]) -> tuple[str, ...]:
    if len(words) > 1 and _PYTHON.fullmatch(Path(words[0]).name) and Path(words[1]).name in {"vllm", "sglang", "smg"}:
        return tuple(words[1:])
    return tuple(words)


def _taken_apart(name: str, command: tuple[str, ...], words: Sequence[str]) -> ServerCommand:
    program: Program = router(name) if name == "smg" else engine(name)
    model: str | None = None
    serves: tuple[str, ...] = ()
    port: int | None = None
    flags: list[str] = []
    secrets: list[str] = []
    refused: list[str] = []
    for line in grouped(words):
        texts = [word for word in line if isinstance(word, str)]
        flag = base.flag_name(texts[0])
        values = texts[1:] if flag is not None else texts
        if flag is not None and "=" in texts[0]:
            values = [texts[0].split("=", 1)[1], *values]
        owned = base.meant_flag(program, flag, program.owned_flags) if flag is not None else None
        if flag is None:
            model, flags = (values[0], flags) if model is None and command[-1] == "serve" else (model, [*flags, *texts])
        elif owned is None:
            flags += texts
        elif owned in _SECRET_FLAGS:
            secrets.append(owned)
        elif owned in _MODEL_FLAGS and name != "emulator":
            model = values[0] if values else None
        elif owned in _NAME_FLAGS or (owned == "--model" and name == "emulator"):
            serves = tuple(part for value in values for part in value.split(",") if part)
        elif owned == "--port":
            port = int(values[0]) if values and values[0].isdecimal() else None
        elif owned not in _QUIET_FLAGS:
            refused.append(" ".join(texts))
    return ServerCommand(name, command, model, serves, tuple(flags), port, tuple(secrets), tuple(refused))


def with_absolute_program(
    words: tuple[str, ...], *, folder: Path, venv: Path | None, search_path: str
) -> tuple[str, ...]:
    """The command with its program's full path, as the shell that ran it would have found it."""
    program = words[0]
    if program.startswith("/"):
        return words
    if "/" in program:
        return (os.path.normpath(folder / program), *words[1:])
    if venv is not None:
        return (str(venv / "bin" / program), *words[1:])
    return (shutil.which(program, path=search_path) or program, *words[1:])
