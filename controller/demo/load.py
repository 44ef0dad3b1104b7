"""The clients of the demo: N streams through the public address, all the time, each request judged to its last byte.

`python -m controller.demo.load ENDPOINT MODEL STREAMS MAX_TOKENS [PAUSE_S [TIMEOUT_S [RATE_PER_S]]]` runs until
SIGTERM, writes a JSON line a second and one for each request that was not served whole, and ends with the sums. A
process of its own, so that its arrival times are not those of a busy terminal.

With a rate, short questions arrive besides, whether or not the ones before them were answered. A key is taken from
`CUTOVER_LOAD_KEY`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
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
KEY = "CUTOVER_LOAD_KEY"
SHORT_TOKENS = 6  # of a question that arrives at a rate
BEHIND_S = 1.0  # a box that is that late with its arrivals leaves them out, and does not send them in a burst
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

    def add(self, exchange: Exchange, reply: Reply) -> str:
        """Count it; what was wrong with it, empty when it was served whole."""
        times, problem = reply.token_times_s, ""
        if not times:
            self.failed += 1
        elif exchange.failure is not None or reply.finish_reason is None:
            self.truncated += 1
        else:
            self.complete += 1
        if not times or exchange.failure is not None or reply.finish_reason is None:
            said = exchange.failure.sentence if exchange.failure else "; ".join(b.sentence for b in reply.breaches)
            problem = said or "the stream ended without a finish_reason"
            self.first_problem = self.first_problem or problem
        self.leaked += "<think>" in reply.content or "</think>" in reply.content
        if times:
            self.tokens += len(times)
            self.longest_first_token_s = max(self.longest_first_token_s, times[0] - exchange.sent_at_s)
            self.largest_gap_s = max(self.largest_gap_s, *(b - a for a, b in itertools.pairwise(times)), 0.0)
        return problem


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


@dataclass(frozen=True)
class Users:
    """What all of them share: whom they ask, for how long, who counts, and until when."""

    endpoint: Endpoint
    model: str
    timeout_s: float
    tally: Tally
    stop: asyncio.Event

    async def ask(self, client: LoadClient, question: dict[str, Any]) -> Exchange:
        """One request, judged; a line about it when it was not served whole."""
        self.tally.sent += 1
        began_s = time.monotonic()
        [exchange] = await client.wave([question], deadline_s=began_s + self.timeout_s)
        problem = self.tally.add(exchange, read_reply(exchange, streamed=True))
        if problem:
            say({"problem": problem, "status": exchange.status, "sent_s": began_s, "ended_s": time.monotonic()})
        return exchange

    async def pause(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), wait_s)


def say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)  # noqa: T201 - the protocol of this process


async def stream(users: Users, max_tokens: int, pause_s: float, seed: int) -> None:
    """One user: question after question on a warm connection, until told to stop; the last answer is waited for."""
    dice = random.Random(seed)  # noqa: S311 - words for a demo
    client = LoadClient(users.endpoint)
    try:
        while not users.stop.is_set():
            exchange = await users.ask(client, body(users.model, max_tokens, dice))
            # People read before they ask again; and a door that refuses is not to be hammered.
            wait_s = max(pause_s, 0.1) if exchange.failure is not None else pause_s
            if wait_s:
                await users.pause(wait_s)
    finally:
        client.close()


async def arrivals(users: Users, rate_per_s: float, seed: int) -> None:
    """Short questions at a rate, each on a connection of its own: no client retries anything for them."""
    dice = random.Random(seed)  # noqa: S311 - words for a demo
    due_s = time.monotonic()
    async with asyncio.TaskGroup() as under_way:
        while not users.stop.is_set():
            under_way.create_task(_arrive(users, body(users.model, SHORT_TOKENS, dice)))
            due_s = max(due_s + 1.0 / rate_per_s, time.monotonic() - BEHIND_S)
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await users.pause(wait_s)
            else:
                await asyncio.sleep(0)


async def _arrive(users: Users, question: dict[str, Any]) -> None:
    with contextlib.closing(LoadClient(users.endpoint)) as client:
        await users.ask(client, question)


async def load(
    endpoint: str,
    model: str,
    streams: int,
    max_tokens: int,
    pause_s: float,
    timeout_s: float = REQUEST_TIMEOUT_S,
    rate_per_s: float = 0.0,
) -> Tally:
    tally, stop = Tally(), asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    users = Users(Endpoint.at(endpoint, os.environ.get(KEY)), model, timeout_s, tally, stop)
    dice = random.SystemRandom()
    tasks = [asyncio.create_task(stream(users, max_tokens, pause_s, dice.getrandbits(32))) for _ in range(streams)]
    if rate_per_s:
        tasks.append(asyncio.create_task(arrivals(users, rate_per_s, dice.getrandbits(32))))
    while not stop.is_set():
        say(asdict(tally))
        await users.pause(1.0)
    await asyncio.gather(*tasks)
    return tally


def main(arguments: list[str]) -> int:
    endpoint, model, streams, max_tokens, *rest = arguments
    pause_s = float(rest[0]) if rest else 0.0
    timeout_s = float(rest[1]) if len(rest) > 1 else REQUEST_TIMEOUT_S
    rate_per_s = float(rest[2]) if len(rest) > 2 else 0.0
    tally = run(lambda: load(endpoint, model, int(streams), int(max_tokens), pause_s, timeout_s, rate_per_s))
    say(asdict(tally))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
