"""A shim in a unit of its own: the manager here is a small one that does with its socket what systemd does."""

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from launch import own_unit, shim
from launch.attempts import Status, observe, start

ROOT = Path(__file__).parents[2]
ASKS = """
import sys, time
from pathlib import Path
from launch.attempts import AttemptSpec, start
spec = AttemptSpec(attempt_id="a", run_dir=Path(sys.argv[1]), argv=("sleep", "1000"), manager=Path(sys.argv[2]))
print("asks", flush=True)
start(spec)
"""


class Manager:
    """`listens` from the beginning; what is asked waits in its backlog until it is served."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.listener.settimeout(20)
        self.units: list[subprocess.Popen[str]] = []

    def serve(self, program: str = own_unit.__file__, *, hand_over_listener: bool = False) -> int:
        """One unit for who asks next; its main process's pid."""
        given = self.listener if hand_over_listener else self.listener.accept()[0]
        given.setblocking(True)
        environment = {"PATH": os.environ["PATH"], "OF_THE_MANAGER": "1"}
        self.units.append(
            subprocess.Popen(
                [sys.executable, "-S", "-I", program],
                stdin=given,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                start_new_session=True,
            )
        )
        if not hand_over_listener:
            given.close()
        return self.units[-1].pid

    @contextmanager
    def serving(self):
        """Whoever asks gets a unit, until the end."""
        self.listener.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    self.serve()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def close(self) -> None:
        self.listener.close()
        for unit in self.units:
            unit.kill()
            unit.communicate()


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path / "manager.sock")
    yield made
    made.close()


def asks(attempts, manager, name="a"):
    """A process of its own that starts an attempt, and stands where its shim is awaited."""
    run_dir = attempts.root / name
    argv = [sys.executable, "-c", ASKS, str(run_dir), str(manager.path)]
    return run_dir, subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)


def is_locked(run_dir):
    with (run_dir / "shim.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_units_main_process_is_the_shim_and_the_starters_environment_the_programs(manager, attempts, until):
    run_dir, starter = asks(attempts, manager)
    main = manager.serve()
    assert starter.wait(30) == 0
    seen = observe(run_dir)
    assert (seen.status, seen.identity and seen.identity.pid) == (Status.RUNNING, main)
    environment = Path(f"/proc/{seen.child_pid}/environ").read_bytes()
    assert f"HOME={os.environ['HOME']}".encode() in environment
    assert b"OF_THE_MANAGER" not in environment
    streams = [Path(f"/proc/{main}/fd/{n}").readlink() for n in range(3)]
    assert streams == [Path("/dev/null"), run_dir / "shim.log", run_dir / "shim.log"]
    command = Path(f"/proc/{main}/cmdline").read_text()
    assert str(run_dir) in command, "a person who looks sees which one it is"


def test_the_lock_is_held_by_the_message_when_who_asked_is_killed(manager, attempts, until):
    run_dir, starter = asks(attempts, manager)
    connection, _ = manager.listener.accept()
    connection.recv(1, socket.MSG_PEEK)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert is_locked(run_dir), "nobody has it but the message"
    assert observe(run_dir).status is Status.ABSENT
    connection.close()
    until(lambda: not is_locked(run_dir))


def test_a_unit_that_comes_after_the_death_of_who_asked_is_found(manager, attempts, until):
    run_dir, starter = asks(attempts, manager)
    until(lambda: (run_dir / "shim.lock").exists() and is_locked(run_dir))
    connection, _ = manager.listener.accept()
    connection.recv(1, socket.MSG_PEEK)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    manager.units.append(
        subprocess.Popen(
            [sys.executable, "-S", "-I", own_unit.__file__], stdin=connection, stderr=subprocess.PIPE, text=True
        )
    )
    connection.close()
    spec = attempts.spec(argv=("sleep", "1000"), manager=manager.path)
    assert start(spec).pid == manager.units[0].pid
    assert len(manager.units) == 1


def test_a_starter_killed_at_any_instant_leaves_one_after_the_next_start(manager, attempts, until):
    """The crash anywhere between lock, message, unit and record: whatever was there is found, or nothing was."""
    instants = random.Random(3)  # noqa: S311  # the same instants each time
    with manager.serving():
        for turn in range(10):
            run_dir, starter = asks(attempts, manager, f"turn{turn}")
            until(run_dir.exists)
            time.sleep(instants.uniform(0, 0.2))
            starter.kill()
            starter.wait()
            spec = attempts.spec(argv=("sleep", "1000"), name=f"turn{turn}", manager=manager.path)
            identity = start(spec)
            until(lambda run_dir=run_dir, pid=identity.pid: shims_of(run_dir) == [pid])
    assert len(manager.units) >= 10, "the manager was asked each time"


def shims_of(run_dir):
    found = []
    for pid, stat in shim.all_processes().items():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if stat.alive and str(run_dir).encode() in words and any(word.endswith(b"shim.py") for word in words):
                found.append(pid)
    return found


def test_a_front_door_takes_who_waits_at_its_listening_socket(manager, attempts):
    run_dir, starter = asks(attempts, manager)
    main = manager.serve(hand_over_listener=True)
    assert starter.wait(30) == 0
    assert observe(run_dir).identity.pid == main
    assert Path(f"/proc/{main}/fd/0").readlink() == Path("/dev/null"), "the manager's socket is not the program's"


@pytest.mark.parametrize("how", ["nobody listens", "no such socket", "it takes the message and does nothing"])
def test_without_its_help_the_shim_is_started_as_everywhere(manager, attempts, tmp_path, how):
    if how == "nobody listens":
        manager.listener.close()
    if how == "no such socket":
        manager.path.unlink()
    run_dir, starter = asks(attempts, manager)
    if how.startswith("it takes"):
        broken = tmp_path / "broken.py"
        broken.write_text("raise SystemExit(1)\n")
        manager.serve(str(broken))
    assert starter.wait(30) == 0
    seen = observe(run_dir)
    assert seen.status is Status.RUNNING
    assert seen.identity.pid not in [unit.pid for unit in manager.units]


def test_who_says_something_else_gets_one_sentence(manager):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(str(manager.path))
        stranger.send(json.dumps({"run_dir": "/", "environment": {}}).encode())
        manager.serve()
    _, said = manager.units[0].communicate(timeout=30)
    assert said == "no shim: nobody asks for a shim here: the daemon does, over the socket of this unit\n"
    assert manager.units[0].returncode == 1


def test_an_environment_that_fits_into_no_message_is_handed_on_by_a_fork(manager, attempts, monkeypatch):
    monkeypatch.setenv("LARGE", "x" * 100_000)
    for n in range(4):
        monkeypatch.setenv(f"LARGE_{n}", "x" * 100_000)
    began_s = time.monotonic()
    run_dir, starter = asks(attempts, manager)
    assert starter.wait(60) == 0, f"after {time.monotonic() - began_s:.0f} s"
    assert observe(run_dir).status is Status.RUNNING
