"""Asks the engine: many conversations at once; every answer is kept with its bytes, meaning and broken rules."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gates import invariants, retry
from gates.acceptance.check import NONCE, Sample, Skip
from gates.load_client import LoadClient
from gates.reply import error_text, read_reply
from gates.teller import HEARTBEAT_S
from gates.toolwire import Breach
from gates.trial import Answer, DeadlineError, Trial
from gates.wire import encode_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gates.capability import Capability
    from gates.wire import Exchange

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_SILENT_AFTER: Final = 6


class SilentError(Exception):
    """The engine does not answer any more: more questions would only burn the deadline."""

    def __init__(self, last: Answer) -> None:
        super().__init__(last.first_problem or "no answer")
        self.exchange = last.exchange
        """The last of the answers that did not come: the evidence."""

    @property
    def sentence(self) -> str:
        """For people: why the run ends here."""
        return f"the engine does not answer any more: {self}"


class FloodError(SilentError):
    """The engine's answers are longer than anything a model writes: more of them would only fill the memory."""

    @property
    def sentence(self) -> str:
        size_mib = len(self.exchange.body) / 2**20
        return f"the engine's answers have no end: one of {size_mib:.0f} MiB, and others like it or their sum too large"


class BlockedError(Exception):
    """Something blocks already, and this run wants to know no more."""


@dataclass(frozen=True)
class Limits:
    """Settings of the gate that concern single requests."""

    timeout_s: float = 120.0
    max_tokens: int = 1024
    thinking_max_tokens: int = 4096


