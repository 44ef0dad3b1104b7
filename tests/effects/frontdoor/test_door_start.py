"""Finding the door, starting it, leaving it alone, and every way in which that cannot work."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from controller.core.route import Mode, Route
from controller.effects.frontdoor import limits
from controller.effects.frontdoor.binary import find_binary, inspect
from controller.effects.frontdoor.door import DoorError, DoorSettings, FrontDoor
from controller.effects.frontdoor.errors import DoorBinaryError, DoorPortTakenError, DoorSettingsError


def test_a_running_door_is_found_and_not_touched(doors, engines, slot_of):
    door = doors()
    door.serve(slot_of(1, engines("blue")))
    before = door.read()
    another_daemon = FrontDoor(door.settings)
    another_daemon.ensure()
    assert another_daemon.read() == before
    assert another_daemon.drifted is False


def test_an_upgrade_that_would_configure_it_otherwise_is_told_not_done(doors):
    door = doors()
    pid, text = door.read().pid, (door.settings.directory / "haproxy.cfg").read_text()
    settings = door.settings
    upgraded = FrontDoor(
        DoorSettings(settings.directory, settings.public, settings.preview, extra_paths=(("GET", "/metrics"),))
    )
    upgraded.ensure()
    assert upgraded.drifted is True
    assert upgraded.read().pid == pid
    assert (settings.directory / "haproxy.cfg").read_text() == text  # what a restarted door will read again


def test_the_door_outlives_whoever_started_it(doors, engines, slot_of, tools):
    door = doors(start=False)
    settings = door.settings
    program = f"""
from pathlib import Path
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
FrontDoor(DoorSettings(Path({str(settings.directory)!r}), {settings.public!r}, {settings.preview!r})).ensure()
print("started", flush=True)
import time; time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as daemon:
        assert daemon.stdout.readline() == "started\n"
        pid = door.read().pid
        assert os.getsid(pid) != os.getsid(daemon.pid)
        daemon.kill()
    door.serve(slot_of(1, engines("blue")))
    assert door.read().pid == pid
    assert tools.run(tools.request(door.port)).whole


def test_a_stopped_door_is_gone_and_starts_again_with_its_route(doors, engines, slot_of, tools):
    door = doors()
    route = door.serve(slot_of(1, engines("blue")))
    pid = door.read().pid
    door.stop()
    assert door.read().alive is False
    assert not Path(f"/proc/{pid}").exists()
    door.ensure()
    tools.wait_for(lambda: door.all_up(route), "it serves what it served")


def test_a_reboot_forgets_the_route(doors, engines, slot_of, tools):
    """Its ports may belong to anybody by then: the daemon must look before it says again what is live."""
    door = doors()
    door.serve(slot_of(1, engines("stranger")))
    door.stop()
    for record in (door.settings.directory / "run").glob("*.json"):
        this_boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record.write_text(record.read_text().replace(this_boot, "00000000-0000-0000-0000-000000000000"))
    door.ensure()
    assert (door.read().public, door.read().mode) == ((), Mode.REFUSE)
    assert tools.run(tools.request(door.port)).error["code"] == "no_model_live"


def test_more_slots_than_before_are_there_after_the_next_start(doors, engines, slot_of, tools):
    door = doors(slots=2)
    door.serve(slot_of(1, engines("blue")))
    door.stop()
    settings = door.settings
    larger = type(door)(DoorSettings(settings.directory, settings.public, settings.preview, slots=5))
    larger.ensure()
    larger.serve(slot_of(1, engines("green")), slot_of(5, engines("red", "/readiness")))


def test_a_door_that_cannot_start_again_says_why(doors, tools):
    door = doors()
    pid = door.read().pid
    configuration = door.settings.directory / "haproxy.cfg"
    configuration.write_text(configuration.read_text() + "\nnonsense here\n")
    os.kill(pid, signal.SIGKILL)
    tools.wait_for(lambda: "unknown keyword 'nonsense'" in door.read().why, "the reason is shown")


FILES = ["haproxy.cfg", "hold.lua", "haproxy.state", "ctl.map", "attempt.map", "health.map", "engine.map", "boot"]
GARBAGE = b"\xff\x00 garbage \n\n\x80"


