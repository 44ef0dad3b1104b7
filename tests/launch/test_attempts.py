"""The doors of attempts: found or done, seen as it is, stopped when it is ours and left alone when it is not."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launch import shim
from launch.attempts import (
    AttemptError,
    BadAttempt,
    Status,
    StraysAlive,
    kill_strays,
    log_path,
    log_tail,
    observe,
    port_conflict,
    request_stop,
    start,
)

STARTER = """
import sys, time
from pathlib import Path
from launch.attempts import AttemptSpec, start
print(start(AttemptSpec(attempt_id="a", run_dir=Path(sys.argv[1]), argv=tuple(sys.argv[2:]))).pid, flush=True)
time.sleep(1000)
"""


def starter(spec, **rest):
    """A process of its own that starts the attempt, says the shim's pid and stays."""
    argv = [sys.executable, "-c", STARTER, str(spec.run_dir), *spec.argv]
    return subprocess.Popen(argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, **rest)


def shims_of(run_dir):
    found = []
    for pid, stat in shim.all_processes().items():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if stat.alive and shim.__file__.encode() in words and str(run_dir).encode() in words:
            found.append(pid)
    return found


def orphan(attempts, number_in, **rest):
    """The engine whose shim was killed: run directory, and the pids that live on."""
    run_dir, identity = attempts.start("engine_core", **rest)
    pids = {number_in(run_dir / f"{name}.pid") for name in ("server", "core", "worker0", "worker1")}
    os.kill(identity.pid, signal.SIGKILL)
    return run_dir, pids


def test_nothing_is_there_before_the_start(tmp_path):
    assert observe(tmp_path).status is Status.ABSENT
    assert observe(tmp_path / "missing").status is Status.ABSENT
    request_stop(tmp_path / "missing")
    assert kill_strays(tmp_path / "missing", force=True) == ()
    assert log_tail(tmp_path) == ""


def test_running_is_seen_with_its_identity(attempts):
    run_dir, identity = attempts.start("exits", 0, "wait")
    seen = observe(run_dir)
    assert (seen.status, seen.identity, seen.reason, seen.exit_code) == (Status.RUNNING, identity, "", None)
    assert seen.pids == (seen.child_pid,)
    assert seen.boot_id == identity.boot_id


def test_start_again_finds_the_living_one(attempts):
    run_dir, identity = attempts.start("exits", 0, "wait")
    assert attempts.start("exits", 0, "wait") == (run_dir, identity)
    assert attempts.start("exits", 0, "wait", keep=True) == (run_dir, identity)


def test_an_attempt_runs_once_and_a_kept_one_again(attempts, ended):
    once = {"script": "echo ran >> ran", "name": "once"}
    run_dir, identity = attempts.start(**once)
    ended(run_dir)
    assert attempts.start(**once) == (run_dir, identity)
    assert (run_dir / "ran").read_text() == "ran\n"
    door, first = attempts.start("exits", 0, "wait", name="door", keep=True)
    request_stop(door)
    ended(door)
    _, second = attempts.start("exits", 0, "wait", name="door", keep=True)
    assert second != first
    assert observe(door).status is Status.RUNNING


def test_the_exit_is_known_although_the_starter_was_killed(attempts, ended):
    spec = attempts.spec("exits", 37, "wait")
    with starter(spec) as first:
        pid = int(first.stdout.readline())
        first.kill()
    assert observe(spec.run_dir).identity.pid == pid
    assert observe(spec.run_dir).status is Status.RUNNING
    (spec.run_dir / "go").touch()
    assert ended(spec.run_dir).exit_code == 37


def test_four_starts_at_once_make_one(attempts):
    spec = attempts.spec(argv=("bash", "-c", "echo started >> starts; exec sleep 1000"))
    starters = [starter(spec) for _ in range(4)]
    try:
        pids = {int(one.stdout.readline()) for one in starters}
    finally:
        for one in starters:
            with one:
                one.kill()
    assert pids == set(shims_of(spec.run_dir))
    assert len(pids) == 1
    assert (spec.run_dir / "starts").read_text() == "started\n"


def test_a_starter_killed_at_any_instant_leaves_one_after_the_next_start(attempts, until):
    """The crash between fork and record: whatever was there is found, or nothing was."""
    instants = random.Random(2)  # noqa: S311  # the same instants each time
    for turn in range(12):
        spec = attempts.spec("exits", 0, "wait", name=f"turn{turn}")
        with starter(spec) as victim:
            until(spec.run_dir.exists)
            time.sleep(instants.uniform(0, 0.12))
            victim.kill()
        identity = start(spec)
        until(lambda run_dir=spec.run_dir, pid=identity.pid: shims_of(run_dir) == [pid])
        assert observe(spec.run_dir).status is Status.RUNNING


