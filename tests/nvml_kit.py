"""Cards for tests: `nvml/nvml_double.c` built as libnvidia-ml.so.1, and a text file that says what it answers."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "nvml" / "nvml_double.c"
CHILD = Path(__file__).parent / "nvml" / "inventory_child.py"
PATIENCE_S = 60.0
NOBODY = 4_194_304  # above the largest pid that Linux gives (PID_MAX_LIMIT, 2^22): a pid of the host, seen from inside


def compiler() -> list[str]:
    """A C compiler; skips the test, with the reason, where there is none."""
    if shutil.which("cc"):
        return ["cc"]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no C compiler for the NVML double: install cc, or `pip install ziglang`")


def build_double(directory: Path) -> Path:
    """Build the library into `directory`, which belongs on the loader's path."""
    words = [*compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run([*words, "-o", str(directory / "libnvidia-ml.so.1"), str(SOURCE)], check=True, timeout=120)
    return directory


def uuid_of(card: int) -> str:
    return f"GPU-0000000{card}-1111-2222-3333-444444444444"


def card_lines(card: int, used_mib: int = 4, **properties: object) -> list[str]:
    """A card that tells its memory, and what else is given."""
    told = {"name": "NVIDIA Double", "memory_total_mib": 81_920, "memory_used_mib": used_mib, **properties}
    return [f"card {card} {uuid_of(card)}", *(f"set {card} {key} {value}" for key, value in told.items())]


class Cards:
    """The state file; `show` replaces it whole. `environment` makes a process see these cards."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.environment = {"LD_LIBRARY_PATH": str(library), "NVML_DOUBLE": str(file)}

    def show(self, *lines: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text("\n".join(("driver 570.124.06", *lines)) + "\n")
        fresh.replace(self._file)

    def remove(self) -> None:
        self._file.unlink()


class Watched:
    """An inventory in a process of its own, which finds the library through the loader's path."""

    def __init__(self, cards: Cards, log: Path, **settings: Any) -> None:
        self._log = log
        words = [sys.executable, str(CHILD), json.dumps({"poll_s": 0.02, "contained": False, **settings})]
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **cards.environment, "PYTHONPATH": str(SOURCE.parents[2])},
            )

    def ask(self, ours: Collection[int] = (), held: Collection[str] = (), *, nudge: bool = False) -> dict[str, Any]:
        """The sheet now, with `gpus`: what decisions are made from; and `facts`, `hardware`. `nudge`: read at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ours": list(ours), "held": list(held), "nudge": nudge}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the inventory's process ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def until(self, seen: Callable[[dict[str, Any]], object], **asked: Any) -> dict[str, Any]:
        """The first answer of which `seen` is true."""
        end_s = time.monotonic() + PATIENCE_S
        while not seen(answer := self.ask(**asked)):
            assert time.monotonic() < end_s, f"never seen; last: {answer}"
            time.sleep(0.02)
        return answer

    def logged(self) -> list[dict[str, Any]]:
        """The lines of its log so far."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def end(self) -> int:
        """Close its stdin and wait: a hanging call must not keep the process."""
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
