"""Whoever is signalled was looked at through its pidfd first, or is a child that nobody else can have waited for."""

from __future__ import annotations

import ast
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import shim
from launch.identity import Identity, this_boot

ROOT = Path(__file__).parent.parent.parent
BY_NUMBER = {"kill", "killpg", "pidfd_send_signal", "pthread_kill"}
BY_PSUTIL = {"kill", "terminate", "send_signal", "suspend"}
DOORS = {
    "launch/identity.py Identity.send": "pidfd first, then pid, start time, boot and directory are checked",
    "launch/shim.py signal_all": "pidfd first, then the start time is checked",
    "launch/shim.py kill_round": "its own children that it has not waited for: their numbers are nobody else's",
    "launch/shim.py Shim.ask": "its own child that it has not waited for",
    "launch/engines/emulator/workers.py stop_workers": "the emulated engine's own children that it has not waited for",
    "gates/keeper.py end_all": "its own children that it has not waited for",
    "controller/crashpoints.py crash_point": "itself",
}


def signalling(tree: ast.Module) -> Iterator[str]:
    """The functions in which a process is signalled by its number."""

    def walk(node: ast.AST, inside: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            yield from walk(child, f"{inside}.{child.name}".lstrip(".") if named else inside)
            match child:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "signal"), attr=name)) if name in BY_NUMBER:
                    yield inside
                case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="Process")))):
                    yield f"{inside} (psutil)" if child.func.attr in BY_PSUTIL else ""

    return (name for name in walk(tree, "") if name)


def test_every_signal_goes_through_a_door_that_looks_first():
    found = {
        f"{path.relative_to(ROOT)} {name}"
        for part in ("controller", "launch", "gates")
        for path in (ROOT / part).rglob("*.py")
        if any(name in (text := path.read_text()) for name in (*BY_NUMBER, *BY_PSUTIL))
        for name in signalling(ast.parse(text))
    }
    assert found == set(DOORS)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_later_owner_of_a_number_is_not_signalled(bystander):
    """What was seen under this number began at another time."""
    ticks = shim.stat_of(bystander.pid).start_ticks
    for other in (ticks - 1, ticks + 1):
        shim.signal_all({bystander.pid: other}, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        bystander.wait(0.5)
    shim.signal_all({bystander.pid: ticks}, signal.SIGKILL)
    assert bystander.wait(60) == -signal.SIGKILL


def test_a_number_that_the_kernel_has_given_to_another(tmp_path):
    """For real: the process ends, the next one gets its number, and what was noted of the first reaches nobody."""
    first = subprocess.Popen(["sleep", "1000"], cwd=tmp_path)
    noted = Identity(first.pid, shim.stat_of(first.pid).start_ticks, this_boot(), str(tmp_path))
    was_alive = noted.is_alive()
    time.sleep(0.05)  # start times are told in hundredths: two of one number within one cannot be told apart
    first.kill()
    first.wait()
    assert was_alive
    heir = next_with_number(noted.pid, tmp_path)
    if heir is None:
        pytest.skip("this very number could not be had: this user may not ask for it, or somebody else has it")
    try:
        assert not noted.is_alive()
        assert not noted.send(signal.SIGKILL)
        shim.signal_all({noted.pid: noted.start_ticks}, signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            heir.wait(0.5)
    finally:
        heir.kill()
        heir.wait()


def next_with_number(pid: int, cwd: Path) -> subprocess.Popen[bytes] | None:
    """A process with this very number, in the same directory; others start processes, too, so it takes some tries."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(200):
        try:
            last.write_text(str(pid - 1))
        except OSError:
            return None
        process = subprocess.Popen(["sleep", "1000"], cwd=cwd, start_new_session=True)
        if process.pid == pid:
            return process
        with process:
            process.kill()
    return None