def test_a_killed_shim_leaves_strays_that_serve_on(attempts, number_in, until):
    run_dir, pids = orphan(attempts, number_in)
    until(lambda: (seen := observe(run_dir)).status is Status.STRAYS and set(seen.pids) == pids)
    size_bytes = log_path(run_dir).stat().st_size
    until(lambda: log_path(run_dir).stat().st_size > size_bytes)  # and nobody's pipe broke
    request_stop(run_dir)
    assert set(observe(run_dir).pids) == pids


def test_a_shim_that_was_halted_ends_when_it_is_asked_to(attempts, ended):
    run_dir, identity = attempts.start("exits", 0, "wait")
    os.kill(identity.pid, signal.SIGSTOP)
    request_stop(run_dir)
    assert ended(run_dir).pids == ()


def test_start_is_refused_on_top_of_strays(attempts, number_in, until, ended):
    run_dir, pids = orphan(attempts, number_in, keep=True)
    until(lambda: observe(run_dir).status is Status.STRAYS)
    with pytest.raises(StraysAlive, match=f"{min(pids)}.*end them first") as refused:
        attempts.start("engine_core", keep=True)
    assert refused.value.exit_code == 5
    assert set(kill_strays(run_dir, force=True)) == pids
    ended(run_dir)
    attempts.start("exits", 0, "wait", keep=True)
    assert observe(run_dir).status is Status.RUNNING


@pytest.mark.parametrize("force", [False, True])
def test_strays_are_ended_and_strangers_are_not(
    attempts, number_in, until, is_alive, ended, other_process, tmp_path, force
):
    spec = attempts.spec("engine_core")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stranger = other_process(*spec.argv, cwd=elsewhere, stdout=subprocess.DEVNULL)  # the same program
    number_in(elsewhere / "worker1.pid")
    run_dir, pids = orphan(attempts, number_in)
    until(lambda: observe(run_dir).status is Status.STRAYS)
    assert set(kill_strays(run_dir, force=force)) == pids
    seen = ended(run_dir)
    assert (seen.reason, seen.exit_code, seen.pids) == ("lost", None, ())
    assert kill_strays(run_dir, force=force) == ()
    names = ("server", "core", "worker0", "worker1")
    assert all(is_alive(number_in(elsewhere / f"{name}.pid")) for name in names)
    assert is_alive(stranger)


def test_a_retitled_stray_is_found(attempts, until, ended):
    run_dir, identity = attempts.start("retitles")
    until(lambda: len(list(run_dir.glob("retitled.*"))) == 2)
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: len(observe(run_dir).pids) == 2 and observe(run_dir).status is Status.STRAYS)
    kill_strays(run_dir, force=False)
    ended(run_dir)


def test_strays_are_left_alone_while_a_shim_lives(attempts, is_alive):
    run_dir, _ = attempts.start("exits", 0, "wait")
    assert kill_strays(run_dir, force=True) == ()
    assert is_alive(observe(run_dir).child_pid)


def test_a_person_with_a_terminal_in_the_directory_is_no_stray(
    attempts, number_in, until, other_process, is_alive, ended
):
    run_dir, _ = orphan(attempts, number_in)
    person = (
        "import os, pty, sys, pathlib\n"
        "pid, fd = pty.fork()\n"
        "if pid == 0: os.chdir(sys.argv[1]); os.execvp('sleep', ['sleep', '1000'])\n"
        "pathlib.Path('person.tmp').write_text(str(pid)); os.rename('person.tmp', 'person'); os.waitpid(pid, 0)"
    )
    other_process(sys.executable, "-c", person, str(run_dir))
    pid = number_in(attempts.root.parent / "person")
    until(lambda: Path(f"/proc/{pid}/cwd").readlink() == run_dir)
    until(lambda: observe(run_dir).status is Status.STRAYS)
    assert pid not in kill_strays(run_dir, force=True)
    ended(run_dir)
    assert is_alive(pid)


def test_a_reused_pid_is_never_signalled(attempts, until, ended, other_process, is_alive):
    """The record names a living process, down to its start time; but it lives elsewhere."""
    run_dir, identity = attempts.start("exits", 0)
    ended(run_dir)
    until(lambda: not identity.is_alive())
    (run_dir / "exit.json").unlink()
    stranger = other_process("sleep", "1000")
    for ticks in (identity.start_ticks, shim.stat_of(stranger).start_ticks):
        record = json.loads((run_dir / "shim.json").read_text())
        (run_dir / "shim.json").write_text(json.dumps(record | {"pid": stranger, "start_ticks": ticks}))
        request_stop(run_dir)
        assert kill_strays(run_dir, force=True) == ()
        seen = observe(run_dir)
        assert (seen.status, seen.reason, seen.pids) == (Status.EXITED, "lost", ())
    assert is_alive(stranger)


