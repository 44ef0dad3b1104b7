"""From one exchange to one sample, or to the reason why it is none.

A request counts only with status 200, server-sent events, no error in the stream, a finish_reason, usage, [DONE], and
as many tokens as were asked for. Tools that are kinder count a stream that was cut off as a success, and a failing
server as a fast one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from gates.replyparts import error_text, refusal_text, token_count
from gates.sse import AFTER, BEFORE, StrayLine, events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.wire import Exchange

MIN_TIMED_TOKENS: Final = 8
"""Fewer tokens after the first chunk make no rate."""
_GIVEN_UP: Final = ("abort", "aborted", "cancelled", "error")
"""Reasons for an end that is no end of the answer."""
_SPOKEN: Final = ("content", "reasoning", "reasoning_content", "tool_calls")
_TEXT: Final = re.compile(rb'"(?:content|reasoning|reasoning_content)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_TOO_LONG: Final = ("context length", "context size", "too long", "maximum context", "max_model_len", "longer than")


@dataclass(frozen=True)
class Sample:
    """One request that counts. Times on the monotonic clock; `times_s` of every chunk that carried text."""

    sent_at_s: float
    times_s: tuple[float, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    first_tokens: int = 1
    """Tokens in the first chunk, where the engine says so with `continuous_usage_stats`; else 1."""

    @property
    def first_at_s(self) -> float:
        return self.times_s[0]

    @property
    def last_at_s(self) -> float:
        return self.times_s[-1]

    @property
    def ttft_s(self) -> float:
        return self.first_at_s - self.sent_at_s

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times_s)]

    @property
    def decode_tok_per_s(self) -> float | None:
        """(N - f) / (last chunk - first chunk); None when there are too few tokens to time."""
        tokens, span_s = self.completion_tokens - self.first_tokens, self.last_at_s - self.first_at_s
        return tokens / span_s if tokens >= MIN_TIMED_TOKENS - 1 and span_s > 0 else None

    @property
    def end_to_end_tok_per_s(self) -> float | None:
        """N / (last chunk - request): with the wait for the first token in it."""
        span_s = self.last_at_s - self.sent_at_s
        return self.completion_tokens / span_s if span_s > 0 else None

    def tokens_in(self, begin_s: float, end_s: float) -> float:
        """Tokens that arrived in (begin, end]; those of chunks after the first are spread evenly over them."""
        each = (self.completion_tokens - self.first_tokens) / max(1, len(self.times_s) - 1)
        later = bisect_right(self.times_s, end_s, 1) - bisect_right(self.times_s, begin_s, 1)
        return each * later + (self.first_tokens if begin_s < self.first_at_s <= end_s else 0)


@dataclass(frozen=True)
class Reading:
    """An exchange with its sample; or the kind of failure and a sentence about it."""

    exchange: Exchange
    sample: Sample | None = None
    failure: str | None = None
    sentence: str = ""
    prompt_tokens: int | None = None
    """As the engine counted them, where it did: also of a request that does not count."""


def read(exchange: Exchange, *, wanted_tokens: int | None) -> Reading:
    """Never raises, whatever came. `wanted_tokens`: how many were asked for with `ignore_eos`, None for any number."""
    refused = _refusal(exchange)
    if refused is not None:
        return Reading(exchange, failure=refused[0], sentence=refused[1])
    stream = _Stream()
    for event in events(exchange.pieces, stream.once_more):
        if isinstance(event, StrayLine):
            stream.problem = stream.problem or f"a line that is no server-sent event: {event.line[:80]!r}"
        else:
            stream.take(event.at_s, event.data)
    prompt_tokens = token_count((stream.usage or {}).get("prompt_tokens"))
    failed = stream.failure(exchange, wanted_tokens)
    if failed is not None:
        return Reading(exchange, None, *failed, prompt_tokens)
    return Reading(exchange, stream.sample(exchange.sent_at_s), prompt_tokens=prompt_tokens)


def _refusal(exchange: Exchange) -> tuple[str, str] | None:
    """Kind and sentence for what is no stream at all."""
    if exchange.status is not None and exchange.status != 200:
        said = error_text(exchange.body)
        if exchange.status in (400, 413, 422) and any(words in said.lower() for words in _TOO_LONG):
            return "prompt too long", f"HTTP {exchange.status}: {said}"
        return f"HTTP {exchange.status}", refusal_text(exchange)
    if exchange.failure is not None and not exchange.pieces:
        kinds = {"timeout": "timeout", "port": "no connection", "host": "no connection"}
        return kinds.get(exchange.failure.layer, "broken off"), exchange.failure.sentence
    if exchange.content_type != "text/event-stream":
        what = exchange.content_type or "no content type"
        return "not streamed", f"the answer is no stream of events ({what}), though a stream was asked for"
    return None


@dataclass
class _Stream:
    """What came of one stream so far."""

    times_s: list[float] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    first_tokens: int = 1
    finish: str | None = None
    done: bool = False
    error: str | None = None
    problem: str | None = None
    alike: tuple[bytes, bytes] = (b"", b"")
    """The bytes around the text of the last chunk, where it was nothing but text."""

    def once_more(self, at_s: float, piece: bytes) -> bool:
        """Is it one more chunk like the last, different in its text alone? That needs no parser, an eighth of the time.

        Nothing but the text stands in between: what is more than one event would have a quote there.
        """
        head, tail = self.alike
        text = piece[len(head) : -len(tail)] if tail and piece.startswith(head) and piece.endswith(tail) else b""
        if not text or b'"' in text:
            return False
        self.times_s.append(at_s)
        return True

    def take(self, at_s: float, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self.problem = self.problem or f"an event is not a JSON object: {data[:80]!r}"
        elif chunk.get("error") or chunk.get("object") == "error":
            self.error = self.error or error_text(data)
        else:
            self._chunk(at_s, chunk)
            self.alike = _around_text(data, chunk)

    def _chunk(self, at_s: float, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(at_s, choice, usage)
        if isinstance(usage, dict):
            self.usage = usage

    def _choice(self, at_s: float, choice: dict[str, Any], usage: object) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(delta.get(key) for key in _SPOKEN):
            if not self.times_s and isinstance(usage, dict):
                self.first_tokens = max(1, token_count(usage.get("completion_tokens")) or 1)
            self.times_s.append(at_s)
        finish = choice.get("finish_reason")
        self.finish = finish if isinstance(finish, str) else self.finish

    def failure(self, exchange: Exchange, wanted_tokens: int | None) -> tuple[str, str] | None:
        """Kind and sentence, or None for a request that counts."""
        if self.error is not None:
            return "error in the stream", f"an error inside the stream: {self.error}"
        if exchange.failure is not None:
            kind = "timeout" if exchange.failure.layer == "timeout" else "broken off"
            return kind, f"{exchange.failure.sentence} ({len(self.times_s)} chunks had come)"
        if self.problem is not None:
            return "malformed", self.problem
        if not self.done or self.finish is None:
            missing = "[DONE]" if not self.done else "finish_reason"
            return "broken off", f"the stream ended without {missing} after {len(self.times_s)} chunks"
        if self.finish in _GIVEN_UP:
            return "given up", f"the engine gave the answer up after {len(self.times_s)} chunks ({self.finish})"
        tokens = token_count((self.usage or {}).get("completion_tokens"))
        if tokens is None:
            return "no usage", "the stream carries no usage, so nobody can count its tokens"
        if not self.times_s:
            return "no token", f"no chunk carried text, though usage says {tokens} tokens"
        if not tokens:
            return "no usage", f"usage says 0 tokens, though {len(self.times_s)} chunks carried text"
        if wanted_tokens is not None and tokens < wanted_tokens:
            return "stopped early", (
                f"{tokens} of {wanted_tokens} tokens came (finish_reason {self.finish}): the engine does not heed "
                "ignore_eos"
            )
        if wanted_tokens is not None and tokens > wanted_tokens:
            return "went on", f"{tokens} tokens came where {wanted_tokens} were asked for"
        return None

    def sample(self, sent_at_s: float) -> Sample:
        usage = self.usage or {}
        details = usage.get("prompt_tokens_details")
        cached = token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
        completion = token_count(usage.get("completion_tokens")) or 0
        # A single chunk brings all of its tokens, whatever was assumed.
        first = completion if len(self.times_s) == 1 else min(self.first_tokens, completion)
        return Sample(
            sent_at_s, tuple(self.times_s), token_count(usage.get("prompt_tokens")) or 0, completion, cached, first
        )


def _around_text(data: bytes, chunk: dict[str, Any]) -> tuple[bytes, bytes]:
    """Head and tail of a piece that holds this event, around its text; empty unless it is nothing but text."""
    choices = chunk.get("choices")
    only = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if chunk.get("usage") or not isinstance(only, dict) or only.get("finish_reason") is not None:
        return b"", b""
    found = list(_TEXT.finditer(data))
    if len(found) != 1 or (only.get("delta") or {}).get("tool_calls"):
        return b"", b""
    return BEFORE + data[: found[0].start(1)], data[found[0].end(1) :] + AFTER