def test_a_door_whose_files_are_garbage_is_found_and_comes_up_again(doors, engines, slot_of, tools):
    """They say nothing about the one that runs; and the one that dies of them gets them anew."""
    door = doors()
    route = door.serve(slot_of(1, engines("blue")))
    pid = door.read().pid
    for name in FILES:
        (door.settings.directory / name).write_bytes(GARBAGE)
    another_daemon = FrontDoor(door.settings)
    another_daemon.ensure()
    assert (another_daemon.drifted, another_daemon.read().pid, another_daemon.engine_key) == (True, pid, None)
    os.kill(pid, signal.SIGKILL)
    tools.wait_for(lambda: another_daemon.ensure() or another_daemon.read().alive, "it is up again")
    another_daemon.apply(route)
    tools.wait_for(lambda: tools.run(tools.request(door.port)).whole, "it serves")


def test_a_door_whose_run_directory_is_gone_comes_up_again(doors, engines, slot_of, tools):
    """Its keeper lives on there, where it cannot start anything any more."""
    door = doors()
    route = door.serve(slot_of(1, engines("blue")))
    pid = door.read().pid
    shutil.rmtree(door.settings.directory / "run")
    door.ensure()
    assert door.read().pid == pid
    os.kill(pid, signal.SIGKILL)
    tools.wait_for(lambda: not door.read().alive, "it is gone")
    door.ensure()
    door.apply(route)
    tools.wait_for(lambda: tools.run(tools.request(door.port)).whole, "it serves")


@pytest.mark.parametrize("content", [b"", GARBAGE, b"1\n# be_id\n1 2\n", b"x"])
def test_a_door_starts_whatever_its_files_are(doors, content):
    door = doors()
    door.stop()
    for name in FILES:
        (door.settings.directory / name).write_bytes(content)
    door.ensure()
    assert door.read().alive


def test_a_door_whose_shim_died_serves_on_and_can_be_stopped(doors, engines, slot_of, tools):
    door = doors()
    door.serve(slot_of(1, engines("blue")))
    pid = door.read().pid
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert door.alarms() == []
    os.kill(keeper, signal.SIGKILL)
    tools.wait_for(lambda: not Path(f"/proc/{keeper}").exists(), "the shim is gone")
    (alarm,) = door.alarms()
    assert "serves on: when it dies, only a daemon that runs starts another. What heals that is" in alarm
    assert f"`kill -TERM {pid}`" in alarm
    door.ensure()
    assert door.read().pid == pid
    assert tools.run(tools.request(door.port)).whole
    door.stop()
    assert door.read().alive is False


def test_a_door_that_hangs_is_an_error_within_a_second_and_is_left_alone(doors, engines, slot_of):
    door = doors(runtime_timeout_s=0.5)
    pid = door.read().pid
    blue = engines("blue")
    os.kill(pid, signal.SIGSTOP)
    try:
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        began_s = time.monotonic()
        with pytest.raises(DoorError, match="does not answer: no answer in time"):
            door.apply(Route(1, (slot_of(1, blue),)))
        seen = door.read()
        assert (seen.alive, "no answer in time" in seen.why) == (False, True)
        door.ensure()
        assert time.monotonic() - began_s < 10
    finally:
        os.kill(pid, signal.SIGCONT)
    door.apply(Route(1, mode=Mode.HOLD))
    assert (door.read().pid, door.read().mode) == (pid, Mode.HOLD)


def test_a_door_that_does_not_run_is_seen_so(doors):
    door = doors(start=False)
    assert door.read().alive is False
    assert "no front door runs here" in door.read().why
    with pytest.raises(DoorError, match="no front door runs here"):
        door.apply(Route(1))
    with pytest.raises(DoorError, match="no front door runs here"):
        door.cut(1)
    assert door.traffic(0) == {}


@pytest.mark.parametrize("which", ["public", "preview"])
def test_a_taken_port_names_its_holder(doors, which):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(DoorPortTakenError) as refused:
            doors(**{which: address})
    assert f"{address} is taken by process {os.getpid()} (" in str(refused.value)
    assert refused.value.exit_code == 5


def test_two_doors_cannot_share_a_port(doors):
    """HAProxy would share it by default, and each would get half of the requests."""
    first = doors()
    with pytest.raises(DoorPortTakenError, match="haproxy"):
        doors(public=first.settings.public)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may bind every port")
def test_a_port_that_needs_root_says_so(doors):
    with pytest.raises(DoorError, match=r"may not listen on 127\.0\.0\.1:80"):
        doors(public="127.0.0.1:80")