@dataclass
class Asker:
    """One endpoint and everything that was asked of it. Use it inside one event loop.

    Raises in every question: `DeadlineError` when the gate's time is up, `SilentError` when the engine is gone,
    `CannotJudgeError` and `WrongModelError` as `gates.trial` says.
    """

    trial: Trial
    limits: Limits = field(default_factory=Limits)
    concurrency: int = 8
    stop_early: bool = False
    """End the run at the first breach that only a server can commit."""
    excused: frozenset[str] = frozenset()
    """Rules that say nothing about what is asked here."""
    by_sample: dict[tuple[str, int], list[Answer]] = field(default_factory=lambda: defaultdict(list))
    shared: dict[str, Any] = field(default_factory=dict)
    """What several checks look at and one of them asked for."""
    requests: int = 0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds."""
    _nonces: set[str] = field(default_factory=set)
    _silent: int = 0
    _huge: int = 0
    _held_bytes: int = 0
    _last_failure: str = "no request had been sent"

    def __post_init__(self) -> None:
        self.client = LoadClient(self.trial.endpoint, MAX_ANSWER_BYTES)
        self._room = asyncio.Semaphore(self.concurrency)

    @property
    def model(self) -> str:
        return self.trial.request.model

    @property
    def capability(self) -> Capability:
        return self.trial.capability

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One conversation's place among those that run at once."""
        async with self._room:
            yield

    # --- asking -------------------------------------------------------------------------------------------------------

    async def chat(
        self,
        sample: Sample,
        messages: Sequence[Mapping[str, Any]] | str,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        **keys: Any,
    ) -> Answer:
        """Ask in the way the sample says. `messages` may be the user's text alone, which then gets its nonce.

        `keys` go into the body as they are and win over what the sample says; None takes a key out.
        """
        return await self.send(sample, self.body(sample, messages, tools=tools, **keys))

    def body(
        self,
        sample: Sample,
        messages: Sequence[Mapping[str, Any]] | str,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        **keys: Any,
    ) -> dict[str, Any]:
        """The body of `chat`, for those who want to change it further."""
        if isinstance(messages, str):
            messages = [user(sample, messages)]
        thinks = self.capability.may_think and sample.thinking is not False
        wanted = self.limits.thinking_max_tokens if thinks else self.limits.max_tokens
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": self.capability.room(wanted),
        }
        if tools:
            body |= {"tools": list(tools), "tool_choice": "auto"}
        if sample.thinking is not None and self.capability.thinking == "switch":
            body |= self.capability.thinking_on if sample.thinking else self.capability.thinking_off
        if sample.greedy:
            body |= {"temperature": 0, "seed": 42}
        if sample.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= keys
        return {key: value for key, value in body.items() if value is not None}

    async def send(self, sample: Sample, body: Mapping[str, Any]) -> Answer:
        """Ask exactly this, and again where nobody listens yet or the engine has no room (`gates.retry`)."""
        self._nonces.update(NONCE.findall(sample.nonce))
        payload = encode_body(body)
        exchange, at_once = await self._exchange(payload)
        await asyncio.to_thread(self.trial.guard, exchange) if exchange.status in _GUARDED else None
        self._check_fits(exchange, body, payload)
        reply = retry.with_hint(read_reply(exchange, streamed=bool(body.get("stream"))), exchange, at_once)
        text = f"{reply.content}\n{reply.reasoning}\n" + "\n".join(call.arguments for call in reply.calls)
        found = (*invariants.breaches(reply, body, self.capability), *self._foreign(text, payload))
        breaches = tuple(breach for breach in found if breach.rule not in self.excused) if self.excused else found
        answer = Answer(body, exchange, reply, breaches)
        self.trial.answers.append(answer)
        self.by_sample[sample.check, sample.number].append(answer)
        self._count_bytes(answer)
        if self.stop_early and answer.certain:
            raise BlockedError
        await self._count_silence(sample, answer)
        return answer

    def recall(self, sample: Sample, check: str, number: int | None = None) -> Answer | None:
        """The first answer that the check `check` got to its try of this number, or of the same one as `sample`.

        None where there is none, or where this try has looked at it: whoever tries again wants a new answer.
        """
        theirs = self.by_sample.get((check, sample.number if number is None else number))
        mine = self.by_sample[sample.check, sample.number]
        if not theirs or mine or sample.salt:
            return None
        mine.append(theirs[0])
        return theirs[0]

    async def raw(
        self,
        method: str,
        path: str,
        payload: bytes | Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        abort_when: Callable[[int], bool] | None = None,
    ) -> Exchange:
        """Any request, its answer unjudged: nothing about it counts towards the invariants."""
        data = payload if isinstance(payload, bytes) else b"" if payload is None else encode_body(payload)
        self.requests += 1
        until_s = self._until_s(timeout_s)
        with self.trial.teller.request(self.trial.request.endpoint):
            exchange = await self.client.one(data, deadline_s=until_s, method=method, path=path, abort_when=abort_when)
        self._check_time(exchange)
        return exchange

    async def liveness(self, sample: Sample) -> str | None:
        """A small question that any living engine answers within ten seconds; what is wrong, or None."""
        asked = sample.asked(streamed=False, thinking=None, salt=f"{sample.salt}alive{self.requests}")
        body = self.body(asked, f"Reply with only the following code: {asked.nonce}")
        exchange = await self.raw("POST", "/v1/chat/completions", body, timeout_s=10.0)
        if exchange.failure is not None:
            return f"afterwards the engine does not answer: {exchange.failure.sentence}"
        if exchange.status != 200:
            return f"afterwards the engine answers HTTP {exchange.status} to a plain question"
        reply = read_reply(exchange, streamed=False)
        if not (reply.content.strip() or reply.reasoning.strip()):
            return "afterwards the engine's answer to a plain question is empty"
        return None

    def remaining_s(self) -> float:
        return self.trial.remaining_s()

    def elsewhere(self, trial: Trial) -> Asker:
        """The same kind of asker for another endpoint."""
        return Asker(trial, self.limits, self.concurrency, excused=self.excused)

    def close(self) -> None:
        self.client.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _until_s(self, timeout_s: float | None = None) -> float:
        remaining_s = self.trial.remaining_s()
        if remaining_s <= 0:
            raise self._too_late()
        return time.monotonic() + min(timeout_s or self.limits.timeout_s, remaining_s)

    async def _exchange(self, payload: bytes) -> tuple[Exchange, int]:
        """What came, and how many requests were under way with this one, at most."""
        most = 0
        for attempt in itertools.count():
            self.requests += 1
            until_s = self._until_s()
            with self.trial.teller.request(self.trial.request.endpoint) as at_once:
                most = max(most, at_once)
                exchange = await self.client.one(payload, deadline_s=until_s)
            if exchange.failure is not None:
                self._last_failure = exchange.failure.sentence
            wait_s = retry.pause_s(exchange, attempt, self.trial.remaining_s(), datetime.now(UTC))
            if wait_s is None:
                break
            self.trial.retries += 1
            await self.pause(wait_s)
        self._check_time(exchange)
        return exchange, most

    def _check_time(self, exchange: Exchange) -> None:
        if exchange.failure is None:
            return
        self._last_failure = exchange.failure.sentence
        if exchange.failure.layer in _WAITING and self.trial.remaining_s() <= _TIMER_S:
            # The gate's own end cut the wait short: this says nothing about the engine.
            raise self._too_late()

    def _too_late(self) -> DeadlineError:
        if not any(answer.reply.answered for answer in self.trial.answers):
            return DeadlineError(f"nothing was answered at all; {self._last_failure}")
        waits = self.trial.teller.waits()
        return DeadlineError(waits["sentence"] if waits is not None and waits["oldest_s"] > HEARTBEAT_S else "")

    def _check_fits(self, exchange: Exchange, body: Mapping[str, Any], payload: bytes) -> None:
        """A question that may be longer than a small context is skipped where the engine says so, and no finding."""
        context = self.capability.max_context_tokens
        # No token is shorter than a byte.
        may_be_too_long = context is not None and len(payload) + int(body.get("max_tokens", 0)) > context
        if exchange.status == 400 and may_be_too_long and "context" in error_text(exchange.body).lower():
            raise Skip(f"a question of this check does not fit into a context of {context} tokens")

    def _foreign(self, text: str, payload: bytes) -> list[Breach]:
        """Nonces of other requests: an answer that was meant for somebody else."""
        foreign = [n for n in NONCE.findall(text) if n in self._nonces and n.encode() not in payload]
        return [Breach("O06", f"the answer holds {foreign[0]}, which only another request held")] if foreign else []

    def _count_bytes(self, answer: Answer) -> None:
        # Every answer is kept as evidence until the run is over.
        size_bytes = sum(len(piece.data) for piece in answer.exchange.pieces)
        self._held_bytes += size_bytes
        self._huge += size_bytes > _HUGE_BYTES
        if self._huge >= _HUGE_ANSWERS or self._held_bytes > _MAX_HELD_BYTES:
            raise FloodError(answer)

    async def _count_silence(self, sample: Sample, answer: Answer) -> None:
        lost = any(breach.rule == "P08" for breach in answer.breaches) and not answer.reply.answered
        self._silent = self._silent + 1 if lost else 0
        if self._silent < max(_SILENT_AFTER, self.concurrency):
            return
        self._silent = 0
        # One kind of question may break every time on an engine that answers all others.
        if await self.liveness(sample) is not None:
            raise SilentError(answer)


_GUARDED: Final = (400, 401, 403, 404)
_WAITING: Final = ("host", "port", "timeout")
_HUGE_BYTES: Final = 4 * 1024 * 1024
"""Three times the longest answer that is asked for, a token a chunk."""
_HUGE_ANSWERS: Final = 16
_MAX_HELD_BYTES: Final = 2 * 1024**3
_TIMER_S: Final = 0.05
"""So much too early may a timer be."""


def user(sample: Sample, text: str) -> dict[str, Any]:
    """A user's message with the sample's nonce in front."""
    return {"role": "user", "content": f"[ref {sample.nonce}] {text}"}


def result(call_id: str, content: Any) -> dict[str, Any]:
    """A tool's message."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}