def test_an_identity_of_another_start_time_is_dead(attempts):
    run_dir, identity = attempts.start("exits", 0, "wait")
    assert identity.is_alive()
    for other in (
        {"start_ticks": identity.start_ticks + 1},
        {"boot_id": "x"},
        {"run_dir": "/"},
        {"pid": 0},
        {"pid": 2**40},
    ):
        assert not replace(identity, **other).is_alive()
        assert not replace(identity, **other).send(signal.SIGKILL)
    assert observe(run_dir).status is Status.RUNNING


def test_what_ran_before_a_reboot_is_gone(attempts, is_alive):
    run_dir, identity = attempts.start("exits", 0, "wait")
    child = observe(run_dir).child_pid
    record = (run_dir / "shim.json").read_text()
    (run_dir / "shim.json").write_text(record.replace(identity.boot_id, "00000000-0000-0000-0000-000000000000"))
    seen = observe(run_dir)
    assert (seen.status, seen.reason, seen.pids) == (Status.EXITED, "lost", ())
    request_stop(run_dir)
    assert is_alive(child)
    (run_dir / "shim.json").write_text(record)
    assert observe(run_dir).status is Status.RUNNING


def remove(run_dir):
    shutil.rmtree(run_dir)


def move(run_dir):
    run_dir.rename(run_dir.with_name("moved"))


def move_above(run_dir):
    """As a state directory is renamed, or its disk unmounted."""
    run_dir.parent.rename(run_dir.parent.with_name("moved"))
    run_dir.parent.mkdir()


def empty_the_record(run_dir):
    (run_dir / "shim.json").write_text("")


def another_ones_record(run_dir):
    record = json.loads((run_dir / "shim.json").read_text())
    (run_dir / "shim.json").write_text(json.dumps(record | {"pid": 2**22 + 1, "start_ticks": 1}))


LOSSES = [remove, move, move_above, empty_the_record, another_ones_record]


@pytest.mark.parametrize("lose", LOSSES)
def test_one_whose_directory_says_nothing_is_seen_and_ended_by_who_remembers_it(attempts, until, is_alive, lose):
    run_dir, identity = attempts.start("exits", 0, "wait")
    remembered = replace(identity, run_dir=None)
    child = observe(run_dir).child_pid
    lose(run_dir)
    seen = observe(run_dir, remembered)
    assert (seen.status, seen.identity, seen.pids) == (Status.RUNNING, remembered, (child,))
    assert kill_strays(run_dir, force=True, remembered=remembered) == ()  # its shim lives
    request_stop(run_dir, remembered)
    until(lambda: not is_alive(child) and not is_alive(identity.pid))
    seen = observe(run_dir, remembered)
    assert not seen.pids
    assert seen.status in {Status.EXITED, Status.ABSENT}


@pytest.mark.parametrize("lose", [remove, empty_the_record])
def test_what_a_shim_leaves_in_a_directory_that_is_gone_is_found_and_ended(attempts, number_in, until, is_alive, lose):
    run_dir, identity = attempts.start("engine_core")
    pids = {number_in(run_dir / f"{name}.pid") for name in ("server", "core", "worker0", "worker1")}
    remembered = replace(identity, run_dir=None)
    lose(run_dir)
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: (s := observe(run_dir, remembered)).status is Status.STRAYS and set(s.pids) == pids)
    assert set(kill_strays(run_dir, force=True, remembered=remembered)) == pids
    until(lambda: not observe(run_dir, remembered).pids)
    assert observe(run_dir, remembered).status is Status.EXITED


def test_whom_nobody_has_any_more_is_not_remembered(attempts, ended, other_process, is_alive):
    """Of another boot, or a number that somebody else has got: what the directory says is all that is known."""
    run_dir, identity = attempts.start("exits", 0)
    ended(run_dir)
    stranger = other_process("sleep", "1000")
    remembered = replace(identity, run_dir=None)
    for other in (replace(remembered, boot_id="x"), replace(remembered, pid=stranger)):
        request_stop(run_dir, other)
        assert kill_strays(run_dir, force=True, remembered=other) == ()
        assert observe(run_dir, other).reason == "exited"
    remove(run_dir)
    assert observe(run_dir, replace(remembered, boot_id="x")).status is Status.ABSENT
    assert observe(run_dir, replace(remembered, pid=stranger)).pids == ()
    assert is_alive(stranger)


