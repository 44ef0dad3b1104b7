"""Blocks of ports: disjoint, rotating, really free; and who listens."""

import os
import random
import socket

import pytest

from launch.attempts import Ports, PortsError, listening_pids, observe
from launch.ports import first_in_use, holder_of, is_bindable, outgoing_ports


@pytest.fixture
def free():
    """A range of four blocks of five that nobody uses, below the ports that the kernel hands out by itself."""
    for _ in range(200):
        first = random.randrange(20000, 32000)  # noqa: S311  # tests run side by side
        if is_bindable(range(first, first + 20)):
            return Ports(first, first + 19, 5)
    raise AssertionError("no 20 free ports in a row")


def test_blocks_rotate_and_come_round(free):
    starts = [free.first + 5 * n for n in range(4)]
    assert free.allocate(()) == range(free.first, free.first + 5)
    assert free.allocate((), last_used=starts[0]).start == starts[1]
    assert free.allocate((), last_used=starts[3]).start == starts[0]
    assert free.allocate({starts[1], starts[2]}, last_used=starts[0]).start == starts[3]
    assert free.allocate({starts[3] - 2}, last_used=starts[1]).start == starts[0], (
        "a block of another grid overlaps two"
    )


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_block_with_a_taken_port_is_passed_over(free, family):
    with socket.socket(family) as other:
        try:
            other.bind(("127.0.0.1" if family == socket.AF_INET else "::1", free.first + 3))
        except OSError:
            pytest.skip("no IPv6 here")
        assert not is_bindable(range(free.first, free.first + 5))
        assert first_in_use(range(free.first, free.first + 5)) == free.first + 3
        assert free.allocate(()).start == free.first + 5
        with pytest.raises(PortsError, match="no block of 5 free ports is left") as refused:
            free.allocate({free.first + 5, free.first + 10, free.first + 15})
    assert refused.value.exit_code == 5
    assert "3 of 4 blocks are ours" in str(refused.value)


@pytest.mark.parametrize(
    ("first", "last", "size"), [(0, 10, 5), (20, 10, 5), (65530, 65540, 5), (100, 103, 5), (1, 9, 0)]
)
def test_a_range_without_room_is_refused(first, last, size):
    with pytest.raises(PortsError, match="cannot hold one block"):
        Ports(first, last, size)


def test_the_holder_of_a_port_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"process {os.getpid()} (" in holder_of(port)
        assert holder_of(port).endswith("listens on it")
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert f"has a connection from it to 127.0.0.1:{port}" in holder_of(client.getsockname()[1])


def test_the_kernels_own_ports_are_known():
    given, reserved = outgoing_ports()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] in set(given) - reserved


def test_the_listening_process_is_known(attempts, number_in):
    run_dir, _ = attempts.start("listens", 0, "fork")
    port = number_in(run_dir / "port")
    assert observe(run_dir).child_pid in listening_pids(port)
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", 0))
        assert listening_pids(mine.getsockname()[1]) == ()
        mine.listen()
        assert listening_pids(mine.getsockname()[1]) == (os.getpid(),)
