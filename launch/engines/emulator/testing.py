"""For tests elsewhere: a real emulated engine as a real process on a free port."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_WAIT_S = 60.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class RunningEmulator:
    """A started emulator. `log_file` holds its stderr."""

    port: int
    process: "subprocess.Popen[bytes]"
    log_file: Path

    @property
    def url(self) -> str:
        """Without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, then SIGKILL; returns the exit code (negative: the signal)."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


@contextlib.contextmanager
def emulator(*flags: str, model: str = "emu", wait: bool = True) -> Iterator[RunningEmulator]:
    """Start an emulator on a free port; with `wait` it is ready, without it only the port is known.

    Raises `RuntimeError` with the end of its log when it does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="emulator-") as folder:
        port_file, log_file = Path(folder) / "port", Path(folder) / "log"
        # The engine is found from any working directory, installed or not.
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        argv = [sys.executable, "-m", "launch.engines.emulator", "--port", "0", "--port-file", str(port_file)]
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*argv, "--model", model, *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        try:
            _until(port_file.exists, process, log_file)
            running = RunningEmulator(int(port_file.read_text()), process, log_file)
            if wait:
                _until(lambda: _healthy(f"{running.url}/health"), process, log_file)
            yield running
        finally:
            RunningEmulator(0, process, log_file).stop(timeout_s=2.0)


def _until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]", log_file: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            state = f"exited with code {process.returncode}" if process.poll() is not None else "is not ready"
            raise RuntimeError(f"the emulator {state}: {log_file.read_text(errors='replace')[-2000:]}")
        time.sleep(_POLL_S)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
