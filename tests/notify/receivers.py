"""Receivers of messages that do what a test says, and a journal to which things happen."""

from __future__ import annotations

import http.server
import itertools
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.core import actions as act
from controller.core.records import Instance, Kind, Now, Options, Release
from controller.core.table import Event as Happening
from controller.notify.destination import Destination, destinations
from controller.notify.notifier import Notifier, Pauses
from controller.notify.target import Target
from controller.store.journal import Journal

RELEASE = Release(
    "one@00000000",
    "one",
    "0" * 64,
    "emulator",
    ("m",),
    (Instance("a", "engine", 1, None, "/health", fronted=True),),
    "standard",
)
QUICK = Pauses(0.02, 0.05, 0.05)


@dataclass
class Got:
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Answers its n-th request with the n-th status, the last one for ever; `hangs` until the test is over."""

    statuses: tuple[int, ...] = (200,)
    hangs: bool = False
    location: str = ""
    on_arrival: Callable[[], None] = lambda: None
    got: queue.Queue[Got] = field(default_factory=queue.Queue)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        receiver, turn = self, itertools.count()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.on_arrival()
                receiver.got.put(Got(dict(self.headers.items()), body))
                if receiver.hangs:
                    receiver.over.wait()
                    return
                self.send_response(receiver.statuses[min(next(turn), len(receiver.statuses) - 1)])
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def next(self) -> Got:
        """The next request, waited for."""
        return self.got.get(timeout=60)

    def next_ids(self, count: int) -> list[str]:
        return [self.next().json["id"] for _ in range(count)]

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass
class Clock:
    """Turned by the test."""

    boot_s: float = 1000.0
    wall_s: float = 1_790_000_000.0
    boot_id: str = "boot-1"

    def now(self) -> Now:
        return Now(self.boot_id, self.boot_s, self.wall_s)

    def turn(self, seconds: float) -> None:
        self.boot_s += seconds
        self.wall_s += seconds


class Box:
    """A journal in a directory, things that happen to it, and notifiers on it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        self.file = folder / "notify.json"
        self.journal = Journal(folder / "journal.sqlite")
        self.alarms: list[str] = []
        self.notifiers: list[Notifier] = []

    def propose(self, **options: Any) -> str:
        action = act.Propose(Kind.PROPOSE, RELEASE, "tester", Options(**options))
        return self.journal.request(None, "tester", "propose", self.clock.now(), lambda _: (action, "asked"))

    def refuse(self, why: str = "no card is free", **options: Any) -> str:
        """A rollout that comes to nothing; its id."""
        rollout = self.propose(**options)
        self.move(rollout, Happening.REFUSED, why)
        return rollout

    def move(self, rollout: str, happening: Happening, why: str = "because") -> None:
        self.do(act.Move(rollout, happening), why)

    def do(self, action: act.Record, why: str = "because") -> None:
        self.journal.begin(action, why, self.clock.now())

    def notifier(self, *to: Destination, deadline_s: float = 30.0) -> Notifier:
        made = Notifier(
            to, self.journal, self.file, lambda: self.alarms, self.clock.now, pauses=QUICK, deadline_s=deadline_s
        )
        self.notifiers.append(made)
        return made

    def kept(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text())["targets"][name])

    def until(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        ends_s = time.monotonic() + timeout_s
        while not (found := condition()):
            assert time.monotonic() < ends_s, "it did not happen"
            time.sleep(0.02)
        return found

    def close(self) -> None:
        for each in self.notifiers:
            each.stop()
        self.journal.close()


def webhook(receiver: Receiver, name: str = "hook", **settings: Any) -> Destination:
    return destinations([Target(name=name, webhook=f"http://{receiver.address}/told", **settings)])[0]


def apprise(folder: Path, *urls: str, name: str = "ops") -> tuple[Destination, ...]:
    file = folder / f"{name}.urls"
    file.write_text("# whom to tell\n" + "".join(f"{url}\n" for url in urls))
    file.chmod(0o600)
    return destinations([Target(name=name, apprise_file=file)])
