"""Request bodies of a workload, and the few requests before a run that learn how long its prompts become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.throughput.prompts import Lengths, prompt
from gates.throughput.sample import Reading, read
from gates.wire import encode_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.capability import Capability
    from gates.load_client import LoadClient
    from gates.throughput.workload import Workload

Until = Callable[[], float]
"""The deadline, in monotonic seconds, of a request that is sent now."""
_PROBE_TOKENS: Final = 8
_PROBE_CHARS: Final = 2000
_TRIES: Final = 3
_LEAP: Final = 3
"""A rate that was learned from a short prompt is not trusted for one more than so many times longer."""


class ProbeFailedError(Exception):
    """Not even a short question is answered; the reading says what came instead."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.sentence)
        self.reading = reading


@dataclass(frozen=True)
class Question:
    """One request to be sent. `wanted_tokens`: exactly so many, None when any number counts."""

    body: dict[str, Any]
    wanted_tokens: int | None
    chars: int


@dataclass
class Asker:
    """Writes the requests for one endpoint."""

    model: str
    capability: Capability
    context_tokens: int | None
    lengths: Lengths = field(default_factory=Lengths)
    refused: dict[str, str] = field(default_factory=dict)
    """Workload → what the engine said to a prompt of its length, where that was too long for the context."""

    def questions(self, workload: Workload, round_number: int, count: int) -> list[Question]:
        """`count` requests for one round, in a fixed order; with `prompts: same` their prompts are one prompt."""
        asked: list[Question] = []
        for position in range(count):
            chars = self._chars(workload, 0 if workload.prompts == "same" else position)
            if asked and workload.prompts == "same":
                content = asked[0].body["messages"][0]["content"]
            else:
                content = prompt(workload.scene, chars=chars, round_number=round_number, position=position)
            tokens = workload.answer_length(position)
            body = self._body(workload, content, tokens)
            asked.append(Question(body, tokens if workload.ignore_eos else None, chars))
        return asked

    async def learn(self, client: LoadClient, workloads: Sequence[Workload], until: Until) -> None:
        """Find out what the chat template costs and how many characters make a token; what is too long is `refused`.

        Raises `ProbeFailedError`.
        """
        self.lengths.head = await self._count(client, workloads[0], "Hi", until)
        steered = [workload for workload in workloads if workload.prompt_tokens is not None]
        for scene in dict.fromkeys(workload.scene for workload in steered):
            first = next(workload for workload in steered if workload.scene == scene)
            await self._learn_at(client, first, 0, until)
            await self._first_rate(client, first, until)
        for workload in steered:
            try:
                await self._approach(client, workload, until)
            except ProbeFailedError as error:
                if error.reading.failure != "prompt too long":
                    raise
                self.refused[workload.name] = error.reading.sentence

    def correct(self, workload: Workload, chars: Sequence[int], readings: Sequence[Reading]) -> None:
        """What a round of prompts came to refines what was learned."""
        for each, reading in zip(chars, readings, strict=True):
            if reading.prompt_tokens and each:
                self.lengths.learn(workload.scene, each, reading.prompt_tokens)

    def _chars(self, workload: Workload, position: int) -> int:
        return self.lengths.chars_for(workload.scene, workload.prompt_length(position, self.context_tokens))

    async def _first_rate(self, client: LoadClient, workload: Workload, until: Until) -> None:
        """From a prompt of a few hundred tokens; where not even that fits into the context, from a shorter one."""
        chars = _PROBE_CHARS
        while True:
            try:
                return await self._learn_at(client, workload, chars, until)
            except ProbeFailedError as error:
                chars //= 4
                if error.reading.failure != "prompt too long" or not chars:
                    raise

    async def _approach(self, client: LoadClient, workload: Workload, until: Until) -> None:
        """A prompt near the context's end must not be a leap from one of five hundred tokens."""
        most = workload.prompt_tokens_max or workload.prompt_length(0, self.context_tokens) or 0
        known = self.lengths.longest(workload.scene)
        if most > _LEAP * known and workload.impossible(self.context_tokens) is None:
            await self._learn_at(client, workload, self.lengths.chars_for(workload.scene, most * 9 // 10), until)

    async def _learn_at(self, client: LoadClient, workload: Workload, chars: int, until: Until) -> None:
        content = prompt(workload.scene, chars=chars, round_number=-1, position=chars)
        self.lengths.learn(workload.scene, chars, await self._count(client, workload, content, until))

    async def _count(self, client: LoadClient, workload: Workload, content: str, until: Until) -> int:
        """Prompt tokens as the engine counts them. One bad answer is no bad endpoint; three are, or one silence."""
        body = self._body(workload, content, _PROBE_TOKENS)
        for _ in range(_TRIES):
            exchange = await client.one(encode_body(body), deadline_s=until())
            reading = read(exchange, wanted_tokens=None)
            if reading.prompt_tokens is not None:
                return reading.prompt_tokens
            if reading.failure in ("timeout", "prompt too long"):
                break
        raise ProbeFailedError(reading)

    def _body(self, workload: Workload, content: str, tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": workload.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if workload.ignore_eos:
            body["ignore_eos"] = True
        if self.capability.thinking == "switch" or (workload.thinking_off and self.capability.thinking is None):
            body |= self.capability.thinking_off
        return body
