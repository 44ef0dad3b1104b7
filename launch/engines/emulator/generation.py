"""One answer on its way: each chunk is prepared ahead of time and leaves at its due time."""

import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from . import mind
from .connection import Connection
from .request import Asked
from .settings import Headers
from .struck import Struck
from .tokens import Piece
from .truth import RequestTruth
from .voice import Voice
from .wire import Usage, Wire, error_body

if TYPE_CHECKING:
    from .engine import Engine

ENGINE_ERROR = (
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "InternalServerError",
    500,
)
_AT_ONCE = 8
_BREAKS_OFF = ("err-in-stream", "stream-cut", "hang")


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
        struck: Struck,
        truth: RequestTruth | None,
    ) -> None:
        self.asked = asked
        self.produced_tokens = 0
        self.cached_tokens = 0
        self._engine = engine
        self._connection = connection
        self._wire = wire
        self._struck = struck
        self._breaks = [setting for name in _BREAKS_OFF if (setting := struck.get(name))]
        self._truth = truth
        self._voices = [Voice(n, self._spoken(n), asked, wire) for n in range(asked.choices)]
        self._group_tokens = 0
        self._longest_group = 0
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
        self._prepare()
        if self.asked.streamed:
            head = b"" if self._engine.settings.headers is Headers.EARLY else self._connection.stream_head()
            openings = b"".join(self._wire.opening(n) for n in range(self.asked.choices))
            self._frame = head + openings + self._frame
        uncached = self.asked.prompt_tokens - self.cached_tokens
        wait_ns = self._engine.settings.timing.first_token_ns(uncached) * self._slowness()
        self._admitted_ns = now_ns
        self._first_due_ns = self._due_ns = self._engine.first_step_ns(now_ns + round(wait_ns))
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
        if self._broken_off():
            return None
        if self._finish is not None:
            self._end(self._finish)
            return None
        self._prepare()
        if self._engine.settings.timing.at_once:
            self._prepare_more()
        self._due_ns = self._engine.next_step_ns(self._due_ns, self._longest_group, self._slowness())
        return self._due_ns

    def lost(self) -> None:
        """The client went away, or we cut it off."""
        if not self._over:
            self._over = True
            if self._truth is not None:
                self._truth.close("abort", self.produced_tokens)
            self._engine.release(self, "abort")

    def fail(self) -> None:
        """The engine gives up on it: status 500, or an error event where an answer has begun."""
        self._over = True
        self._connection.on_lost = None
        self._engine.release(self, "error")
        if self.asked.streamed and (self._chunks or self._engine.settings.headers is Headers.EARLY):
            self._connection.write_now(self._wire.failure(*ENGINE_ERROR))
            self._connection.finished()
        else:
            message, kind, status = ENGINE_ERROR
            self._connection.respond(status, error_body(message, kind, status, None, self._engine.settings.dialect))
        if self._truth is not None:
            self._truth.close("error", self.produced_tokens)

    def _spoken(self, choice: int) -> Iterator[Piece]:
        """The pieces of one choice, spoiled by the faults that struck; without end if the client forbids one."""
        engine = self._engine
        answer = self._struck.spoil(mind.answer(self.asked, engine.settings, choice))
        if self.asked.ignore_eos:
            more = mind.more(self.asked, engine.settings.seed)
            return chain(answer.pieces(), (Piece("content", token) for token in more))
        return answer.pieces()

    def _prepare(self) -> None:
        """Take the next tokens off the answer and write their frame; the last frame carries the ending too."""
        timing = self._engine.settings.timing
        all_at_once = timing.at_once and not self.asked.streamed
        wanted = self.asked.max_tokens if all_at_once else timing.tokens_per_chunk
        speaking = [voice for voice in self._voices if voice.finish is None]
        groups = [(voice, voice.take(wanted)) for voice in speaking]
        self._group_tokens = sum(len(group) for _, group in groups)
        self._longest_group = max((len(group) for _, group in groups), default=0)
        if all(voice.finish is not None for voice in self._voices):
            self._finish = self._voices[0].finish
        # Not streamed: nothing leaves before the whole answer is there, and `_end` sends that.
        self._frame = self._streamed_frame(groups) if self.asked.streamed else b""

    def _prepare_more(self) -> None:
        """Several chunks that are due in the same instant leave in one write, as from any server that falls behind."""
        if not self.asked.streamed or self._truth is not None or self._breaks:
            return
        frames = [self._frame]
        while self._finish is None and len(frames) < _AT_ONCE:
            self._account()
            self._prepare()
            frames.append(self._frame)
        self._frame = b"".join(frames)

    def _streamed_frame(self, groups: list[tuple[Voice, list[Piece]]]) -> bytes:
        usage = self._usage() if self.asked.continuous_usage else None
        frame = b"".join(self._wire.events(group, voice.choice, usage) for voice, group in groups)
        if self._breaks:
            return frame
        for voice, _ in groups:
            if voice.finish is not None:
                frame += self._wire.finishing(voice.finish, voice.choice, voice.matched, usage)
        if self._finish is None:
            return frame
        final = self._usage() if self.asked.include_usage else None
        return frame + self._wire.closing(final)

    def _account(self) -> None:
        if self.produced_tokens == 0:
            self._engine.first_token_of(self)
        self._engine.counters.generation_tokens += self._group_tokens
        self.produced_tokens += self._group_tokens
        self._chunks += 1
        if self._truth is not None and self.asked.streamed:
            self._truth.chunk(self._group_tokens, self._due_ns, self._sent_ns)

    def _broken_off(self) -> bool:
        """Whether a fault ends it here, after so many chunks or where it would have ended well."""
        due = [s.fault.name for s in self._breaks if self._chunks >= s.values[0] or self._finish is not None]
        if "err-in-stream" in due:
            self.fail()
        elif "stream-cut" in due:
            self.lost()
            self._connection.cut()
        return bool(due)

    def _end(self, finish: str) -> None:
        self._over = True
        self._connection.on_lost = None
        self._engine.release(self, finish)
        if self.asked.streamed:
            self._connection.finished()
        else:
            body = self._wire.body([voice.written for voice in self._voices], self._usage())
            self._connection.respond(200, body)
            if self._truth is not None:
                self._truth.chunk(self.produced_tokens, self._due_ns, time.monotonic_ns())
        if self._truth is not None:
            self._truth.close(finish, self.produced_tokens)

    def _usage(self) -> Usage:
        produced = self.produced_tokens if self._over else self.produced_tokens + self._group_tokens
        cached = self.cached_tokens if self._engine.settings.cache_report else None
        reasoning = sum(voice.reasoning_tokens for voice in self._voices)
        return Usage(self.asked.prompt_tokens, produced, reasoning, cached)

    def _slowness(self) -> float:
        """By how much the faults stretch times right now."""
        if not self._struck:
            return 1.0
        factor = 0.5 if "garbage" in self._struck else 1.0
        if setting := self._struck.get("slow"):
            factor *= setting.values[0]
        if (setting := self._struck.get("slow-after-s")) and self._engine.since_ready_s() >= setting.values[0]:
            factor *= setting.values[1]
        if (setting := self._struck.get("slow-after-requests")) and self._engine.accepted > setting.values[0]:
            factor *= setting.values[1]
        return factor
