"""What one request brought back, exactly as the socket gave it; what it means is found out when the run is over."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import httptools

from gates.wire import Exchange, Failure, Recorder, is_interim, reason

if TYPE_CHECKING:
    from collections.abc import Callable


class Tape:
    """Bytes and monotonic times of the socket reads of one answer.

    httptools calls only what is defined here: it finds the end of the answer without telling a word about its body,
    which is what keeps a chunk as cheap as its system call. Times and bytes lie in flat lists, so that the garbage
    collector has nothing to walk through.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.times_s = array("d")
        self.reads: list[bytes] = []
        self.size_bytes = 0
        self.sent_at_s = 0.0
        self.written_at_s: float | None = None
        self.ended_at_s = 0.0
        self.status: int | None = None
        self.complete = False
        self.keep_alive = False
        self.failure: Failure | None = None
        self._limit_bytes = limit_bytes
        self._waited_s: float | None = None
        self._closed = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def over(self) -> bool:
        """Nothing more is to be read."""
        return self.complete or self._closed or self._waited_s is not None or self.failure is not None

    @property
    def good(self) -> bool:
        """A whole answer with status 200; whether it makes sense is not known yet."""
        return self.status == 200 and self.failure is None and self._waited_s is None

    @property
    def closed_unread(self) -> bool:
        """The connection ended before the first byte of an answer."""
        return self._closed and not self.reads

    def feed(self, data: bytes, now_s: float) -> None:
        """One socket read. Never raises."""
        self.times_s.append(now_s)
        self.reads.append(data)
        self.size_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as error:
            self.failure = Failure("http", f"the answer is not HTTP ({str(error) or type(error).__name__})")
        if self.size_bytes > self._limit_bytes and self.failure is None:
            limit_mib = self._limit_bytes / 1024 / 1024
            self.failure = Failure("http", f"the answer is larger than {limit_mib:g} MiB and was cut there")
        if self.complete or self.failure is not None:
            self.ended_at_s = now_s

    def close(self, error: Exception | None = None) -> None:
        """The connection is gone."""
        if error is not None and not self.complete:
            self.failure = self.failure or Failure("http", f"the connection broke: {reason(error)}")
        self._closed = True
        self.ended_at_s = time.monotonic()

    def give_up(self) -> None:
        """Nobody waits any longer."""
        self.ended_at_s = time.monotonic()
        self._waited_s = self.ended_at_s - self.sent_at_s

    def exchange(self, method: str, path: str, request_body: bytes) -> Exchange:
        """The answer in HTTP's terms; reads become body pieces. The tape is empty afterwards."""
        recorder = Recorder(limit_bytes=max(self.size_bytes, 1))
        for at_s, data in zip(self.times_s, self.reads, strict=True):
            recorder.feed(data, at_s)
        recorder.failure = recorder.failure or self.failure
        if self._waited_s is not None and recorder.failure is None:
            recorder.failure = Failure("timeout", recorder.where_it_stood(self._waited_s))
        if self._closed:
            recorder.end_of_stream()
        self.reads.clear()
        exchange = recorder.exchange(method, path, request_body, self.sent_at_s, self.ended_at_s)
        return replace(exchange, written_at_s=self.written_at_s)

    # callbacks of httptools

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        if is_interim(self.status):
            self.status = None
            return
        self.keep_alive = self._parser.should_keep_alive()
        self.complete = True


class WatchedTape(Tape):
    """A tape whose client hangs up when `abort_when`, given the bytes of body so far, says so."""

    def __init__(self, limit_bytes: int, abort_when: Callable[[int], bool]) -> None:
        self._body_bytes = 0
        self._abort_when = abort_when
        super().__init__(limit_bytes)

    def feed(self, data: bytes, now_s: float) -> None:
        super().feed(data, now_s)
        if not self.complete and self.failure is None and self._abort_when(self._body_bytes):
            self.failure = Failure("http", "the client hung up on purpose")
            self.ended_at_s = now_s

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
