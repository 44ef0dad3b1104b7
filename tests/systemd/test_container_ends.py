"""A container does not outlive the test run that booted it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import container
import debian_tree
import pytest

pytestmark = [pytest.mark.init, pytest.mark.timeout(540)]

RUNNER = """
import sys, time
from pathlib import Path
from container import Container
with Container(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[2])) as booted:
    print(booted.run("systemd-run -q --unit=left sleep 1000; systemctl show -P ActiveState left"), flush=True)
    time.sleep(1000)
"""


def in_its_cgroups(name: str) -> list[str]:
    return [
        line for path in Path("/sys/fs/cgroup").glob(f"**/{name}/**/cgroup.procs") for line in path.read_text().split()
    ]


def test_who_boots_a_container_and_is_killed_takes_it_along(tmp_path):
    missing = debian_tree.what_is_missing() or container.what_is_missing()
    if missing:
        pytest.skip(missing)
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(debian_tree.tree()), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    try:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "active\n"
        assert in_its_cgroups(f"{container.NAME}-{runner.pid}")
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
    end_s = time.monotonic() + 20
    while in_its_cgroups(f"{container.NAME}-{runner.pid}"):
        assert time.monotonic() < end_s, "processes of the container live on"
        time.sleep(0.1)
    container.sweep()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{container.NAME}-{runner.pid}"))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list((tmp_path / "root").iterdir()) == [], "the copy was in memory"
