"""Who is behind a pid: user, command, container. Called from the inventory's own thread, since /proc can hang too."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from gates.contract import sendable

_INTERPRETERS = re.compile(r"python[\d.]*|bash|sh|node|java|perl|ruby")
# systemd's and cgroupfs' spellings of docker, podman, containerd, CRI-O and kubernetes; LXC; Slurm's jobs.
_ENGINES = re.compile(r"(?:^|/)(?:(docker|libpod|cri-containerd|crio)[-/])([0-9a-f]{12})[0-9a-f]{52}")
_KUBERNETES = re.compile(r"kubepods.*/([0-9a-f]{12})[0-9a-f]{52}")
_LXC = re.compile(r"/lxc(?:\.payload[./]|/)([^/\n]+)")
_SLURM = re.compile(r"/job_(\d+)")
_NAMES = {"libpod": "podman", "cri-containerd": "containerd", "crio": "CRI-O"}
_COMMAND_LENGTH = 80
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h


def in_own_pid_namespace() -> bool:
    """Whether pids here may differ from those of the host, which are the ones that NVML can name."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) != _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def is_visible(pid: int) -> bool:
    """Whether this pid is somebody here."""
    return psutil.pid_exists(pid)


def user_of(pid: int) -> str | None:
    try:
        return str(sendable(psutil.Process(pid).username()))
    except (psutil.Error, OSError):
        return None


def command_of(pid: int) -> str | None:
    """`python train.py`, `python -m vllm.entrypoints`: the program and what it runs, without its options."""
    try:
        process = psutil.Process(pid)
        name, argv = process.name(), process.cmdline()
    except (psutil.Error, OSError):
        return None
    words = [Path(argv[0]).name or name, *_script(argv)] if argv else [name]
    return str(sendable(" ".join(words)))[:_COMMAND_LENGTH]


def is_mps_server(command: str | None) -> bool:
    """Whether this is NVIDIA's Multi-Process Service, through which other processes use the card."""
    return command is not None and command.split(" ")[0] == "nvidia-cuda-mps-server"


def _script(argv: list[str]) -> list[str]:
    if not _INTERPRETERS.fullmatch(Path(argv[0]).name) or len(argv) < 2:
        return []
    if argv[1] == "-m":
        return argv[1:3]
    return [Path(argv[1]).name] if not argv[1].startswith("-") else []


def container_of(pid: int) -> str | None:
    """From /proc/PID/cgroup: engine and the first 12 digits of the id, as its own tools show it."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return container_in(text)


def container_in(cgroup: str) -> str | None:
    """The same, of that file's text; None when it names no container that is known here."""
    if found := _ENGINES.search(cgroup):
        return f"{_NAMES.get(found[1], found[1])} {found[2]}"
    if found := _KUBERNETES.search(cgroup):
        return f"kubernetes {found[1]}"
    if found := _LXC.search(cgroup):
        return f"lxc {found[1]}"
    if found := _SLURM.search(cgroup):
        return f"slurm job {found[1]}"
    return None