def test_a_missing_binary_is_named(doors, tmp_path):
    with pytest.raises(DoorBinaryError, match=r"nowhere/haproxy is not there"):
        doors(binary=tmp_path / "nowhere" / "haproxy")
    assert DoorBinaryError.exit_code == 2


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        (
            "HAProxy version 2.6.14 2023/06/09\n  OPTIONS = USE_LUA=1\nFeature list : +LUA",
            "is HAProxy 2.6.14; the front door needs 2.8",
        ),
        ("HA-Proxy version 1.8.4 2018\n+LUA", "is HAProxy 1.8.4"),
        ("HAProxy version 2.8.5-1ubuntu3.3 2024\nFeature list : +LUA", r"can crash .* needs 2\.8\.15 or newer"),
        ("HAProxy version 2.9.15 2025\nFeature list : +LUA", r"can crash .* needs 3\.0\.10 or newer"),
        ("HAProxy version 3.0.9-1 2025\nFeature list : +LUA", r"can crash .* needs 3\.0\.10 or newer"),
        ("HAProxy version 3.0.11-8e879a5 2025\nFeature list : -LUA", "built without Lua"),
        ("nginx version: nginx/1.22", "does not answer `-vv` as HAProxy does"),
    ],
)
def test_an_unfit_binary_says_what_is_wrong(tmp_path, says, complaint):
    program = tmp_path / "haproxy"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    program.chmod(0o755)
    with pytest.raises(DoorBinaryError, match=complaint):
        inspect(program)


def test_a_newer_system_binary_would_do(tmp_path):
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\necho 'HAProxy version 3.2.1-1ubuntu1 2025/06/10'; echo 'Feature list : +LUA'\n")
    program.chmod(0o755)
    assert inspect(program).version == (3, 2, 1)
    assert find_binary(None).version >= (2, 8)


def test_the_file_limit_decides_the_connections():
    assert limits.max_connections(32, 20_000) == 4096
    assert limits.max_connections(32, 4096) == (4096 - 100 - 64) // 2
    assert limits.max_connections(32, resource.RLIM_INFINITY) == 4096
    with pytest.raises(DoorError, match=r"limit of open files is 150 .* needs at least 196"):
        limits.max_connections(32, 150)


def test_haproxy_starts_within_a_small_file_limit(doors, tools):
    """`maxconn` beyond the hard limit: it refuses to start ("Cannot raise FD limit")."""
    settings = doors(start=False).settings
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pathlib import Path
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
door = FrontDoor(DoorSettings(Path({str(settings.directory)!r}), {settings.public!r}, {settings.preview!r}))
door.ensure()
print(door.read().alive)
door.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert "maxconn 46 " in (settings.directory / "haproxy.cfg").read_text()
    assert "Cannot raise FD limit" not in (settings.directory / "run" / "engine.log").read_text()


def test_a_full_public_address_leaves_connections_for_the_preview(doors, tools):
    """A gate must get through in the dark, while more clients wait than the door may have connections."""
    settings = doors(start=False).settings
    program = f"""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pathlib import Path
from controller.core.route import Mode, Route
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
door = FrontDoor(DoorSettings(Path({str(settings.directory)!r}), {settings.public!r}, {settings.preview!r}))
door.ensure()
door.apply(Route(1, mode=Mode.HOLD))
request = b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 2\\r\\n\\r\\n{{}}"
clients = [socket.create_connection(("127.0.0.1", {settings.public_address.port})) for _ in range(60)]
for client in clients:
    client.sendall(request)
gate = socket.create_connection(("127.0.0.1", {settings.preview_address.port}), timeout=30)
gate.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(gate.recv(100).split()[1])
door.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("b'503'\n", "")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"public": "8000"}, "public: '8000' is not an address"),
        ({"public": "127.0.0.1:0"}, "public"),
        ({"preview": "127.0.0.1:99999"}, "preview"),
        ({"public": "127.0.0.1:8009"}, "both port 8009"),
        ({"slots": 0}, "slots is 0"),
        ({"extra_paths": (("GET", "/v1/../x"),)}, r"GET /v1/\.\./x cannot be passed"),
        ({"extra_paths": (("GET", '/x" or 1'),)}, "cannot be passed"),
        ({"extra_paths": (("get", "/x"),)}, "cannot be passed"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(tmp_path, wrong, complaint):
    with pytest.raises(DoorSettingsError, match=complaint):
        DoorSettings(tmp_path, **wrong)


def test_a_directory_with_a_long_name_works(tmp_path, tools):
    """A Unix socket's path must fit into 108 bytes; a state directory need not."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    addresses = (f"127.0.0.1:{tools.free_port()}", f"127.0.0.1:{tools.free_port()}")
    door = FrontDoor(DoorSettings(deep, *addresses))
    try:
        door.ensure()
        assert door.read().alive
    finally:
        door.stop()


def test_files_are_private(doors):
    door = doors()
    directory = door.settings.directory
    assert directory.stat().st_mode & 0o077 == 0
    assert (directory / "haproxy.sock").stat().st_mode & 0o077 == 0
