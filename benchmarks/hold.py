"""What a hold costs, and how it ends: the real front door before an engine that only notes who comes when.

    python benchmarks/hold.py                        # 300 requests held for 10 s, five rounds
    python benchmarks/hold.py --held 100 --rounds 2 --hold-s 3

Prints Markdown, one line per round: CPU of HAProxy while it holds (as a share of one core), milliseconds from the word
that opens the door until the first and the last request is connected to the engine, and how many of them came before
one that had arrived earlier. The share depends on the sockets of the machine, which are listed twice a second: their
number is printed too. Ends with 1 when a request came out of order or was lost.
"""

from __future__ import annotations

import argparse
import itertools
import re
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from controller.core.route import Mode, Route, Slot
from controller.effects.frontdoor.door import DoorSettings, FrontDoor
from controller.effects.frontdoor.runtime import RuntimeSocket

PATIENCE_S = 60.0


@dataclass
class Engine:
    """Answers every request with two bytes and closes. Notes the connections in the order in which they were made."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=4096))
    came: list[tuple[int, float]] = field(default_factory=list)  # number of the request, monotonic seconds

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            at_s = time.monotonic()
            with closing(connection):
                head = b""
                while b"\r\n\r\n" not in head and (more := connection.recv(65536)):
                    head += more
                if number := re.search(rb"number=(\d+)", head):
                    self.came.append((int(number[1]), at_s))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


@dataclass(frozen=True)
class Round:
    held_cpu_share: float
    first_ms: float
    last_ms: float
    out_of_order: int
    lost: int


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])


@contextmanager
def front_door(held: int) -> Iterator[tuple[FrontDoor, int]]:
    """A door of its own on free ports, and its public port."""
    public, preview = free_ports()
    with tempfile.TemporaryDirectory() as directory:
        addresses = (f"127.0.0.1:{public}", f"127.0.0.1:{preview}")
        door = FrontDoor(DoorSettings(Path(directory) / "door", *addresses, hold_max=held, hold_s=600))
        door.ensure()
        try:
            yield door, public
        finally:
            door.stop()


def arrive(door: FrontDoor, port: int, count: int) -> list[socket.socket]:
    """One after another: the next is sent when the door has counted the last, so that the order is known."""
    clients = []
    with RuntimeSocket(door.socket_path, PATIENCE_S) as runtime:
        for number in range(count):
            client = socket.create_connection(("127.0.0.1", port))
            head = f"POST /v1/completions?number={number} HTTP/1.1\r\nHost: door\r\nContent-Length: 2\r\n\r\n"
            client.sendall(head.encode() + b"{}")
            clients.append(client)
            while f"held={number + 1} " not in runtime.ask("show held"):
                pass
    return clients


def answered(clients: list[socket.socket]) -> int:
    """How many got their answer, within the patience."""
    give_up_at_s, whole = time.monotonic() + PATIENCE_S, 0
    with selectors.DefaultSelector() as waiting:
        for client in clients:
            waiting.register(client, selectors.EVENT_READ)
        while waiting.get_map() and time.monotonic() < give_up_at_s:
            for key, _ in waiting.select(1):
                client = clients[clients.index(key.fileobj)]  # type: ignore[arg-type]  # what was registered
                whole += client.recv(65536).startswith(b"HTTP/1.1 200")
                waiting.unregister(client)
                client.close()
    return whole


def one_round(door: FrontDoor, port: int, engine: Engine, held: int, hold_s: float) -> Round:
    slot = Slot(1, engine.port, "/health", "release@1", "release-a-1")
    door.apply(Route(1, (slot,), mode=Mode.HOLD))
    clients = arrive(door, port, held)
    process = psutil.Process(door.read().pid)
    before, began_s = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(hold_s)
    share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_s)
    engine.came.clear()
    opened_s = time.monotonic()
    door.apply(Route(2, (slot,)))
    whole = answered(clients)
    numbers = [number for number, _ in engine.came]
    return Round(
        held_cpu_share=share,
        first_ms=1000 * (engine.came[0][1] - opened_s),
        last_ms=1000 * (engine.came[-1][1] - opened_s),
        out_of_order=sum(later < earlier for earlier, later in itertools.pairwise(numbers)),
        lost=held - whole,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held", type=int, default=300, help="requests that wait")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hold-s", type=float, default=10.0, help="how long all of them wait, for the CPU")
    given = parser.parse_args()
    engine, good = Engine(), True
    threading.Thread(target=engine.run, daemon=True).start()
    with front_door(given.held) as (door, port):
        print("| held | core | ms to the first | ms to the last | out of order | lost | sockets here |")
        print("|---|---|---|---|---|---|---|")
        for _ in range(given.rounds):
            sockets = sum(len(Path(f"/proc/net/{name}").read_text().splitlines()) - 1 for name in ("tcp", "tcp6"))
            seen = one_round(door, port, engine, given.held, given.hold_s)
            print(
                f"| {given.held} | {seen.held_cpu_share:.3f} | {seen.first_ms:.0f} | {seen.last_ms:.0f} "
                f"| {seen.out_of_order} | {seen.lost} | {sockets} |",
                flush=True,
            )
            good &= not seen.out_of_order and not seen.lost
    engine.listener.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
