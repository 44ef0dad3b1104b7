"""The engine behind the wire: slots, queue, counters, sleep, and the faults that concern all of it."""

import os
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from . import mind
from .connection import Connection
from .faults import FaultPlan, FaultSetting, Situation
from .generation import ENGINE_ERROR, Generation
from .lockstep import Lockstep
from .log import log, log_crash
from .pacer import Pacer
from .request import Asked, BadRequest
from .settings import NS_PER_S, Settings
from .struck import TAKES_TOO_LONG, Struck, refuse_bad_ids, shortened
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
    struck: Counter[str] = field(default_factory=Counter)


class Engine:
    """Admits requests to slots, in order; knows what runs and what waits."""

    def __init__(self, settings: Settings, pacer: Pacer, truth: Truth | None, exit_hook: "Exit") -> None:
        self.settings = settings
        self.counters = Counters()
        self.accepted = 0
        self.created = int(time.time())
        self.ready = False
        self.sleep_level = 0
        self.dead = False
        self._plan = FaultPlan(settings.faults, settings.seed)
        self._pacer = pacer
        self._truth = truth
        self._exit = exit_hook
        self._running: set[Generation] = set()
        self._waiting: deque[Generation] = deque()
        self._prefixes = PrefixCache(settings.kv_tokens)
        self._lockstep = Lockstep() if settings.lockstep else None
        self._ready_ns = 0
        self._woken = False
        self._last: Asked | None = None

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

    def submit(self, connection: Connection, asked: Asked, arrived_ns: int, refusal: BadRequest | None = None) -> None:
        """Take a valid request: run it, queue it, or do to it what a fault says.

        `refusal` is raised for a prompt that is too long, unless a fault lets the engine take it.
        """
        self.accepted += 1
        faults = self._plan.strike(self._situation(asked)) if self.settings.faults else {}
        self.counters.struck.update(faults.keys())
        self._crash_if_due()
        if refusal is not None:
            if not faults.keys() & TAKES_TOO_LONG:
                raise refusal
            asked = shortened(asked)
        struck = Struck(faults, asked, self.settings, self.accepted, self._others)
        self._last = asked
        if self._failed(connection, struck):
            return
        asked = struck.asked
        wire = struck.wire(wire_for(asked, self.settings.dialect))
        truth = self._truth.open_request(wire.request_id, arrived_ns, asked.prompt_tokens) if self._truth else None
        generation = Generation(self, connection, asked, wire, struck, truth)
        generation.accept()
        self._waiting.append(generation)
        self._admit(arrived_ns)

    @property
    def takes_too_long(self) -> bool:
        """Whether a prompt that is too long may be taken, by a fault."""
        return any(self._plan.holds(name) for name in TAKES_TOO_LONG)

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

    def first_step_ns(self, due_ns: int) -> int:
        """When a prompt that is done at `due_ns` gives its first token."""
        if self._lockstep is None:
            return due_ns
        timing = self.settings.timing
        gap_ns = timing.gap_ns(self.running_count, timing.tokens_per_chunk)
        return self._lockstep.first(due_ns, gap_ns, alone=self.running_count == 1)

    def next_step_ns(self, due_ns: int, tokens: int, slowness: float) -> int:
        """When the chunk after the one at `due_ns` is due; `tokens` ride on it."""
        timing = self.settings.timing
        if self._lockstep is None:
            return due_ns + round(timing.gap_ns(self.running_count, tokens) * slowness)
        # One step for all, so its length is not that of one stream's last, shorter group.
        return self._lockstep.after(
            due_ns, round(timing.gap_ns(self.running_count, timing.tokens_per_chunk) * slowness)
        )

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

    def _failed(self, connection: Connection, struck: Struck) -> bool:
        """Whether a fault answered instead of the model."""
        if self._plan.holds("id-bad-format") and struck.asked.chat:
            refuse_bad_ids(struck.asked)
        if "engine-death" in struck:
            self.dead = True
            for generation in [*self._waiting, *self._running]:
                generation.fail()
        if "conn-drop" in struck:
            self.counters.finished["abort"] += 1
            connection.drop()
        elif "http400" in struck:
            self._refuse(connection, "Conversation roles must alternate user and assistant.", "BadRequestError", 400)
        elif self.dead or "http500" in struck or "http500-history" in struck:
            self._refuse(connection, *ENGINE_ERROR)
        else:
            return False
        return True

    def _refuse(self, connection: Connection, message: str, kind: str, status: int) -> None:
        self.counters.finished["error"] += 1
        connection.respond(status, error_body(message, kind, status, None, self.settings.dialect))

    def _others(self) -> tuple[Asked, ...]:
        """What else is asked right now, or was asked last."""
        running = tuple(generation.asked for generation in [*self._running, *self._waiting])
        return running or ((self._last,) if self._last else ())

    def _situation(self, asked: Asked) -> Situation:
        asks_about = self._plan.asks_about
        cached = asks_about("cached") and 2 * self._prefixes.known(asked.prompt) >= asked.prompt_tokens
        calls = mind.answer(asked, self.settings, 0).calls if asks_about("argument") else ()
        return Situation(
            number=self.accepted,
            since_ready_s=self.since_ready_s(),
            running=len(self._running) + 1,
            streamed=asked.streamed,
            thinking=asked.thinking,
            has_switch=asked.chat and self.settings.thinking.has_switch,
            has_tools=bool(asked.tools),
            choice=asked.choice.mode,
            has_schema=asked.answer_schema is not None,
            sampled=asked.temperature != 0,
            turn=asked.turn,
            woken=self._woken,
            cached=cached,
            has_tool_turns=any(message.calls or message.role == "tool" for message in asked.messages),
            has_result=any(message.role == "tool" for message in asked.messages),
            after_tool_result=bool(asked.results),
            longest_argument=max((len(call.arguments) for call in calls), default=0),
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
