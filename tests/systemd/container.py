"""A container whose pid 1 is systemd: booted from a copy of a tree, asked by nsenter, gone with the test run.

Nothing of it outlives its owner: the copy lies in memory, mounted for the container alone, its processes are in cgroups
and in a namespace of pids of their own, and a test run that is killed takes them along (the parent-death signal).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

BOOT_TIMEOUT_S = 90.0
ENDING_S = 20.0
POLL_S = 0.1
NAME = "cutover-init"  # and the pid of who boots it
WHEELS = "/root/wheels"  # inside
WANTS_A_REBOOT = 133  # nspawn's word to the service manager that keeps it (`--keep-unit`)
INSIDE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
# What the service manager of a container does. The arguments: tree, where its copy is mounted, cgroups, nspawn's own.
KEEPER = f"""
set -e
mkdir -p /run/systemd/nspawn
mount -t tmpfs none /run/systemd/nspawn
mount -t tmpfs -o mode=755 none "$2"
cp -a "$1/." "$2"
groups=$3
shift 3
boot='for group in $0; do echo $$ > "$group/cgroup.procs"; done; exec systemd-nspawn "$@"'
while :; do
    code=0
    sh -c "$boot" "$groups" "$@" || code=$?
    [ $code = {WANTS_A_REBOOT} ] || exit $code
done
"""


class Container:
    """`with Container(tree, wheels, place) as box:`. `wheels` is seen inside as WHEELS; `place`: an empty directory."""

    def __init__(self, tree: Path, wheels: Path, place: Path) -> None:
        self.console = place / "console"
        self._tree, self._wheels, self._copy = tree, wheels, place / "root"
        self._name = f"{NAME}-{os.getpid()}"
        self._groups = [group / self._name for group in _own_cgroups()]
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
            self._wait_until_booted()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        self._copy.mkdir()
        sweep()
        for group in self._groups:
            group.mkdir()
        nspawn = [
            *("--quiet", "--boot", f"--machine={self._name}", f"--directory={self._copy}"),
            *("--private-network", "--register=no", "--keep-unit", "--settings=no", "--link-journal=no"),
            *("--resolv-conf=off", "--timezone=off", "--console=pipe", f"--bind-ro={self._wheels}:{WHEELS}"),
        ]
        places = [str(self._tree), str(self._copy), " ".join(map(str, self._groups))]
        with self.console.open("wb") as said:
            self._keeper = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("sh", "-c", KEEPER, "sh", *places, *nspawn),
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=INSIDE,
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends it at once, as a power cut would."""
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
        self.until(self._is_gone, ENDING_S, "its processes to end")

    def _is_gone(self) -> bool:
        for group in self._groups:
            for pid in _members(group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _remove_cgroup(group)
        return not any(group.exists() for group in self._groups)

    # --- asking -------------------------------------------------------------------------------------------------------

    def run(self, script: str, *, timeout_s: float = 60.0) -> str:
        """What a bash script says inside, as root; its failure is the test's."""
        code, said = self.ask(script, timeout_s=timeout_s)
        assert code == 0, f"`{script}` ended with {code} in the container:\n{said}"
        return said

    def ask(self, script: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Exit code, and stdout with stderr."""
        done = subprocess.run(
            [
                *("nsenter", "--target", str(self._leader()), "--mount", "--uts", "--ipc", "--net", "--pid", "--"),
                *("bash", "-c", f"cd /root; {script}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            env=INSIDE,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def inside(self, path: str) -> Path:
        """A file of the container, out here."""
        return Path(f"/proc/{self._leader()}/root{path}")

    def _leader(self) -> int:
        """The pid, out here, of the container's pid 1."""
        found = self._runs()
        assert found, f"the container does not run; its console said:\n{self.words()}"
        return found[0]

    def _runs(self) -> list[int]:
        return [pid for group in self._groups[:1] for pid in _members(group) if _is_init_of_the_container(pid)]

    def words(self) -> str:
        """The last of the console and of the journal."""
        journal = ""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            journal = self.ask("journalctl --no-pager --lines=20", timeout_s=10)[1] if self._runs() else ""
        return f"{self.console.read_text(errors='replace')[-2000:]}{journal}"

    def _wait_until_booted(self) -> None:
        """Until systemd has nothing left to start; a unit that failed on the way is no reason to wait on."""

        def booted() -> bool:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                return self.ask("systemctl is-system-running", timeout_s=10)[1].strip() in {"running", "degraded"}
            return False

        self.until(booted, BOOT_TIMEOUT_S, "the container to boot")

    def reboot(self) -> None:
        """As an operator would; returns when it is up again, with the same disk."""
        before = self._leader()
        self.ask("systemctl reboot")
        self.until(lambda: not Path(f"/proc/{before}").exists(), BOOT_TIMEOUT_S, "the container to go down")
        self._wait_until_booted()

    def until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {timeout_s:.0f} s for {what}; last was said:\n{self.words()}"
            time.sleep(POLL_S)


def what_is_missing() -> str:
    """Why root cannot make a container here, in one sentence; empty when it can."""
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    if subprocess.run(namespaces, capture_output=True, check=False).returncode:
        return "this root may make no namespaces: it is one without privileges itself"
    groups = _own_cgroups()
    if not groups or not all(os.access(group, os.W_OK) for group in groups):
        return "this root may make no cgroups: they are mounted read-only, or not at all"
    return ""


def sweep() -> None:
    """Remove the cgroups of a run that was killed, whose processes have ended with it."""
    for place in _own_cgroups():
        for left in place.glob(f"{NAME}-*"):
            if not Path(f"/proc/{left.name.removeprefix(f'{NAME}-')}").exists():
                _remove_cgroup(left)


def _own_cgroups() -> list[Path]:
    """Where this process may make cgroups that hold processes: the unified hierarchy, and systemd's own beside it."""
    places = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, hierarchy, path = line.split(":", 2)
        root = {"": "/sys/fs/cgroup/unified", "name=systemd": "/sys/fs/cgroup/systemd"}.get(hierarchy)
        if hierarchy == "" and Path("/sys/fs/cgroup/cgroup.procs").exists():
            root = "/sys/fs/cgroup"
        if root is not None and (place := Path(root + path)).is_dir():
            places.append(place)
    return places


def _members(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())


def _remove_cgroup(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # somebody is still ending in there
            Path(folder).rmdir()


def _is_init_of_the_container(pid: int) -> bool:
    """Of the namespaces of pids, the keeper's shell is the first in the outer one, systemd the first in one below."""
    with contextlib.suppress(OSError):
        found = re.search(r"^NSpid:.*\s(\d+)\s+1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return found is not None and found[1] != "1"
    return False
