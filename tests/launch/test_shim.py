"""The shim as a program: what it does to the process below it, and what it leaves in the run directory."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch import shim
from launch.attempts import Status, log_path, log_tail, observe, request_stop
from launch.identity import strays_in

SHIM = [sys.executable, "-S", "-I", shim.__file__]


@pytest.mark.parametrize("code", [0, 1, 37])
def test_exit_code_is_recorded(attempts, ended, code):
    run_dir, _ = attempts.start("exits", code)
    seen = ended(run_dir)
    assert (seen.reason, seen.exit_code, seen.signal) == ("exited", code, None)
    assert abs(seen.exited_at_s - time.time()) < 60
    assert log_tail(run_dir) == "here I am"


def test_death_by_a_signal_of_others_is_recorded(attempts, ended):
    run_dir, _ = attempts.start("exits", 0, "wait")
    os.kill(observe(run_dir).child_pid, signal.SIGKILL)
    seen = ended(run_dir)
    assert (seen.reason, seen.exit_code, seen.signal) == ("killed", None, signal.SIGKILL)


def test_program_that_cannot_start_says_which_and_why(attempts, ended):
    run_dir, _ = attempts.start(argv=("no-such-engine", "--port", "1"))
    assert ended(run_dir).reason == "spawn failed: no-such-engine: No such file or directory"
    run_dir, _ = attempts.start("exits", 0, name="b", stdin=Path("missing.json"))
    assert ended(run_dir).reason == "spawn failed: missing.json: No such file or directory"


def test_exit_record_can_be_read_by_a_stranger(attempts, ended):
    run_dir, identity = attempts.start("exits", 3)
    ended(run_dir)
    record = json.loads((run_dir / "exit.json").read_text())
    assert record.pop("exited_at_s") > 1.7e9
    assert record.pop("exited_boottime_s") <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert record == {
        "version": 1,
        "attempt_id": "a",
        "pid": identity.pid,
        "start_ticks": identity.start_ticks,
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "exit_code": 3,
        "signal": None,
        "reason": "exited",
        "restarts": 0,
        "tree_empty": True,
    }


@pytest.mark.parametrize(("inherited", "left"), [("-500", "0"), ("0", "0"), ("300", "300")])
def test_a_program_has_no_protection_from_the_kernels_killer(tmp_path, inherited, left):
    score = tmp_path / "oom_score_adj"
    score.write_text(f"{inherited}\n")
    shim.give_up_protection(str(score))
    assert score.read_text().split()[0] == left


def test_stop_is_term_first(attempts, ended):
    run_dir, _ = attempts.start("exits", 0, "wait")
    request_stop(run_dir)
    request_stop(run_dir)
    assert (ended(run_dir).reason, ended(run_dir).signal) == ("stopped", signal.SIGTERM)
    request_stop(run_dir)  # too late is harmless


def test_stop_kills_what_ignores_term(attempts, until, ended):
    run_dir, _ = attempts.start("ignores_term", grace_s=0.5)
    until((run_dir / "ready").exists)
    request_stop(run_dir)
    seen = ended(run_dir)
    assert (run_dir / "heard").exists()
    assert (seen.reason, seen.signal) == ("stopped", signal.SIGKILL)


def test_stop_reaches_a_daemonised_grandchild(attempts, number_in, until, is_alive, ended):
    run_dir, _ = attempts.start("daemonises", grace_s=0.5)
    grandchild = number_in(run_dir / "grandchild")
    until(lambda: grandchild in observe(run_dir).pids)
    request_stop(run_dir)
    ended(run_dir)
    assert not is_alive(grandchild)


def test_grandchild_left_behind_is_cleared_after_the_exit_is_told(attempts, number_in, until, is_alive, ended):
    run_dir, _ = attempts.start("daemonises", "leave", grace_s=1.0)
    grandchild = number_in(run_dir / "grandchild")
    seen = until(lambda: (seen := observe(run_dir)).status is Status.EXITED and seen)
    assert (seen.exit_code, seen.reason) == (0, "exited")
    assert ended(run_dir).exit_code == 0
    assert not is_alive(grandchild)


def test_a_retitled_program_is_stopped_whole(attempts, until, is_alive, ended):
    run_dir, _ = attempts.start("retitles")
    until(lambda: len(list(run_dir.glob("retitled.*"))) == 2)
    pids = {int(path.suffix[1:]) for path in run_dir.glob("retitled.*")}
    until(lambda: pids == set(observe(run_dir).pids))
    request_stop(run_dir)
    ended(run_dir)
    assert not any(map(is_alive, pids))


def test_a_tree_that_forks_while_it_is_killed_is_killed(attempts, until, ended):
    run_dir, _ = attempts.start("forks_on", grace_s=0.5)
    until((run_dir / "ready").exists)
    request_stop(run_dir)
    seen = ended(run_dir)
    assert (seen.reason, seen.signal) == ("stopped", signal.SIGKILL)
    until(lambda: not strays_in(str(run_dir), since_ticks=0))  # not even the shim


def test_the_core_of_a_killed_server_does_not_survive(attempts, number_in, is_alive, ended):
    run_dir, _ = attempts.start("engine_core")
    family = [number_in(run_dir / f"{name}.pid") for name in ("core", "worker0", "worker1")]
    os.kill(number_in(run_dir / "server.pid"), signal.SIGKILL)
    assert ended(run_dir).signal == signal.SIGKILL
    assert not any(map(is_alive, family))


def test_a_process_without_its_first_thread_is_alive(attempts, until, ended):
    run_dir, _ = attempts.start("headless", grace_s=0.3)
    until((run_dir / "ready").exists)
    assert observe(run_dir).status is Status.RUNNING
    assert observe(run_dir).child_pid in observe(run_dir).pids
    request_stop(run_dir)
    assert ended(run_dir).reason == "stopped"


def test_deadline_ends_it(attempts, ended):
    run_dir, _ = attempts.start("exits", 0, "wait", deadline_s=0.5)
    assert (ended(run_dir).reason, ended(run_dir).signal) == ("deadline", signal.SIGTERM)


def test_a_kept_program_is_back_soon_and_alone(attempts, number_in, until, is_alive, ended):
    run_dir, identity = attempts.start("engine_core", keep=True)
    family = [number_in(run_dir / f"{name}.pid") for name in ("core", "worker0", "worker1")]
    first = observe(run_dir).child_pid
    os.kill(first, signal.SIGKILL)
    began_s = time.monotonic()
    seen = until(lambda: (seen := observe(run_dir)).child_pid not in (None, first) and seen)
    back_after_s = time.monotonic() - began_s
    assert not any(map(is_alive, family)), "leftovers must be gone before the next one starts"
    assert back_after_s < 10, "2 s are promised; a busy test machine gets more"
    assert (seen.status, seen.identity, seen.restarts) == (Status.RUNNING, identity, 1)
    request_stop(run_dir)
    assert (ended(run_dir).reason, ended(run_dir).restarts) == ("stopped", 1)


def test_a_kept_program_that_always_fails_is_tried_ever_more_slowly(attempts, until, ended):
    run_dir, _ = attempts.start("exits", 1, keep=True)
    until(lambda: observe(run_dir).restarts >= 3)
    request_stop(run_dir)
    seen = ended(run_dir)
    assert (seen.reason, seen.exit_code) == ("stopped", 1) or seen.signal == signal.SIGTERM
    assert seen.restarts < 60


def test_log_keeps_head_and_tail_under_its_cap(attempts, until, ended):
    cap_bytes = 3_000_000
    run_dir, _ = attempts.start("chatty", 50, log_cap_bytes=cap_bytes)
    ended(run_dir)
    parts = [run_dir / f"engine.log{suffix}" for suffix in (".head", ".1", "")]
    assert sum(part.stat().st_size for part in parts) <= cap_bytes
    assert parts[0].read_text().startswith("line 0 ")
    assert "last line after" in log_tail(run_dir, 1)
    assert log_tail(run_dir, 500).count("\n") == 499
    assert sum(part.stat().st_blocks * 512 for part in parts) <= 2 * cap_bytes


def test_a_short_log_is_whole(attempts, ended):
    run_dir, _ = attempts.start("chatty", 1, log_cap_bytes=30_000_000)
    ended(run_dir)
    text = log_path(run_dir).read_text()
    assert [line.split()[1] for line in text.splitlines()[:-1]] == [
        str(number) for number in range(text.count("\n") - 1)
    ]
    assert not (run_dir / "engine.log.head").exists()


def test_stdin_from_a_file_and_stdout_to_a_file(attempts, ended, tmp_path):
    (tmp_path / "request.json").write_text('{"a": 1}')
    run_dir, _ = attempts.start(
        script="cat; echo progress >&2", stdin=tmp_path / "request.json", stdout=tmp_path / "verdict.json"
    )
    assert ended(run_dir).exit_code == 0
    assert (tmp_path / "verdict.json").read_text() == '{"a": 1}'
    assert log_tail(run_dir) == "progress"


def test_the_program_gets_its_facts_and_nothing_of_the_service_that_started_it(attempts, ended):
    script = "import sys; from launch.attempts import *; from pathlib import Path\n"
    script += "start(AttemptSpec(attempt_id='a', run_dir=Path(sys.argv[1]), argv=('env', '-0'), stdout=Path('out'),"
    script += " environment={'PORT': '18000', 'ODD': \"it's \\n=\\\"$HOME\\\" #\"}))"
    service = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "LISTEN_PID": "1", "KEPT": "yes"}
    run_dir = attempts.root / "a"
    subprocess.run([sys.executable, "-c", script, run_dir], check=True, env={**os.environ, **service}, cwd=Path.cwd())
    ended(run_dir)
    seen = dict(item.split("=", 1) for item in (run_dir / "out").read_text().rstrip("\0").split("\0"))
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"} & seen.keys()
    assert (seen["PORT"], seen["ODD"], seen["KEPT"]) == ("18000", 'it\'s \n="$HOME" #', "yes")
    sourced = subprocess.run(
        ["bash", "-c", '. ./attempt.env; printf %s "$ODD"'], cwd=run_dir, check=True, capture_output=True, text=True
    )
    assert sourced.stdout == seen["ODD"]


def test_the_program_starts_with_a_clean_slate(attempts, ended):
    script = "ls /proc/self/fd | wc -l; cat /proc/self/status; pwd; echo $$; cat /proc/self/stat"
    run_dir, identity = attempts.start(script=script)
    ended(run_dir)
    lines = log_path(run_dir).read_text().split("\n")
    assert int(lines[0]) == 4  # 0, 1, 2 and the one that ls reads
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert int(status["SigIgn"], 16) & (1 << (signal.SIGPIPE - 1)) == 0
    shell = int(lines[-3])
    assert lines[-4] == str(run_dir)
    _, _, group, session, terminal = lines[-2].rpartition(")")[2].split()[:5]
    assert (int(group), int(session), int(terminal)) == (shell, shell, 0)
    assert shell != identity.pid


def test_modes_are_private(attempts, ended):
    run_dir, _ = attempts.start(script="exit 0", environment={"TOKEN": "x"})
    ended(run_dir)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (run_dir, *run_dir.iterdir())}
    assert (modes["a"], modes["attempt.env"], modes["launch.sh"]) == (0o700, 0o600, 0o500)


def test_a_second_shim_for_the_same_directory_ends_at_once(attempts, until):
    run_dir, identity = attempts.start("exits", 0, "wait")
    subprocess.run([*SHIM, run_dir], check=True, capture_output=True)
    until(
        lambda: not [pid for pid, s in shim.all_processes().items() if s.alive and is_shim_of(pid, run_dir, identity)]
    )
    assert observe(run_dir).identity == identity


def is_shim_of(pid, run_dir, identity):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return pid != identity.pid and shim.__file__.encode() in words and str(run_dir).encode() in words


def test_a_shim_needs_no_starter_once_its_files_are_there(attempts, ended, until):
    """As a service manager would run it: no lock is handed over, it takes its own."""
    run_dir, identity = attempts.start("exits", 4)
    ended(run_dir)
    until(lambda: not identity.is_alive())
    (run_dir / "exit.json").unlink()
    subprocess.run([*SHIM, run_dir], check=True, capture_output=True)
    until((run_dir / "exit.json").exists)
    assert ended(run_dir).exit_code == 4


def test_the_shim_is_nobodys_child_and_leaves_no_zombie(attempts, ended):
    run_dir, identity = attempts.start("exits", 0, "wait")
    table = shim.all_processes()
    assert table[identity.pid].parent != os.getpid()
    assert not [pid for pid, s in table.items() if s.parent == os.getpid() and not s.alive and is_defunct_shim(pid)]
    assert os.getsid(identity.pid) == identity.pid
    (run_dir / "go").touch()
    ended(run_dir)


def is_defunct_shim(pid):
    return "python" in Path(f"/proc/{pid}/comm").read_text()


def test_a_full_disk_does_not_cost_the_program_its_parent(attempts, until, ended):
    """The run directory is made read-only instead: the record of the exit waits, and the shim's name tells it."""
    run_dir, _ = attempts.start("exits", 7, "wait")
    if os.geteuid() == 0:
        (run_dir / "exit.json.tmp").mkdir()  # root writes anywhere but into a directory
    else:
        run_dir.chmod(0o500)
    child = observe(run_dir).child_pid
    os.kill(child, signal.SIGKILL)
    until(lambda: shim.stat_of(child) is None)
    until(lambda: observe(run_dir).status is Status.EXITED)
    told = observe(run_dir)
    assert (told.signal, told.reason, told.pids) == (signal.SIGKILL, "killed", ())
    assert not (run_dir / "exit.json").exists()
    if os.geteuid() == 0:
        (run_dir / "exit.json.tmp").rmdir()
    else:
        run_dir.chmod(0o700)
    until((run_dir / "exit.json").exists)
    assert ended(run_dir).signal == signal.SIGKILL
