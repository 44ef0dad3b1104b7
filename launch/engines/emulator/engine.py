"""The engine behind the wire: slots, queue, counters, sleep, and the faults that concern all of it."""

import os
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random

from .connection import Connection
from .faults import FaultPlan, FaultSetting, Situation
from .generation import Generation
from .log import log, log_crash
from .pacer import Pacer
from .request import Asked
from .settings import NS_PER_S, Settings
from .tokens import PrefixCache
from .truth import Truth
from .wire import error_body, wire_for

SWALLOWED_VRAM_SHARE = 0.97  # of its memory a sleeping engine gives back; the CUDA context stays


@dataclass(slots=True)
class Counters:
    """What /metrics counts. Tokens and requests since the start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    # Of ended requests only: what an engine counts that looks at its books when a request is done.
    ended_prompt_tokens: int = 0
    ended_generation_tokens: int = 0
    ended_computed_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    first_tokens: int = 0


class Engine:
    """Admits requests to slots, in order; knows what runs and what waits."""

    def __init__(self, settings: Settings, pacer: Pacer, truth: Truth | None, exit_hook: "Exit") -> None:
        self.settings = settings
        self.counters = Counters()
        self.accepted = 0
        self.created = int(time.time())
        self.ready = False
        self.sleep_level = 0
        self.rng = Random(settings.seed)  # noqa: S311 - must be repeatable, guards nothing
        self._plan = FaultPlan(settings.faults, settings.seed)
        self._pacer = pacer
        self._truth = truth
        self._exit = exit_hook
        self._running: set[Generation] = set()
        self._waiting: deque[Generation] = deque()
        self._prefixes = PrefixCache(settings.kv_tokens)
        self._ready_ns = 0
        self._woken = False

    def become_ready(self) -> None:
        self.ready = True
        self._ready_ns = time.monotonic_ns()

    def since_ready_s(self) -> float:
        return (time.monotonic_ns() - self._ready_ns) / NS_PER_S

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def kv_tokens_used(self) -> int:
        return sum(g.asked.prompt_tokens + g.produced_tokens for g in self._running)

    def submit(self, connection: Connection, asked: Asked, arrived_ns: int) -> None:
        """Take a valid request: run it, queue it, or do to it what a fault says."""
        self.accepted += 1
        struck = self._plan.strike(self._situation(asked))
        self._crash_if_due()
        if "error-500" in struck:
            self.counters.finished["error"] += 1
            body = error_body(
                "EngineCore encountered an issue. See stack trace (above) for the root cause.",
                "InternalServerError",
                500,
                None,
                self.settings.dialect,
            )
            connection.respond(HTTPStatus.INTERNAL_SERVER_ERROR, body)
            return
        wire = wire_for(asked, self.settings.dialect)
        truth = self._truth.open_request(wire.request_id, arrived_ns, asked.prompt_tokens) if self._truth else None
        generation = Generation(self, connection, asked, wire, struck, truth)
        generation.accept()
        self._waiting.append(generation)
        self._admit(arrived_ns)

    def release(self, generation: Generation, finish: str) -> None:
        """An answer ended; its slot is free for the next one."""
        now_ns = time.monotonic_ns()
        if generation in self._running:
            self._running.discard(generation)
            self.counters.ended_prompt_tokens += generation.asked.prompt_tokens
            self.counters.ended_generation_tokens += generation.produced_tokens
            self.counters.ended_computed_tokens += generation.computed_tokens(now_ns)
        else:
            self._waiting.remove(generation)
        self.counters.finished[finish] += 1
        self._admit(now_ns)

    def first_token_of(self, generation: Generation) -> None:
        """Its prefill is complete: now its prompt counts."""
        self.counters.first_tokens += 1
        self.counters.prompt_tokens += generation.asked.prompt_tokens
        self.counters.cached_tokens += generation.cached_tokens

    def computed_tokens(self) -> int:
        """Tokens that went through the model, prompts still being prefilled included: moves whenever work is done."""
        now_ns = time.monotonic_ns()
        return self.counters.ended_computed_tokens + sum(g.computed_tokens(now_ns) for g in self._running)

    def sleep(self, level: int) -> None:
        """Stop admitting requests; those that run go on, those that come wait."""
        self.sleep_level = level
        self._prefixes.clear()

    def wake(self) -> None:
        self.sleep_level = 0
        self._woken = True
        self._admit(time.monotonic_ns())

    @property
    def vram_mib(self) -> int:
        """The memory this engine would hold right now."""
        keeps = self._plan.standing("sleeps-but-keeps-memory") is not None
        if not self.sleep_level or keeps:
            return self.settings.vram_mib
        return round(self.settings.vram_mib * (1 - SWALLOWED_VRAM_SHARE))

    def fault(self, name: str) -> FaultSetting | None:
        """A fault of the whole engine, if it was asked for."""
        return self._plan.standing(name)

    def cut_all(self) -> None:
        """End every request now, as a stopping engine does."""
        for generation in [*self._waiting, *self._running]:
            generation.lost()

    def _admit(self, now_ns: int) -> None:
        while self._waiting and len(self._running) < self.settings.slots and not self.sleep_level:
            generation = self._waiting.popleft()
            generation.cached_tokens = self._prefixes.take(generation.asked.prompt)
            self._running.add(generation)
            due_ns = generation.start(now_ns)
            if due_ns is not None:
                self._pacer.schedule(due_ns, generation)

    def _situation(self, asked: Asked) -> Situation:
        return Situation(
            number=self.accepted,
            since_ready_s=self.since_ready_s(),
            running=len(self._running) + 1,
            streamed=asked.streamed,
            thinking=asked.thinking,
            has_tools=bool(asked.tools),
            turn=asked.turn,
            woken=self._woken,
            after_tool_result=bool(asked.results),
        )

    def _crash_if_due(self) -> None:
        load = self._plan.standing("dies-under-load")
        count = self._plan.standing("dies-after-requests")
        if (load and len(self._running) + 1 >= load.values[0]) or (count and self.accepted >= count.values[0]):
            self._exit.crash("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")


class Exit:
    """How this engine dies when it crashes."""

    def __init__(self, code: int) -> None:
        self._code = code

    def crash(self, error: str) -> None:
        """Gone in this instant: connections are reset, children stay behind, nothing is tidied up."""
        log_crash(error)
        log(f"exit code {self._code}")
        sys.stderr.flush()
        os._exit(self._code)
