"""One answer on its way: each chunk is prepared ahead of time and leaves at its due time."""

import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from . import mind
from .connection import Connection
from .faults import FaultSetting
from .request import Asked
from .settings import Headers
from .tokens import Piece
from .truth import RequestTruth
from .wire import Usage, Wire, Written

if TYPE_CHECKING:
    from .engine import Engine


class Generation:
    """Paced by `Pacer`: `emit` sends what is ready, `advance` prepares the next chunk and says when it is due.

    Due times add up from the first one, never from the moment of sending, so lateness does not accumulate.
    """

    def __init__(
        self,
        engine: "Engine",
        connection: Connection,
        asked: Asked,
        wire: Wire,
        struck: dict[str, FaultSetting],
        truth: RequestTruth | None,
    ) -> None:
        self.asked = asked
        self.produced_tokens = 0
        self.cached_tokens = 0
        self._engine = engine
        self._connection = connection
        self._wire = wire
        self._struck = struck
        self._truth = truth
        self._pieces = self._spoken()
        self._next_piece: Piece | None = None
        self._written = Written()
        self._reasoning_tokens = 0
        self._called = False
        self._group_tokens = 0
        self._chunks = 0
        self._frame = b""
        self._finish: str | None = None
        self._admitted_ns = 0
        self._first_due_ns = 0
        self._due_ns = 0
        self._sent_ns = 0
        self._over = False
        connection.on_lost = self.lost

    def accept(self) -> None:
        """The request is valid. Sends the response head now, if this engine sends it early."""
        if self.asked.streamed and self._engine.settings.headers is Headers.EARLY:
            self._connection.write_now(self._connection.stream_head())

    def start(self, now_ns: int) -> int | None:
        """Admitted to a slot at `now_ns`: when the first chunk is due, or None for a silent engine."""
        if "silent" in self._struck:
            return None
        self._next_piece = next(self._pieces, None)
        self._prepare()
        if self.asked.streamed:
            head = b"" if self._engine.settings.headers is Headers.EARLY else self._connection.stream_head()
            self._frame = head + self._wire.opening() + self._frame
        uncached = self.asked.prompt_tokens - self.cached_tokens
        wait_ns = self._engine.settings.timing.first_token_ns(uncached) * self._slowness()
        self._admitted_ns = now_ns
        self._first_due_ns = self._due_ns = now_ns + round(wait_ns)
        return self._due_ns

    def computed_tokens(self, now_ns: int) -> int:
        """Tokens the model has worked on: those generated, and those of the prompt, part of them during prefill."""
        share = 1.0
        if not self.produced_tokens:
            waited_ns, whole_ns = now_ns - self._admitted_ns, self._first_due_ns - self._admitted_ns
            share = min(1.0, waited_ns / whole_ns) if whole_ns > 0 else 0.0
        return round(share * (self.asked.prompt_tokens - self.cached_tokens)) + self.produced_tokens

    def emit(self, due_ns: int) -> None:  # noqa: ARG002 - our own due time is the same
        if self._over:
            return
        if self._frame:
            self._connection.write_now(self._frame)
        self._sent_ns = time.monotonic_ns()

    def advance(self) -> int | None:
        if self._over:
            return None
        self._account()
        if self._cut_off():
            return None
        if self._finish is not None:
            self._end(self._finish)
            return None
        self._prepare()
        gap_ns = self._engine.settings.timing.gap_ns(self._engine.running_count, self._group_tokens)
        self._due_ns += round(gap_ns * self._slowness())
        return self._due_ns

    def lost(self) -> None:
        """The client went away, or we cut it off."""
        if not self._over:
            self._over = True
            if self._truth is not None:
                self._truth.close("abort", self.produced_tokens)
            self._engine.release(self, "abort")

    def _spoken(self) -> Iterator[Piece]:
        """The answer's pieces, spoiled by the faults that struck; without end if the client forbids one."""
        engine = self._engine
        answer = mind.answer(self.asked, engine.settings.seed, engine.settings.answer_tokens)
        for setting in self._struck.values():
            if setting.fault.spoils is not None:
                answer = setting.fault.spoils(answer, engine.rng)
        if self.asked.ignore_eos:
            more = mind.more(self.asked, engine.settings.seed)
            return chain(answer.pieces(), (Piece("content", token) for token in more))
        return answer.pieces()

    def _prepare(self) -> None:
        """Take the next tokens off the answer and write their frame; the last frame carries the ending too."""
        group: list[Piece] = []
        wanted = self._engine.settings.timing.tokens_per_chunk
        produced, limit = self.produced_tokens, self.asked.max_tokens
        while self._next_piece is not None and len(group) < wanted and produced + len(group) < limit:
            group.append(self._next_piece)
            self._next_piece = next(self._pieces, None)
        self._group_tokens = len(group)
        self._note(group)
        if self._next_piece is None:
            self._finish = self._wire.finish_of_calls() if self._called else "stop"
        elif produced + len(group) >= limit:
            self._finish = "length"
        # Not streamed: nothing leaves before the whole answer is there, and `_end` sends that.
        self._frame = self._streamed_frame(group) if self.asked.streamed else b""

    def _note(self, group: list[Piece]) -> None:
        for piece in group:
            self._reasoning_tokens += piece.kind == "reasoning"
            self._called = self._called or piece.kind == "call"
            if not self.asked.streamed:
                self._written.add(piece)

    def _streamed_frame(self, group: list[Piece]) -> bytes:
        frame = self._wire.events(group)
        if self._finish is None or "truncates" in self._struck:
            return frame
        usage = self._usage() if self.asked.include_usage and "no-usage" not in self._struck else None
        return frame + self._wire.closing(self._finish, usage)

    def _account(self) -> None:
        if self.produced_tokens == 0:
            self._engine.first_token_of(self)
        self._engine.counters.generation_tokens += self._group_tokens
        self.produced_tokens += self._group_tokens
        self._chunks += 1
        if self._truth is not None and self.asked.streamed:
            self._truth.chunk(self._group_tokens, self._due_ns, self._sent_ns)

    def _cut_off(self) -> bool:
        setting = self._struck.get("truncates")
        if setting is None or (self._chunks < setting.values[0] and self._finish is None):
            return False
        self.lost()
        self._connection.cut()
        return True

    def _end(self, finish: str) -> None:
        self._over = True
        self._connection.on_lost = None
        self._engine.release(self, finish)
        if self.asked.streamed:
            self._connection.finished()
        else:
            usage = None if "no-usage" in self._struck else self._usage()
            self._connection.respond(200, self._wire.body(self._written, finish, usage))
            if self._truth is not None:
                self._truth.chunk(self.produced_tokens, self._due_ns, time.monotonic_ns())
        if self._truth is not None:
            self._truth.close(finish, self.produced_tokens)

    def _usage(self) -> Usage:
        produced = self.produced_tokens if self._over else self.produced_tokens + self._group_tokens
        cached = self.cached_tokens if self._engine.settings.cache_report else None
        return Usage(self.asked.prompt_tokens, produced, self._reasoning_tokens, cached)

    def _slowness(self) -> float:
        """By how much the faults stretch times right now."""
        factor = 0.5 if "garbage" in self._struck else 1.0
        if setting := self._struck.get("slow"):
            factor *= setting.values[0]
        if (setting := self._struck.get("slow-after-s")) and self._engine.since_ready_s() >= setting.values[0]:
            factor *= setting.values[1]
        if (setting := self._struck.get("slow-after-requests")) and self._engine.accepted > setting.values[0]:
            factor *= setting.values[1]
        return factor
