"""A gate's lines of progress on stderr: one JSON object each, from any thread; a sign of life while nothing ends."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final

HEARTBEAT_S: Final = 15.0
"""After so long without a word the gate says what it waits for."""


@dataclass
class Teller:
    """Times on the monotonic clock. `request` says what is under way; `heartbeat` tells it where nothing else is."""

    stream: IO[str]
    gate: str
    started_s: float
    now_s: Callable[[], float] = time.monotonic
    _told_s: float = field(default_factory=time.monotonic)
    _under_way: dict[int, tuple[str, float]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self, fields: Mapping[str, Any]) -> None:
        """One line; the gate's name and its time are added."""
        with self._lock:
            self._told_s = self.now_s()
            line = {"gate": self.gate, "elapsed_s": round(self._told_s - self.started_s, 3), **fields}
            self.stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            self.stream.flush()

    @contextmanager
    def request(self, endpoint: str) -> Iterator[int]:
        """A request to `endpoint` is under way; how many are, with this one."""
        number = next(self._numbers)
        self._under_way[number] = (endpoint, self.now_s())
        try:
            yield sum(where == endpoint for where, _ in list(self._under_way.values()))
        finally:
            del self._under_way[number]

    def waits(self) -> Mapping[str, Any] | None:
        """What is waited for, as fields of a line; None when no request is under way."""
        since = [since_s for _, since_s in list(self._under_way.values())]
        if not since:
            return None
        oldest_s = round(self.now_s() - min(since), 1)
        return {"in_flight": len(since), "oldest_s": oldest_s, "sentence": waiting_words(len(since), oldest_s)}

    @contextmanager
    def heartbeat(self, every_s: float = HEARTBEAT_S) -> Iterator[None]:
        """Inside, no `every_s` go by without a line while a request is under way."""
        over = threading.Event()
        # A thread: blocking gates have no event loop, and a busy loop could not keep time.
        thread = threading.Thread(target=self._beat, args=(every_s, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _beat(self, every_s: float, over: threading.Event) -> None:
        due_s = self._told_s + every_s
        while not over.wait(max(0.0, due_s - self.now_s())):
            now_s = self.now_s()
            due_s = self._told_s + every_s
            if now_s < due_s:
                continue
            waits = self.waits()
            if waits is not None:
                self.line(waits)
            due_s = now_s + every_s


def waiting_words(in_flight: int, oldest_s: float) -> str:
    """``3 requests wait for their answers, the oldest for 42 s``."""
    if in_flight == 1:
        return f"1 request waits for its answer, for {oldest_s:.0f} s"
    return f"{in_flight} requests wait for their answers, the oldest for {oldest_s:.0f} s"
