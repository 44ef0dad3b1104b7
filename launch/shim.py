"""The tiny parent of everything long-lived: runs one program, outlives whoever asked for it, records how it ended.

    python -S -I shim.py RUN_DIR [LOCK_FD [unit]]

Standard library only, all imported at the top: the product may be upgraded while this process runs for weeks.
What it reads and writes in RUN_DIR: docs/processes.md. SIGTERM means: stop the program and all that it started.
"""
# os and open are enough here, and pathlib would cost memory in a process of which many run:
# ruff: noqa: PTH104, PTH110, PTH116, PTH123, PTH208

import contextlib
import ctypes
import fcntl
import json
import os
import shlex
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

LOG = "engine.log"
LOOK_EVERY_S = 0.25  # at the log: what a program can write meanwhile is what may exceed the cap
BACKOFF_FIRST_S, BACKOFF_MOST_S, STEADY_AFTER_S = 0.05, 2.0, 10.0
# A notification socket, a watchdog or a listening socket of the service that started us is not the program's business.
STRIPPED = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "JOURNAL_STREAM")
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stat(NamedTuple):
    alive: bool  # a zombie is not, unless only its first thread has ended
    parent: int
    start_ticks: int  # since boot: with the boot id, what makes a pid an identity
    has_terminal: bool  # somebody sits in front of it


def stat_of(pid: int | str) -> Stat | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # the name in parentheses may hold anything, even ")"
        alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
        return Stat(alive, int(fields[1]), int(fields[19]), fields[4] != b"0")
    return None


def all_processes() -> dict[int, Stat]:
    return {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := stat_of(name))}


def tree_below(root: int, table: dict[int, Stat]) -> dict[int, int]:
    """Every living descendant and its start time. Complete while root lives, for a subreaper inherits all orphans."""
    children: dict[int, list[int]] = {}
    for pid, stat in table.items():
        children.setdefault(stat.parent, []).append(pid)
    family = [root]
    for ancestor in family:
        family += children.get(ancestor, ())
    return {pid: table[pid].start_ticks for pid in family[1:] if table[pid].alive}


def own_tree() -> dict[int, int]:
    return tree_below(os.getpid(), all_processes())


def signal_all(processes: dict[int, int], number: int) -> None:
    """Signal those that still have their start time, never a later owner of a number: opened first, checked then.

    SIGTERM wakes up whoever was halted, too, as systemd does: he would not hear it, and use up his grace.
    """
    for pid, start_ticks in processes.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)
            try:
                if (stat := stat_of(pid)) and stat.start_ticks == start_ticks:
                    signal.pidfd_send_signal(handle, number)
                    if number == signal.SIGTERM:
                        signal.pidfd_send_signal(handle, signal.SIGCONT)
            finally:
                os.close(handle)


def kill_round() -> None:
    """One blow at the whole tree; orphans of the dead become our children, so rounds end even a tree that forks on.

    Our own children first, and fast: a chain of forks outruns a scan of /proc (seen on a busy box), but not this list.
    """
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        for pid in file.read().split():
            with contextlib.suppress(PermissionError):
                os.kill(int(pid), signal.SIGKILL)  # not reaped yet, so the number cannot be anybody else's
    signal_all(own_tree(), signal.SIGKILL)


def write_json(path: str, document: dict[str, Any]) -> None:
    """All or nothing, also across a power cut."""
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.tmp", path)


def keep_part(suffix: str, start: int, size_bytes: int) -> None:
    with open(LOG, "rb") as source, open(LOG + suffix, "wb") as kept:
        os.sendfile(kept.fileno(), source.fileno(), start, size_bytes)


def trim_log(part_bytes: int) -> None:
    """Keep the log below a quarter of its cap: the first quarter ever goes to .head, the newest to .1 (at most two).

    The program appends to the file itself (a pipe would die with us, and the program of the pipe): it is cut in place.
    """
    size_bytes = os.stat(LOG).st_size
    if size_bytes > part_bytes:
        with contextlib.suppress(OSError):  # a full disk costs the copy, never the cut
            if first := not os.path.exists(f"{LOG}.head"):
                keep_part(".head", 0, part_bytes)
            keep_part(".1", max(part_bytes if first else 0, size_bytes - part_bytes), 2 * part_bytes)
        os.truncate(LOG, 0)


