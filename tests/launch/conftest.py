"""Real processes under real shims, and a zoo of programs that behave badly; nothing survives a test."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import shim
from launch.attempts import AttemptSpec, Identity, ProcessSeen, Status, kill_strays, observe, request_stop, start
from launch.identity import strays_in

ZOO = Path(__file__).parent / "zoo"


def wait_until(what: Callable[[], object], timeout_s: float = 30.0) -> object:
    """What ``what`` gave when it was first true: long patience for slow machines, frequent looks for fast ones."""
    give_up_at_s = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < give_up_at_s, f"not true within {timeout_s} s"
        time.sleep(0.02)
    return found


class Attempts:
    """Starts attempts below one directory and ends them all."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def spec(self, *program: object, name: str = "a", **rest: object) -> AttemptSpec:
        """``program``: a file of the zoo and its arguments; or ``argv=`` / ``script=`` by name."""
        if program:
            animal, *arguments = map(str, program)
            rest["argv"] = (sys.executable, str(ZOO / f"{animal}.py"), *arguments)
        return AttemptSpec(attempt_id=name, run_dir=self.root / name, **{"grace_s": 20.0, **rest})

    def start(self, *program: object, **rest: object) -> tuple[Path, Identity]:
        spec = self.spec(*program, **rest)
        return spec.run_dir, start(spec)

    def end_all(self) -> None:
        for run_dir in self.root.iterdir():
            give_up_at_s = time.monotonic() + 30
            while (seen := observe(run_dir)).status is not Status.ABSENT and (seen.pids or alive(seen.identity)):
                assert time.monotonic() < give_up_at_s, f"cannot end {seen}"
                request_stop(run_dir)
                kill_strays(run_dir, force=True)
                time.sleep(0.02)


def alive(who: Identity | int | None) -> bool:
    if isinstance(who, int):
        stat = shim.stat_of(who)
        return stat is not None and stat.alive
    return who is not None and who.is_alive()


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    root = tmp_path / "attempts"
    root.mkdir()
    factory = Attempts(root)
    yield factory
    factory.end_all()


@pytest.fixture
def until() -> Callable[..., object]:
    return wait_until


@pytest.fixture
def is_alive() -> Callable[[Identity | int | None], bool]:
    return alive


@pytest.fixture
def ended() -> Callable[[Path], ProcessSeen]:
    """Wait until the attempt has ended and its tree is proved empty."""

    def wait(run_dir: Path) -> ProcessSeen:
        def seen_empty() -> ProcessSeen | None:
            seen = observe(run_dir)
            return seen if seen.status is Status.EXITED and not seen.pids else None

        found = wait_until(seen_empty)
        assert isinstance(found, ProcessSeen)
        return found

    return wait


@pytest.fixture
def number_in() -> Callable[[Path], int]:
    """The number that a program writes to a file, once it is there."""

    def read(path: Path) -> int:
        return int(str(wait_until(lambda: path.exists() and path.read_text())))

    return read


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start a program outside every attempt: a stranger. Its pid."""
    strangers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def begin(*argv: str, cwd: Path = tmp_path, **rest: object) -> int:
        strangers.append((subprocess.Popen(argv, cwd=cwd, start_new_session=True, **rest), cwd))
        return strangers[-1][0].pid

    yield begin
    for stranger, cwd in strangers:
        with stranger:
            stranger.kill()
        shim.signal_all(strays_in(str(cwd), since_ticks=0), signal.SIGKILL)  # their children have sessions of their own
