"""The clients of the demo: N streams through the public address, all the time, each request judged to its last byte.

`python -m controller.demo.load ENDPOINT MODEL STREAMS MAX_TOKENS [PAUSE_S [TIMEOUT_S]]` runs until SIGTERM, writes a
JSON line a second, and ends with the sums. A process of its own, so that its arrival times are not those of a busy
terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from gates.endpoint import Endpoint
from gates.load_client import LoadClient, run
from gates.reply import Reply, read_reply
from gates.wire import Exchange

REQUEST_TIMEOUT_S = 120.0
WORDS = ("river", "lamp", "winter", "market", "signal", "garden", "copper", "letter", "harbour", "meadow", "engine")


@dataclass
class Tally:
    """Sums over all requests so far."""

    sent: int = 0
    complete: int = 0
    failed: int = 0  # no answer, an error status, or a stream with no token
    truncated: int = 0  # began and did not end as it should
    leaked: int = 0  # thinking in the content
    tokens: int = 0
    largest_gap_s: float = 0.0  # between two pieces of the same stream
    longest_first_token_s: float = 0.0
    first_problem: str = ""

    def add(self, exchange: Exchange, reply: Reply) -> None:
        times = reply.token_times_s
        if not times:
            self.failed += 1
        elif exchange.failure is not None or reply.finish_reason is None:
            self.truncated += 1
        else:
            self.complete += 1
        if not times or exchange.failure is not None or reply.finish_reason is None:
            said = exchange.failure.sentence if exchange.failure else "; ".join(b.sentence for b in reply.breaches)
            self.first_problem = self.first_problem or said or "the stream ended without a finish_reason"
        self.leaked += "<think>" in reply.content or "</think>" in reply.content
        if times:
            self.tokens += len(times)
            self.longest_first_token_s = max(self.longest_first_token_s, times[0] - exchange.sent_at_s)
            self.largest_gap_s = max(self.largest_gap_s, *(b - a for a, b in itertools.pairwise(times)), 0.0)


def body(model: str, max_tokens: int, dice: random.Random) -> dict[str, Any]:
    """A question that no prefix cache has seen."""
    words = " ".join(dice.choice(WORDS) for _ in range(12))
    return {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": dice.randint(max_tokens // 2, max_tokens),
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
        "messages": [{"role": "user", "content": f"{dice.getrandbits(32):08x}: tell me about {words}"}],
    }


async def stream(
    endpoint: Endpoint,
    model: str,
    max_tokens: int,
    pause_s: float,
    timeout_s: float,
    tally: Tally,
    stop: asyncio.Event,
    seed: int,
) -> None:
    """One user: question after question on a warm connection, until told to stop; the last answer is waited for."""
    dice = random.Random(seed)  # noqa: S311 - words for a demo
    client = LoadClient(endpoint)
    try:
        while not stop.is_set():
            tally.sent += 1
            [exchange] = await client.wave([body(model, max_tokens, dice)], deadline_s=time.monotonic() + timeout_s)
            tally.add(exchange, read_reply(exchange, streamed=True))
            # People read before they ask again; and a door that refuses is not to be hammered.
            wait_s = max(pause_s, 0.1) if exchange.failure is not None else pause_s
            if wait_s:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), wait_s)
    finally:
        client.close()


async def load(
    endpoint: str, model: str, streams: int, max_tokens: int, pause_s: float, timeout_s: float = REQUEST_TIMEOUT_S
) -> Tally:
    tally, stop = Tally(), asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    server = Endpoint.at(endpoint, None)
    users = [
        asyncio.create_task(
            stream(server, model, max_tokens, pause_s, timeout_s, tally, stop, random.SystemRandom().getrandbits(32))
        )
        for _ in range(streams)
    ]
    while not stop.is_set():
        print(json.dumps(asdict(tally)), flush=True)  # noqa: T201 - the protocol of this process
        try:
            await asyncio.wait_for(stop.wait(), 1.0)
        except TimeoutError:
            continue
    await asyncio.gather(*users)
    return tally


def main(arguments: list[str]) -> int:
    endpoint, model, streams, max_tokens, *rest = arguments
    pause_s = float(rest[0]) if rest else 0.0
    timeout_s = float(rest[1]) if len(rest) > 1 else REQUEST_TIMEOUT_S
    tally = run(lambda: load(endpoint, model, int(streams), int(max_tokens), pause_s, timeout_s))
    print(json.dumps(asdict(tally)), flush=True)  # noqa: T201 - the protocol of this process
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