def test_a_damaged_record_is_not_believed(attempts, number_in, until, ended):
    run_dir, pids = orphan(attempts, number_in)
    (run_dir / "shim.json").write_text("{")
    # The killed shim may still be seen while it goes: then it is one of them for a moment.
    seen = until(lambda: (seen := observe(run_dir)).status is Status.STRAYS and set(seen.pids) == pids and seen)
    assert seen.identity is None
    kill_strays(run_dir, force=True)
    ended(run_dir)
    with pytest.raises(AttemptError, match="no shim on record"):
        attempts.start("exits", 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"attempt_id": "../x"}, "an id is"),
        ({"attempt_id": "a" * 82}, "at most 81"),
        ({"argv": ()}, "nothing to run"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"environment": {"A B": ""}}, "environment variable"),
        ({"environment": {"A": "\0"}}, "environment variable"),
        ({"grace_s": -1.0}, "0 s or more"),
    ],
)
def test_a_bad_spec_is_refused_before_anything_is_made(attempts, change, expected):
    spec = replace(attempts.spec("exits", 0), **change)
    with pytest.raises(BadAttempt, match=expected) as refused:
        start(spec)
    assert refused.value.exit_code == 2
    assert not spec.run_dir.exists()


def test_a_directory_that_cannot_be_made_is_said(attempts, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AttemptError, match=r"cannot start in .*file/a .*a directory of this user"):
        start(replace(attempts.spec("exits", 0), run_dir=tmp_path / "file" / "a"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        (
            "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
            True,
        ),
        ("RuntimeError: The server socket has failed to listen. code: -98, name: EADDRINUSE", True),
        (
            "ValueError: port at 40290 is not available in 30 seconds. port is used by a process already.",
            True,
        ),
        ("start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18091", True),
        ("Error: Address already in use (os error 98)", True),
        ("torch.OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_the_engines_words_for_a_taken_port(attempts, ended, words, expected):
    run_dir, _ = attempts.start(script='echo "$WORDS"; exit 1', environment={"WORDS": words})
    ended(run_dir)
    assert port_conflict(run_dir) is expected


def test_a_real_port_conflict_is_seen_only_after_the_exit(attempts, ended):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run_dir, _ = attempts.start("listens", taken.getsockname()[1])
        ended(run_dir)
    assert port_conflict(run_dir)
    run_dir, _ = attempts.start(script="echo address already in use; exec sleep 1000", name="b")
    assert not port_conflict(run_dir)


def test_log_tail_is_fit_for_a_terminal(attempts, ended):
    run_dir, _ = attempts.start(argv=("printf", r"one\n 10%%\r 55%%\r100%%\n\033[31mred\033[0m\a \377ö\ttab\n"))
    ended(run_dir)
    assert log_tail(run_dir) == "one\n100%\nred \ufffdö\ttab"
    assert log_tail(run_dir, 1) == "red \ufffdö\ttab"


def test_a_locked_card_starts_nothing_and_says_who_has_it(attempts, tmp_path, until):
    card = tmp_path / "cutover-GPU-1.lock"
    _, first = attempts.start(argv=("sleep", "1000"), name="first", locks=(card,))
    second_dir, _ = attempts.start(argv=("sleep", "1000"), name="second", locks=(card,))
    seen = until(lambda: (look := observe(second_dir)).status is Status.EXITED and look)
    assert seen.reason == f"not started: {card} is locked by pid {first.pid}"
    assert seen.pids == ()


def test_a_lock_ends_with_its_shim_and_is_not_inherited_by_the_program(attempts, tmp_path, until):
    card = tmp_path / "cutover-GPU-1.lock"
    first_dir, first = attempts.start(argv=("sleep", "1000"), name="first", locks=(card,))
    until(lambda: observe(first_dir).child_pid)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: observe(first_dir).status is Status.STRAYS)
    second_dir, _ = attempts.start(argv=("sleep", "1000"), name="second", locks=(card,))
    until(lambda: observe(second_dir).child_pid)


def test_the_file_of_a_lock_can_be_opened_by_other_users_whatever_the_umask(attempts, tmp_path, until):
    card = tmp_path / "cutover-GPU-1.lock"
    before = os.umask(0o077)
    try:
        run_dir, _ = attempts.start(argv=("sleep", "1000"), locks=(card,))
    finally:
        os.umask(before)
    until(lambda: observe(run_dir).child_pid)
    assert card.stat().st_mode & 0o777 == 0o644


def test_a_lock_that_cannot_be_made_is_named(attempts, tmp_path, until):
    run_dir, _ = attempts.start(argv=("sleep", "1000"), locks=(tmp_path / "nowhere" / "x.lock",))
    seen = until(lambda: (look := observe(run_dir)).status is Status.EXITED and look)
    assert seen.reason == f"not started: {tmp_path}/nowhere/x.lock: No such file or directory"