def take_locks(paths: list[str], held: list[int]) -> str:
    """Lock these files, all or none, and add them to `held`; "" or, in one line, which of them somebody else holds.

    They lie where everybody may write, and the kernel refuses O_CREAT there for a file of somebody else's
    (fs.protected_regular): opened as they are first, and never written to.
    """
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
            with contextlib.suppress(PermissionError):  # somebody else was faster
                os.fchmod(handle, 0o644)  # whatever our umask: other daemons have to open it to meet us there
        held.append(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = f"{path} is locked by {lock_holder(handle)}"
            give_up(held)
            return taken
    return ""


def give_up(held: list[int]) -> None:
    while held:
        os.close(held.pop())


def lock_holder(handle: int) -> str:
    """Of a flock: the kernel lists them by inode (proc_locks(5)); in a container the pid may be unknown here."""
    inode = f":{os.fstat(handle).st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        for fields in map(str.split, file):
            if fields[1] == "FLOCK" and fields[5].endswith(inode):
                return f"pid {fields[4]}"
    return "another process"


def give_up_protection(path: str = "/proc/self/oom_score_adj") -> None:
    """Who uses the memory shall be whom the kernel ends for it: a service's protection is not inherited."""
    with contextlib.suppress(OSError, ValueError), open(path, "r+", encoding="ascii") as file:
        if int(file.read()) < 0:
            file.seek(0)
            file.write("0\n")


class Shim:
    def __init__(self, spec: dict[str, Any], environment: dict[str, str], identity: dict[str, Any]) -> None:
        self.spec, self.environment, self.identity = spec, environment, identity
        self.deadline_s = self.now_s() + (float("inf") if spec["deadline_s"] is None else spec["deadline_s"])
        self.child, self.status = 0, 0  # the program's pid (0: none), and how the last one ended, as waitpid says it
        self.asked = ""  # why we stop it: "stopped" or "deadline"
        self.grace_s, self.restarts = float(spec["grace_s"]), 0
        self.locks: list[int] = []
        self.lent = False

    @staticmethod
    def now_s() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the box is suspended

    def record_start(self) -> None:
        write_json("shim.json", {**self.identity, "child_pid": self.child or None, "restarts": self.restarts})

    def record_exit(self, reason: str, code: int | None, *, tree_empty: bool) -> None:
        """``code`` as subprocess gives it: negative for a signal; None for a program that never ran.

        While the disk takes nothing, it stands in our name (/proc/PID/comm), and the tree is ended all the same.
        """
        how = {"exit_code": None, "signal": -code} if code and code < 0 else {"exit_code": code, "signal": None}
        when = {"exited_at_s": time.time(), "exited_boottime_s": self.now_s(), "tree_empty": tree_empty}
        while True:
            try:
                write_json("exit.json", {**self.identity, **how, **when, "reason": reason, "restarts": self.restarts})
            except FileNotFoundError:  # the run directory is gone: nobody will ask
                return
            except OSError:  # a full disk: the record waits for room, and we with it
                with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:
                    name.write(f"ended {reason[0]}{code} {tree_empty:d}")
                if not tree_empty:
                    return
                give_up(self.locks)
                time.sleep(1)
            else:
                return

    def spawn(self) -> str:
        """Start the program; "" or, in one line, why it did not start."""
        reader, writer = os.pipe()  # closes on exec: an end without a word means that the program runs
        self.child = os.fork()
        if self.child == 0:
            self.become_program(writer)
        os.close(writer)
        with contextlib.suppress(OSError):  # a full disk must not cost the program its parent
            self.record_start()
        with open(reader, encoding="utf-8") as pipe:
            return pipe.read()

    def become_program(self, writer: int) -> NoReturn:
        program, answer = self.spec["argv"][0], self.spec["stdout"]
        try:
            os.setsid()
            if not self.spec["keep"]:  # what is kept is as dear as we are
                give_up_protection()
            os.dup2(os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            os.dup2(os.open(answer, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) if answer else 2, 1)
            os.dup2(os.open(self.spec["stdin"] or "/dev/null", os.O_RDONLY), 0)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would pass that on
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(program, self.spec["argv"], self.environment)  # noqa: S606  # argv of a release, never a shell
        except OSError as error:
            what = error.filename if isinstance(error.filename, str) else program  # bytes: a place on PATH
            os.write(writer, f"{what}: {error.strerror}".encode())
        finally:
            os._exit(127)

    def tick(self, timeout_s: float) -> bool:
        """Wait for a signal or the time, look at everything once; whether anything of the tree is left."""
        heard = signal.sigtimedwait(WATCHED, max(0.0, min(timeout_s, LOOK_EVERY_S, self.deadline_s - self.now_s())))
        if heard and heard.si_signo in (signal.SIGTERM, signal.SIGINT):
            self.ask("stopped")
        elif self.now_s() >= self.deadline_s:
            self.ask("deadline")
        alive = self.reap()
        with contextlib.suppress(OSError):
            trim_log(self.spec["log_cap_bytes"] // 4)
        with contextlib.suppress(OSError):
            self.lend()
        return alive

    def lend(self) -> None:
        """While a file `lend` lies here, its program sleeps and the locks are others'; `cards.json` says when they are.

        When it is gone they are taken again, or tried to be: somebody else may have them by then.
        """
        wanted, why = os.path.exists("lend"), ""
        if wanted == self.lent or not self.spec.get("locks"):
            return
        if wanted:
            give_up(self.locks)
        else:
            why = take_locks(self.spec["locks"], self.locks)
        write_json("cards.json", {"lent": wanted, "why": why})
        self.lent = wanted or bool(why)

    def ask(self, why: str) -> None:
        self.asked, self.deadline_s = self.asked or why, float("inf")
        with contextlib.suppress(PermissionError):
            if self.child:
                os.kill(self.child, signal.SIGTERM)  # not reaped yet, so the number cannot be anybody else's
                os.kill(self.child, signal.SIGCONT)

    def reap(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.child:
                    self.child, self.status = 0, found[1]
            return True
        return False  # ECHILD at a subreaper is the kernel's word that the tree is empty

    def watch(self) -> float:
        """Until the program has ended, or was asked to and its grace is over; when patience with the rest ends."""
        patience_ends_s = float("inf")
        while self.child and self.now_s() < patience_ends_s:
            self.tick(patience_ends_s - self.now_s())
            if self.asked and patience_ends_s == float("inf"):
                patience_ends_s = self.now_s() + self.grace_s
        return min(patience_ends_s, self.now_s() + self.grace_s)

    def clear(self, patience_ends_s: float) -> None:
        """End what is left of the tree, politely while patience lasts; returns when the kernel says it is empty."""
        alive = self.reap()
        if alive and self.now_s() < patience_ends_s:
            signal_all(own_tree(), signal.SIGTERM)
        while alive:
            if self.now_s() >= patience_ends_s:
                kill_round()
            alive = self.tick(LOOK_EVERY_S)

    def pause(self, pause_s: float) -> bool:
        """Whether to go on after it: no when it was time to stop."""
        resume_at_s = self.now_s() + pause_s
        while not self.asked and self.now_s() < resume_at_s:
            self.tick(resume_at_s - self.now_s())
        return not self.asked

    def run(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            began_s, failure, patience_ends_s = self.now_s(), self.spawn(), self.watch()
            if failure and not self.restarts:
                return self.record_exit(f"spawn failed: {failure}", None, tree_empty=True)
            if self.asked or not self.spec["keep"]:
                break
            self.clear(self.now_s())  # at once: a leftover may hold the port that the next one needs
            if self.now_s() - began_s > STEADY_AFTER_S:
                backoff_s = BACKOFF_FIRST_S
            if not self.pause(backoff_s):
                break
            backoff_s, self.restarts = min(2 * backoff_s, BACKOFF_MOST_S), self.restarts + 1
        reason = self.asked or ("killed" if os.WIFSIGNALED(self.status) else "exited")
        if not self.child and self.reap():  # the news first, the sweeping after
            self.record_exit(reason, os.waitstatus_to_exitcode(self.status), tree_empty=False)
        self.clear(patience_ends_s)
        return self.record_exit(reason, os.waitstatus_to_exitcode(self.status), tree_empty=True)


def main() -> None:
    os.chdir(sys.argv[1])
    if sys.argv[3:] != ["unit"]:  # whose main process we are then, and nobody's child already (own_unit.py)
        if os.fork():
            os._exit(0)  # whoever started us waits for this one, and is nobody's parent
        os.setsid()
    lock = int(sys.argv[2]) if len(sys.argv) > 2 else os.open("shim.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a second shim for this directory ends here
    os.set_inheritable(lock, False)  # or the program would hold the lock after our death
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)  # "ignored" is inherited, and would swallow exit codes
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        sys.exit("this kernel refuses PR_SET_CHILD_SUBREAPER")
    with open("attempt.json", encoding="utf-8") as file:
        spec = json.load(file)
    with open("attempt.env", encoding="utf-8") as file:
        facts = dict(word.partition("=")[::2] for word in shlex.split(file.read()))
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        me = {
            "pid": os.getpid(),
            "start_ticks": (stat := stat_of("self")) and stat.start_ticks,
            "boot_id": file.read().strip(),
        }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(STRIPPED)}
    shim = Shim(spec, inherited | facts, {"version": 1, "attempt_id": spec["attempt_id"], **me})
    shim.record_start()  # before there is a child: whoever finds one can also find us
    try:
        taken = take_locks(spec.get("locks", []), shim.locks)
    except OSError as error:
        taken = f"{error.filename}: {error.strerror}"
    if taken:
        shim.record_exit(f"not started: {taken}", None, tree_empty=True)
    else:
        shim.run()


if __name__ == "__main__":
    main()
